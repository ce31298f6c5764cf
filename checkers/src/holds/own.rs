//! The holds of each process on each lock, during the pass that finds the certain holds.

use crate::history::names::{FastMap, NONE};

/// Places in the holds of a lock, the latest last. A single one, which is the usual case, needs no allocation.
#[derive(Debug, Default)]
struct Places {
    /// The first place plus one; 0 where there is none.
    first: u32,
    more: Option<Box<LaterPlaces>>,
}

#[derive(Debug, Default)]
struct LaterPlaces(Vec<u32>);

impl Places {
    fn push(&mut self, place: u32) {
        if self.first == 0 {
            self.first = place + 1;
        } else {
            self.more.get_or_insert_default().0.push(place);
        }
    }

    fn last(&self) -> Option<u32> {
        self.more
            .as_ref()
            .and_then(|more| more.0.last().copied())
            .or_else(|| self.first.checked_sub(1))
    }

    fn pop(&mut self) -> Option<u32> {
        let more = self.more.as_mut().and_then(|more| more.0.pop());
        more.or_else(|| std::mem::take(&mut self.first).checked_sub(1))
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = u32> {
        let more = self.more.iter().flat_map(|more| more.0.iter().copied());
        self.first.checked_sub(1).into_iter().chain(more)
    }

    /// Removes a place, if it is there.
    fn remove(&mut self, place: u32) {
        if let Some(at) = self
            .more
            .as_ref()
            .and_then(|more| more.0.iter().rposition(|other| *other == place))
        {
            self.more.as_mut().expect("it is there").0.remove(at);
        } else if self.first == place + 1 {
            let next = self
                .more
                .as_mut()
                .filter(|more| !more.0.is_empty())
                .map(|more| more.0.remove(0));
            self.first = next.map_or(0, |next| next + 1);
        }
    }

    fn clear(&mut self) {
        self.first = 0;
        if let Some(more) = &mut self.more {
            more.0.clear();
        }
    }
}

/// The holds of one process on one lock: places in the holds of that lock.
#[derive(Debug, Default)]
pub(super) struct OwnHolds {
    /// Holds that continue; several only of a semaphore.
    active: Places,
    /// Holds that ended since the process last began with none at all: its death may have ended them earlier.
    recent: Places,
    /// Acquires of the active hold beyond the first that were not released; of reentrant locks only.
    nested: u32,
}

/// The holds of one process on a lock on which no other process had any when it began.
#[derive(Debug)]
struct LockSlot {
    /// `NONE` if there are no holds.
    process: u32,
    own: OwnHolds,
}

/// The holds of one process on all locks.
#[derive(Debug, Default)]
struct ProcessHolds {
    /// The holds outside of the slots of their locks.
    by_lock: FastMap<u32, OwnHolds>,
    /// The locks of these holds, so that a table that was large once is never walked.
    locks: Vec<u32>,
    /// Active holds of all locks.
    active: usize,
}

/// The holds of all processes on all locks. Most locks have one process at a time, and most histories use their locks in the order of their
/// numbers, or have few. So each lock has a slot, and only the other holds are looked up by a hash.
#[derive(Debug)]
pub(super) struct OwnTable {
    slots: Vec<LockSlot>,
    processes: Vec<ProcessHolds>,
}

impl OwnTable {
    pub(super) fn new(locks: usize, processes: usize) -> Self {
        let slot = || LockSlot {
            process: NONE,
            own: OwnHolds::default(),
        };
        Self {
            slots: std::iter::repeat_with(slot).take(locks).collect(),
            processes: (0..processes).map(|_| ProcessHolds::default()).collect(),
        }
    }

    fn find(&mut self, process: usize, lock: usize) -> Option<&mut OwnHolds> {
        let slot = &mut self.slots[lock];
        if slot.process == process as u32 {
            return Some(&mut slot.own);
        }
        let others = &mut self.processes[process].by_lock;
        if others.is_empty() {
            return None;
        }
        others.get_mut(&(lock as u32))
    }

    fn own(&mut self, process: usize, lock: usize) -> &mut OwnHolds {
        let (slot, of_process) = (&mut self.slots[lock], &mut self.processes[process]);
        let others = &mut of_process.by_lock;
        if slot.process == NONE && (others.is_empty() || !others.contains_key(&(lock as u32))) {
            slot.process = process as u32;
            of_process.locks.push(lock as u32);
        }
        if slot.process == process as u32 {
            return &mut slot.own;
        }
        others.entry(lock as u32).or_insert_with(|| {
            of_process.locks.push(lock as u32);
            OwnHolds::default()
        })
    }

    /// Removes and returns the holds of a process on a lock.
    fn remove(&mut self, process: usize, lock: u32) -> Option<OwnHolds> {
        let slot = &mut self.slots[lock as usize];
        if slot.process == process as u32 {
            slot.process = NONE;
            return Some(std::mem::take(&mut slot.own));
        }
        self.processes[process].by_lock.remove(&lock)
    }

    /// Returns the latest active hold of a lock.
    pub(super) fn latest(&mut self, process: usize, lock: usize) -> Option<u32> {
        self.find(process, lock)?.active.last()
    }

    /// Returns the active holds of a lock, the latest first.
    pub(super) fn active(&mut self, process: usize, lock: usize) -> impl Iterator<Item = u32> {
        let own = self.find(process, lock);
        own.into_iter().flat_map(|own| own.active.iter().rev())
    }

    /// Returns whether a process has no active hold of any lock.
    pub(super) fn has_none(&self, process: usize) -> bool {
        self.processes[process].active == 0
    }

    pub(super) fn begin(&mut self, process: usize, lock: usize, place: u32) {
        if self.has_none(process) {
            self.forget(process, lock);
        }
        self.processes[process].active += 1;
        let own = self.own(process, lock);
        own.nested = 0;
        own.active.push(place);
    }

    /// Counts a nested acquire of the active hold.
    pub(super) fn deepen(&mut self, process: usize, lock: usize) {
        self.own(process, lock).nested += 1;
    }

    /// Releases the latest acquire of the active hold, and returns the place of the hold if that ends it.
    pub(super) fn give_up(&mut self, process: usize, lock: usize) -> Option<u32> {
        let own = self.find(process, lock)?;
        let place = own.active.last()?;
        if own.nested > 0 {
            own.nested -= 1;
            return None;
        }
        own.active.pop();
        own.recent.push(place);
        self.processes[process].active -= 1;
        Some(place)
    }

    /// Ends an active hold.
    pub(super) fn end(&mut self, process: usize, lock: usize, place: u32) {
        self.processes[process].active -= 1;
        let own = self.own(process, lock);
        own.active.remove(place);
        own.recent.push(place);
    }

    /// Replaces an active hold by the one that continues it.
    pub(super) fn change(&mut self, process: usize, lock: usize, before: u32, after: u32) {
        self.end(process, lock, before);
        self.processes[process].active += 1;
        self.own(process, lock).active.push(after);
    }

    /// Removes ended holds before a hold of this lock begins. Most processes acquire one lock repeatedly, so its memory is kept.
    fn forget(&mut self, process: usize, next: usize) {
        if self.processes[process].locks == [next as u32] {
            self.own(process, next).recent.clear();
            return;
        }
        self.remove_all(process, |_, _| {});
    }

    fn remove_all(&mut self, process: usize, mut see: impl FnMut(u32, OwnHolds)) {
        let mut locks = std::mem::take(&mut self.processes[process].locks);
        for lock in locks.drain(..) {
            if let Some(own) = self.remove(process, lock) {
                see(lock, own);
            }
        }
        self.processes[process].locks = locks;
    }

    /// Removes and returns the holds of a process on all locks: places by lock.
    pub(super) fn take(&mut self, process: usize) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        self.remove_all(process, |lock, own| {
            taken.extend(own.active.iter().chain(own.recent.iter()).map(|place| (lock, place)));
        });
        self.processes[process].active = 0;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::dice;

    #[test]
    fn places_are_a_list() {
        let mut roll = dice(0x9e37_79b9_7f4a_7c15);
        let (mut places, mut list) = (Places::default(), Vec::new());
        for place in 0..10_000 {
            match roll(7) {
                0..3 => {
                    places.push(place);
                    list.push(place);
                }
                3..5 => assert_eq!(places.pop(), list.pop()),
                5 if !list.is_empty() => places.remove(list.remove(roll(list.len() as u64) as usize)),
                _ if roll(14) == 0 => {
                    places.clear();
                    list.clear();
                }
                _ => places.remove(place),
            }
            assert_eq!(places.iter().collect::<Vec<_>>(), list);
            assert_eq!(places.last(), list.last().copied());
        }
    }

    #[test]
    fn two_processes_of_one_lock_have_their_own() {
        let mut own = OwnTable::new(2, 2);
        own.begin(0, 0, 7);
        own.begin(1, 0, 8);
        own.begin(1, 1, 9);
        assert_eq!(
            (own.latest(0, 0), own.latest(1, 0), own.latest(1, 1)),
            (Some(7), Some(8), Some(9))
        );
        assert_eq!(own.take(0), [(0, 7)]);
        // the slot is free, and the holds of the other process stay
        assert_eq!((own.latest(0, 0), own.give_up(1, 0)), (None, Some(8)));
        own.begin(0, 0, 10);
        assert_eq!(own.take(1), [(0, 8), (1, 9)]);
        assert_eq!(own.take(0), [(0, 10)]);
        assert_eq!(own.take(0), []);
    }
}
