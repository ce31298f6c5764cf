//! The decision of each lock of a history, by what its model allows: one pass, or a search.

use super::counterexample::Decision;
use super::{minimal, one_pass};
use crate::history::History;
use crate::model::Model;
use crate::options::{Budget, Clock, Options};

/// How many locks of a history are linearizable, how many are not, and how many could not be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecisionCounts {
    /// Locks with a legal order.
    pub legal: usize,
    /// Locks without one.
    pub illegal: usize,
    /// Locks that the budget did not suffice for.
    pub unknown: usize,
}

/// Decides linearizability alone, without proofs: for callers in a hurry, and for benchmarks.
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

/// Decides each lock. A search for a small proof costs many times what the decision costs.
pub(super) fn decided(history: &History, model: &Model, budget: Budget, clock: Clock, small: bool) -> Vec<Decision> {
    match model {
        Model::Mutex => minimal::plain_mutexes(history, (budget, clock), small),
        Model::Register { .. } | Model::CasRegister { .. } | Model::ExactCasRegister { .. } => {
            minimal::registers(history, model, (budget, clock), small)
        }
        _ => one_pass::sweep(history, model),
    }
}

/// Decides each lock before anything else is known of the history, where one pass does it.
pub(crate) fn decided_early(history: &History, options: &Options) -> Option<Vec<Decision>> {
    let model = options.model_of(history);
    let one_pass = model.is_lock() && model != Model::Mutex && options.clock_error.is_zero();
    one_pass.then(|| decisions(history, &model, options.budget, options.clock))
}
