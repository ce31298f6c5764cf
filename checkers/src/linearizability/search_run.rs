//! Runs of a search on one object or many, a part at a time: with numbered states where that pays, without where it needs too much memory.

use std::collections::BTreeMap;
use std::mem::needs_drop;
use std::rc::Rc;
use std::time::Duration;

use super::numbered::{NumberedPlan, NumberedStates};
use super::plan::SearchPlan;
use super::search::{BegunSearch, SearchLimits, Searched, TIME_ENDED, TOO_MANY_STATES, begun};
use super::spec::{Operation, SequentialSpec};
use crate::options::{Budget, Clock};

/// The time of the first round in which many keys are searched.
const FIRST_ROUND: Duration = Duration::from_millis(1);

/// A search of some operations, begun or not.
pub(super) struct SearchRun<'a, S: SequentialSpec> {
    spec: &'a S,
    operations: &'a [Operation<S::Op>],
    after: &'a [Option<usize>],
    /// Whether states, which own memory, are copied and compared by their numbers.
    by_number: bool,
    begun: Option<Box<dyn BegunSearch + 'a>>,
    /// The time since it began.
    spent: Duration,
}

impl<'a, S: SequentialSpec> SearchRun<'a, S> {
    /// Creates a run. `after` is as in [`search_in_turn`].
    pub(super) fn new(spec: &'a S, operations: &'a [Operation<S::Op>], after: &'a [Option<usize>]) -> Self {
        Self {
            spec,
            operations,
            after,
            by_number: needs_drop::<S::State>(),
            begun: None,
            spent: Duration::ZERO,
        }
    }

    /// Continues until it has taken the time of the budget.
    pub(super) fn go_on_until(&mut self, budget: Budget, clock: Clock) -> Searched {
        loop {
            let started = clock.now_ns();
            let time = budget.time.saturating_sub(self.spent);
            // Half of it is for the states themselves.
            let memory = if self.by_number {
                budget.memory / 2
            } else {
                budget.memory
            };
            let begun = self
                .begun
                .get_or_insert_with(|| begin(self.spec, self.operations, self.after, self.by_number));
            let found = begun.go_on(Budget { time, memory }, clock);
            self.spent += Duration::from_nanos(clock.now_ns() - started);
            match found {
                Searched::Unknown {
                    reason: TOO_MANY_STATES,
                    ..
                } => {
                    self.begun = None;
                    self.by_number = false;
                }
                Searched::Unknown { reason: TIME_ENDED, .. } => return found,
                found => {
                    self.begun = None;
                    return found;
                }
            }
        }
    }

    /// Restarts the next time, if the continuation needs more bytes than these.
    pub(super) fn keep_within(&mut self, bytes: usize) {
        if self.begun.as_ref().is_some_and(|begun| begun.bytes() > bytes) {
            self.begun = None;
            self.spent = Duration::ZERO;
        }
    }
}

fn begin<'a, S: SequentialSpec>(
    spec: &'a S,
    operations: &'a [Operation<S::Op>],
    after: &[Option<usize>],
    by_number: bool,
) -> Box<dyn BegunSearch + 'a> {
    let plan = SearchPlan::of(spec, operations, after);
    let width = plan.width;
    if by_number {
        let states = Rc::new(NumberedStates::new(spec, operations));
        begun(states.clone(), NumberedPlan::of(plan, states), width)
    } else {
        begun(spec, plan, width)
    }
}

/// Searches an order of the operations that their specification allows.
///
/// Operations may come in any order. The search needs memory for the operations that are pending at once, for one frame at each choice, and
/// for failed configurations up to the budget.
pub fn search<S: SequentialSpec>(spec: &S, operations: &[Operation<S::Op>], budget: Budget, clock: Clock) -> Searched {
    search_in_turn(spec, operations, &[], (budget, clock))
}

/// Some of the operations, and their places among all of them.
type Placed<Op> = (Vec<usize>, Vec<Operation<Op>>);

/// Searches each of many objects by itself: operations on different keys are independent (Herlihy and Wing's locality), so the search of
/// one needs no operation of another. Returns the results by key, in order; the places of each result are those in `operations`. `spec` is
/// of one object.
///
/// The budget of time is that of each key. It is spent in rounds, up to 1 ms, 2 ms and so on, in which each search continues: of the keys
/// of one history some are decided at once, and others not in hours. After a key without an order, no search continues, and only keys that
/// are decided at once still are.
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
    let searches = by_key.values().map(|(_, own)| SearchRun::new(spec, own, &[]));
    let mut searches: Vec<SearchRun<'_, S>> = searches.collect();
    let mut found: Vec<Option<Searched>> = vec![None; by_key.len()];
    // Half of the memory is for the running search, the other half for all others.
    let (memory, kept) = (budget.memory / 2, budget.memory / 2 / by_key.len().max(1));
    let mut time = FIRST_ROUND.min(budget.time);
    let is_open = |found: &Searched| matches!(found, Searched::Unknown { reason: TIME_ENDED, .. });
    loop {
        let mut is_violated = false;
        for ((found, search), (places, _)) in found.iter_mut().zip(&mut searches).zip(by_key.values()) {
            if found.as_ref().is_none_or(|found| is_open(found) && !is_violated) {
                let time = if is_violated { Duration::ZERO } else { time };
                *found = Some(in_places(search.go_on_until(Budget { time, memory }, clock), places));
                search.keep_within(kept);
                is_violated |= matches!(found, Some(Searched::NoOrder { .. }));
            }
        }
        let goes_on = found.iter().flatten().any(is_open);
        if !goes_on || is_violated || time == budget.time {
            drop(searches);
            return by_key.into_keys().zip(found.into_iter().flatten()).collect();
        }
        time = (time * 2).min(budget.time);
    }
}

/// Returns a result among some of the operations with their places among all of them.
fn in_places(found: Searched, places: &[usize]) -> Searched {
    match found {
        Searched::Order(order) => Searched::Order(order.into_iter().map(|own| places[own]).collect()),
        Searched::NoOrder { blocked } => Searched::NoOrder {
            blocked: places[blocked],
        },
        unknown => unknown,
    }
}

/// Searches as [`search`] does, if some operations come after others that were answered at the instant of their calls.
pub(super) fn search_in_turn<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    after: &[Option<usize>],
    (budget, clock): SearchLimits,
) -> Searched {
    SearchRun::new(spec, operations, after).go_on_until(budget, clock)
}
