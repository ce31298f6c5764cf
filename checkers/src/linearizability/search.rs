//! The general search: Wing and Gong's, made lazy as Lowe's, with memory as wide as the concurrency.
//!
//! J. Wing and C. Gong, "Testing and Verifying Concurrent Objects" (1993), <https://doi.org/10.1006/jpdc.1993.1015>;
//! G. Lowe, "Testing for linearizability" (2017), <https://doi.org/10.1002/cpe.3928>.
//!
//! It walks the calls and replies in order. A reply to an operation that has not taken effect forces it: it takes effect now, or another
//! pending operation first. A configuration is the place in the history, the set of live operations that took effect, and the state. Failed
//! configurations are stored, and an operation without a reply that one of them did *not* spend never helps when it is spent.

use std::ops::Deref;

use super::failures::FailedConfigurations;
use super::mask::Mask;
use super::plan::{NEVER, PlanEvent, PlannedOperations};
use super::spec::SequentialSpec;
use crate::options::{Budget, Clock};

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Searched {
    /// A legal order: places of the operations in it. Operations without a reply that are not in it did not happen.
    Order(Vec<usize>),
    /// There is no legal order. The history up to the reply of this operation has none, and every shorter one has one.
    NoOrder {
        /// The operation that blocks every order, by its place.
        blocked: usize,
    },
    /// The budget ended first.
    Unknown {
        /// The budget that ended.
        reason: &'static str,
        /// Configurations that were visited.
        configurations: u64,
    },
}

/// The budget of a search, and the clock of its time.
pub(super) type SearchLimits = (Budget, Clock);

/// Operations between two reads of the clock: a configuration costs as many as are pending. With large states, many more would take as long
/// as the first round of [`search_by_key`].
const CLOCK_EVERY: u64 = 1 << 10;

/// The reason for the end of a search that took too long.
pub(super) const TIME_ENDED: &str = "the time budget ended";
/// The reason for the end of a search with numbered states: without numbers, it needs less memory.
pub(super) const TOO_MANY_STATES: &str = "too many states to number";

/// A search that has begun and may continue.
pub(super) trait BegunSearch {
    /// Continues within a budget.
    fn go_on(&mut self, budget: Budget, clock: Clock) -> Searched;

    /// Returns the bytes that it needs to continue.
    fn bytes(&self) -> usize;
}

/// Begins a search of a plan, with at most `width` pending operations at once.
pub(super) fn begun<'a, S, R, P>(spec: R, plan: P, width: usize) -> Box<dyn BegunSearch + 'a>
where
    S: SequentialSpec + 'a,
    R: Deref<Target = S> + 'a,
    P: PlannedOperations<S::Op> + 'a,
{
    match width {
        0..=64 => Box::new(Search::<S, R, P, 1>::new(spec, plan, width)),
        65..=128 => Box::new(Search::<S, R, P, 2>::new(spec, plan, width)),
        129..=256 => Box::new(Search::<S, R, P, 4>::new(spec, plan, width)),
        257..=1024 => Box::new(Search::<S, R, P, 16>::new(spec, plan, width)),
        1025..=4096 => Box::new(Search::<S, R, P, 64>::new(spec, plan, width)),
        _ => Box::new(TooWide),
    }
}

/// The replacement of a search with too many pending operations at once.
struct TooWide;

impl BegunSearch for TooWide {
    fn go_on(&mut self, _: Budget, _: Clock) -> Searched {
        Searched::Unknown {
            reason: "more than 4,096 operations in flight at once",
            configurations: 0,
        }
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// A choice: the operations in effect and the state at a reply.
struct Frame<T, const W: usize> {
    state: T,
    taken: Mask<W>,
    at: u32,
    ordered: u32,
    /// The deadline of the last candidate tried; 0 before the first.
    cursor: u32,
}

struct Search<S: SequentialSpec, R, P, const W: usize> {
    spec: R,
    plan: P,
    at: u32,
    state: S::State,
    taken: Mask<W>,
    /// The operation in each slot, and sets of slots in use: all, eager ones, choices, crashed ones.
    slots: Vec<u32>,
    eager: Mask<W>,
    choice: Mask<W>,
    crashed: Mask<W>,
    order: Vec<u32>,
    frames: Vec<Frame<S::State, W>>,
    failed: FailedConfigurations<S::State, W>,
    deepest: u32,
    configurations: u64,
    /// Operations since the last read of the clock.
    work: u64,
}

impl<S, R, P, const W: usize> BegunSearch for Search<S, R, P, W>
where
    S: SequentialSpec,
    R: Deref<Target = S>,
    P: PlannedOperations<S::Op>,
{
    fn go_on(&mut self, budget: Budget, clock: Clock) -> Searched {
        let started = clock.now_ns();
        loop {
            let Some(event) = self.plan.event_at(self.at) else {
                return Searched::Order(self.order.iter().map(|op| self.plan.place(*op)).collect());
            };
            let forward = match event {
                PlanEvent::Call(op) => {
                    self.enter(op);
                    self.take_eager();
                    self.at += 1;
                    true
                }
                PlanEvent::Reply(op) if self.taken.has(self.plan.plan(op).slot) => {
                    self.taken.clear(self.plan.plan(op).slot);
                    self.leave(op);
                    self.at += 1;
                    true
                }
                PlanEvent::Reply(op) => self.force(op),
            };
            if !forward && !self.backtrack() {
                let (PlanEvent::Reply(op) | PlanEvent::Call(op)) = self.seen(self.deepest);
                let blocked = self.plan.place(op);
                return Searched::NoOrder { blocked };
            }
            if self.work >= CLOCK_EVERY {
                self.work = 0;
                if let Some(reason) = self.ended_by(budget, clock.now_ns() - started) {
                    let configurations = self.configurations;
                    return Searched::Unknown { reason, configurations };
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        self.failed.bytes() + self.bytes_of_frames() + self.plan.bytes_of_states()
    }
}

impl<S, R, P, const W: usize> Search<S, R, P, W>
where
    S: SequentialSpec,
    R: Deref<Target = S>,
    P: PlannedOperations<S::Op>,
{
    fn new(spec: R, plan: P, width: usize) -> Self {
        Self {
            at: 0,
            state: spec.initial(),
            spec,
            plan,
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

    /// Returns the call or reply at a place that was reached before.
    fn seen(&mut self, at: u32) -> PlanEvent {
        self.plan.event_at(at).expect("the search has been there")
    }

    /// Returns the budget that has ended, if one has.
    fn ended_by(&mut self, budget: Budget, spent_ns: u64) -> Option<&'static str> {
        self.failed.keep_within(budget.memory);
        if spent_ns > budget.time.as_nanos() as u64 {
            return Some(TIME_ENDED);
        }
        if self.plan.bytes_of_states() > budget.memory {
            return Some(TOO_MANY_STATES);
        }
        (self.bytes_of_frames() > budget.memory).then_some("the memory budget ended")
    }

    fn bytes_of_frames(&self) -> usize {
        self.frames.len() * size_of::<Frame<S::State, W>>()
    }

    /// Chooses an operation that takes effect before this reply. Returns `false` if there is none.
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

    /// Tries the next candidate of the topmost frame, and removes frames that have none left.
    fn next_candidate(&mut self) -> bool {
        let Some(frame) = self.frames.last() else { return false };
        let (at, cursor) = (frame.at, frame.cursor);
        let PlanEvent::Reply(forced) = self.seen(at) else {
            return false;
        };
        if cursor == 0 {
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

    /// Returns the choice with the earliest deadline after the cursor.
    fn candidate(&self, forced: u32) -> Option<(u32, u32)> {
        let cursor = self.frames.last()?.cursor;
        let mut next: Option<(u32, u32)> = None;
        for slot in self.choice.without(&self.taken).slots() {
            let op = self.slots[slot as usize];
            let plan = self.plan.plan(op);
            if op == forced || plan.deadline <= cursor || next.is_some_and(|(_, least)| plan.deadline >= least) {
                continue;
            }
            // Of those without a reply and of one class, the oldest possible one goes first.
            let older = plan.older;
            let in_turn = older == NEVER || self.taken.has(self.plan.plan(older).slot) || !self.follows(older);
            if in_turn && self.follows(op) {
                next = Some((op, plan.deadline));
            }
        }
        next
    }

    /// Returns whether the operation that must come first is in effect.
    fn follows(&self, op: u32) -> bool {
        let after = self.plan.plan(op).after;
        if after == NEVER {
            return true;
        }
        let first = self.plan.plan(after);
        let in_flight = self.slots[first.slot as usize] == after;
        !in_flight || self.taken.has(first.slot)
    }

    /// Moves to the state after an operation. Returns `false` if its answer is impossible.
    #[inline]
    fn step(&mut self, op: u32) -> bool {
        if self.plan.plan(op).observer {
            return self.spec.allows(&self.state, self.plan.op(op));
        }
        let next = self.spec.step(self.state.clone(), self.plan.op(op));
        next.map(|next| self.state = next).is_some()
    }

    fn take(&mut self, op: u32) -> bool {
        if !self.step(op) {
            return false;
        }
        self.taken.set(self.plan.plan(op).slot);
        self.order.push(op);
        self.take_eager();
        true
    }

    /// Makes observers and early operations take effect as soon as they are legal, until none is.
    fn take_eager(&mut self) {
        let mut waiting = self.eager.without(&self.taken);
        while !waiting.is_empty() {
            self.work += waiting.len();
            let before = self.order.len();
            for slot in waiting.slots() {
                let op = self.slots[slot as usize];
                if self.follows(op) && self.step(op) {
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

    /// Returns to the latest choice with a candidate left, or returns `false` without one.
    fn backtrack(&mut self) -> bool {
        while let Some(frame) = self.frames.last() {
            let (at, state, taken, ordered) = (frame.at, frame.state.clone(), frame.taken, frame.ordered);
            while self.at > at {
                self.at -= 1;
                match self.seen(self.at) {
                    PlanEvent::Call(op) => self.leave(op),
                    PlanEvent::Reply(op) => self.enter(op),
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
