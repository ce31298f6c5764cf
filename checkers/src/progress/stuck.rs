//! A stuck lock: its waiter, its owner, and how long it may be stuck.

use crate::history::{F, History};
use crate::wait::Wait;

/// A lock that was stuck for longer than its bound.
#[derive(Debug)]
pub(crate) struct Stuck {
    /// Dense.
    pub lock: usize,
    pub from_ns: u64,
    pub to_ns: u64,
    /// The longest time for which it may be stuck, with the effects of earlier faults, and with the lease of its owner.
    pub bound_ns: u64,
    pub waiter: Option<Wait>,
    pub owner: StuckOwner,
    /// Whether the server's lines have its owner.
    pub is_shown: bool,
}

/// The owner of a stuck lock. Positions are of the events that show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StuckOwner {
    Nobody,
    /// The owner asks for the lock that the server granted to it.
    Waiting {
        process: u32,
        granted: u32,
    },
    /// The owner lives, and neither holds nor asks in a way that could end.
    Ghost {
        process: Option<u32>,
        granted: u32,
    },
    /// The owner died, or was told of a loss.
    Dead {
        process: u32,
        granted: u32,
        end: u32,
    },
    /// The owner holds the lock, and waits for one that the waiter holds.
    WaitsInTurn {
        process: u32,
        got: u32,
        call: u32,
    },
    /// The server was not watched, and the last holder ended without an answer.
    Unsure {
        process: u32,
        end: u32,
    },
}

impl StuckOwner {
    /// Returns the class of the violation in `verdict.json`.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Nobody | Self::Waiting { .. } => "free",
            Self::Ghost { .. } => "ghost",
            Self::Dead { .. } | Self::Unsure { .. } => "dead-holder",
            Self::WaitsInTurn { .. } => "deadlock",
        }
    }

    /// Returns whether the owner died, and was not told of a loss.
    pub(super) fn has_died(&self, history: &History) -> bool {
        let Self::Dead { end, .. } = self else { return false };
        let end = history.events.get(*end as usize);
        end.is_some_and(|end| end.f == F::Died)
    }

    pub(crate) fn process(&self) -> Option<u32> {
        match self {
            Self::Nobody => None,
            Self::Ghost { process, .. } => *process,
            Self::Waiting { process, .. }
            | Self::Dead { process, .. }
            | Self::WaitsInTurn { process, .. }
            | Self::Unsure { process, .. } => Some(*process),
        }
    }
}
