//! Mutants of a sweep: errors that the tests must detect. None is active outside of tests.

/// One error of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "mutants are switched on by tests only"))]
pub(super) enum Mutant {
    None,
    /// A hold ends at the reply of its release.
    ReplyEnds,
    /// A release of unknown outcome had no effect.
    UnknownReleaseKeeps,
    FailedReleaseKeeps,
    LostIgnored,
    UnknownAcquireNeverHolds,
    /// Any release's reply frees the lock for certain.
    FreeTooSoon,
    /// Another pending acquire does not explain a busy answer.
    ContendersAreBlind,
    OnlyWritersExclude,
    OnePermitMore,
    DepthIsOne,
    EqualTokens,
}

#[cfg(not(test))]
pub(super) const fn mutated(_: Mutant) -> bool {
    false
}

/// Returns whether some mutant is active: the faster passes have none.
#[cfg(not(test))]
pub(super) const fn is_any() -> bool {
    false
}

#[cfg(test)]
pub(super) use switch::{is_any, mutated, with};

#[cfg(test)]
mod switch {
    use std::cell::Cell;

    use crate::linearizability::mutant::Mutant;

    thread_local! {
        static CURRENT: Cell<Mutant> = const { Cell::new(Mutant::None) };
    }

    pub(in super::super) fn mutated(mutant: Mutant) -> bool {
        CURRENT.get() == mutant
    }

    pub(in super::super) fn is_any() -> bool {
        !mutated(Mutant::None)
    }

    /// Runs a function with one mutant in place of the correct sweep.
    pub(in super::super) fn with<T>(mutant: Mutant, run: impl FnOnce() -> T) -> T {
        CURRENT.set(mutant);
        let result = run();
        CURRENT.set(Mutant::None);
        result
    }
}
