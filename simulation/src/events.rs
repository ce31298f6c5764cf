//! What is to happen at a later time: timers that wake a task, and calls.
//!
//! They are sorted by time, and by the order in which they were made where the time is the same. Most timers are removed before they are
//! due, since a limit on a call is dropped with the call: what is removed leaves its place in the heap, and is passed over when it comes
//! to the top.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::Waker;

use crate::task::TaskId;

/// Entries of removed events that are kept before they are looked for, besides as many as there are others.
const REMOVED_AT_LEAST: usize = 256;

/// An event that was made: when it is due, in nanoseconds, and which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventKey {
    pub at: u64,
    number: u64,
    place: usize,
}

/// What has something to do at a later time, again and again.
pub(crate) trait Timed {
    /// It is time for the `side`th of the things that it does.
    fn is_due(self: Rc<Self>, side: usize);
}

pub(crate) enum Event {
    /// Wakes a task of the world.
    Task(TaskId),
    /// Wakes whatever else polls a timer: a future that hands its own waker to those inside.
    Wake(Waker),
    Call(Box<dyn FnOnce()>),
    Due(Rc<dyn Timed>, usize),
}

#[derive(Default)]
pub(crate) struct Events {
    /// Time, number and place of each event, and of those that were removed.
    due: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The events with their numbers.
    places: Vec<Option<(u64, Event)>>,
    /// Places that are empty.
    free: Vec<usize>,
    made: u64,
    /// Entries of `due` whose event was removed.
    removed: usize,
}

impl Events {
    pub fn add(&mut self, at: u64, event: Event) -> EventKey {
        self.made += 1;
        let number = self.made;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some((number, event));
        self.due.push(Reverse((at, number, place)));
        EventKey { at, number, place }
    }

    /// Takes the event of this number out of its place.
    fn take(&mut self, number: u64, place: usize) -> Option<Event> {
        let (_, event) = self.places.get_mut(place)?.take_if(|(own, _)| *own == number)?;
        self.free.push(place);
        Some(event)
    }

    fn is_there(&self, number: u64, place: usize) -> bool {
        matches!(self.places.get(place), Some(Some((own, _))) if *own == number)
    }

    pub fn remove(&mut self, key: EventKey) -> Option<Event> {
        let event = self.take(key.number, key.place)?;
        self.removed += 1;
        if self.removed > self.due.len() / 2 + REMOVED_AT_LEAST {
            let mut due = std::mem::take(&mut self.due);
            due.retain(|Reverse((_, number, place))| self.is_there(*number, *place));
            self.due = due;
            self.removed = 0;
        }
        Some(event)
    }

    /// The event, if it is there still.
    pub fn get_mut(&mut self, key: EventKey) -> Option<&mut Event> {
        let (number, event) = self.places.get_mut(key.place)?.as_mut()?;
        (*number == key.number).then_some(event)
    }

    /// When the next one is due.
    pub fn next_at(&mut self) -> Option<u64> {
        while let Some(Reverse((at, number, place))) = self.due.peek() {
            if self.is_there(*number, *place) {
                return Some(*at);
            }
            self.due.pop();
            self.removed -= 1;
        }
        None
    }

    /// Removes the next one, if it is due by `now`.
    pub fn take_due(&mut self, now: u64) -> Option<Event> {
        if self.due.peek().is_none_or(|Reverse((at, ..))| *at > now) || self.next_at()? > now {
            return None;
        }
        let Reverse((_, number, place)) = self.due.pop()?;
        self.take(number, place)
    }

    /// Takes out all of them.
    pub fn take_all(&mut self) -> Vec<Event> {
        self.due.clear();
        self.free.clear();
        self.removed = 0;
        let events = std::mem::take(&mut self.places);
        events.into_iter().flatten().map(|(_, event)| event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(event: Option<Event>) -> Option<TaskId> {
        match event {
            Some(Event::Task(task)) => Some(task),
            _ => None,
        }
    }

    #[test]
    fn events_come_by_their_time_and_then_in_the_order_in_which_they_were_made() {
        let mut events = Events::default();
        let keys: Vec<EventKey> = [(5, 1), (3, 2), (5, 3), (3, 4), (9, 5)]
            .map(|(at, task)| events.add(at, Event::Task(task)))
            .to_vec();
        assert!(events.remove(keys[1]).is_some() && events.remove(keys[1]).is_none());
        // in the place of the one that was removed
        events.add(5, Event::Task(6));
        assert!(events.get_mut(keys[1]).is_none(), "another event has its place");
        assert_eq!(events.next_at(), Some(3));
        let mut came = Vec::new();
        while let Some(task) = task(events.take_due(5)) {
            came.push(task);
        }
        assert_eq!(came, [4, 1, 3, 6]);
        assert_eq!(events.next_at(), Some(9));
    }

    #[test]
    fn events_that_are_removed_before_they_are_due_take_no_room_for_long() {
        let mut events = Events::default();
        let last = events.add(1_000_000, Event::Task(0));
        for at in 0..100_000 {
            let key = events.add(500_000 + at, Event::Task(at));
            assert!(events.remove(key).is_some());
        }
        assert!(events.due.len() <= 2 * REMOVED_AT_LEAST + 2, "{}", events.due.len());
        assert_eq!((events.places.len(), events.next_at()), (2, Some(last.at)));
    }
}
