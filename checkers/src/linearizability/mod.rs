//! HL002, linearizability: the operations have an order inside their call and reply windows that is legal for the model.
//!
//! M. Herlihy and J. Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990),
//! <https://doi.org/10.1145/78969.78972>.
//!
//! Locks that know their owners are decided by one pass (`sweep`), the plain mutex by another (`anonymous`), registers
//! and a caller's own objects by [`search`]. Whatever decides, [`validate`] can check the order that comes out.

mod anonymous;
pub mod certificate;
mod clock_error;
mod collections;
mod counterexample;
mod dead_end;
mod distinct;
#[cfg(test)]
mod equal_times;
mod event_plan;
mod explanation;
mod failures;
mod finder;
mod granted;
mod interleave;
mod lock;
mod losses;
mod mask;
mod minimal;
mod monitor;
mod mutant;
mod mutex_pass;
mod numbered;
mod operations;
#[cfg(test)]
mod oracle;
mod order;
mod permits;
mod plan;
mod possible;
#[cfg(test)]
mod proofs;
mod queued;
#[cfg(test)]
mod random;
mod readings;
mod register;
mod replies;
mod search;
mod search_run;
mod spec;
mod specs;
mod stack;
mod sweep;
mod ties;
mod turns;

pub use collections::{Collected, CollectionOp, decide_queue, decide_set, decide_stack};
pub use explanation::{Explanation, explain};
pub use monitor::Monitor;
pub use register::{Register, RegisterOp};
pub use search::{Searched, search, search_by_key};
pub use spec::{Invalid, Operation, Polarity, SequentialSpec, validate};
pub use specs::{LockOp, ManyOwners, OneOwner, Owned};

use crate::context::Context;
use crate::history::History;
use crate::model::Model;
use crate::options::{Budget, Clock, Options};
use crate::overlaps::Overlap;
use crate::standstill;
use certificate::Certificate;
pub(crate) use counterexample::Counterexample;
pub(crate) use dead_end::{DeadEnd, dead_end};
pub(crate) use readings::{ReadBy, ReadingDifference};

/// What was decided about HL002 of one history.
pub(crate) struct Linearization {
    /// Operations that an order has to explain; 0 when there is nothing to decide.
    pub operations: u64,
    /// By dense lock number.
    pub decisions: Vec<Decision>,
    /// Locks on which the reading of a mutex that was not asked for answers otherwise.
    pub differences: Vec<ReadingDifference>,
    /// The orders that prove it, where they were asked for and every lock is linearizable. A lock is missing when the
    /// budget of the search for its order ended.
    pub certificates: Option<Vec<Certificate>>,
}

/// What was decided of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Legal,
    Illegal(Counterexample),
    Unknown(&'static str),
}

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
fn decided(history: &History, model: &Model, budget: Budget, clock: Clock, small: bool) -> Vec<Decision> {
    match model {
        Model::Mutex => minimal::plain_mutexes(history, (budget, clock), small),
        Model::Register { .. } | Model::CasRegister { .. } | Model::ExactCasRegister { .. } => {
            minimal::registers(history, model, (budget, clock), small)
        }
        _ => sweep::sweep(history, model),
    }
}

/// Decides each lock before anything else is known of the history, where one pass does it.
pub(crate) fn decided_early(history: &History, options: &Options) -> Option<Vec<Decision>> {
    let model = Context::model(history, options);
    let one_pass = model.is_lock() && model != Model::Mutex && options.clock_error.is_zero();
    one_pass.then(|| decisions(history, &model, options.budget, options.clock))
}

/// Whether all overlaps on a lock are left out, since a machine that stood still explains them.
fn is_excused(context: &Context<'_>, lock: usize) -> bool {
    let here = |overlap: &Overlap| overlap.second.lock(context.history) == lock;
    context.excused.iter().any(here) && !context.overlaps.iter().any(here)
}

/// Decides HL002.
pub(crate) fn linearization(context: &Context<'_>) -> Linearization {
    let (history, options) = (context.history, context.options);
    let counts = history.counts;
    let operations = if context.model.is_lock() {
        counts.operations
    } else {
        counts.reads + counts.writes + counts.compared
    };
    let mut linearization = Linearization {
        operations,
        decisions: Vec::new(),
        differences: Vec::new(),
        certificates: None,
    };
    if operations == 0 {
        return linearization;
    }
    let exact = context.clock_error_ns == 0;
    let decisions = match &context.decisions {
        Some(decisions) => decisions.clone(),
        None if exact => decisions(history, &context.model, options.budget, options.clock),
        None => clock_error::decisions_within(context),
    };
    let decisions: Vec<Decision> = decisions
        .into_iter()
        .enumerate()
        .map(|(lock, decision)| match decision {
            Decision::Illegal(_) if is_excused(context, lock) => Decision::Unknown(standstill::REASON),
            decision => decision,
        })
        .collect();
    let holds = decisions.iter().all(|decision| *decision == Decision::Legal);
    linearization.certificates = (options.certificate && holds && exact).then(|| certificate::all(context));
    if exact {
        linearization.differences = readings::differences(context, &decisions);
    }
    linearization.decisions = decisions;
    linearization
}
