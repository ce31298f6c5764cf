//! Decisions that need more than one pass, and the smallest set of operations that proves a bad one.

use super::anonymous;
use super::fault::Fault;
use super::operations::Operations;
use super::register::{Register, RegisterOp};
use super::spec::Operation;
use super::specs::LockOp;
use super::{Decision, Searched, search};
use crate::options::{Budget, Clock};
use crate::shrink::shrink;

/// Operations of a prefix that are still worth shrinking; longer ones are cut at the front first.
const SHRINK_MAX: usize = 20_000;

/// Decides the plain mutex.
pub(super) fn plain(all: &Operations<LockOp>) -> Decision {
    let Err(blocked) = anonymous::decide(&all.operations, 1) else {
        return Decision::Legal;
    };
    let prefix = prefix(&all.operations, blocked);
    let mut units: Vec<Vec<usize>> = Vec::new();
    let mut open: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
    for (at, place) in prefix.iter().enumerate() {
        match all.operations[*place].op {
            LockOp::Acquire { process, .. } => {
                open.insert(process, at);
            }
            LockOp::Release { process, .. } => units.extend(open.remove(&process).map(|acquire| vec![acquire, at])),
            _ => {}
        }
    }
    let violates = |kept: &[usize]| {
        let fewer: Vec<Operation<LockOp>> = kept.iter().map(|at| all.operations[prefix[*at]]).collect();
        anonymous::decide(&fewer, 1).is_err()
    };
    faulty(all, &prefix, &kept(&prefix, &units, violates))
}

/// Decides a register by search.
pub(super) fn register(all: &Operations<RegisterOp>, budget: Budget, clock: Clock) -> Decision {
    let blocked = match search(&Register, &all.operations, budget, clock) {
        Searched::Order(_) => return Decision::Legal,
        Searched::Unknown { reason, .. } => return Decision::Unknown(reason),
        Searched::NoOrder { blocked } => blocked,
    };
    let prefix = prefix(&all.operations, blocked);
    let units: Vec<Vec<usize>> = (0..prefix.len()).map(|at| vec![at]).collect();
    let small = Budget {
        time: budget.time / 100,
        ..budget
    };
    let violates = |kept: &[usize]| {
        let fewer: Vec<Operation<RegisterOp>> = kept.iter().map(|at| all.operations[prefix[*at]]).collect();
        let gone = (0..prefix.len()).filter(|at| kept.binary_search(at).is_err());
        let sound = gone
            .map(|at| all.operations[prefix[at]].op)
            .all(|op| !is_needed(&op, &fewer));
        sound && matches!(search(&Register, &fewer, small, clock), Searched::NoOrder { .. })
    };
    faulty(all, &prefix, &kept(&prefix, &units, violates))
}

/// The operations that were called before the reply that nothing can precede.
fn prefix<O>(operations: &[Operation<O>], blocked: usize) -> Vec<usize> {
    let until = operations[blocked].reply.unwrap_or(u64::MAX);
    (0..operations.len())
        .filter(|place| operations[*place].call <= until)
        .collect()
}

fn kept(prefix: &[usize], units: &[Vec<usize>], violates: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    if prefix.len() > SHRINK_MAX {
        (0..prefix.len()).collect()
    } else {
        shrink(prefix.len(), units, violates)
    }
}

fn faulty<O>(all: &Operations<O>, prefix: &[usize], kept: &[usize]) -> Decision {
    Decision::Faulty(Fault::NoOrder {
        calls: kept.iter().map(|at| all.calls[prefix[*at]]).collect(),
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
