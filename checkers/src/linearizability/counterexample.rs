//! Counterexamples: the decision on a lock, and the few events that prove that it is not linearizable, by position. The words are in
//! `narrative::linearizability`.

/// The decision on one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Legal,
    Illegal(Counterexample),
    Unknown(&'static str),
}

/// The proof that one lock's operations have no legal order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Counterexample {
    /// Two acquires were answered `ok`, and the first was not released before the second's answer.
    Overlap { first: u32, second: u32 },
    /// More permits than there are: the acquires and partial releases of the fewest holders, the last acquire, and the sum of the permits.
    Crowd { there: Vec<u32>, second: u32, out: u64 },
    /// An owner acquired its lock again, which is not reentrant.
    AlreadyHeld { first: u32, second: u32 },
    /// An owner acquired more often than the limit.
    TooDeep { there: Vec<u32>, second: u32 },
    /// A release was answered `ok` for a process that did not hold.
    NotHolder { release: u32 },
    /// A release was answered "not held" for a process that held.
    FalseNotHeld { got: u32, release: u32 },
    /// A later grant has a token that is not larger. `between`: the end of the first hold, if the second could be nested in it.
    TokenBack { first: u32, second: u32, between: u32 },
    /// A nested acquire has another token than the first token of this hold.
    TokenChanged { first: u32, second: u32 },
    /// A busy answer while the lock was certainly free: the release before, the answer, the call of the next acquire.
    SpuriousBusy { freed_by: u32, busy: u32, next: u32 },
    /// These operations, by the positions of their calls, have no legal order, by a search.
    NoOrder { calls: Vec<u32> },
}

impl Counterexample {
    /// Returns the positions of the events that prove it.
    pub(crate) fn positions(&self) -> Vec<u32> {
        match self {
            Self::Overlap { first, second }
            | Self::AlreadyHeld { first, second }
            | Self::TokenChanged { first, second } => vec![*first, *second],
            Self::Crowd { there, second, .. } | Self::TooDeep { there, second } => {
                there.iter().chain([second]).copied().collect()
            }
            Self::TokenBack { first, second, between } => vec![*first, *between, *second],
            Self::NotHolder { release } => vec![*release],
            Self::FalseNotHeld { got, release } => vec![*got, *release],
            Self::SpuriousBusy { freed_by, busy, next } => vec![*freed_by, *busy, *next],
            Self::NoOrder { calls } => calls.clone(),
        }
    }
}
