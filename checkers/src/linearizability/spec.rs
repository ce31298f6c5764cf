//! What the general search needs to know of an object: its sequential specification.
//!
//! Implement [`SequentialSpec`] for an object of your own; the hints make the search fast and may all be left out. [`validate`]
//! checks an order without knowing how it was found.

use std::fmt::Debug;
use std::hash::Hash;

/// One operation of a history with the answer that it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<O> {
    /// What was asked and answered. Without a reply it stands for every answer there might have been.
    pub op: O,
    /// When it was called, in any unit; equal instants are concurrent.
    pub call: u64,
    /// When it was answered; `None` when nobody knows whether it ever took effect.
    pub reply: Option<u64>,
}

/// How an operation bears on what others may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// Nothing is known of that.
    Neutral,
    /// It only takes from others: the later it takes effect, the better (an acquire).
    Late,
    /// It only gives to others: the earlier it takes effect, the better (a release).
    Early,
}

/// A sequential specification: which answers are legal in which state.
pub trait SequentialSpec {
    /// What is asked and answered.
    type Op;
    /// As small as possible: it is kept once for each remembered configuration, and cloned for each step that is tried.
    type State: Clone + Eq + Hash + Debug;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// The state after an operation with its recorded answer; `None` when the answer is impossible.
    fn step(&self, state: Self::State, op: &Self::Op) -> Option<Self::State>;

    /// Whether the operation leaves every state as it is. Such an operation is taken as soon as it is legal.
    fn is_observer(&self, _op: &Self::Op) -> bool {
        false
    }

    /// Whether an observer's answer is the right one in a state. Where a state owns memory, one's own form of this spares a copy of it
    /// for each try.
    fn allows(&self, state: &Self::State, observer: &Self::Op) -> bool {
        self.step(state.clone(), observer).is_some()
    }

    /// Operations of one class have the same effect in every state; of two without a reply, the older one goes first.
    fn class(&self, _op: &Self::Op) -> Option<u64> {
        None
    }

    /// Whether it may always take effect late, or always early, as long as no observer overlaps it.
    fn polarity(&self, _op: &Self::Op) -> Polarity {
        Polarity::Neutral
    }
}

/// Why an order proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A place that is none, or is there twice.
    #[error("operation {0} is not in the history, or twice in the order")]
    Unknown(usize),
    /// An operation behind one that was called after its reply.
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
/// With the first operation that spoils the proof.
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
