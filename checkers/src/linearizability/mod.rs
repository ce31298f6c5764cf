//! HL002, linearizability: the operations have an order inside their call and reply windows that is legal for the model.
//!
//! Locks that know their owners are decided by one pass (`sweep`), the plain mutex by another (`anonymous`), registers
//! and a caller's own objects by [`search`]. Whatever decides, [`validate`] can check the order that comes out.

mod anonymous;
pub mod certificate;
mod evidence;
mod explain;
mod failed;
mod fault;
mod lock;
mod mask;
mod minimal;
mod mutant;
mod operations;
#[cfg(test)]
mod oracle;
mod order;
mod plan;
#[cfg(test)]
mod proofs;
#[cfg(test)]
mod random;
mod readings;
mod register;
mod search;
mod spec;
mod specs;
mod sweep;
mod ties;

pub use register::{Register, RegisterOp};
pub use search::{Searched, search};
pub use spec::{Invalid, Operation, Polarity, Spec, validate};
pub use specs::{LockOp, ManyOwners, OneOwner, Owned};

use crate::check::Context;
use crate::finding::{Finding, Property, Verdict};
use crate::history::History;
use crate::limits;
use crate::model::Model;
use crate::options::{Budget, Clock};
use crate::story::{finding, many, violated};
use certificate::Certificate;
use fault::Fault;

/// The answer to HL002 with what goes beside it.
pub(crate) struct Answer {
    pub finding: Finding,
    pub notes: Vec<String>,
    pub certificates: Vec<Certificate>,
}

/// What was decided of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Legal,
    Faulty(Fault),
    Unknown(&'static str),
}

/// How many locks of a history are linearizable, how many are not, and how many could not be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub legal: usize,
    pub faulty: usize,
    pub unknown: usize,
}

/// Decides linearizability alone, without words: for callers in a hurry, and for benchmarks.
pub fn decide(history: &History, model: &Model, budget: Budget, clock: Clock) -> Tally {
    let mut tally = Tally::default();
    for decision in decisions(history, model, budget, clock) {
        match decision {
            Decision::Legal => tally.legal += 1,
            Decision::Faulty(_) => tally.faulty += 1,
            Decision::Unknown(_) => tally.unknown += 1,
        }
    }
    tally
}

pub(crate) fn decisions(history: &History, model: &Model, budget: Budget, clock: Clock) -> Vec<Decision> {
    match model {
        Model::Mutex => operations::locks(history, model).iter().map(minimal::plain).collect(),
        Model::Register | Model::CasRegister => {
            let all = operations::registers(history);
            all.iter()
                .map(|operations| minimal::register(operations, budget, clock))
                .collect()
        }
        _ => {
            let faults = sweep::sweep(history, model);
            let decisions = faults
                .into_iter()
                .map(|fault| fault.map_or(Decision::Legal, Decision::Faulty))
                .collect();
            ties::settle(history, model, decisions, (budget, clock))
        }
    }
}

/// The finding of HL002, with a note where the other reading of a mutex differs.
pub(crate) fn check(context: &Context<'_>) -> Answer {
    let (history, options) = (context.history, context.options);
    let counts = history.counts;
    let total = if context.model.is_lock() {
        counts.operations
    } else {
        counts.reads + counts.writes + counts.compared
    };
    if total == 0 {
        let finding = finding(Property::Hl002, Verdict::Inconclusive, "no operations to order");
        return Answer {
            finding,
            notes: Vec::new(),
            certificates: Vec::new(),
        };
    }
    let decisions = decisions(history, &context.model, options.budget, options.clock);
    let finding = answer(context, total, &decisions);
    let holds = finding.verdict == Verdict::Holds;
    let certificates = if options.certificate && holds {
        certificate::all(context)
    } else {
        Vec::new()
    };
    let mut notes = readings::differences(context, &decisions);
    if options.certificate && holds && certificates.len() < decisions.len() {
        let missing = many((decisions.len() - certificates.len()) as u64, "lock", "locks");
        notes.push(format!(
            "no certificate for {missing}: the budget of the search for one ended"
        ));
    }
    Answer {
        notes,
        finding,
        certificates,
    }
}

fn answer(context: &Context<'_>, total: u64, decisions: &[Decision]) -> Finding {
    let locks = many(decisions.len() as u64, "lock", "locks");
    let faults: Vec<(usize, &Fault)> = decisions
        .iter()
        .enumerate()
        .filter_map(|(lock, decision)| match decision {
            Decision::Faulty(fault) => Some((lock, fault)),
            _ => None,
        })
        .collect();
    let undecided: Vec<&str> = decisions
        .iter()
        .filter_map(|decision| match decision {
            Decision::Unknown(reason) => Some(*reason),
            _ => None,
        })
        .collect();
    let mut answer = if !faults.is_empty() {
        let described = faults.iter().take(limits::MAX_VIOLATIONS);
        let violations = described
            .map(|(lock, fault)| explain::explain(context, *lock, fault))
            .collect();
        let evidence = format!("{} of {locks} without a legal order", faults.len());
        violated(Property::Hl002, evidence, violations, faults.len() as u64)
    } else if let Some(reason) = undecided.first() {
        let evidence = format!("{reason}, on {} of {locks}", undecided.len());
        finding(Property::Hl002, Verdict::Inconclusive, evidence)
    } else {
        let evidence = format!("{} on {locks}", many(total, "operation", "operations"));
        finding(Property::Hl002, Verdict::Holds, evidence)
    };
    answer.figures.insert("operations".into(), total as f64);
    answer
}
