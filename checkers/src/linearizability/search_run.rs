//! A search that is done a part at a time: with numbers for states where that pays, and without where they would need too much memory.

use std::mem::needs_drop;
use std::rc::Rc;
use std::time::Duration;

use super::numbered::{NumberedPlan, NumberedStates};
use super::plan::SearchPlan;
use super::search::{BegunSearch, Searched, TIME_ENDED, TOO_MANY_STATES, begun};
use super::spec::{Operation, SequentialSpec};
use crate::options::{Budget, Clock};

/// A search of some operations, begun or not.
pub(super) struct SearchRun<'a, S: SequentialSpec> {
    spec: &'a S,
    operations: &'a [Operation<S::Op>],
    after: &'a [Option<usize>],
    /// States that own memory are copied and compared by their numbers.
    by_number: bool,
    begun: Option<Box<dyn BegunSearch + 'a>>,
    /// How long it has gone on since it began.
    spent: Duration,
}

impl<'a, S: SequentialSpec> SearchRun<'a, S> {
    /// `after` is as in [`super::search::search_in_turn`].
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

    /// Goes on until it has taken as long as the budget says.
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

    /// Begins again the next time, if to go on needs more bytes than these.
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
