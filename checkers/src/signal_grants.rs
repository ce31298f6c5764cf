//! The grant that a signal ends. A client of several threads may write a `lost` after the answer to its next acquire: the signal then ends
//! the hold in which its time falls, and not the new one.

use crate::history::names::{FastMap, NONE};
use crate::history::{F, History, PackedEvent};

/// The grants of each process on each lock, in the order of the lines.
pub(crate) struct SignalGrants<'a> {
    history: &'a History,
    /// By process and lock.
    latest: FastMap<(u32, u32), LatestGrant>,
    /// By the position of a grant, the one before, which was given up; `NONE` without one. A grant beside another has itself.
    before: Vec<u32>,
}

struct LatestGrant {
    position: u32,
    /// Whether its process has called a release since, or has lost it.
    given_up: bool,
}

impl<'a> SignalGrants<'a> {
    pub(crate) fn of(history: &'a History) -> Self {
        let grants = if history.counts.lost > 0 {
            history.events.len()
        } else {
            0
        };
        Self {
            history,
            latest: FastMap::default(),
            before: vec![NONE; grants],
        }
    }

    pub(crate) fn latest(&self, process: u32, lock: u32) -> Option<u32> {
        self.latest.get(&(process, lock)).map(|latest| latest.position)
    }

    /// Adds a grant, by the position of its reply.
    pub(crate) fn got(&mut self, process: u32, lock: u32, position: u32) {
        let latest = LatestGrant {
            position,
            given_up: false,
        };
        let last = self.latest.insert((process, lock), latest);
        if let Some(before) = self.before.get_mut(position as usize) {
            *before = match last {
                Some(last) if last.given_up => last.position,
                Some(_) => position,
                None => NONE,
            };
        }
    }

    /// Handles the call of a release.
    pub(crate) fn releases(&mut self, process: u32, lock: u32) {
        if let Some(latest) = self.latest.get_mut(&(process, lock)) {
            latest.given_up = true;
        }
    }

    /// Returns the latest grant that a signal at a position ends, if it ends one of this lock. One that was called after a loss is not lost
    /// by it, unless its process had not given up the one before.
    pub(crate) fn of_signal(&mut self, event: PackedEvent, position: u32, lock: u32) -> Option<u32> {
        let history = self.history;
        let latest = self.latest.get_mut(&(event.process, lock))?;
        let (instant, mut grant) = (history.instant(position), latest.position);
        while event.f == F::Lost && instant < history.instant(history.events.mate(grant)) {
            match self.before.get(grant as usize).copied().unwrap_or(grant) {
                NONE => return None,
                same if same == grant => break,
                before => grant = before,
            }
        }
        latest.given_up |= grant == latest.position;
        Some(grant)
    }
}
