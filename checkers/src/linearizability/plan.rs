//! The plan of a search: calls and replies in order, a slot for each pending operation, and the choices that the hints of the specification
//! allow for each.

use std::cell::OnceCell;

use super::spec::{Operation, Polarity, SequentialSpec};
use crate::history::names::{FastMap, NONE};
use crate::span_ends::SpanEnds;

/// No such operation.
pub(super) const NEVER: u32 = NONE;

/// A call or a reply; the number is the operation's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanEvent {
    Call(u32),
    Reply(u32),
}

/// The plan of one operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpPlan {
    pub slot: u32,
    /// The order of replies, from 2; operations without one come after all, by call.
    pub deadline: u32,
    /// The next older operation without a reply of the same class.
    pub older: u32,
    /// The operation of its process that must take effect before.
    pub after: u32,
    /// Whether it takes effect as soon as it is legal.
    pub eager: bool,
    /// Whether it may take effect before another's reply.
    pub choice: bool,
    /// Whether it leaves every state as it is.
    pub observer: bool,
    pub crashed: bool,
}

/// The planned operations that a search reads. They may be planned only as far as the search comes: most violations come early.
pub(super) trait PlannedOperations<O> {
    /// Returns the call or reply at a place in their order, if there is one.
    fn event_at(&mut self, at: u32) -> Option<PlanEvent>;

    /// Returns the plan of an operation that was called.
    fn plan(&self, op: u32) -> &OpPlan;

    /// Returns the operation itself.
    fn op(&self, op: u32) -> &O;

    /// Returns the number of an operation in the result.
    fn place(&self, op: u32) -> usize {
        op as usize
    }

    /// Returns the bytes that it stores for the states of the search.
    fn bytes_of_states(&self) -> usize {
        0
    }
}

/// The whole plan of one search.
pub(super) struct SearchPlan<'a, O> {
    operations: &'a [Operation<O>],
    plan_events: Vec<PlanEvent>,
    ops: Vec<OpPlan>,
    /// The most slots that are in use at once.
    pub width: usize,
}

impl<O> PlannedOperations<O> for SearchPlan<'_, O> {
    fn event_at(&mut self, at: u32) -> Option<PlanEvent> {
        self.plan_events.get(at as usize).copied()
    }

    fn plan(&self, op: u32) -> &OpPlan {
        &self.ops[op as usize]
    }

    fn op(&self, op: u32) -> &O {
        &self.operations[op as usize].op
    }
}

impl<'a, O> SearchPlan<'a, O> {
    /// Makes a plan. `after` has, for each operation, one that was answered at the instant of its call and that comes first; it may be
    /// shorter than the operations.
    pub(super) fn of<S: SequentialSpec<Op = O>>(
        spec: &S,
        operations: &'a [Operation<O>],
        after: &[Option<usize>],
    ) -> Self {
        // Needed only if some operation may best come late or early.
        let observed = OnceCell::new();
        let opposed = || observed.get_or_init(|| observers(spec, operations));
        let mut ops: Vec<OpPlan> = operations
            .iter()
            .map(|operation| hints(spec, operation, opposed))
            .collect();
        for (op, first) in ops.iter_mut().zip(after) {
            op.after = first.map_or(NEVER, |first| first as u32);
        }
        let plan_events = in_order(operations, |place| ops[place].matters());
        loosen(spec, operations, &mut ops, &plan_events);
        let width = assign(spec, operations, &mut ops, &plan_events);
        let as_plan_event = |(_, reply, place): &(u64, bool, u32)| {
            if *reply {
                PlanEvent::Reply(*place)
            } else {
                PlanEvent::Call(*place)
            }
        };
        Self {
            operations,
            plan_events: plan_events.iter().map(as_plan_event).collect(),
            ops,
            width,
        }
    }
}

/// A call or a reply with its instant and its operation's place. Sorts calls before replies of the same instant.
pub(super) type TimedPlanEvent = (u64, bool, u32);

/// The number of pending operations up to which a linear search finds the next reply.
const FEW_IN_FLIGHT: usize = 64;

/// Returns calls and replies, sorted, of the operations that matter, by their places.
pub(super) fn in_order<O>(operations: &[Operation<O>], matters: impl Fn(usize) -> bool) -> Vec<TimedPlanEvent> {
    let kept = || (0u32..).zip(operations).filter(|(place, _)| matters(*place as usize));
    let mut plan_events: Vec<TimedPlanEvent> = Vec::with_capacity(operations.len() * 2);
    // Of the pending ones, the reply that comes first is the last.
    let (mut open, mut last): (Vec<TimedPlanEvent>, u64) = (Vec::new(), 0);
    for (place, operation) in kept() {
        if operation.call < last || open.len() > FEW_IN_FLIGHT {
            plan_events.clear();
            plan_events.extend(kept().map(|(place, operation)| (operation.call, false, place)));
            let replies =
                kept().filter_map(|(place, operation)| Some((operation.reply?.max(operation.call), true, place)));
            plan_events.extend(replies);
            plan_events.sort_unstable();
            return plan_events;
        }
        last = operation.call;
        while let Some(reply) = open.pop_if(|reply| reply.0 < last) {
            plan_events.push(reply);
        }
        plan_events.push((last, false, place));
        if let Some(reply) = operation.reply {
            let reply = (reply.max(last), true, place);
            open.insert(open.partition_point(|other| *other > reply), reply);
        }
    }
    plan_events.extend(open.into_iter().rev());
    plan_events
}

fn hints<'a, S: SequentialSpec>(spec: &S, operation: &Operation<S::Op>, opposed: impl Fn() -> &'a SpanEnds) -> OpPlan {
    let crashed = operation.reply.is_none();
    let observer = spec.is_observer(&operation.op);
    let polarity = match spec.polarity(&operation.op) {
        Polarity::Neutral => Polarity::Neutral,
        _ if opposed().meeting(operation.call, operation.reply.unwrap_or(u64::MAX)) > 0 => Polarity::Neutral,
        polarity => polarity,
    };
    OpPlan::of(observer, polarity, crashed)
}

impl OpPlan {
    /// Makes the plan of an operation from the hints of a specification.
    pub(super) fn of(observer: bool, polarity: Polarity, crashed: bool) -> Self {
        Self {
            slot: 0,
            deadline: 0,
            older: NEVER,
            after: NEVER,
            // An observer without an answer need not happen.
            eager: (observer && !crashed) || (!observer && polarity == Polarity::Early),
            choice: !observer && polarity == Polarity::Neutral,
            observer,
            crashed,
        }
    }

    /// Returns whether it may have to take effect at all.
    pub(super) fn matters(&self) -> bool {
        !self.crashed || self.eager || self.choice
    }
}

/// Makes operations choices: calls and replies at one instant have no order, so an operation that would best come late may have to come
/// early, and the opposite.
fn loosen<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    ops: &mut [OpPlan],
    plan_events: &[TimedPlanEvent],
) {
    for same in plan_events.chunk_by(|a, b| a.0 == b.0) {
        // Calls are before replies.
        let (first, last) = (same[0], same[same.len() - 1]);
        if first.1 || !last.1 {
            continue;
        }
        for (_, _, place) in same {
            if !spec.is_observer(&operations[*place as usize].op) {
                let op = &mut ops[*place as usize];
                (op.eager, op.choice) = (false, true);
            }
        }
    }
}

/// Returns the times in which observers that have a reply were pending.
fn observers<S: SequentialSpec>(spec: &S, operations: &[Operation<S::Op>]) -> SpanEnds {
    let mut observers = SpanEnds::default();
    for operation in operations.iter().filter(|operation| spec.is_observer(&operation.op)) {
        if operation.reply.is_some() {
            observers.add(operation.call, operation.reply);
        }
    }
    observers.sort();
    observers
}

/// Gives each operation a slot that is free from its call to its reply. Those without a reply keep theirs, and are linked to the one of
/// their class before, so that only the oldest is ever tried.
fn assign<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    ops: &mut [OpPlan],
    plan_events: &[TimedPlanEvent],
) -> usize {
    let (mut free, mut width, mut replies) = (Vec::new(), 0, 2);
    for (_, reply, place) in plan_events {
        let op = &mut ops[*place as usize];
        if *reply {
            free.push(op.slot);
            op.deadline = replies;
            replies += 1;
        } else {
            op.slot = free.pop().unwrap_or_else(|| {
                width += 1;
                width as u32 - 1
            });
        }
    }
    let mut last: FastMap<u64, u32> = FastMap::default();
    for (_, _, place) in plan_events {
        let op = &mut ops[*place as usize];
        if op.crashed {
            op.deadline = replies;
            replies += 1;
            let class = spec.class(&operations[*place as usize].op);
            op.older = class.and_then(|class| last.insert(class, *place)).unwrap_or(NEVER);
        }
    }
    width
}
