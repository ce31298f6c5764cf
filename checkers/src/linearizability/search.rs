//! The general search: Wing and Gong's, made lazy as Lowe's, with memory as wide as the concurrency.
//!
//! J. Wing and C. Gong, "Testing and Verifying Concurrent Objects" (1993), <https://doi.org/10.1006/jpdc.1993.1015>;
//! G. Lowe, "Testing for linearizability" (2017), <https://doi.org/10.1002/cpe.3928>.
//!
//! Walks the calls and replies in order. A reply that arrives before its operation has taken effect forces it: it, or
//! first some other operation in flight, takes effect now. A configuration is the place in the history, the set of live
//! operations that took effect, and the state; those that failed are remembered, and an operation without a reply that
//! one of them did *not* spend never helps to spend now.

use std::collections::BTreeMap;
use std::time::Duration;

use super::failures::FailedConfigurations;
use super::mask::Mask;
use super::plan::{Happening, NEVER, PlannedOperations, SearchPlan};
use super::spec::{Operation, SequentialSpec};
use crate::options::{Budget, Clock};

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Searched {
    /// There is a legal order: places of the operations in it. Those without a reply that are not in it did not happen.
    Order(Vec<usize>),
    /// There is none; the history up to the reply of this operation has none already, and no shorter one.
    NoOrder {
        /// The operation that no order gets past, by its place.
        blocked: usize,
    },
    /// The budget ended first.
    Unknown {
        /// Which budget ended.
        reason: &'static str,
        /// Configurations that were visited.
        configurations: u64,
    },
}

/// Operations looked at between two looks at the clock: a configuration costs as many as are in flight.
const CLOCK_EVERY: u64 = 1 << 14;

/// Why a search ended that took too long.
const TIME_ENDED: &str = "the time budget ended";
/// The time of the first round in which many keys are searched.
const FIRST_ROUND: Duration = Duration::from_millis(1);

/// Looks for an order of the operations that their specification allows.
///
/// Operations may come in any order. Needs memory for the operations that are in flight at once, for one frame at each
/// choice, and for remembered failures up to the budget.
pub fn search<S: SequentialSpec>(spec: &S, operations: &[Operation<S::Op>], budget: Budget, clock: Clock) -> Searched {
    search_in_turn(spec, operations, &[], budget, clock)
}

/// Some of the operations, and their places among all of them.
type Placed<Op> = (Vec<usize>, Vec<Operation<Op>>);

/// Searches each of many objects by itself: operations on different keys have nothing to do with each other (Herlihy and Wing's
/// locality), so that none has to be kept in mind with those of another. Answers with the keys in order; the places of each answer are
/// those in `operations`. `spec` is of one object.
///
/// The budget is that of each key. It is spent in rounds of 1 ms, 4 ms and so on, and a round that finds a key without an order is the last:
/// of the keys of one history some are decided at once, and others not in hours.
pub fn search_by_key<S: SequentialSpec, K: Ord>(
    spec: &S,
    operations: &[Operation<S::Op>],
    key: impl Fn(&S::Op) -> K,
    budget: Budget,
    clock: Clock,
) -> BTreeMap<K, Searched>
where
    S::Op: Clone,
{
    let mut by_key: BTreeMap<K, Placed<S::Op>> = BTreeMap::new();
    for (place, operation) in operations.iter().enumerate() {
        let (places, own) = by_key.entry(key(&operation.op)).or_default();
        places.push(place);
        own.push(operation.clone());
    }
    let mut found: Vec<Option<Searched>> = vec![None; by_key.len()];
    let mut time = FIRST_ROUND.min(budget.time);
    loop {
        for (found, (places, own)) in found.iter_mut().zip(by_key.values()) {
            if found.is_none() || matches!(found, Some(Searched::Unknown { reason: TIME_ENDED, .. })) {
                let searched = search(spec, own, Budget { time, ..budget }, clock);
                *found = Some(in_places(searched, places));
            }
        }
        let any = |of: fn(&Searched) -> bool| found.iter().flatten().any(of);
        let goes_on = any(|found| matches!(found, Searched::Unknown { reason: TIME_ENDED, .. }));
        let is_violated = any(|found| matches!(found, Searched::NoOrder { .. }));
        if !goes_on || is_violated || time == budget.time {
            return by_key.into_keys().zip(found.into_iter().flatten()).collect();
        }
        time = (time * 4).min(budget.time);
    }
}

/// What was found among some of the operations, with their places among all of them.
fn in_places(found: Searched, places: &[usize]) -> Searched {
    match found {
        Searched::Order(order) => Searched::Order(order.into_iter().map(|own| places[own]).collect()),
        Searched::NoOrder { blocked } => Searched::NoOrder {
            blocked: places[blocked],
        },
        unknown => unknown,
    }
}

/// As [`search`], where some operations come after others that were answered at the very instant of their calls.
pub(super) fn search_in_turn<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    after: &[Option<usize>],
    budget: Budget,
    clock: Clock,
) -> Searched {
    let mut plan = SearchPlan::of(spec, operations, after);
    let width = plan.width;
    search_planned(spec, &mut plan, width, (budget, clock))
}

/// Searches what is planned, of which so many operations are in flight at once at most.
pub(super) fn search_planned<S: SequentialSpec>(
    spec: &S,
    plan: &mut impl PlannedOperations<S::Op>,
    width: usize,
    (budget, clock): (Budget, Clock),
) -> Searched {
    match width {
        0..=64 => Search::<S, _, 1>::new(spec, plan, width).run(budget, clock),
        65..=128 => Search::<S, _, 2>::new(spec, plan, width).run(budget, clock),
        129..=256 => Search::<S, _, 4>::new(spec, plan, width).run(budget, clock),
        257..=1024 => Search::<S, _, 16>::new(spec, plan, width).run(budget, clock),
        1025..=4096 => Search::<S, _, 64>::new(spec, plan, width).run(budget, clock),
        _ => Searched::Unknown {
            reason: "more than 4,096 operations in flight at once",
            configurations: 0,
        },
    }
}

/// A choice: at this reply, with these in effect, in this state.
struct Frame<T, const W: usize> {
    state: T,
    taken: Mask<W>,
    at: u32,
    ordered: u32,
    /// The deadline of the last candidate tried; 0 before the first.
    cursor: u32,
}

struct Search<'a, S: SequentialSpec, P, const W: usize> {
    spec: &'a S,
    plan: &'a mut P,
    at: u32,
    state: S::State,
    taken: Mask<W>,
    /// The operation in each slot, and sets of slots in use: all, those to take at once, those to branch on, crashed.
    slots: Vec<u32>,
    eager: Mask<W>,
    choice: Mask<W>,
    crashed: Mask<W>,
    order: Vec<u32>,
    frames: Vec<Frame<S::State, W>>,
    failed: FailedConfigurations<S::State, W>,
    deepest: u32,
    configurations: u64,
    /// Operations looked at since the last look at the clock.
    work: u64,
}

impl<'a, S: SequentialSpec, P: PlannedOperations<S::Op>, const W: usize> Search<'a, S, P, W> {
    fn new(spec: &'a S, plan: &'a mut P, width: usize) -> Self {
        Self {
            spec,
            plan,
            at: 0,
            state: spec.initial(),
            taken: Mask::EMPTY,
            slots: vec![NEVER; width],
            eager: Mask::EMPTY,
            choice: Mask::EMPTY,
            crashed: Mask::EMPTY,
            order: Vec::with_capacity(64),
            frames: Vec::new(),
            failed: FailedConfigurations::default(),
            deepest: 0,
            configurations: 0,
            work: 0,
        }
    }

    fn run(mut self, budget: Budget, clock: Clock) -> Searched {
        let started = clock.now_ns();
        loop {
            let Some(happening) = self.plan.happening(self.at) else {
                return Searched::Order(self.order.iter().map(|place| *place as usize).collect());
            };
            let forward = match happening {
                Happening::Call(op) => {
                    self.enter(op);
                    self.take_eager();
                    self.at += 1;
                    true
                }
                Happening::Reply(op) if self.taken.has(self.plan.plan(op).slot) => {
                    self.taken.clear(self.plan.plan(op).slot);
                    self.leave(op);
                    self.at += 1;
                    true
                }
                Happening::Reply(op) => self.force(op),
            };
            if !forward && !self.backtrack() {
                let (Happening::Reply(op) | Happening::Call(op)) = self.plan.seen(self.deepest);
                return Searched::NoOrder { blocked: op as usize };
            }
            if self.work >= CLOCK_EVERY {
                self.work = 0;
                self.failed.keep_within(budget.memory);
                if clock.now_ns() - started > budget.time.as_nanos() as u64 {
                    let configurations = self.configurations;
                    return Searched::Unknown {
                        reason: TIME_ENDED,
                        configurations,
                    };
                }
                if self.frames.len() * size_of::<Frame<S::State, W>>() > budget.memory {
                    let configurations = self.configurations;
                    return Searched::Unknown {
                        reason: "the memory budget ended",
                        configurations,
                    };
                }
            }
        }
    }

    /// Something must take effect before this reply can pass. False when nothing can.
    fn force(&mut self, op: u32) -> bool {
        self.configurations += 1;
        self.work += W as u64;
        self.deepest = self.deepest.max(self.at);
        let slot = self.plan.plan(op).slot;
        let mut others = self.choice.without(&self.taken);
        others.clear(slot);
        if others.is_empty() {
            return self.take(op);
        }
        let free = self.taken.without(&self.crashed);
        if self
            .failed
            .covers(self.at, &self.state, free, self.taken.and(&self.crashed))
        {
            return false;
        }
        let ordered = self.order.len() as u32;
        self.frames.push(Frame {
            state: self.state.clone(),
            taken: self.taken,
            at: self.at,
            ordered,
            cursor: 0,
        });
        self.next_candidate()
    }

    /// Tries the next candidate of the topmost frame, dropping frames that have none left.
    fn next_candidate(&mut self) -> bool {
        let Some(frame) = self.frames.last() else { return false };
        let Happening::Reply(forced) = self.plan.seen(frame.at) else {
            return false;
        };
        if frame.cursor == 0 {
            let own = self.plan.plan(forced).slot;
            self.frames.last_mut().expect("the frame is there").cursor = 1;
            if !self.taken.has(own) && self.take(forced) {
                return true;
            }
        }
        while let Some((op, deadline)) = self.candidate(forced) {
            self.work += self.choice.without(&self.taken).len();
            self.frames.last_mut().expect("the frame is there").cursor = deadline;
            if self.take(op) {
                return true;
            }
        }
        false
    }

    /// The operation to branch on with the earliest deadline after the cursor.
    fn candidate(&self, forced: u32) -> Option<(u32, u32)> {
        let cursor = self.frames.last()?.cursor;
        let mut next: Option<(u32, u32)> = None;
        for slot in self.choice.without(&self.taken).slots() {
            let op = self.slots[slot as usize];
            let plan = self.plan.plan(op);
            if op == forced || plan.deadline <= cursor || next.is_some_and(|(_, least)| plan.deadline >= least) {
                continue;
            }
            // Of those without a reply and of one class, the oldest goes first that can.
            let older = plan.older;
            let in_turn = older == NEVER || self.taken.has(self.plan.plan(older).slot) || !self.follows(older);
            if in_turn && self.follows(op) {
                next = Some((op, plan.deadline));
            }
        }
        next
    }

    /// Whether the operation that has to come first is in effect.
    fn follows(&self, op: u32) -> bool {
        let after = self.plan.plan(op).after;
        if after == NEVER {
            return true;
        }
        let first = self.plan.plan(after);
        let in_flight = self.slots[first.slot as usize] == after;
        !in_flight || self.taken.has(first.slot)
    }

    fn take(&mut self, op: u32) -> bool {
        let Some(state) = self.spec.step(self.state.clone(), self.plan.op(op)) else {
            return false;
        };
        self.state = state;
        self.taken.set(self.plan.plan(op).slot);
        self.order.push(op);
        self.take_eager();
        true
    }

    /// Observers, and what only gives to others: as soon as they are legal, until none is.
    fn take_eager(&mut self) {
        let mut waiting = self.eager.without(&self.taken);
        while !waiting.is_empty() {
            self.work += waiting.len();
            let before = self.order.len();
            for slot in waiting.slots() {
                let op = self.slots[slot as usize];
                if self.follows(op)
                    && let Some(state) = self.spec.step(self.state.clone(), self.plan.op(op))
                {
                    self.state = state;
                    self.taken.set(slot);
                    self.order.push(op);
                }
            }
            if self.order.len() == before {
                return;
            }
            waiting = self.eager.without(&self.taken);
        }
    }

    fn enter(&mut self, op: u32) {
        let plan = self.plan.plan(op);
        self.slots[plan.slot as usize] = op;
        if plan.eager {
            self.eager.set(plan.slot);
        }
        if plan.choice {
            self.choice.set(plan.slot);
        }
        if plan.crashed {
            self.crashed.set(plan.slot);
        }
    }

    fn leave(&mut self, op: u32) {
        let slot = self.plan.plan(op).slot;
        self.slots[slot as usize] = NEVER;
        for mask in [&mut self.eager, &mut self.choice, &mut self.crashed] {
            mask.clear(slot);
        }
    }

    /// Back to the latest choice that has a candidate left. False when there is none.
    fn backtrack(&mut self) -> bool {
        while let Some(frame) = self.frames.last() {
            let (at, state, taken, ordered) = (frame.at, frame.state.clone(), frame.taken, frame.ordered);
            while self.at > at {
                self.at -= 1;
                match self.plan.seen(self.at) {
                    Happening::Call(op) => self.leave(op),
                    Happening::Reply(op) => self.enter(op),
                }
            }
            (self.state, self.taken) = (state.clone(), taken);
            self.order.truncate(ordered as usize);
            if self.next_candidate() {
                return true;
            }
            self.frames.pop();
            self.failed
                .insert(at, state, taken.without(&self.crashed), taken.and(&self.crashed));
        }
        false
    }
}
