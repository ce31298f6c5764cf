//! A watch of one key on a member ([`KeyWatcher`]), as `watchableStore` of etcd 3.4.23 keeps it: a watch of the past is brought up to date
//! by a loop, and gets no event before.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use super::request::StoreEvent;
use crate::network::wake_kept;

/// The period in which watches of the past are brought up to date: `syncWatchersLoop`, `mvcc/watchable_store.go:212`.
pub(super) const SYNC_NS: u64 = 100_000_000;

pub(super) struct KeyWatcher {
    pub key: String,
    /// The revision before which events are not for it.
    pub from_revision: i64,
    pub is_synced: Cell<bool>,
    heard: RefCell<VecDeque<StoreEvent>>,
    waker: RefCell<Option<Waker>>,
}

impl KeyWatcher {
    /// Makes a watch of a key from a revision on.
    pub fn new(key: &str, from_revision: i64, is_synced: bool) -> Self {
        KeyWatcher {
            key: key.to_owned(),
            from_revision,
            is_synced: Cell::new(is_synced),
            heard: RefCell::default(),
            waker: RefCell::default(),
        }
    }

    /// Takes an event that the member has applied.
    pub fn hear(&self, event: &StoreEvent) {
        if self.is_synced.get() && *event.key.name == *self.key && event.key.mod_revision >= self.from_revision {
            self.tell([event.clone()]);
        }
    }

    pub fn tell(&self, events: impl IntoIterator<Item = StoreEvent>) {
        self.heard.borrow_mut().extend(events);
        wake_kept(&self.waker);
    }

    /// Waits for events, and returns those that it has not returned yet.
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
