//! What is decided of a lock, and why a history is not linearizable: the few events that prove it. Positions, not words; those are in
//! `narrative::linearizability`.

/// What was decided of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Legal,
    Illegal(Counterexample),
    Unknown(&'static str),
}

/// The proof that one lock's operations have no legal order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Counterexample {
    /// Two acquires were answered, and the first was not released before the second's answer.
    Overlap { first: u32, second: u32 },
    /// More permits than there are: the fewest holders' acquires, and releases of a part, the newcomer, and how many
    /// permits that makes.
    Crowd { there: Vec<u32>, second: u32, out: u64 },
    /// An owner acquired again what cannot be acquired twice.
    AlreadyHeld { first: u32, second: u32 },
    /// An owner acquired more often than the limit.
    TooDeep { there: Vec<u32>, second: u32 },
    /// A release was answered ok for a process that did not hold.
    NotHolder { release: u32 },
    /// A release was answered "not held" for a process that did.
    FalseNotHeld { got: u32, release: u32 },
    /// A later grant has a token that is not larger. Where the second could be nested in the first: what ended that.
    TokenBack { first: u32, second: u32, between: u32 },
    /// A nested acquire has another token than the one that told the token of this hold.
    TokenChanged { first: u32, second: u32 },
    /// Busy in a time in which the lock was certainly free: who freed it, the answer, the next acquire's call.
    SpuriousBusy { freed_by: u32, busy: u32, next: u32 },
    /// Found by search: these operations, by the positions of their calls, have no legal order.
    NoOrder { calls: Vec<u32> },
}

impl Counterexample {
    /// The positions of the events that prove it.
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
