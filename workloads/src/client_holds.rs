//! The locks that a client holds ([`ClientHolds`]), each with its recipe's data and the task that watches it.

use std::collections::BTreeMap;

use crate::client::{LockError, LockResult, SignalSink};
use crate::host::Task;

/// The locks that a client holds, by name; `H` is the recipe's data of each.
pub(crate) struct ClientHolds<H> {
    signals: SignalSink,
    by_lock: BTreeMap<String, ClientHold<H>>,
}

/// A hold of one lock.
pub(crate) struct ClientHold<H> {
    pub known: H,
    /// The number of times that `lost` was raised for the lock before: once more, and the client no longer believes in this hold.
    losses: u64,
    _watch: Option<Task>,
}

impl<H> ClientHolds<H> {
    pub(crate) fn new(signals: &SignalSink) -> Self {
        ClientHolds {
            signals: signals.clone(),
            by_lock: BTreeMap::new(),
        }
    }

    /// Begins a hold. `watch`: the task that raises `lost`, which ends with the hold.
    pub(crate) fn begin(&mut self, lock: &str, known: H, watch: Option<Task>) {
        let hold = ClientHold {
            known,
            losses: self.signals.losses(lock),
            _watch: watch,
        };
        self.by_lock.insert(lock.to_owned(), hold);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_lock.is_empty()
    }

    /// Returns the data of a lock that was taken and not released, also where it was lost meanwhile.
    pub(crate) fn get(&self, lock: &str) -> Option<&H> {
        self.by_lock.get(lock).map(|hold| &hold.known)
    }

    pub(crate) fn get_mut(&mut self, lock: &str) -> Option<&mut H> {
        self.by_lock.get_mut(lock).map(|hold| &mut hold.known)
    }

    /// Whether `lost` was raised for a lock since its hold began.
    pub(crate) fn is_lost(&self, lock: &str) -> bool {
        let losses = self.signals.losses(lock);
        self.by_lock.get(lock).is_some_and(|hold| hold.losses != losses)
    }

    /// Ends a hold.
    pub(crate) fn end(&mut self, lock: &str) -> LockResult<H> {
        let hold = self.by_lock.remove(lock).ok_or(LockError::NOT_HELD)?;
        Ok(hold.known)
    }

    /// Ends a hold to give its lock back. `is_over`: the lock may be another's by now, and must not be given back.
    pub(crate) fn end_unless(&mut self, is_over: bool, lock: &str) -> LockResult<H> {
        let known = self.end(lock)?;
        match is_over {
            true => Err(LockError::no_longer_held("its lease was over")),
            false => Ok(known),
        }
    }

    /// Ends a hold that was lost and never released.
    pub(crate) fn end_lost(&mut self, lock: &str) -> Option<H> {
        match self.is_lost(lock) {
            true => self.end(lock).ok(),
            false => None,
        }
    }

    /// Ends all holds, each when it is dropped.
    pub(crate) fn end_all(&mut self) -> BTreeMap<String, ClientHold<H>> {
        std::mem::take(&mut self.by_lock)
    }
}
