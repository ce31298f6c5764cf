//! Events of a world at later times ([`Events`]): timers that wake a task, and calls.
//!
//! They come by their time, and in the order in which they were made where the time is the same. Most timers are removed before they are
//! due, since a limit on a call is dropped with the call. So only the events of the near future are sorted, in a heap, where a removed
//! event leaves its place and is passed over when it comes to the top. The others are in a list, from which they are removed at once; when
//! the heap is empty, the soonest of them come into it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::Waker;

use super::task::TaskId;

/// The time after the soonest event within which others are sorted together with it, in nanoseconds.
const SOON: u64 = 4_000_000;
/// The place in the list of an event that is sorted.
const SORTED: u32 = u32::MAX;

/// The key of an event: the time at which it is due, in nanoseconds, its number and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventKey {
    pub at: u64,
    number: u64,
    place: u32,
}

/// An object that has something to do at later times, again and again.
pub(crate) trait Timed {
    /// Does the `side`th of its things, which is due.
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

impl Event {
    /// Whether both wake the same task of the world.
    pub fn wakes_the_same(&self, other: &Self) -> bool {
        matches!((self, other), (Event::Task(one), Event::Task(other)) if one == other)
    }
}

/// An event, or the place of a former one.
struct EventPlace {
    number: u64,
    /// Its place in the list, or [`SORTED`].
    later: u32,
    /// Empty when it was removed, or is over.
    event: Option<Event>,
}

#[derive(Default)]
pub(crate) struct Events {
    /// Time, number and place of each event that is due by `sorted_until`, and of some that were removed.
    soon: BinaryHeap<Reverse<(u64, u64, u32)>>,
    sorted_until: u64,
    /// Time and place of the others, in no order.
    later: Vec<(u64, u32)>,
    places: Vec<EventPlace>,
    /// Places that are empty.
    free: Vec<u32>,
    made: u64,
    /// The time before which nothing is due: read before each poll, when most often nothing is.
    not_before: u64,
}

impl Events {
    pub fn add(&mut self, at: u64, event: Event) -> EventKey {
        self.made += 1;
        self.not_before = self.not_before.min(at);
        let number = self.made;
        let is_soon = at <= self.sorted_until;
        let filled = EventPlace {
            number,
            later: if is_soon { SORTED } else { self.later.len() as u32 },
            event: Some(event),
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = filled;
                place
            }
            None => {
                self.places.push(filled);
                self.places.len() as u32 - 1
            }
        };
        if is_soon {
            self.soon.push(Reverse((at, number, place)));
        } else {
            self.later.push((at, place));
        }
        EventKey { at, number, place }
    }

    /// Takes the event of this number out of its place.
    fn take(&mut self, number: u64, place: u32) -> Option<Event> {
        let own = self.places.get_mut(place as usize)?;
        let event = own.event.take_if(|_| own.number == number)?;
        self.free.push(place);
        Some(event)
    }

    pub fn remove(&mut self, key: EventKey) -> Option<Event> {
        let event = self.take(key.number, key.place)?;
        let later = self.places[key.place as usize].later;
        if later != SORTED {
            self.later.swap_remove(later as usize);
            if let Some((_, moved)) = self.later.get(later as usize) {
                self.places[*moved as usize].later = later;
            }
        }
        Some(event)
    }

    /// Returns the event, if it is still there.
    pub fn get_mut(&mut self, key: EventKey) -> Option<&mut Event> {
        let own = self.places.get_mut(key.place as usize)?;
        own.event.as_mut().filter(|_| own.number == key.number)
    }

    /// Returns the time at which the next one is due.
    pub fn next_at(&mut self) -> Option<u64> {
        loop {
            while let Some(Reverse((at, number, place))) = self.soon.peek() {
                let own = &self.places[*place as usize];
                if own.number == *number && own.event.is_some() {
                    return Some(*at);
                }
                self.soon.pop();
            }
            self.sort_soonest()?;
        }
    }

    /// Fills the heap, which is empty, from the list; `None` when that is empty, too.
    fn sort_soonest(&mut self) -> Option<()> {
        let soonest = self.later.iter().map(|(at, _)| *at).min()?;
        self.sorted_until = soonest.saturating_add(SOON);
        let mut next = 0;
        while let Some((at, place)) = self.later.get(next).copied() {
            if at > self.sorted_until {
                self.places[place as usize].later = next as u32;
                next += 1;
                continue;
            }
            let own = &mut self.places[place as usize];
            own.later = SORTED;
            self.soon.push(Reverse((at, own.number, place)));
            self.later.swap_remove(next);
        }
        Some(())
    }

    /// Removes the next one, if it is due by `now`.
    pub fn take_due(&mut self, now: u64) -> Option<Event> {
        if self.not_before > now {
            return None;
        }
        loop {
            let next = self.soon.peek().map(|Reverse((at, ..))| *at);
            match next {
                Some(at) if at > now => {
                    self.not_before = at;
                    return None;
                }
                Some(_) => {
                    let Reverse((_, number, place)) = self.soon.pop()?;
                    let event = self.take(number, place);
                    if event.is_some() {
                        return event;
                    }
                }
                None if self.sort_soonest().is_none() => {
                    self.not_before = u64::MAX;
                    return None;
                }
                None => {}
            }
        }
    }

    /// Returns a time before which nothing is due and which has not come yet; `None` where no event is known to be left.
    pub fn nothing_before(&mut self, now: u64) -> Option<u64> {
        match self.not_before {
            u64::MAX => None,
            known if known > now => Some(known),
            _ => self.next_at(),
        }
    }

    /// Takes out all of them.
    pub fn take_all(&mut self) -> Vec<Event> {
        self.soon.clear();
        self.later.clear();
        self.free.clear();
        let events = std::mem::take(&mut self.places);
        events.into_iter().filter_map(|own| own.event).collect()
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
        assert_eq!((events.soon.len(), events.later.len()), (0, 1));
        assert_eq!((events.places.len(), events.next_at()), (2, Some(last.at)));
    }

    #[test]
    fn events_that_are_due_later_come_in_their_order_whatever_is_removed_meanwhile() {
        let mut events = Events::default();
        let mut dice = 7_u64;
        let mut left = Vec::new();
        let mut now = 0;
        for made in 0..20_000_u64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // some are due at the same time
            let at = now + (dice >> 33) % 40_000 * 1_000;
            let key = events.add(at, Event::Task(made));
            left.push((at, made, key));
            if made % 3 == 0 {
                let (_, _, key) = left.swap_remove((dice >> 40) as usize % left.len());
                assert!(events.remove(key).is_some());
            }
            now += 3_000;
            while let Some(came) = task(events.take_due(now)) {
                let first = left.iter().map(|(at, made, _)| (*at, *made)).min();
                assert_eq!(first.map(|(at, made)| (at <= now, made)), Some((true, came)));
                left.retain(|(_, made, _)| *made != came);
            }
            assert_eq!(events.next_at(), left.iter().map(|(at, ..)| *at).min());
        }
    }
}
