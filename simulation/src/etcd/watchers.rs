//! Watches on the members of a cluster: how they begin and end, and how those that asked for the past are brought up to date.

use std::rc::Rc;

use super::cluster::SimulatedEtcd;
use super::key_watcher::{KeyWatcher, SYNC_NS};
use super::member::Member;

/// A watch that ends when it is dropped.
pub(super) struct WatchGuard {
    etcd: SimulatedEtcd,
    member: usize,
    number: u64,
    pub watcher: Rc<KeyWatcher>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(etcd) = self.etcd.0.try_get() {
            etcd.members[self.member].watchers.borrow_mut().remove(&self.number);
        }
    }
}

impl SimulatedEtcd {
    /// Watches a key on a member from a revision on; 0: from now on.
    pub(super) fn watch(self, member: usize, key: &str, from_revision: i64) -> WatchGuard {
        let etcd = self.0.get();
        let own = &etcd.members[member];
        let is_synced = from_revision == 0 || from_revision > own.store.borrow().revision();
        let watcher = Rc::new(KeyWatcher::new(key, from_revision, is_synced));
        let number = self.new_request();
        own.watchers.borrow_mut().insert(number, watcher.clone());
        if !is_synced && own.sync_at.get().is_none() {
            own.sync_at.set(Some(own.next_look(self.clock(), SYNC_NS)));
            own.wake();
        }
        WatchGuard {
            etcd: self,
            member,
            number,
            watcher,
        }
    }
}

impl Member {
    /// Brings watches up to date that asked for the past.
    pub fn sync_watches(&self) {
        self.sync_at.set(None);
        let store = self.store.borrow();
        let watchers = self.watchers.borrow();
        for watcher in watchers.values().filter(|watcher| !watcher.is_synced.get()) {
            watcher.is_synced.set(true);
            let past = store.events_from(&watcher.key, watcher.from_revision);
            if !past.is_empty() {
                watcher.tell(past);
            }
        }
    }
}
