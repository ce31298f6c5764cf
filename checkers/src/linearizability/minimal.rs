//! Decisions that need more than one pass, and the smallest set of operations that proves a bad one: by delta debugging, as
//! [`shrink`](crate::shrink) says.

use super::anonymous::{self, LazyFailure};
use super::counterexample::Counterexample;
use super::operations::Operations;
use super::register::{Register, RegisterOp};
use super::search::search_in_turn;
use super::spec::Operation;
use super::specs::LockOp;
use super::{Decision, Searched};
use crate::history::History;
use crate::options::{Budget, Clock};
use crate::shrink::shrink;

/// Operations of a prefix that are still worth shrinking; of longer ones, the latest are tried first.
const SHRINK_MAX: usize = 20_000;

/// Why a plain mutex is not decided.
pub(super) const TOO_MANY_AT_ONCE: &str = "too many events have one time";

/// Decides the plain mutex.
pub(super) fn plain(all: &Operations<LockOp>, small: bool) -> Decision {
    let blocked = match anonymous::decide(all) {
        Ok(_) => return Decision::Legal,
        Err(LazyFailure::GaveUp) => return Decision::Unknown(TOO_MANY_AT_ONCE),
        Err(LazyFailure::Blocked(blocked)) if !small => return blocked_at(all, blocked),
        Err(LazyFailure::Blocked(blocked)) => blocked,
    };
    let prefix = prefix(&all.operations, blocked);
    let mut units: Vec<Vec<usize>> = Vec::new();
    let mut open: std::collections::BTreeMap<u32, Vec<usize>> = std::collections::BTreeMap::new();
    for (at, place) in prefix.iter().enumerate() {
        let operation = &all.operations[*place];
        match operation.op {
            LockOp::Acquire { process, .. } => open.entry(process).or_default().push(at),
            // A loss may come while the next acquire is in flight.
            LockOp::Release { process, .. } => {
                let own = open.entry(process).or_default();
                let before = |acquire: &usize| all.operations[prefix[*acquire]].call <= operation.call;
                if let Some(last) = own.iter().rposition(before) {
                    units.push(vec![own.remove(last), at]);
                }
            }
            _ => {}
        }
    }
    let violates = |kept: &[usize]| {
        let places: Vec<usize> = kept.iter().map(|at| prefix[*at]).collect();
        matches!(anonymous::decide(&all.only(&places)), Err(LazyFailure::Blocked(_)))
    };
    illegal(all, &prefix, &kept(&prefix, &units, violates))
}

/// Decides a register by search.
pub(super) fn register(
    history: &History,
    all: &Operations<RegisterOp>,
    (budget, clock): (Budget, Clock),
    small: bool,
) -> Decision {
    let searched = |all: &Operations<RegisterOp>, budget| {
        search_in_turn(&Register, &all.operations, &all.predecessors(history), budget, clock)
    };
    let blocked = match searched(all, budget) {
        Searched::Order(_) => return Decision::Legal,
        Searched::Unknown { reason, .. } => return Decision::Unknown(reason),
        Searched::NoOrder { blocked } if !small => return blocked_at(all, blocked),
        Searched::NoOrder { blocked } => blocked,
    };
    let prefix = prefix(&all.operations, blocked);
    let units: Vec<Vec<usize>> = (0..prefix.len()).map(|at| vec![at]).collect();
    let short = Budget {
        time: budget.time / 100,
        ..budget
    };
    let violates = |kept: &[usize]| {
        let places: Vec<usize> = kept.iter().map(|at| prefix[*at]).collect();
        let fewer = all.only(&places);
        let gone = (0..prefix.len()).filter(|at| kept.binary_search(at).is_err());
        let sound = gone
            .map(|at| all.operations[prefix[at]].op)
            .all(|op| !is_needed(&op, &fewer.operations));
        sound && matches!(searched(&fewer, short), Searched::NoOrder { .. })
    };
    illegal(all, &prefix, &kept(&prefix, &units, violates))
}

/// The operations that were called before the reply that nothing can precede.
fn prefix<O>(operations: &[Operation<O>], blocked: usize) -> Vec<usize> {
    let until = operations[blocked].reply.unwrap_or(u64::MAX);
    (0..operations.len())
        .filter(|place| operations[*place].call <= until)
        .collect()
}

/// The places that are still a violation by themselves. What nobody can shrink stays whole.
fn kept(prefix: &[usize], units: &[Vec<usize>], mut violates: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let Some(places) = latest(prefix.len(), units, &mut violates) else {
        return (0..prefix.len()).collect();
    };
    let here = |place: &usize| places.binary_search(place).ok();
    let units: Vec<Vec<usize>> = units
        .iter()
        .filter_map(|unit| unit.iter().map(here).collect())
        .collect();
    let back = |kept: &[usize]| -> Vec<usize> { kept.iter().map(|at| places[*at]).collect() };
    back(&shrink(places.len(), &units, |kept| violates(&back(kept))))
}

/// All places where they are few; else those of the latest units, and of no unit, that are a violation already.
fn latest(places: usize, units: &[Vec<usize>], violates: &mut impl FnMut(&[usize]) -> bool) -> Option<Vec<usize>> {
    if places <= SHRINK_MAX {
        return Some((0..places).collect());
    }
    let mut last = 16;
    while last < units.len() {
        let gone = &units[..units.len() - last];
        let mut stays = vec![true; places];
        gone.iter().flatten().for_each(|place| stays[*place] = false);
        let left: Vec<usize> = (0..places).filter(|place| stays[*place]).collect();
        if left.len() > SHRINK_MAX {
            return None;
        }
        if violates(&left) {
            return Some(left);
        }
        last *= 4;
    }
    None
}

fn illegal<O>(all: &Operations<O>, prefix: &[usize], kept: &[usize]) -> Decision {
    Decision::Illegal(Counterexample::NoOrder {
        calls: kept.iter().map(|at| all.calls[prefix[*at]]).collect(),
    })
}

/// A violation at the reply to one operation, without a proof.
pub(super) fn blocked_at<O>(all: &Operations<O>, blocked: usize) -> Decision {
    Decision::Illegal(Counterexample::NoOrder {
        calls: vec![all.calls[blocked]],
    })
}

/// Whether an answer that is left may rest on the value that this operation wrote.
fn is_needed(gone: &RegisterOp, left: &[Operation<RegisterOp>]) -> bool {
    let (RegisterOp::Write(value) | RegisterOp::Cas { new: value, .. }) = *gone else {
        return false;
    };
    left.iter().any(|operation| match operation.op {
        RegisterOp::Read(read) => read == Some(value),
        RegisterOp::Cas { expected, .. } => expected == value,
        RegisterOp::CasFailed { .. } => true,
        RegisterOp::Write(_) => false,
    })
}
