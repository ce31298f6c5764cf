//! The pass over a history that finds the certain holds: what begins, changes and ends them.

use super::{Ended, Hold, Holds};
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{Event, F, History, Mode};
use crate::model::Model;

pub(super) struct Building<'a> {
    history: &'a History,
    reentrant: bool,
    many: bool,
    shared: bool,
    holds: Vec<Vec<Hold>>,
    /// Active holds by process: lock and place in `holds`.
    active: Vec<Vec<(u32, u32)>>,
    /// The last downgrade that is answered ok, by process: its call.
    downgrade: Vec<u32>,
    /// Holds that ended since the process last began with none, by process: a lost signal may still arrive and end them
    /// earlier.
    recent: Vec<Vec<(u32, u32)>>,
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
            active: vec![Vec::new(); processes],
            downgrade: vec![NONE; processes],
            recent: vec![Vec::new(); processes],
        }
    }

    pub(super) fn step(&mut self, position: u32) {
        let event = &self.history.events[position as usize];
        if event.is_ok(F::Acquire) {
            self.got(event, position);
        } else if event.is_call(F::Release) {
            self.release(event, position);
        } else if self.shared && event.is_call(F::Acquire) && event.mode == Mode::Read {
            self.asked_to_read(event, position);
        } else if matches!(event.f, F::Lost | F::Died) && (event.process as usize) < self.active.len() {
            self.end(event, position);
        }
    }

    fn got(&mut self, event: &Event, position: u32) {
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        let instant = self.history.instant(position);
        let held = self.active[event.process as usize]
            .iter()
            .rposition(|(of, _)| *of as usize == lock);
        let mut from = instant;
        if let (Some(slot), false) = (held, self.many) {
            let place = self.active[event.process as usize][slot].1;
            let hold = &mut self.holds[lock][place as usize];
            if !(self.shared && hold.mode != event.mode) {
                hold.depth += u32::from(self.reentrant);
                return;
            }
            if event.mode == Mode::Read {
                from = self.history.instant(event.mate).max(hold.from);
            }
            (hold.to, hold.end, hold.ended) = (from, position, Ended::Changed);
            self.active[event.process as usize].remove(slot);
            self.recent[event.process as usize].push((lock as u32, place));
        } else if self.active[event.process as usize].is_empty() {
            self.recent[event.process as usize].clear();
        }
        let call = &self.history.events[event.mate as usize];
        let owner = if event.owner == NONE { call.owner } else { event.owner };
        self.active[event.process as usize].push((lock as u32, self.holds[lock].len() as u32));
        self.holds[lock].push(Hold {
            from,
            to: u64::MAX,
            token: event.token,
            process: event.process,
            lock: lock as u32,
            call: event.mate,
            got: position,
            end: NONE,
            owner,
            permits: self.history.permits(event),
            depth: 1,
            mode: event.mode,
            ended: Ended::Open,
            has_token: event.has_token,
        });
    }

    /// A downgrade of which nobody knows whether it happened leaves a certain hold of the weaker mode only. One that is
    /// answered is seen with its answer, unless the lock is lost before.
    fn asked_to_read(&mut self, event: &Event, position: u32) {
        let reply = self.history.events.get(event.mate as usize);
        match reply.map_or(Kind::Info, |reply| reply.kind) {
            Kind::Info => self.weaken(position),
            Kind::Ok => self.downgrade[event.process as usize] = position,
            _ => {}
        }
    }

    /// From this call on, what its process held in another mode is certain for reading only.
    fn weaken(&mut self, position: u32) {
        let event = &self.history.events[position as usize];
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        let active = &mut self.active[event.process as usize];
        let Some(slot) = active.iter().rposition(|(of, _)| *of as usize == lock) else {
            return;
        };
        let instant = self.history.instant(position);
        let (of, place) = active[slot];
        let before = &mut self.holds[lock][place as usize];
        if before.mode == Mode::Read {
            return;
        }
        let weaker = Hold {
            from: instant,
            mode: Mode::Read,
            ..*before
        };
        (before.to, before.end, before.ended) = (instant, position, Ended::Changed);
        self.recent[event.process as usize].push((of, place));
        active[slot].1 = self.holds[lock].len() as u32;
        self.holds[lock].push(weaker);
    }

    fn release(&mut self, event: &Event, position: u32) {
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        if self.many {
            return self.give_back(lock, event, position);
        }
        let held = &self.active[event.process as usize];
        let slot = held.iter().rposition(|(of, _)| *of as usize == lock);
        let Some(slot) = slot else { return };
        let (of, place) = self.active[event.process as usize][slot];
        let hold = &mut self.holds[lock][place as usize];
        hold.depth -= 1;
        if hold.depth == 0 {
            (hold.to, hold.end, hold.ended) = (self.history.instant(position), position, Ended::Released);
            self.active[event.process as usize].remove(slot);
            self.recent[event.process as usize].push((of, place));
        }
    }

    /// Permits that are given back end the holds that they were taken with: one of just as many, else the latest ones. Of
    /// a hold of more, the rest goes on.
    fn give_back(&mut self, lock: usize, event: &Event, position: u32) {
        let (process, instant) = (event.process as usize, self.history.instant(position));
        let mut left = self.history.permits(event);
        while left > 0 {
            let held = &self.active[process];
            let here = |(of, _): &(u32, u32)| *of as usize == lock;
            let same = |own: &(u32, u32)| here(own) && self.holds[lock][own.1 as usize].permits == left;
            let Some(slot) = held.iter().rposition(same).or_else(|| held.iter().rposition(here)) else {
                return;
            };
            let (of, place) = self.active[process].remove(slot);
            let hold = &mut self.holds[lock][place as usize];
            (hold.to, hold.end, hold.ended) = (instant, position, Ended::Released);
            self.recent[process].push((of, place));
            if hold.permits > left {
                let rest = Hold {
                    from: instant,
                    to: u64::MAX,
                    end: NONE,
                    ended: Ended::Open,
                    permits: hold.permits - left,
                    ..*hold
                };
                self.active[process].push((of, self.holds[lock].len() as u32));
                self.holds[lock].push(rest);
                return;
            }
            left -= hold.permits;
        }
    }

    /// A signal that ends holds: of one lock, or of all when it names none. One that is told late cuts short what was
    /// released or changed since, too.
    fn end(&mut self, event: &Event, position: u32) {
        let asked = self.downgrade[event.process as usize];
        if asked != NONE && self.history.events[asked as usize].mate > position {
            self.weaken(asked);
        }
        let one = self.history.lock_number(event).filter(|_| event.f == F::Lost);
        let ended = if event.f == F::Died { Ended::Died } else { Ended::Lost };
        let instant = self.history.instant(position);
        let holds = &mut self.holds;
        let mut cut = |(of, place): &(u32, u32)| {
            let hit = one.is_none_or(|lock| lock == *of as usize);
            let hold = &mut holds[*of as usize][*place as usize];
            if hit && instant < hold.to {
                (hold.to, hold.end, hold.ended) = (instant.max(hold.from), position, ended);
            }
            !hit
        };
        self.active[event.process as usize].retain(&mut cut);
        self.recent[event.process as usize].retain(cut);
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
