//! The decision on each lock of a history, by its model: one pass, or a search.

use super::counterexample::{Counterexample, Decision};
use super::lock::Lock;
use super::order::{self, EventOrder};
use super::sweep::{Sweep, changes_something};
use super::{minimal, permits, possible, turns};
use crate::history::History;
use crate::model::Model;
use crate::options::{Budget, Clock, Options};

/// The numbers of locks of a history that are linearizable, that are not, and that could not be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecisionCounts {
    /// Locks with a legal order.
    pub legal: usize,
    /// Locks without one.
    pub illegal: usize,
    /// Locks that could not be decided within the budget.
    pub unknown: usize,
}

/// Decides linearizability without proofs, for benchmarks and callers that need no more.
pub fn decide(history: &History, model: &Model, budget: Budget, clock: Clock) -> DecisionCounts {
    let mut counts = DecisionCounts::default();
    for decision in decided(history, model, budget, clock, false) {
        match decision {
            Decision::Legal => counts.legal += 1,
            Decision::Illegal(_) => counts.illegal += 1,
            Decision::Unknown(_) => counts.unknown += 1,
        }
    }
    counts
}

/// Decides each lock, with the smallest proof that is found.
pub(crate) fn decisions(history: &History, model: &Model, budget: Budget, clock: Clock) -> Vec<Decision> {
    decided(history, model, budget, clock, true)
}

/// Decides each lock. With `small`, a search for a small proof costs many times as much as the decision.
pub(super) fn decided(history: &History, model: &Model, budget: Budget, clock: Clock, small: bool) -> Vec<Decision> {
    match model {
        Model::Mutex => minimal::plain_mutexes(history, (budget, clock), small),
        Model::Register { .. } | Model::CasRegister { .. } | Model::ExactCasRegister { .. } => {
            minimal::registers(history, model, (budget, clock), small)
        }
        _ => sweep(history, model),
    }
}

/// Decides each lock before anything is derived from the history, if one pass can do it.
pub(crate) fn decided_early(history: &History, options: &Options) -> Option<Vec<Decision>> {
    let model = options.model_of(history);
    let one_pass = model.is_lock() && model != Model::Mutex && options.clock_error.is_zero();
    one_pass.then(|| decisions(history, &model, options.budget, options.clock))
}

/// The reason why a try-lock is not decided.
const TOO_MANY_ORDERS: &str = "too many events have the same time to try all their orders";

/// Decides every lock of a history by one of the owner-aware models: the first fault of each, by dense lock number.
pub(crate) fn sweep(history: &History, model: &Model) -> Vec<Decision> {
    let short = turns::sweep_in_turns(history, model).or_else(|| permits::sweep_permits(history, model));
    match short {
        Some(sweep) if sweep.locks.is_empty() => vec![Decision::Legal; history.locks.len()],
        Some(sweep) => sweep.finish(),
        None => sweep_in(&EventOrder::of(history), history, model),
    }
}

/// Decides every lock with its events in a given order.
pub(super) fn sweep_in(order: &EventOrder, history: &History, model: &Model) -> Vec<Decision> {
    let mut sweep = Sweep::of(history, model, vec![Lock::new(); history.locks.len()]);
    if order.is_strict(history) {
        let sort = |f, kind| u8::from(changes_something(model, f, kind, false));
        order::each_sorted_in_file(history, sort, |_, ordered, event| sweep.see_event(ordered, event));
    } else {
        order.instants(history, |same| sweep.see_instant(same));
    }
    sweep.finish()
}

impl Sweep<'_> {
    /// Returns the decision on each lock, after the last event.
    fn finish(self) -> Vec<Decision> {
        let Self {
            history, model, tied, ..
        } = self;
        let faults = self.locks.into_iter().map(Lock::finish).enumerate();
        let decide = |(lock, fault): (usize, Option<Counterexample>)| match fault {
            None => Decision::Legal,
            Some(fault) if !model.judges_busy() || !tied => Decision::Illegal(fault),
            Some(fault) => match possible::is_legal(history, model, lock) {
                Some(true) => Decision::Legal,
                Some(false) => Decision::Illegal(fault),
                None => Decision::Unknown(TOO_MANY_ORDERS),
            },
        };
        faults.map(decide).collect()
    }
}
