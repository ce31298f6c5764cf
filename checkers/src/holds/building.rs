//! The pass over a history that finds the certain holds: what begins, changes and ends them.

use super::{Ended, Holds, LockHold};
use crate::history::event::Kind;
use crate::history::names::{FastMap, NONE};
use crate::history::{F, History, Mode, PackedEvent};
use crate::model::Model;

/// What one process has of one lock: places in the holds of that lock.
#[derive(Debug, Default)]
struct OwnHolds {
    /// Those that go on: several only of a semaphore.
    active: Vec<u32>,
    /// Acquires of the active hold that were not given back beyond the first; of reentrant locks only.
    nested: u32,
    /// Those that ended since the process last began with none at all: a lost signal may still arrive and end them earlier.
    recent: Vec<u32>,
}

/// What one process has of all locks.
#[derive(Debug, Default)]
struct ProcessHolds {
    by_lock: FastMap<u32, OwnHolds>,
    /// Locks of which anything is in `by_lock`, so that a table that was large once is never walked.
    locks: Vec<u32>,
    /// Active holds of all locks.
    active: usize,
}

impl ProcessHolds {
    fn own(&mut self, lock: usize) -> &mut OwnHolds {
        self.by_lock.entry(lock as u32).or_insert_with(|| {
            self.locks.push(lock as u32);
            OwnHolds::default()
        })
    }

    /// The latest active hold of a lock.
    fn latest(&self, lock: usize) -> Option<u32> {
        self.by_lock.get(&(lock as u32))?.active.last().copied()
    }

    fn begin(&mut self, lock: usize, place: u32) {
        if self.active == 0 {
            self.forget(lock);
        }
        self.active += 1;
        let own = self.own(lock);
        own.nested = 0;
        own.active.push(place);
    }

    /// The active hold was acquired once more.
    fn deepen(&mut self, lock: usize) {
        self.own(lock).nested += 1;
    }

    /// A release ends the latest acquire of the active hold that was not given back: the place of the hold, where that was the first.
    fn give_up(&mut self, lock: usize) -> Option<u32> {
        let own = self.by_lock.get_mut(&(lock as u32))?;
        let place = *own.active.last()?;
        if own.nested > 0 {
            own.nested -= 1;
            return None;
        }
        own.active.pop();
        own.recent.push(place);
        self.active -= 1;
        Some(place)
    }

    /// An active hold is over.
    fn end(&mut self, lock: usize, place: u32) {
        self.active -= 1;
        let own = self.own(lock);
        if let Some(slot) = own.active.iter().rposition(|active| *active == place) {
            own.active.remove(slot);
        }
        own.recent.push(place);
    }

    /// An active hold goes on as another one.
    fn change(&mut self, lock: usize, before: u32, after: u32) {
        self.end(lock, before);
        self.active += 1;
        self.own(lock).active.push(after);
    }

    /// Forgets what is over, before a hold of this lock begins. Most processes take one lock again and again: its memory is kept.
    fn forget(&mut self, next: usize) {
        if self.locks == [next as u32] {
            self.own(next).recent.clear();
            return;
        }
        for lock in self.locks.drain(..) {
            self.by_lock.remove(&lock);
        }
    }

    /// Takes out what it has of one lock, or of all: places by lock.
    fn take(&mut self, one: Option<usize>) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        let mut take = |lock: u32, own: &mut OwnHolds| {
            self.active -= own.active.len();
            taken.extend(
                own.active
                    .drain(..)
                    .chain(own.recent.drain(..))
                    .map(|place| (lock, place)),
            );
        };
        match one {
            Some(lock) => {
                if let Some(own) = self.by_lock.get_mut(&(lock as u32)) {
                    take(lock as u32, own);
                }
            }
            None => {
                for lock in self.locks.drain(..) {
                    if let Some(mut own) = self.by_lock.remove(&lock) {
                        take(lock, &mut own);
                    }
                }
            }
        }
        taken
    }
}

pub(super) struct Building<'a> {
    history: &'a History,
    reentrant: bool,
    many: bool,
    shared: bool,
    holds: Vec<Vec<LockHold>>,
    processes: Vec<ProcessHolds>,
    /// The last downgrade that is answered ok, by process: its call.
    downgrade: Vec<u32>,
}

impl<'a> Building<'a> {
    pub(super) fn new(history: &'a History, model: &Model) -> Self {
        let processes = history.processes.len();
        Self {
            history,
            reentrant: model.is_reentrant(),
            many: matches!(model, Model::Semaphore { .. }),
            shared: matches!(model, Model::ReadWrite),
            holds: vec![Vec::new(); history.locks.len()],
            processes: (0..processes).map(|_| ProcessHolds::default()).collect(),
            downgrade: vec![NONE; processes],
        }
    }

    pub(super) fn step(&mut self, position: u32, event: PackedEvent) {
        if event.is_ok(F::Acquire) {
            self.got(event, position);
        } else if event.is_call(F::Release) {
            self.release(event, position);
        } else if self.shared && event.is_call(F::Acquire) && event.mode == Mode::Read {
            self.asked_to_read(event, position);
        } else if matches!(event.f, F::Lost | F::Died) && (event.process as usize) < self.processes.len() {
            self.end(event, position);
        }
    }

    fn got(&mut self, event: PackedEvent, position: u32) {
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        let instant = self.history.instant_of(position, event);
        let process = event.process as usize;
        let held = self.processes[process].latest(lock).filter(|_| !self.many);
        let after = self.holds[lock].len() as u32;
        let mut from = instant;
        if let Some(place) = held {
            let hold = &mut self.holds[lock][place as usize];
            if !(self.shared && hold.mode != event.mode) {
                if self.reentrant {
                    self.processes[process].deepen(lock);
                }
                return;
            }
            if event.mode == Mode::Read {
                from = self.history.instant(event.mate).max(hold.from);
            }
            (hold.to, hold.end, hold.ended) = (from, position, Ended::Changed);
            self.processes[process].change(lock, place, after);
        } else {
            self.processes[process].begin(lock, after);
        }
        self.holds[lock].push(LockHold {
            from,
            to: u64::MAX,
            process: event.process,
            got: position,
            end: NONE,
            permits: self.history.permits(event),
            mode: event.mode,
            ended: Ended::Open,
        });
    }

    /// A downgrade that may or may not have happened leaves a certain hold of the weaker mode only. One that is
    /// answered is seen with its answer, unless the lock is lost before.
    fn asked_to_read(&mut self, event: PackedEvent, position: u32) {
        let reply = self.history.events.get(event.mate as usize);
        match reply.map_or(Kind::Info, |reply| reply.kind) {
            Kind::Info => self.weaken(position),
            Kind::Ok => self.downgrade[event.process as usize] = position,
            _ => {}
        }
    }

    /// From this call on, what its process held in another mode is certain for reading only.
    fn weaken(&mut self, position: u32) {
        let event = self.history.event(position);
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        let own = &mut self.processes[event.process as usize];
        let Some(place) = own.latest(lock) else {
            return;
        };
        let instant = self.history.instant(position);
        let after = self.holds[lock].len() as u32;
        let before = &mut self.holds[lock][place as usize];
        if before.mode == Mode::Read {
            return;
        }
        let weaker = LockHold {
            from: instant,
            mode: Mode::Read,
            ..*before
        };
        (before.to, before.end, before.ended) = (instant, position, Ended::Changed);
        own.change(lock, place, after);
        self.holds[lock].push(weaker);
    }

    fn release(&mut self, event: PackedEvent, position: u32) {
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        if self.many {
            return self.give_back(lock, event, position);
        }
        if let Some(place) = self.processes[event.process as usize].give_up(lock) {
            let hold = &mut self.holds[lock][place as usize];
            let instant = self.history.instant_of(position, event);
            (hold.to, hold.end, hold.ended) = (instant, position, Ended::Released);
        }
    }

    /// Permits that are given back end the holds that they were taken with: one of just as many, else the latest ones. Of
    /// a hold of more, the rest goes on.
    fn give_back(&mut self, lock: usize, event: PackedEvent, position: u32) {
        let (process, instant) = (event.process as usize, self.history.instant(position));
        let mut left = self.history.permits(event);
        while left > 0 {
            let own = &mut self.processes[process];
            let active = own.own(lock).active.iter().rev().copied();
            let same = |place: &u32| self.holds[lock][*place as usize].permits == left;
            let Some(place) = active.clone().find(same).or_else(|| own.latest(lock)) else {
                return;
            };
            let after = self.holds[lock].len() as u32;
            let hold = &mut self.holds[lock][place as usize];
            (hold.to, hold.end, hold.ended) = (instant, position, Ended::Released);
            if hold.permits > left {
                let rest = LockHold {
                    from: instant,
                    to: u64::MAX,
                    end: NONE,
                    ended: Ended::Open,
                    permits: hold.permits - left,
                    ..*hold
                };
                own.change(lock, place, after);
                self.holds[lock].push(rest);
                return;
            }
            own.end(lock, place);
            left -= hold.permits;
        }
    }

    /// A signal that ends holds: of one lock, or of all when it names none. One that is told late cuts short what was
    /// released or changed since, too.
    fn end(&mut self, event: PackedEvent, position: u32) {
        let asked = self.downgrade[event.process as usize];
        if asked != NONE && self.history.event(asked).mate > position {
            self.weaken(asked);
        }
        let one = self.history.lock_number(event).filter(|_| event.f == F::Lost);
        let ended = if event.f == F::Died { Ended::Died } else { Ended::Lost };
        let instant = self.history.instant(position);
        for (lock, place) in self.processes[event.process as usize].take(one) {
            let hold = &mut self.holds[lock as usize][place as usize];
            if instant < hold.to {
                (hold.to, hold.end, hold.ended) = (instant.max(hold.from), position, ended);
            }
        }
    }

    pub(super) fn finish(mut self) -> Holds {
        for holds in &mut self.holds {
            if !holds.is_sorted_by_key(|hold| hold.from) {
                holds.sort_by_key(|hold| hold.from);
            }
        }
        Holds {
            by_lock: self.holds,
            by_process: Vec::new(),
        }
    }
}
