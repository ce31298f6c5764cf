//! The operations of a specification, from the events of a history: each answer with its evidence.

use super::order::{self, EventOrder, OrderedEvent};
use super::register::RegisterOp;
use super::replies::{found_taken, is_not_held, permits_of};
use super::spec::Operation;
use super::specs::LockOp;
use crate::history::event::Kind;
use crate::history::names::FastMap;
use crate::history::{F, History, Mode, PackedEvent};
use crate::model::Model;
use crate::span_ends::SpanEnds;

#[derive(Debug, Clone)]
pub(crate) struct Operations<O> {
    pub operations: Vec<Operation<O>>,
    /// The position of the call of each.
    pub calls: Vec<u32>,
    /// The position of the event of its process with or after which each is called. At equal times, they have its order.
    pub turns: Vec<u32>,
}

impl<O> Operations<O> {
    fn with_room(count: usize) -> Self {
        Self {
            operations: Vec::with_capacity(count),
            calls: Vec::with_capacity(count),
            turns: Vec::with_capacity(count),
        }
    }

    fn add(&mut self, op: O, call: u64, reply: Option<u64>, position: u32) {
        self.add_in_turn(op, call, reply, (position, position));
    }

    fn add_in_turn(&mut self, op: O, call: u64, reply: Option<u64>, (position, turn): (u32, u32)) {
        self.operations.push(Operation { op, call, reply });
        self.calls.push(position);
        self.turns.push(turn);
    }

    /// Returns for each operation the one that its process called before, if that was answered at the instant of the call: at equal times,
    /// it comes first. Operations without an answer between the two, such as the release for a loss, may take effect later than both and do
    /// not change that.
    pub(super) fn predecessors(&self, history: &History) -> Vec<Option<usize>> {
        if order::is_strict(history) {
            return vec![None; self.operations.len()];
        }
        let mut own: FastMap<u32, Vec<usize>> = FastMap::default();
        let replied = |place: usize| match history.event(self.calls[place]) {
            signal if signal.kind == Kind::Signal => self.turns[place],
            call => call.mate,
        };
        let each = self.operations.iter().enumerate().map(|(place, operation)| {
            let own = own.entry(history.event(self.calls[place]).process).or_default();
            let before = own
                .iter()
                .rev()
                .copied()
                .find(|before| self.operations[*before].reply.is_some() && replied(*before) <= self.turns[place]);
            own.push(place);
            before.filter(|before| self.operations[*before].reply == Some(operation.call))
        });
        each.collect()
    }

    /// Returns some of them, by their places.
    pub(super) fn only(&self, places: &[usize]) -> Self
    where
        O: Copy,
    {
        Self {
            operations: places.iter().map(|place| self.operations[*place]).collect(),
            calls: places.iter().map(|place| self.calls[*place]).collect(),
            turns: places.iter().map(|place| self.turns[*place]).collect(),
        }
    }
}

/// Returns the operations on registers, lock by lock, as the model reads them. Operations without evidence are left out.
pub(crate) fn registers(history: &History, model: &Model) -> Vec<Operations<RegisterOp>> {
    let each = history.events.len() / 2 / history.locks.len().max(1);
    let mut all: Vec<Operations<RegisterOp>> = (0..history.locks.len()).map(|_| Operations::with_room(each)).collect();
    EventOrder::of(history).each(history, |ordered, call| {
        if call.kind != Kind::Invoke {
            return;
        }
        let reply = history.reply(call);
        if let Some(all) = all.get_mut(ordered.lock as usize)
            && let Some(op) = register_op(history, model, call, reply)
        {
            let reply = answered(history, call).map(|_| history.instant(call.mate));
            all.add(op, ordered.instant, reply, ordered.position);
        }
    });
    all
}

/// Returns the reply to a call, if it shows whether the operation took effect.
pub(super) fn answered(history: &History, call: PackedEvent) -> Option<PackedEvent> {
    let reply = history.reply(call);
    reply.filter(|reply| matches!(reply.kind, Kind::Ok | Kind::Fail))
}

/// Returns an operation on a register, as the model reads its call and its reply; `None` if they are no evidence.
pub(super) fn register_op(
    history: &History,
    model: &Model,
    call: PackedEvent,
    reply: Option<PackedEvent>,
) -> Option<RegisterOp> {
    let exact = matches!(model, Model::ExactCasRegister { .. });
    let kind = reply.map_or(Kind::Info, |reply| reply.kind);
    let answer = || history.says(reply?);
    match (call.f, kind) {
        (F::Read, Kind::Ok) => {
            let value = answer().and_then(|answer| answer.value);
            (exact || value.is_some()).then_some(RegisterOp::Read(value))
        }
        (F::Write, Kind::Ok | Kind::Info) => history.says(call)?.value.map(RegisterOp::Write),
        (F::Cas, Kind::Ok | Kind::Info) => {
            let asked = history.says(call)?;
            Some(RegisterOp::Cas {
                expected: asked.expected?,
                new: asked.value?,
            })
        }
        // A compare-and-set that failed without an error has compared.
        (F::Cas, Kind::Fail) if exact && answer().is_none_or(|answer| history.name(answer.error).is_none()) => {
            let expected = history.says(call)?.expected?;
            Some(RegisterOp::CasFailed { expected })
        }
        _ => None,
    }
}

/// Returns the operations on locks, lock by lock, as the model reads them.
pub(crate) fn locks(history: &History, model: &Model) -> Vec<Operations<LockOp>> {
    let mut reading = OperationReader {
        history,
        model,
        all: (0..history.locks.len()).map(|_| Operations::with_room(0)).collect(),
        contenders: contenders(history, model),
        held: FastMap::default(),
    };
    EventOrder::of(history).each(history, |ordered, event| reading.see(ordered, event));
    reading.all
}

/// The times in which acquires of one lock were pending: all, and those of each process.
#[derive(Debug, Default)]
struct ContenderTimes {
    all: SpanEnds,
    own: FastMap<u32, SpanEnds>,
}

impl ContenderTimes {
    /// Returns whether an acquire of another process was pending at some instant.
    fn met(&self, process: u32, from: u64, until: u64) -> bool {
        let own = self.own.get(&process).map_or(0, |own| own.meeting(from, until));
        self.all.meeting(from, until) > own
    }
}

fn contenders(history: &History, model: &Model) -> Vec<ContenderTimes> {
    if *model != Model::TryLock {
        return Vec::new();
    }
    let mut all: Vec<ContenderTimes> = (0..history.locks.len()).map(|_| ContenderTimes::default()).collect();
    history.each_ask(|lock, position, call| {
        let from = history.instant_of(position, call);
        let until = answered(history, call).map(|_| history.instant(call.mate));
        all[lock].all.add(from, until);
        all[lock].own.entry(call.process).or_default().add(from, until);
    });
    for lock in &mut all {
        lock.all.sort();
        lock.own.values_mut().for_each(SpanEnds::sort);
    }
    all
}

/// The state of one lock by the events of one process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Own {
    pub depth: u32,
    pub permits: u64,
    pub mode: Mode,
    /// Losses without a later release; the server may still accept a release for each of them.
    pub lapsed: u64,
    /// The instant and the position of the reply that began its hold.
    pub got: u64,
    pub got_at: u32,
    /// The instant of its last loss plus one, and the position of the signal.
    lost: u64,
    lost_at: u32,
    /// The place, plus one, of the operation that ended the last hold without an answer `ok`.
    ending: usize,
    /// The place, plus one, of the pending acquire that will be answered `ok`.
    pub asked: usize,
    /// The place, plus one, of a release that will be answered "not held" although it is held.
    denied: usize,
}

/// A process that never holds: the release of a process that does not hold is not legal by the hold of another.
pub(super) const NOBODY: u32 = u32::MAX - 1;

pub(super) struct OperationReader<'a> {
    pub history: &'a History,
    pub model: &'a Model,
    pub all: Vec<Operations<LockOp>>,
    /// By lock, if a pending acquire explains a busy answer.
    contenders: Vec<ContenderTimes>,
    pub held: FastMap<(u32, u32), Own>,
}

impl OperationReader<'_> {
    fn see(&mut self, ordered: OrderedEvent, event: PackedEvent) {
        let (instant, position, lock) = (ordered.instant, ordered.position, ordered.lock as usize);
        if lock >= self.all.len() {
            return;
        }
        if matches!(event.f, F::Lost | F::Died) {
            return self.lost(lock, event, instant, position);
        }
        match (event.f, event.kind) {
            (F::Acquire, Kind::Invoke) => self.acquire(lock, event, instant, position),
            (F::Acquire, Kind::Ok) if ordered.void && !self.model.judges_busy() => self.void_grant(lock, event),
            (F::Acquire, Kind::Ok) => self.got(lock, event, instant, position),
            (F::Release, Kind::Invoke) => self.release(lock, event, instant, position),
            (F::Release, Kind::Fail) => {
                self.held.entry((lock as u32, event.process)).or_default().denied = 0;
            }
            _ => {}
        }
    }

    fn acquire(&mut self, lock: usize, event: PackedEvent, instant: u64, position: u32) {
        let history = self.history;
        let process = event.process;
        let reply = history.reply(event);
        let replied = reply.map(|_| history.instant(event.mate));
        // A call after a loss, at the same instant, is not lost by it.
        let own = self.held.get(&(lock as u32, process));
        let after = own.filter(|own| *self.model != Model::Mutex && own.lost == instant + 1);
        let (again, turn) = (after.is_some(), after.map_or(position, |own| own.lost_at.max(position)));
        let instant = replied.unwrap_or(u64::MAX).min(instant + u64::from(again));
        let token = reply.and_then(|reply| history.token(reply));
        let permits = history.permits(reply.unwrap_or(event));
        let op = LockOp::Acquire {
            process,
            mode: event.mode,
            permits,
            token,
            extends: history.rare(event).extends,
        };
        match reply.map_or(Kind::Info, |reply| reply.kind) {
            Kind::Ok => {
                self.all[lock].add_in_turn(op, instant, replied, (position, turn));
                self.held.entry((lock as u32, process)).or_default().asked = self.all[lock].operations.len();
            }
            Kind::Fail => {
                let busy = reply.is_some_and(|reply| found_taken(history, reply));
                let saw_another = || {
                    let contenders = self.contenders.get(lock);
                    let until = replied.unwrap_or(u64::MAX);
                    contenders.is_some_and(|contenders| contenders.met(process, instant, until))
                };
                if busy && self.model.judges_busy() && !saw_another() {
                    self.all[lock].add(LockOp::Busy { process }, instant, replied, position);
                }
            }
            _ => {
                self.all[lock].add(op, instant, None, position);
                // A hold with an unknown outcome may also have expired, which matters for busy answers.
                let holds = self.held.get(&(lock as u32, process)).is_some_and(|own| own.depth > 0);
                if self.model.judges_busy() && history.header.may_have_lease() && !holds {
                    self.all[lock].add(LockOp::Lose { process }, instant, None, position);
                }
            }
        }
    }

    fn got(&mut self, lock: usize, event: PackedEvent, instant: u64, position: u32) {
        let permits = u64::from(self.history.permits(event));
        let own = self.held.entry((lock as u32, event.process)).or_default();
        // A loss ends the latest grant of a plain mutex.
        if own.depth == 0 || *self.model == Model::Mutex {
            (own.got, own.got_at) = (instant, position);
        }
        if let Some(place) = std::mem::take(&mut own.ending).checked_sub(1) {
            // The previous hold ended before this one, though a busy answer may still be explained by it.
            let ending = &mut self.all[lock].operations[place];
            ending.reply = Some(instant.max(ending.call));
        }
        let again = !(*self.model == Model::ReadWrite && own.depth > 0);
        own.depth += u32::from(again);
        own.permits += permits;
        own.mode = event.mode;
        (own.lapsed, own.asked) = (0, 0);
    }

    fn release(&mut self, lock: usize, event: PackedEvent, instant: u64, position: u32) {
        let history = self.history;
        let process = event.process;
        let reply = history.reply(event);
        let kind = reply.map_or(Kind::Info, |reply| reply.kind);
        let replied = reply.filter(|_| kind == Kind::Ok).map(|_| history.instant(event.mate));
        let permits = history.permits(event);
        let op = LockOp::Release { process, permits };
        let own = self.held.entry((lock as u32, process)).or_default();
        if *self.model == Model::Mutex {
            // A mutex without owners: a failed release had no effect, and one after a loss may have had none.
            match kind {
                Kind::Ok if own.lapsed > 0 => self.all[lock].add(op, instant, None, position),
                Kind::Ok | Kind::Info => self.all[lock].add(op, instant, replied, position),
                _ => {}
            }
            (own.depth, own.permits, own.lapsed) = (0, 0, 0);
            return;
        }
        if own.depth == 0 {
            let lapsed = own.lapsed.checked_sub(permits_of(history, self.model, event));
            if kind == Kind::Ok && lapsed.is_none() {
                let op = LockOp::Release {
                    process: NOBODY,
                    permits,
                };
                self.all[lock].add(op, instant, replied, position);
            }
            own.lapsed = lapsed.unwrap_or(own.lapsed);
            return;
        }
        let error = reply
            .filter(|_| kind == Kind::Fail)
            .and_then(|reply| history.error(reply));
        if error.is_some_and(is_not_held) && !history.header.may_have_lease() {
            self.all[lock].add(
                LockOp::NotHeld { process },
                instant,
                Some(history.instant(event.mate)),
                position,
            );
            own.denied = self.all[lock].operations.len();
            return;
        }
        if matches!(self.model, Model::Semaphore { .. }) && u64::from(permits) > own.permits && kind != Kind::Ok {
            return;
        }
        own.permits = own.permits.saturating_sub(u64::from(permits));
        own.depth -= 1;
        if matches!(self.model, Model::Semaphore { .. }) {
            own.depth = u32::from(own.permits > 0);
        }
        let given_up = reply
            .filter(|_| kind == Kind::Fail)
            .map(|_| history.instant(event.mate));
        let given_up = given_up.filter(|_| !self.model.judges_busy());
        self.all[lock].add(op, instant, replied.or(given_up), position);
        if kind == Kind::Fail && given_up.is_none() {
            own.ending = self.all[lock].operations.len();
        }
    }

    fn lost(&mut self, lock: usize, event: PackedEvent, instant: u64, position: u32) {
        let Some(own) = self.held.get_mut(&(lock as u32, event.process)) else {
            return;
        };
        if own.depth == 0 {
            return;
        }
        // The grant of a plain mutex may have ended, and the mutex may have been granted again, before the signal came.
        if *self.model != Model::Mutex
            && let Some(place) = own.asked.checked_sub(1)
        {
            // The loss concerns the hold of an earlier answer; a later grant is not lost.
            let asked = &mut self.all[lock].operations[place];
            let before = *asked;
            asked.call = asked
                .reply
                .map_or(asked.call, |reply| reply.min(instant + 1).max(asked.call));
            let turn = &mut self.all[lock].turns[place];
            *turn = (*turn).max(position);
            let reads = matches!(before.op, LockOp::Acquire { mode: Mode::Read, .. });
            if *self.model == Model::ReadWrite && own.mode == Mode::Write && reads {
                // A downgrade may have had its effect before the loss as well, and then it is harmless.
                let position = self.all[lock].calls[place];
                self.all[lock].add(before.op, before.call, Some(instant), position);
            }
        }
        let known = !self.model.judges_busy();
        let denied = std::mem::take(&mut own.denied);
        let mut ending = if known { 0 } else { self.all[lock].operations.len() + 1 };
        if denied > 0 {
            // The release found the loss before the signal of it: the hold was lost at some time between.
            let operation = &mut self.all[lock].operations[denied - 1];
            operation.op = LockOp::Lose { process: event.process };
            operation.reply = Some(instant).filter(|_| known);
            ending = if known { 0 } else { denied };
        } else if *self.model == Model::Mutex {
            // The server may have released it at any time since the grant.
            let op = LockOp::Release {
                process: event.process,
                permits: 1,
            };
            self.all[lock].add_in_turn(op, own.got, None, (position, own.got_at));
        } else {
            // A busy answer may be explained by a lost hold until a process holds again.
            let at = instant.max(own.got);
            let reply = Some(at).filter(|_| known);
            self.all[lock].add(LockOp::Lose { process: event.process }, at, reply, position);
        }
        let lapsed = match self.model {
            Model::Semaphore { .. } => own.permits,
            _ => u64::from(own.depth),
        };
        // the denied release was one of them
        let released = denied.checked_sub(1).map_or(0, |place| {
            let release = self.history.event(self.all[lock].calls[place]);
            permits_of(self.history, self.model, release)
        });
        (own.depth, own.permits) = (0, 0);
        own.lapsed = lapsed.saturating_sub(released);
        (own.lost, own.lost_at, own.ending) = (instant + 1, position, ending);
    }
}
