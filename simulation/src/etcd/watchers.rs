//! Watches of one key on a member ([`KeyWatcher`]), as `watchableStore` of etcd 3.4.23 keeps them: one that asks for the past is brought up
//! to date by a loop, and hears nothing before that.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::cluster::SimulatedEtcd;
use super::request::StoreEvent;

/// How often watches that asked for the past are brought up to date: `syncWatchersLoop`, `mvcc/watchable_store.go:212`.
pub(super) const SYNC_NS: u64 = 100_000_000;

pub(super) struct KeyWatcher {
    key: String,
    /// Nothing before it is told.
    from_revision: i64,
    is_synced: Cell<bool>,
    heard: RefCell<VecDeque<StoreEvent>>,
    waker: RefCell<Option<Waker>>,
}

impl KeyWatcher {
    pub fn is_synced(&self) -> bool {
        self.is_synced.get()
    }

    /// The member has applied this.
    pub fn hear(&self, event: &StoreEvent) {
        if self.is_synced.get() && *event.key.key == *self.key && event.key.mod_revision >= self.from_revision {
            self.tell([event.clone()]);
        }
    }

    fn tell(&self, events: impl IntoIterator<Item = StoreEvent>) {
        self.heard.borrow_mut().extend(events);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The events that it has heard and not given yet, once there are any.
    pub async fn next(&self) -> Vec<StoreEvent> {
        poll_fn(|task| {
            let mut heard = self.heard.borrow_mut();
            if heard.is_empty() {
                *self.waker.borrow_mut() = Some(task.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(heard.drain(..).collect())
        })
        .await
    }
}

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
        let watcher = Rc::new(KeyWatcher {
            key: key.to_owned(),
            from_revision,
            is_synced: Cell::new(is_synced),
            heard: RefCell::default(),
            waker: RefCell::default(),
        });
        let number = self.new_request();
        own.watchers.borrow_mut().insert(number, watcher.clone());
        if !is_synced && own.sync_at.get().is_none() {
            own.sync_at.set(Some(own.watch_look(self.clock())));
            own.wake();
        }
        WatchGuard {
            etcd: self,
            member,
            number,
            watcher,
        }
    }

    /// Brings watches up to date that asked for the past.
    pub(super) fn sync_watches(self, member: usize) {
        let etcd = self.0.get();
        let own = &etcd.members[member];
        own.sync_at.set(None);
        let store = own.store.borrow();
        for watcher in own.watchers.borrow().values().filter(|watcher| !watcher.is_synced()) {
            watcher.is_synced.set(true);
            let past = store.events_from(&watcher.key, watcher.from_revision);
            if !past.is_empty() {
                watcher.tell(past);
            }
        }
    }
}
