//! The plan of a search for a history of one register, made from its events as the search reaches them.
//!
//! No two events have one instant, so calls and replies are in the order of the file, and a process has at most one pending operation.

use super::operations::{answered, register_op};
use super::order;
use super::plan::{NEVER, OpPlan, PlanEvent, PlannedOperations};
use super::register::{Register, RegisterOp};
use super::search::{SearchLimits, Searched, begun};
use super::spec::SequentialSpec;
use crate::history::event::Kind;
use crate::history::event_table::EventsFrom;
use crate::history::names::FastMap;
use crate::history::{History, PackedEvent};
use crate::model::Model;

/// The most events of a history: the deadlines of operations without a reply are above all positions.
const MAX_EVENTS: usize = 1 << 31;
/// The most slots of a search.
const MAX_PROCESSES: usize = 4_096;

/// Searches a history of one register with a known value at the start, if some operation compares; for others, there may be a faster way.
/// Places are positions of calls.
pub(super) fn search_events(history: &History, model: &Model, (budget, clock): SearchLimits) -> Option<Searched> {
    let start = match (model, model.start().flatten()) {
        (_, Some(start)) => Some(start),
        (Model::ExactCasRegister { .. }, None) => None,
        _ => return None,
    };
    let width = history.processes.len();
    let fits = width <= MAX_PROCESSES && history.events.len() < MAX_EVENTS;
    if history.locks.len() != 1 || history.counts.compared == 0 || !fits || !order::is_strict(history) {
        return None;
    }
    let register = Register { start };
    let plan = EventPlan::new(history, model, register);
    let found = begun(&register, plan, width).go_on(budget, clock);
    Some(found)
}

struct EventPlan<'a> {
    history: &'a History,
    model: &'a Model,
    register: Register,
    /// The events that were not read yet, and the position of the first.
    rest: EventsFrom<'a>,
    position: u32,
    plan_events: Vec<PlanEvent>,
    planned: Vec<PlannedRegisterOp>,
    /// By process, its pending operation that will be answered.
    open: Vec<u32>,
    /// The free slots that were used before, and the number of used ones.
    free: Vec<u32>,
    used: u32,
    /// The latest operation without a reply of each class.
    latest: FastMap<u64, u32>,
}

struct PlannedRegisterOp {
    op: RegisterOp,
    plan: OpPlan,
    /// The position of its call.
    call: u32,
}

impl<'a> EventPlan<'a> {
    fn new(history: &'a History, model: &'a Model, register: Register) -> Self {
        Self {
            history,
            model,
            register,
            rest: history.events.iter(),
            position: 0,
            plan_events: Vec::with_capacity(64),
            planned: Vec::with_capacity(32),
            open: vec![NEVER; history.processes.len()],
            free: Vec::new(),
            used: 0,
            latest: FastMap::default(),
        }
    }

    /// Reads events up to the next call or reply.
    fn grow(&mut self) -> Option<PlanEvent> {
        loop {
            let (position, event) = (self.position, self.rest.next()?);
            self.position += 1;
            let Some(open) = self.open.get_mut(event.process as usize) else {
                continue;
            };
            match event.kind {
                Kind::Invoke => {
                    if let Some(op) = self.call(position, event) {
                        return Some(PlanEvent::Call(op));
                    }
                }
                Kind::Ok | Kind::Fail if *open != NEVER => {
                    let op = std::mem::replace(open, NEVER);
                    self.free.push(self.planned[op as usize].plan.slot);
                    return Some(PlanEvent::Reply(op));
                }
                _ => {}
            }
        }
    }

    /// Plans the operation of a call, if it is evidence.
    fn call(&mut self, position: u32, call: PackedEvent) -> Option<u32> {
        let reply = self.history.reply(call);
        let op = register_op(self.history, self.model, call, reply)?;
        let crashed = answered(self.history, call).is_none();
        let mut plan = OpPlan::of(self.register.is_observer(&op), self.register.polarity(&op), crashed);
        if !plan.matters() {
            return None;
        }
        let number = self.planned.len() as u32;
        plan.slot = self.free.pop().unwrap_or(self.used);
        self.used = self.used.max(plan.slot + 1);
        if crashed {
            plan.deadline = MAX_EVENTS as u32 + position;
            if let Some(class) = self.register.class(&op) {
                plan.older = self.latest.insert(class, number).unwrap_or(NEVER);
            }
        } else {
            plan.deadline = call.mate + 2;
            self.open[call.process as usize] = number;
        }
        let call = position;
        self.planned.push(PlannedRegisterOp { op, plan, call });
        Some(number)
    }
}

impl PlannedOperations<RegisterOp> for EventPlan<'_> {
    fn event_at(&mut self, at: u32) -> Option<PlanEvent> {
        if let Some(event) = self.plan_events.get(at as usize) {
            return Some(*event);
        }
        let next = self.grow()?;
        self.plan_events.push(next);
        Some(next)
    }

    fn plan(&self, op: u32) -> &OpPlan {
        &self.planned[op as usize].plan
    }

    fn op(&self, op: u32) -> &RegisterOp {
        &self.planned[op as usize].op
    }

    fn place(&self, op: u32) -> usize {
        self.planned[op as usize].call as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::minimal::search_register;
    use super::super::operations;
    use super::super::random::random;
    use super::*;
    use crate::options::{Budget, Clock};

    #[test]
    fn a_plan_that_grows_and_a_whole_one_say_the_same() {
        let exact = Model::ExactCasRegister { start: None };
        for model in [exact, Model::CasRegister { start: Some(1) }] {
            let (mut legal, mut illegal) = (0, 0);
            for seed in 1..=20_000 {
                let history = random(seed, model);
                let budget = (Budget::default(), Clock::still());
                let Some(found) = search_events(&history, &model, budget) else {
                    continue;
                };
                let all = operations::registers(&history, &model);
                match (found, search_register(&history, &model, &all[0], budget).1) {
                    (Searched::Order(_), Searched::Order(_)) => legal += 1,
                    (Searched::NoOrder { blocked: found }, Searched::NoOrder { blocked }) => {
                        assert_eq!(found, all[0].calls[blocked] as usize, "seed {seed} under {model}");
                        illegal += 1;
                    }
                    (found, whole) => panic!("seed {seed} under {model}: {found:?}, and whole {whole:?}"),
                }
            }
            assert!(
                legal > 100 && illegal > 100,
                "{model}: {legal} legal, {illegal} illegal"
            );
        }
    }
}
