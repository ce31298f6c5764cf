//! Explanations of a linearizability violation, for any specification: the needed operations, the longest prefix that has an order, and the
//! states that are possible after it.

use std::collections::HashMap;
use std::iter::successors;
use std::time::Duration;

use super::minimal::prefix;
use super::plan::in_order;
use super::search::Searched;
use super::search_run::search;
use super::spec::{Operation, SequentialSpec};
use crate::options::{Budget, Clock};
use crate::shrink::shrink;

/// The largest number of sets of operations in effect, with a state, that are stored at a time.
const MAX_FRONTIER: usize = 20_000;
/// The largest number of operations that are pending at a time, including those with an unknown outcome.
const MAX_IN_FLIGHT: usize = 64;

/// The reason why operations have no order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation<State> {
    /// The operations whose answers are needed for that, by their places: if any one of them were unknown there would be an order, as far
    /// as the budget sufficed.
    pub needed: Vec<usize>,
    /// One order of the longest prefix that has one, by places. Empty if that needed too much memory.
    pub prefix: Vec<usize>,
    /// The states that are possible after it, when the next answer arrives.
    pub states: Vec<State>,
    /// The operation whose answer is impossible in each of them.
    pub blocked: usize,
}

/// Explains why operations have no order. Returns `None` if they have one, or if the budget ended before the decision.
///
/// An operation that is not needed counts as one that may have happened or not. It is never removed, so the remaining operations are no
/// more impossible than all of them.
pub fn explain<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    budget: Budget,
    clock: Clock,
) -> Option<Explanation<S::State>>
where
    S::Op: Clone,
{
    let Searched::NoOrder { blocked } = search(spec, operations, budget, clock) else {
        return None;
    };
    let before = prefix(operations, blocked);
    let units: Vec<Vec<usize>> = (0..before.len()).map(|place| vec![place]).collect();
    let started = clock.now_ns();
    let kept = shrink(before.len(), &units, |answered| {
        let mut some: Vec<Operation<S::Op>> = before.iter().map(|place| operations[*place].clone()).collect();
        let mut answered = answered.iter().peekable();
        for (place, operation) in some.iter_mut().enumerate() {
            if answered.next_if(|answered| **answered == place).is_none() {
                operation.reply = None;
            }
        }
        let spent = Duration::from_nanos(clock.now_ns() - started);
        let time = budget.time.saturating_sub(spent) / 16;
        let budget = Budget { time, ..budget };
        matches!(search(spec, &some, budget, clock), Searched::NoOrder { .. })
    });
    let answered = |place: &usize| operations[*place].reply.is_some();
    let needed = kept.into_iter().map(|place| before[place]).filter(answered).collect();
    let end = Frontier::of(spec, operations, &[]).and_then(Frontier::end);
    let (prefix, states, blocked) = end.unwrap_or((Vec::new(), Vec::new(), blocked));
    Some(Explanation {
        needed,
        prefix,
        states,
        blocked,
    })
}

/// The pending operations in effect, by slot, and the state after them.
type InEffect<State> = (u64, State);

/// No step.
const START: usize = usize::MAX;

/// All configurations that are possible at one moment of a history.
pub(super) struct Frontier<'a, S: SequentialSpec> {
    spec: &'a S,
    operations: &'a [Operation<S::Op>],
    after: &'a [Option<usize>],
    slots: [Option<usize>; MAX_IN_FLIGHT],
    /// Each with the last step that led to it.
    reached: HashMap<InEffect<S::State>, usize>,
    /// Operations that took effect, each with the step before it.
    steps: Vec<(usize, usize)>,
    blocked: Option<usize>,
}

impl<'a, S: SequentialSpec> Frontier<'a, S> {
    /// Advances to the first impossible answer. Returns `None` if there is none, or if that needs too much memory. `after` is as in
    /// [`search_in_turn`](super::search_run::search_in_turn).
    pub(super) fn of(spec: &'a S, operations: &'a [Operation<S::Op>], after: &'a [Option<usize>]) -> Option<Self> {
        let mut frontier = Self {
            spec,
            operations,
            after,
            slots: [None; MAX_IN_FLIGHT],
            reached: HashMap::from([((0, spec.initial()), START)]),
            steps: Vec::new(),
            blocked: None,
        };
        for (_, is_reply, place) in in_order(operations, |_| true) {
            let place = place as usize;
            if !is_reply {
                let slot = frontier.slots.iter().position(Option::is_none)?;
                frontier.slots[slot] = Some(place);
                continue;
            }
            let slot = frontier.slots.iter().position(|open| *open == Some(place))?;
            frontier.expand(slot)?;
            if !frontier.reached.keys().any(|(taken, _)| taken >> slot & 1 == 1) {
                frontier.blocked = Some(place);
                return Some(frontier);
            }
            let reached = std::mem::take(&mut frontier.reached).into_iter();
            let passed = reached.filter(|((taken, _), _)| taken >> slot & 1 == 1);
            frontier.reached = passed
                .map(|((taken, state), step)| ((taken & !(1 << slot), state), step))
                .collect();
            frontier.slots[slot] = None;
        }
        None
    }

    /// Makes pending operations take effect in configurations in which this one has not.
    fn expand(&mut self, slot: usize) -> Option<()> {
        let mut waiting: Vec<InEffect<S::State>> = self.reached.keys().cloned().collect();
        while let Some((taken, state)) = waiting.pop() {
            if taken >> slot & 1 == 1 {
                continue;
            }
            let before = self.reached[&(taken, state.clone())];
            for (next, place) in self.slots.iter().enumerate() {
                let Some(place) = place.filter(|place| taken >> next & 1 == 0 && self.follows(*place, taken)) else {
                    continue;
                };
                let Some(after) = self.spec.step(state.clone(), &self.operations[place].op) else {
                    continue;
                };
                let key = (taken | 1 << next, after);
                if !self.reached.contains_key(&key) {
                    self.steps.push((place, before));
                    self.reached.insert(key.clone(), self.steps.len() - 1);
                    waiting.push(key);
                }
            }
            if self.reached.len() > MAX_FRONTIER {
                return None;
            }
        }
        Some(())
    }

    /// Returns whether the operation that must come first is in effect: it is no longer pending, or among these.
    fn follows(&self, place: usize, taken: u64) -> bool {
        let first = self.after.get(place).copied().flatten();
        let slot = first.and_then(|first| self.slots.iter().position(|open| *open == Some(first)));
        slot.is_none_or(|slot| taken >> slot & 1 == 1)
    }

    /// Returns the shortest order up to the impossible answer, of equal ones the first by places; the states after it and the others; and
    /// the operation.
    pub(super) fn end(self) -> Option<(Vec<usize>, Vec<S::State>, usize)> {
        let mut reached: Vec<_> = self.reached.into_iter().collect();
        reached.sort_by_key(|(_, step)| *step);
        let order_up_to = |last: usize| {
            let back = successors(self.steps.get(last), |(_, before)| self.steps.get(*before));
            let mut order: Vec<usize> = back.map(|(place, _)| *place).collect();
            order.reverse();
            order
        };
        let orders = reached.iter().map(|(_, last)| order_up_to(*last));
        let shortest = orders.min_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        let mut states: Vec<S::State> = Vec::new();
        for ((_, state), _) in reached {
            if !states.contains(&state) {
                states.push(state);
            }
        }
        Some((shortest?, states, self.blocked?))
    }
}
