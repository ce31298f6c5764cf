//! The sequential specification of an object, with hints for the general search.
//!
//! Implement [`SequentialSpec`] for an object of your own; the hints make the search fast and may all be left out. [`validate`] checks an
//! order independently of the search.

use std::fmt::Debug;
use std::hash::Hash;

/// One operation of a history with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<O> {
    /// The operation with its answer. Without a reply, it counts as having any answer.
    pub op: O,
    /// The time of the call, in any unit; equal instants are concurrent.
    pub call: u64,
    /// The time of the answer; `None` if it is unknown whether the operation took effect.
    pub reply: Option<u64>,
}

/// The effect of an operation on the possibilities of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// Unknown.
    Neutral,
    /// It only restricts others: the later it takes effect, the better (an acquire).
    Late,
    /// It only allows others more: the earlier it takes effect, the better (a release).
    Early,
}

/// A sequential specification: the legal answers in each state.
pub trait SequentialSpec {
    /// The type of operations with their answers.
    type Op;
    /// The type of states. It should be small: one is stored for each failed configuration, and cloned for each step that is tried.
    type State: Clone + Eq + Hash + Debug;

    /// Returns the state before the first operation.
    fn initial(&self) -> Self::State;

    /// Returns the state after an operation with its recorded answer; `None` if the answer is impossible.
    fn step(&self, state: Self::State, op: &Self::Op) -> Option<Self::State>;

    /// Returns whether the operation leaves every state as it is. Such an operation takes effect as soon as it is legal.
    fn is_observer(&self, _op: &Self::Op) -> bool {
        false
    }

    /// Returns whether an observer's answer is right in a state. If a state owns memory, an implementation without the default's copy is
    /// faster.
    fn allows(&self, state: &Self::State, observer: &Self::Op) -> bool {
        self.step(state.clone(), observer).is_some()
    }

    /// Returns the class of operations with the same effect in every state; of two without a reply in one class, the older one goes first.
    fn class(&self, _op: &Self::Op) -> Option<u64> {
        None
    }

    /// Returns the side on which it may always take effect, late or early, as long as no observer overlaps it.
    fn polarity(&self, _op: &Self::Op) -> Polarity {
        Polarity::Neutral
    }
}

/// The reason why an order proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A place that does not exist, or occurs twice.
    #[error("operation {0} is not in the history, or twice in the order")]
    Unknown(usize),
    /// An operation after one that was called after its reply.
    #[error("operation {0} is ordered after one that was called after its reply")]
    OutOfTime(usize),
    /// An answer that is impossible in its place.
    #[error("operation {0} has an impossible answer in its place")]
    Illegal(usize),
    /// An operation that was answered and is left out.
    #[error("operation {0} was answered and is not in the order")]
    Missing(usize),
}

/// Checks that an order of operations, by their places in `operations`, proves the history linearizable.
///
/// # Errors
/// Fails with the first operation that makes the proof invalid.
pub fn validate<S: SequentialSpec>(spec: &S, operations: &[Operation<S::Op>], order: &[usize]) -> Result<(), Invalid> {
    let (mut state, mut latest_call, mut seen) = (spec.initial(), 0, vec![false; operations.len()]);
    for &place in order {
        let operation = operations
            .get(place)
            .filter(|_| !seen[place])
            .ok_or(Invalid::Unknown(place))?;
        seen[place] = true;
        latest_call = operation.call.max(latest_call);
        if operation.reply.is_some_and(|reply| reply < latest_call) {
            return Err(Invalid::OutOfTime(place));
        }
        state = spec.step(state, &operation.op).ok_or(Invalid::Illegal(place))?;
    }
    let missing = (0..operations.len()).find(|place| !seen[*place] && operations[*place].reply.is_some());
    missing.map_or(Ok(()), |place| Err(Invalid::Missing(place)))
}
