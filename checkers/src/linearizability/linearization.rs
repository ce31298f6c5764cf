//! HL002 of one history: the decision on each lock, the differences of another reading, and the orders that prove it.

use super::counterexample::{Counterexample, Decision};
use super::decide::decisions;
use super::readings::{self, ReadingDifference};
use super::{certificate, clock_error};
use crate::context::Context;
use crate::finding::Certificate;
use crate::overlaps::Overlap;
use crate::standstill;

/// The decision on HL002 of one history.
#[derive(Default)]
pub(crate) struct Linearization {
    /// Operations that need an order; 0 if there is nothing to decide.
    pub operations: u64,
    /// By dense lock number.
    pub decisions: Vec<Decision>,
    /// Locks for which the other reading of a mutex has another decision.
    pub differences: Vec<ReadingDifference>,
    /// The orders that prove it, if they were requested and every lock is linearizable. A lock is missing if the budget of the search for
    /// its order ended.
    pub certificates: Option<Vec<Certificate>>,
}

/// Returns whether a standstill excuses a violation on a lock: it may rest on overlaps of holds, all of which are excused.
fn is_excused(context: &Context<'_>, lock: usize, proof: &Counterexample) -> bool {
    let of_holds = matches!(
        proof,
        Counterexample::Overlap { .. } | Counterexample::Crowd { .. } | Counterexample::NoOrder { .. }
    );
    let here = |overlap: &Overlap| overlap.second.lock(context.history) == lock;
    of_holds && context.excused.iter().any(here) && !context.overlaps.iter().any(here)
}

/// Decides HL002. `early`: the decisions that were made while the context was derived.
pub(crate) fn linearization(context: &Context<'_>, early: Option<&[Decision]>) -> Linearization {
    let (history, options) = (context.history, context.options);
    let counts = history.counts;
    let operations = if context.model.is_lock() {
        counts.operations
    } else {
        counts.reads + counts.writes + counts.compared
    };
    if operations == 0 {
        return Linearization::default();
    }
    let exact = context.clock_error_ns == 0;
    let decisions = match early {
        Some(decisions) => decisions.to_vec(),
        None if exact => decisions(history, &context.model, options.budget, options.clock),
        None => clock_error::decisions_within(context),
    };
    let decisions: Vec<Decision> = decisions
        .into_iter()
        .enumerate()
        .map(|(lock, decision)| match decision {
            Decision::Illegal(proof) if is_excused(context, lock, &proof) => Decision::Unknown(standstill::REASON),
            decision => decision,
        })
        .collect();
    let holds = decisions.iter().all(|decision| *decision == Decision::Legal);
    let differences = exact.then(|| readings::differences(context, &decisions));
    Linearization {
        operations,
        decisions,
        differences: differences.unwrap_or_default(),
        certificates: (options.certificate && holds && exact).then(|| certificate::all(context)),
    }
}
