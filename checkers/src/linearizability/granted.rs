//! The grants that a monitor stores: the locks that a process acquired, which a signal may end.

use crate::history::names::FastMap;

/// The locks that one process acquired, each with the time and the rank of the reply. Most processes use one lock.
#[derive(Debug, Clone, Default)]
pub(super) struct GrantedLocks {
    latest: Option<(u32, (u64, u64))>,
    others: FastMap<u32, (u64, u64)>,
}

impl GrantedLocks {
    pub(super) fn insert(&mut self, lock: u32, began: (u64, u64)) {
        match self.latest.replace((lock, began)) {
            Some((before, began)) if before != lock => {
                self.others.insert(before, began);
                self.others.remove(&lock);
            }
            _ => {}
        }
    }

    pub(super) fn get(&self, lock: u32) -> Option<(u64, u64)> {
        let latest = self.latest.filter(|(latest, _)| *latest == lock);
        latest
            .map(|(_, began)| began)
            .or_else(|| self.others.get(&lock).copied())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, (u64, u64))> {
        let others = self.others.iter().map(|(lock, began)| (*lock, *began));
        self.latest.into_iter().chain(others)
    }

    /// Retains some, by lock and time.
    pub(super) fn retain(&mut self, keep: impl Fn(u32, u64) -> bool) {
        self.latest = self.latest.filter(|(lock, (instant, _))| keep(*lock, *instant));
        self.others.retain(|lock, (instant, _)| keep(*lock, *instant));
    }
}
