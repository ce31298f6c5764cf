//! What is to happen at a later time: timers that wake a task, and calls.
//!
//! The map is sorted by time, and by the order in which they were made where the time is the same. It is a tree and no heap since most timers are
//! removed before they are due: a limit on a call is dropped with the call.

use std::collections::BTreeMap;
use std::task::Waker;

/// When an event is due, in nanoseconds, and its number.
pub(crate) type EventKey = (u64, u64);

pub(crate) enum Event {
    Wake(Waker),
    Call(Box<dyn FnOnce()>),
}

#[derive(Default)]
pub(crate) struct Events {
    due: BTreeMap<EventKey, Event>,
    made: u64,
}

impl Events {
    pub fn add(&mut self, at: u64, event: Event) -> EventKey {
        self.made += 1;
        let key = (at, self.made);
        self.due.insert(key, event);
        key
    }

    pub fn remove(&mut self, key: EventKey) -> Option<Event> {
        self.due.remove(&key)
    }

    /// Has a timer wake this task; `false`: it is not there any more.
    pub fn rewake(&mut self, key: EventKey, waker: &Waker) -> bool {
        match self.due.get_mut(&key) {
            Some(Event::Wake(old)) => {
                if !old.will_wake(waker) {
                    *old = waker.clone();
                }
                true
            }
            _ => false,
        }
    }

    /// When the next one is due.
    pub fn next_at(&self) -> Option<u64> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes the next one, if it is due by `now`.
    pub fn take_due(&mut self, now: u64) -> Option<Event> {
        (self.next_at()? <= now)
            .then(|| self.due.pop_first())?
            .map(|(_, event)| event)
    }

    pub fn take_all(&mut self) -> BTreeMap<EventKey, Event> {
        std::mem::take(&mut self.due)
    }
}
