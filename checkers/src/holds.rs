//! Certain holds: when a process surely believed that it held a lock.
//!
//! From the reply to its acquire to the first of: its release call, the time of a lost signal, its death. Never longer
//! than the truth. Whether the server thought so, too, is not asked here; see `grants`.

use crate::history::names::NONE;
use crate::history::{Event, F, History, Mode};
use crate::model::Model;

/// Why a certain hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// It did not, as far as the history goes.
    Open,
    /// By its own release call, whatever the answer.
    Released,
    /// By a signal of the client library.
    Lost,
    /// With its process.
    Died,
    /// By an acquire of the same process in another mode.
    Changed,
}

/// One certain hold, for reports.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CertainHold<'a> {
    pub lock: &'a str,
    pub process: u32,
    pub client: u32,
    pub mode_read: bool,
    pub asked_ns: u64,
    pub from_ns: u64,
    /// The end of the history when it is open.
    pub to_ns: u64,
    pub ended: Ended,
    pub token: Option<u64>,
    pub owner: Option<&'a str>,
    /// Index of the reply that began it.
    pub got_index: u64,
    /// Index of the event that ended it.
    pub end_index: Option<u64>,
}

/// One certain hold, packed. `from` and `to` are instants of the history (see `History::instant`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub from: u64,
    /// `u64::MAX` while it is open.
    pub to: u64,
    pub token: u64,
    pub process: u32,
    pub lock: u32,
    /// Positions of the call, the reply, and what ended it.
    pub call: u32,
    pub got: u32,
    pub end: u32,
    pub owner: u32,
    pub permits: u32,
    pub depth: u32,
    pub mode: Mode,
    pub ended: Ended,
    pub has_token: bool,
}

impl Hold {
    pub(crate) fn token(&self) -> Option<u64> {
        self.has_token.then_some(self.token)
    }

    /// Whether there was an instant in which it was certain.
    pub(crate) fn is_empty(&self) -> bool {
        self.to <= self.from
    }
}

/// All certain holds: for each lock, by beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holds {
    pub by_lock: Vec<Vec<Hold>>,
    /// Beginning, lock and place of each process's holds, by beginning; there only when the history has writes.
    by_process: Vec<Vec<(u64, u32, u32)>>,
}

impl Holds {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.by_lock.iter().flatten()
    }

    pub(crate) fn count(&self) -> usize {
        self.by_lock.iter().map(Vec::len).sum()
    }

    /// The hold of a process on a lock that contains an instant, ends not included.
    pub(crate) fn around(&self, lock: usize, process: u32, instant: u64) -> Option<&Hold> {
        let own = self.by_process.get(process as usize)?;
        let after = own.partition_point(|(from, ..)| *from < instant);
        // a process holds one lock a time, or a few nested ones
        let mut before = own[..after].iter().rev().filter(|(_, of, _)| *of as usize == lock);
        let hold = &self.by_lock[lock][before.next()?.2 as usize];
        (hold.to > instant).then_some(hold)
    }

    pub(crate) fn of(history: &History, model: &Model) -> Self {
        let mut building = Building::new(history, model);
        for position in 0..history.events.len() as u32 {
            building.step(position);
        }
        let mut holds = building.finish();
        if history.counts.writes > 0 {
            holds.index_by_process(history.processes.len());
        }
        holds
    }

    fn index_by_process(&mut self, processes: usize) {
        self.by_process = vec![Vec::new(); processes];
        for holds in &self.by_lock {
            for (place, hold) in holds.iter().enumerate() {
                self.by_process[hold.process as usize].push((hold.from, hold.lock, place as u32));
            }
        }
        for own in &mut self.by_process {
            own.sort_unstable();
        }
    }
}

struct Building<'a> {
    history: &'a History,
    reentrant: bool,
    many: bool,
    shared: bool,
    holds: Vec<Vec<Hold>>,
    /// Active holds by process: lock and place in `holds`.
    active: Vec<Vec<(u32, u32)>>,
    /// The last hold that ended by a release, by process: a lost signal may still arrive and end it earlier.
    released: Vec<(u32, u32)>,
}

impl<'a> Building<'a> {
    fn new(history: &'a History, model: &Model) -> Self {
        let processes = history.processes.len();
        Self {
            history,
            reentrant: model.is_reentrant(),
            many: matches!(model, Model::Semaphore { .. }),
            shared: matches!(model, Model::ReadWrite),
            holds: vec![Vec::new(); history.locks.len()],
            active: vec![Vec::new(); processes],
            released: vec![(NONE, NONE); processes],
        }
    }

    fn step(&mut self, position: u32) {
        let event = &self.history.events[position as usize];
        if event.is_ok(F::Acquire) {
            self.got(event, position);
        } else if event.is_call(F::Release) {
            self.release(event, position);
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

    fn release(&mut self, event: &Event, position: u32) {
        let Some(lock) = self.history.lock_number(event) else {
            return;
        };
        let permits = self.history.permits(event);
        let held = &self.active[event.process as usize];
        let same = |(of, place): &(u32, u32)| {
            *of as usize == lock && (!self.many || self.holds[lock][*place as usize].permits == permits)
        };
        let slot = held
            .iter()
            .rposition(same)
            .or_else(|| held.iter().rposition(|(of, _)| *of as usize == lock));
        let Some(slot) = slot else { return };
        let (of, place) = self.active[event.process as usize][slot];
        let hold = &mut self.holds[lock][place as usize];
        hold.depth -= 1;
        if hold.depth == 0 {
            (hold.to, hold.end, hold.ended) = (self.history.instant(position), position, Ended::Released);
            self.active[event.process as usize].remove(slot);
            self.released[event.process as usize] = (of, place);
        }
    }

    /// A signal that ends holds: of one lock, or of all when it names none.
    fn end(&mut self, event: &Event, position: u32) {
        let lock = self.history.lock_number(event).map(|lock| lock as u32);
        let ended = if event.f == F::Died { Ended::Died } else { Ended::Lost };
        let instant = self.history.instant(position);
        let holds = &mut self.holds;
        let before = self.active[event.process as usize].len();
        self.active[event.process as usize].retain(|(of, place)| {
            let hit = lock.is_none_or(|lock| lock == *of) || ended == Ended::Died;
            if hit {
                let hold = &mut holds[*of as usize][*place as usize];
                (hold.to, hold.end, hold.ended) = (instant.max(hold.from), position, ended);
            }
            !hit
        });
        let (of, place) = self.released[event.process as usize];
        if before > self.active[event.process as usize].len() || of == NONE || lock.is_some_and(|lock| lock != of) {
            return;
        }
        let hold = &mut holds[of as usize][place as usize];
        if instant < hold.to {
            (hold.to, hold.end, hold.ended) = (instant.max(hold.from), position, ended);
        }
    }

    fn finish(mut self) -> Holds {
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

impl History {
    /// Certain holds of all locks under the model that the header names, for timelines: by lock, then by beginning.
    pub fn certain_holds(&self) -> Vec<CertainHold<'_>> {
        let holds = Holds::of(self, &Model::of_header(&self.header));
        holds.iter().map(|hold| self.show(hold)).collect()
    }

    pub(crate) fn show(&self, hold: &Hold) -> CertainHold<'_> {
        CertainHold {
            lock: self.lock_name(hold.lock as usize),
            process: self.processes[hold.process as usize],
            client: self.client_of(hold.process),
            mode_read: hold.mode == Mode::Read,
            asked_ns: self.events[hold.call as usize].time,
            from_ns: self.ns(hold.from),
            to_ns: self.ns(hold.to),
            ended: hold.ended,
            token: hold.token(),
            owner: self.name(hold.owner),
            got_index: self.events[hold.got as usize].index,
            end_index: self.events.get(hold.end as usize).map(|event| event.index),
        }
    }

    /// The time of an instant; the end of the history for an open end.
    pub(crate) fn ns(&self, instant: u64) -> u64 {
        match self.order {
            crate::history::Order::Time => instant.min(self.end_ns),
            crate::history::Order::Position => self
                .events
                .get(instant as usize)
                .map_or(self.end_ns, |event| event.time),
        }
    }

    /// Permits that an acquire or release is about: said by the reply, by its call, or 1.
    pub(crate) fn permits(&self, event: &Event) -> u32 {
        let said = |event: &Event| Some(self.rare(event).permits).filter(|permits| *permits != NONE);
        said(event)
            .or_else(|| said(self.events.get(event.mate as usize)?))
            .unwrap_or(1)
    }
}
