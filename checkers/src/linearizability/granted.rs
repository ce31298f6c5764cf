//! The grants that a monitor stores: the locks that a process acquired, which a signal may end.

use crate::history::names::FastMap;

/// A grant, as [`crate::signal_grants`] has those of a whole history.
#[derive(Debug, Clone, Copy)]
struct Grant {
    /// A loss before this time is not of it: the time of its call, or 0 if its process had not given up the grant before.
    since: u64,
    /// The time and the rank of the reply.
    began: (u64, u64),
    /// Whether its process has called a release since, or has lost it.
    given_up: bool,
}

/// The locks that one process acquired, each with its latest grant. Most processes use one lock.
#[derive(Debug, Clone, Default)]
pub(super) struct GrantedLocks {
    latest: Option<(u32, Grant)>,
    others: FastMap<u32, Grant>,
    /// Grants before these that a late signal may still end.
    earlier: Vec<(u32, Grant)>,
}

impl GrantedLocks {
    fn find(&mut self, lock: u32) -> Option<&mut Grant> {
        match &mut self.latest {
            Some((latest, grant)) if *latest == lock => Some(grant),
            _ => self.others.get_mut(&lock),
        }
    }

    /// Adds a grant by the time of its call, and the time and the rank of the reply. No signal will end one that began before `passed`.
    pub(super) fn insert(&mut self, lock: u32, called: u64, began: (u64, u64), passed: u64) {
        let before = self.find(lock).copied();
        let is_next = before.is_none_or(|before| before.given_up);
        let grant = Grant {
            since: if is_next { called } else { 0 },
            began,
            given_up: false,
        };
        self.earlier.retain(|(_, earlier)| earlier.began.0 >= passed);
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
    pub(super) fn releases(&mut self, lock: u32) {
        if let Some(grant) = self.find(lock) {
            grant.given_up = true;
        }
    }

    /// Returns the time and the rank of the reply to the latest grant that a signal ends: a loss at a time, or the end of the process.
    pub(super) fn of_signal(&mut self, lock: u32, lost: Option<u64>) -> Option<(u64, u64)> {
        let is_after = |grant: &Grant| lost.is_some_and(|at| at < grant.since);
        let latest = self.find(lock)?;
        if !is_after(&*latest) {
            latest.given_up = true;
            return Some(latest.began);
        }
        let mut earlier = self.earlier.iter().rev().filter(|(other, _)| *other == lock);
        let found = earlier.find(|(_, grant)| !is_after(grant));
        found.map(|(_, grant)| grant.began)
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = u32> {
        let latest = self.latest.iter().map(|(lock, _)| *lock);
        latest.chain(self.others.keys().copied())
    }

    /// Retains some, by lock and time.
    pub(super) fn retain(&mut self, keep: impl Fn(u32, u64) -> bool) {
        self.latest = self.latest.filter(|(lock, grant)| keep(*lock, grant.began.0));
        self.others.retain(|lock, grant| keep(*lock, grant.began.0));
        self.earlier.retain(|(lock, grant)| keep(*lock, grant.began.0));
    }
}
