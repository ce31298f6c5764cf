//! Owners of locks as a server shows them: a queue of contenders for each lock, of which the first owns it.
//!
//! The queues are pure: contenders in, grants and revocations out.

use std::collections::BTreeMap;

/// A contender as the server shows it. A field is `None` if the contender disappeared before the server was queried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contender {
    pub owner: Option<String>,
    pub token: Option<u64>,
}

/// A change of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerChange {
    Granted(Contender),
    Revoked(Contender),
}

#[derive(Debug, Default)]
struct OwnerQueue {
    /// The contenders by their place in the queue.
    contenders: BTreeMap<u64, Contender>,
    granted: Option<u64>,
}

#[derive(Debug, Default)]
pub struct OwnerQueues {
    by_lock: BTreeMap<String, OwnerQueue>,
}

impl OwnerQueues {
    /// Adds a contender at `place`.
    pub fn add(&mut self, lock: &str, place: u64, contender: Contender) -> Vec<OwnerChange> {
        let queue = self.by_lock.entry(lock.to_owned()).or_default();
        queue.contenders.insert(place, contender);
        queue.settle()
    }

    /// Removes the contender at `place`.
    pub fn remove(&mut self, lock: &str, place: u64) -> Vec<OwnerChange> {
        let mut changes = Vec::new();
        if let Some(queue) = self.by_lock.get_mut(lock)
            && let Some(gone) = queue.contenders.remove(&place)
            && queue.granted == Some(place)
        {
            queue.granted = None;
            changes.push(OwnerChange::Revoked(gone));
            changes.extend(queue.settle());
        }
        changes
    }

    /// Forgets every contender; returns the owners so far, by lock.
    pub fn forget(&mut self) -> Vec<(String, Contender)> {
        let owner = |(lock, mut queue): (String, OwnerQueue)| {
            let granted = queue.contenders.remove(&queue.granted?)?;
            Some((lock, granted))
        };
        let queues = std::mem::take(&mut self.by_lock).into_iter();
        queues.filter_map(owner).collect()
    }

    /// Whether a contender is known.
    pub fn contains(&self, lock: &str, place: u64) -> bool {
        self.by_lock
            .get(lock)
            .is_some_and(|queue| queue.contenders.contains_key(&place))
    }
}

impl OwnerQueue {
    /// Grants the lock to the first contender, unless it is taken.
    fn settle(&mut self) -> Vec<OwnerChange> {
        match (self.granted, self.contenders.first_key_value()) {
            (None, Some((place, first))) => {
                self.granted = Some(*place);
                vec![OwnerChange::Granted(first.clone())]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(token: u64) -> Contender {
        Contender {
            owner: Some(format!("0x{token:x}")),
            token: Some(token),
        }
    }

    fn granted(token: u64) -> [OwnerChange; 1] {
        [OwnerChange::Granted(contender(token))]
    }

    #[test]
    fn the_first_contender_owns_and_the_next_follows_it() {
        let mut queues = OwnerQueues::default();
        assert_eq!(queues.add("l0", 1, contender(10)), granted(10));
        assert_eq!(queues.add("l0", 2, contender(11)), []);
        let handed_over = [OwnerChange::Revoked(contender(10)), OwnerChange::Granted(contender(11))];
        assert_eq!(queues.remove("l0", 1), handed_over);
        assert_eq!(queues.remove("l0", 2), [OwnerChange::Revoked(contender(11))]);
    }

    #[test]
    fn a_waiter_that_leaves_changes_no_owner() {
        let mut queues = OwnerQueues::default();
        queues.add("l0", 1, contender(10));
        queues.add("l0", 2, contender(11));
        assert_eq!(queues.remove("l0", 2), []);
        assert_eq!(queues.remove("l0", 7), []);
    }

    #[test]
    fn who_is_forgotten_owned_and_may_come_again() {
        let mut queues = OwnerQueues::default();
        queues.add("l0", 1, contender(10));
        queues.add("l0", 2, contender(11));
        assert_eq!(queues.forget(), [("l0".to_owned(), contender(10))]);
        assert_eq!(queues.add("l0", 2, contender(11)), granted(11));
    }
}
