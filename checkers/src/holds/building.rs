//! The pass over a history that finds the certain holds: the events that begin, change and end them.

use std::collections::BTreeSet;

use super::own::OwnTable;
use super::{Ended, Holds, LockHold};
use crate::history::event::Kind;
use crate::history::names::{FastMap, NONE};
use crate::history::{F, History, Mode, PackedEvent};
use crate::model::Model;
use crate::signal_grants::GrantedLocks;

impl Holds {
    pub(crate) fn of(history: &History, model: &Model) -> Self {
        let mut building = Building::new(history, model);
        let shared = *model == Model::ReadWrite;
        let matters = |f, kind| match f {
            F::Acquire => kind == Kind::Ok || shared && kind == Kind::Invoke,
            F::Release => kind == Kind::Invoke,
            _ => matches!(f, F::Lost | F::Died),
        };
        history
            .events
            .each_of(matters, |position, event| building.step(position, event));
        let mut holds = building.finish();
        if history.counts.writes > 0 {
            holds.index_by_process(history.processes.len());
        }
        holds
    }
}

struct Building<'a> {
    history: &'a History,
    reentrant: bool,
    many: bool,
    shared: bool,
    /// By lock, the holds that may continue, the latest last, where any process may release the lock; else empty.
    open: Vec<Vec<u32>>,
    /// By lock, the releases by processes that have no hold, which may end one of another process: each with the instant of its answer and
    /// the position of its call.
    spare: Vec<BTreeSet<(u64, u32)>>,
    holds: Vec<Vec<LockHold>>,
    own: OwnTable,
    /// The call of the last downgrade that is answered `ok`, by process.
    downgrade: Vec<u32>,
    /// By process, the grants that a lost signal may end, and the holds in the order in which they began; empty without such a signal.
    granted: Vec<GrantedLocks>,
    begun: Vec<Vec<BegunHold>>,
}

/// A hold of a process, by its lock and its place among the holds of that.
#[derive(Debug, Clone, Copy)]
struct BegunHold {
    lock: u32,
    place: u32,
    /// Whether its process had none at all before.
    alone: bool,
}

impl<'a> Building<'a> {
    fn new(history: &'a History, model: &Model) -> Self {
        let processes = history.processes.len();
        let losing = if history.counts.lost > 0 { processes } else { 0 };
        let plain = if *model == Model::Mutex { history.locks.len() } else { 0 };
        Self {
            history,
            reentrant: model.is_reentrant(),
            many: matches!(model, Model::Semaphore { .. }),
            shared: matches!(model, Model::ReadWrite),
            open: vec![Vec::new(); plain],
            spare: vec![BTreeSet::new(); plain],
            holds: vec![Vec::new(); history.locks.len()],
            own: OwnTable::new(history.locks.len(), processes),
            downgrade: vec![NONE; processes],
            granted: vec![GrantedLocks::default(); losing],
            begun: vec![Vec::new(); losing],
        }
    }

    fn step(&mut self, position: u32, event: PackedEvent) {
        if event.is_ok(F::Acquire) {
            self.got(event, position);
        } else if event.is_call(F::Release) {
            self.release(event, position);
        } else if self.shared && event.is_call(F::Acquire) && event.mode == Mode::Read {
            self.asked_to_read(event, position);
        } else if matches!(event.f, F::Lost | F::Died) && (event.process as usize) < self.downgrade.len() {
            self.end(event, position);
        }
    }

    fn got(&mut self, event: PackedEvent, position: u32) {
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        self.release_of_another(lock);
        let instant = self.history.instant_of(position, event);
        let process = event.process as usize;
        if let Some(granted) = self.granted.get_mut(process) {
            let called = self.history.instant(event.mate);
            granted.insert(lock as u32, called, (instant, position.into()), 0);
        }
        let alone = self.own.has_none(process);
        let held = self.own.latest(process, lock).filter(|_| !self.many);
        let after = self.holds[lock].len() as u32;
        let mut from = instant;
        if let Some(place) = held {
            let hold = &mut self.holds[lock][place as usize];
            if !(self.shared && hold.mode != event.mode) {
                if self.reentrant {
                    self.own.deepen(process, lock);
                }
                return;
            }
            if event.mode == Mode::Read {
                from = self.history.instant(event.mate).max(hold.from);
            }
            (hold.to, hold.end, hold.ended) = (from, position, Ended::Changed);
            self.own.change(process, lock, place, after);
        } else {
            self.own.begin(process, lock, after);
        }
        if after == 0 {
            // Most of many locks have one hold.
            self.holds[lock].reserve_exact(1);
        }
        let hold = LockHold {
            from,
            to: u64::MAX,
            process: event.process,
            got: position,
            end: NONE,
            permits: self.history.permits(event),
            mode: event.mode,
            ended: Ended::Open,
        };
        self.add(lock, hold, alone);
    }

    fn add(&mut self, lock: usize, hold: LockHold, alone: bool) {
        let holds = &mut self.holds[lock];
        if let Some(begun) = self.begun.get_mut(hold.process as usize) {
            let (lock, place) = (lock as u32, holds.len() as u32);
            begun.push(BegunHold { lock, place, alone });
        }
        if let Some(open) = self.open.get_mut(lock) {
            open.push(holds.len() as u32);
        }
        holds.push(hold);
    }

    /// Handles the call of a downgrade. After one with an unknown outcome, only a hold of the weaker mode is certain. One that is answered
    /// takes effect at its answer, unless the lock is lost before.
    fn asked_to_read(&mut self, event: PackedEvent, position: u32) {
        let reply = self.history.reply(event);
        match reply.map_or(Kind::Info, |reply| reply.kind) {
            Kind::Info => self.weaken(position),
            Kind::Ok => self.downgrade[event.process as usize] = position,
            _ => {}
        }
    }

    /// Makes the hold of a process certain for reading only, from this call on.
    fn weaken(&mut self, position: u32) {
        let event = self.history.event(position);
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        let process = event.process as usize;
        let Some(place) = self.own.latest(process, lock) else {
            return;
        };
        let instant = self.history.instant(position);
        let after = self.holds[lock].len() as u32;
        let before = &mut self.holds[lock][place as usize];
        if before.mode == Mode::Read {
            return;
        }
        let mut weaker = *before;
        (weaker.from, weaker.mode) = (instant, Mode::Read);
        (before.to, before.end, before.ended) = (instant, position, Ended::Changed);
        self.own.change(process, lock, place, after);
        self.add(lock, weaker, false);
    }

    fn release(&mut self, event: PackedEvent, position: u32) {
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        if let Some(granted) = self.granted.get_mut(event.process as usize) {
            granted.releases(lock as u32);
        }
        if self.many {
            return self.give_back(lock, event, position);
        }
        if let Some(place) = self.own.give_up(event.process as usize, lock) {
            let hold = &mut self.holds[lock][place as usize];
            let instant = self.history.instant_of(position, event);
            (hold.to, hold.end, hold.ended) = (instant, position, Ended::Released);
        } else if let Some(spare) = self.spare.get_mut(lock) {
            // a release that failed had no effect
            match self.history.reply(event).map(|reply| reply.kind) {
                Some(Kind::Fail) => {}
                Some(Kind::Ok) => {
                    spare.insert((self.history.instant(event.mate), position));
                }
                _ => {
                    spare.insert((u64::MAX, position));
                }
            }
        }
    }

    /// Ends the holds of a lock without owners that continue, each by a release of a process that has none, if there is one that was not
    /// answered before the acquire was called. Of several, that with the first answer, since the others may end later holds.
    fn release_of_another(&mut self, lock: usize) {
        let Some(open) = self.open.get_mut(lock) else {
            return;
        };
        while let Some(place) = open.last().copied() {
            let hold = &mut self.holds[lock][place as usize];
            if hold.ended == Ended::Open {
                let asked = self.history.instant(hold.call(self.history));
                let Some(release) = self.spare[lock].range((asked, 0)..).next().copied() else {
                    return;
                };
                self.spare[lock].remove(&release);
                let instant = self.history.instant(release.1).max(hold.from);
                (hold.to, hold.end, hold.ended) = (instant, release.1, Ended::Released);
                let process = hold.process as usize;
                self.own.end(process, lock, place);
            }
            open.pop();
        }
    }

    /// Ends the holds of the permits that a release gives up: the hold of as many permits, else the latest ones. The rest of a larger hold
    /// continues.
    fn give_back(&mut self, lock: usize, event: PackedEvent, position: u32) {
        let (process, instant) = (event.process as usize, self.history.instant(position));
        let mut left = self.history.permits(event);
        while left > 0 {
            let same = |place: &u32| self.holds[lock][*place as usize].permits == left;
            let found = self.own.active(process, lock).find(same);
            let Some(place) = found.or_else(|| self.own.latest(process, lock)) else {
                return;
            };
            let after = self.holds[lock].len() as u32;
            let hold = &mut self.holds[lock][place as usize];
            let mut rest = *hold;
            (hold.to, hold.end, hold.ended) = (instant, position, Ended::Released);
            if hold.permits > left {
                (rest.from, rest.permits) = (instant, hold.permits - left);
                self.own.change(process, lock, place, after);
                self.add(lock, rest, false);
                return;
            }
            left -= hold.permits;
            self.own.end(process, lock, place);
        }
    }

    /// Ends the holds of a process that died, or that lost one lock, or all if the signal names none. A late signal also shortens holds
    /// that were released or changed since.
    fn end(&mut self, event: PackedEvent, position: u32) {
        let asked = self.downgrade[event.process as usize];
        if asked != NONE && self.history.event(asked).mate > position {
            self.weaken(asked);
        }
        if event.f == F::Lost {
            return self.lose(event, position);
        }
        let instant = self.history.instant(position);
        for (lock, place) in self.own.take(event.process as usize) {
            let hold = &mut self.holds[lock as usize][place as usize];
            if instant < hold.to {
                (hold.to, hold.end, hold.ended) = (instant.max(hold.from), position, Ended::Died);
            }
        }
    }

    /// Ends the holds in which the time of a lost signal falls, and those that began since with a grant that it ends.
    fn lose(&mut self, event: PackedEvent, position: u32) {
        let process = event.process as usize;
        let one = self.history.lock_number(event).map(|lock| lock as u32);
        let instant = self.history.instant(position);
        let mut ends: FastMap<u32, Option<(u64, u64)>> = FastMap::default();
        for at in (0..self.begun.get(process).map_or(0, Vec::len)).rev() {
            let BegunHold { lock, place, alone } = self.begun[process][at];
            let hold = &mut self.holds[lock as usize][place as usize];
            if one.is_none_or(|one| one == lock) {
                let granted = &mut self.granted[process];
                let last = *ends
                    .entry(lock)
                    .or_insert_with(|| granted.of_signal(lock, Some(instant)));
                let is_its_own = last.is_some_and(|(_, last)| u64::from(hold.got) <= last);
                if is_its_own && instant < hold.to {
                    let is_open = hold.ended == Ended::Open;
                    (hold.to, hold.end, hold.ended) = (instant.max(hold.from), position, Ended::Lost);
                    if is_open {
                        self.own.end(process, lock as usize, place);
                    }
                }
            }
            // All holds before this one had ended when it began.
            if alone && hold.from <= instant {
                return;
            }
        }
    }

    fn finish(mut self) -> Holds {
        for lock in 0..self.open.len() {
            self.release_of_another(lock);
        }
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
