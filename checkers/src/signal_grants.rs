//! The grant that a signal ends. A client of several threads may write a `lost` after the answer to its next acquire: the signal then ends
//! the hold in which its time falls, and not the new one.

use crate::history::names::FastMap;

/// A grant of one lock to one process.
#[derive(Debug, Clone, Copy)]
struct SignalledGrant {
    /// A loss before this instant is not of it: the instant of its call, or 0 if its process had not given up the grant before.
    since: u64,
    /// The instant and the rank of the reply.
    began: (u64, u64),
    /// Whether its process has called a release since, or has lost it.
    given_up: bool,
}

/// The locks that one process acquired, each with its latest grant. Most processes use one lock.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrantedLocks {
    latest: Option<(u32, SignalledGrant)>,
    others: FastMap<u32, SignalledGrant>,
    /// Grants before these that a late signal may still end.
    earlier: Vec<(u32, SignalledGrant)>,
}

impl GrantedLocks {
    fn find(&mut self, lock: u32) -> Option<&mut SignalledGrant> {
        match &mut self.latest {
            Some((latest, grant)) if *latest == lock => Some(grant),
            _ => self.others.get_mut(&lock),
        }
    }

    /// Returns the instant and the rank of the reply to the latest grant of a lock.
    pub(crate) fn latest(&mut self, lock: u32) -> Option<(u64, u64)> {
        self.find(lock).map(|grant| grant.began)
    }

    /// Adds a grant by the instant of its call, and the instant and the rank of the reply. No signal will end one of before `passed`.
    pub(crate) fn insert(&mut self, lock: u32, called: u64, began: (u64, u64), passed: u64) {
        let before = self.find(lock).copied();
        let is_next = before.is_none_or(|before| before.given_up);
        let grant = SignalledGrant {
            since: if is_next { called } else { 0 },
            began,
            given_up: false,
        };
        if passed > 0 {
            self.earlier.retain(|(_, earlier)| earlier.began.0 >= passed);
        }
        self.earlier.extend(
            before
                .filter(|before| before.began.0 >= passed)
                .map(|before| (lock, before)),
        );
        match self.latest.replace((lock, grant)) {
            Some((other, latest)) if other != lock => {
                self.others.insert(other, latest);
                self.others.remove(&lock);
            }
            Some(_) => {}
            None => {
                self.others.remove(&lock);
            }
        }
    }

    /// Handles the call of a release.
    pub(crate) fn releases(&mut self, lock: u32) {
        if let Some(grant) = self.find(lock) {
            grant.given_up = true;
        }
    }

    /// Returns the instant and the rank of the reply to the latest grant that a signal ends: a loss at an instant, or the end of the
    /// process. One that was called after a loss is not lost by it, unless its process had not given up the one before.
    pub(crate) fn of_signal(&mut self, lock: u32, lost: Option<u64>) -> Option<(u64, u64)> {
        let is_after = |grant: &SignalledGrant| lost.is_some_and(|at| at < grant.since);
        let latest = self.find(lock)?;
        if !is_after(&*latest) {
            latest.given_up = true;
            return Some(latest.began);
        }
        let mut earlier = self.earlier.iter().rev().filter(|(other, _)| *other == lock);
        let found = earlier.find(|(_, grant)| !is_after(grant));
        found.map(|(_, grant)| grant.began)
    }

    pub(crate) fn locks(&self) -> impl Iterator<Item = u32> {
        let latest = self.latest.iter().map(|(lock, _)| *lock);
        latest.chain(self.others.keys().copied())
    }

    /// Retains some, by lock and instant.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32, u64) -> bool) {
        self.latest = self.latest.filter(|(lock, grant)| keep(*lock, grant.began.0));
        self.others.retain(|lock, grant| keep(*lock, grant.began.0));
        self.earlier.retain(|(lock, grant)| keep(*lock, grant.began.0));
    }
}
