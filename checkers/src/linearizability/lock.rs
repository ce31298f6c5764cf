//! What a sweep remembers of one lock: what is in flight, and since when nobody can have held it.

use super::fault::Fault;
use super::mutant::{Mutant, mutated};
use crate::history::Mode;
use crate::history::names::NONE;

/// One owner's part in a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Active {
    pub process: u32,
    pub depth: u32,
    pub permits: u64,
    pub mode: Mode,
    pub token: Option<u64>,
    /// The position of the reply that began it.
    pub got: u32,
}

/// Everything that a sweep remembers of one lock: what is in flight, never what is over.
#[derive(Debug, Clone)]
pub(super) struct Lock {
    pub active: Vec<Active>,
    pub taken: u64,
    /// Processes that lost the lock and have not spoken of it since.
    pub lapsed: Vec<u32>,
    pub last_token: Option<(u64, u32)>,
    /// The release that ended the last hold; `NONE` when something else did.
    pub last_release: u32,
    /// One more than the instant since which the lock is certainly free.
    pub free_after: Option<u64>,
    /// The busy answer that ended first since then: its reply's instant and position.
    pub parked: Option<(u64, u32)>,
    /// The reply of the release that began the free time.
    pub freed_by: u32,
    /// The earliest call of an acquire with unknown outcome.
    pub unknown_call: u64,
    pub fault: Option<Fault>,
}

impl Lock {
    pub(super) fn new() -> Self {
        Self {
            active: Vec::new(),
            taken: 0,
            lapsed: Vec::new(),
            last_token: None,
            last_release: NONE,
            free_after: Some(0),
            parked: None,
            freed_by: NONE,
            unknown_call: u64::MAX,
            fault: None,
        }
    }

    pub(super) fn own(&self, process: u32) -> Option<usize> {
        self.active.iter().position(|active| active.process == process)
    }

    pub(super) fn end(&mut self, place: usize) {
        let active = self.active.swap_remove(place);
        self.taken -= active.permits;
        self.last_release = NONE;
    }

    /// After the last event, a parked busy answer needs an acquire that may have happened before it ended.
    pub(super) fn finish(mut self) -> Option<Fault> {
        if let Some((instant, busy)) = self.parked
            && (instant < self.unknown_call || mutated(Mutant::UnknownAcquireNeverHolds))
        {
            let fault = Fault::SpuriousBusy {
                freed_by: self.freed_by,
                busy,
                next: NONE,
            };
            self.fault.get_or_insert(fault);
        }
        self.fault
    }

    /// A parked busy answer that ended before this acquire was called. Whoever comes later ends the free time.
    pub(super) fn unexplained(&mut self, called: u64, next: u32, lease: bool) -> Option<Fault> {
        let parked = self.parked.take();
        self.free_after = None;
        let (instant, busy) = parked?;
        // With a lease, an acquire of unknown outcome may have held for a while and expired.
        let explained = lease && self.unknown_call < instant;
        (called > instant && !explained).then_some(Fault::SpuriousBusy {
            freed_by: self.freed_by,
            busy,
            next,
        })
    }
}
