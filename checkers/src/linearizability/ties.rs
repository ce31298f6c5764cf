//! Events of equal time: which of them came first, nobody knows, so every order is tried before a fault is believed.
//!
//! A sweep takes them as they stand in the file. An order that is legal so is legal; a fault may be that of the clock.

use std::time::Duration;

use super::operations::{self, Operations};
use super::order::EventOrder;
use super::spec::SequentialSpec;
use super::specs::{LockOp, ManyOwners, OneOwner};
use super::{Decision, Searched, search};
use crate::history::{History, OrderBasis};
use crate::model::Model;
use crate::options::{Budget, Clock};

/// How long a search without hints may take before the file's own order of equal times is believed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same decisions; faults in a history of equal times are looked at again by search.
pub(super) fn settle(
    history: &History,
    model: &Model,
    mut decisions: Vec<Decision>,
    budget: Budget,
    clock: Clock,
) -> Vec<Decision> {
    let illegal = |decision: &Decision| matches!(decision, Decision::Illegal(_));
    if !decisions.iter().any(illegal) || !has_ties(history) {
        return decisions;
    }
    let budget = Budget {
        time: budget.time.min(PATIENCE),
        ..budget
    };
    let all = operations::locks(history, model);
    for (decision, operations) in decisions.iter_mut().zip(&all).filter(|(decision, _)| illegal(decision)) {
        let legal = match model {
            Model::ReadWrite | Model::Semaphore { .. } => {
                let spec = || ManyOwners::new(*model);
                is_legal(spec(), spec().without_hints(), operations, budget, clock)
            }
            _ => {
                let spec = OneOwner::new(*model);
                is_legal(spec, spec.without_hints(), operations, budget, clock)
            }
        };
        if legal {
            *decision = Decision::Legal;
        }
    }
    decisions
}

/// Hints are quick and nearly always right; what they rest on is that a process's own events have different times.
fn is_legal<S: SequentialSpec<Op = LockOp>>(
    hinted: S,
    plain: S,
    all: &Operations<LockOp>,
    budget: Budget,
    clock: Clock,
) -> bool {
    [hinted, plain]
        .iter()
        .any(|spec| matches!(search(spec, &all.operations, budget, clock), Searched::Order(_)))
}

/// Whether two events of clients have one time.
fn has_ties(history: &History) -> bool {
    let (mut last, mut ties) = (None, false);
    if history.order == OrderBasis::Time {
        EventOrder::of(history).walk(history, |instant, position| {
            let event = &history.events[position as usize];
            if (event.process as usize) < history.processes.len() {
                ties |= last.replace(instant) == Some(instant);
            }
            !ties
        });
    }
    ties
}
