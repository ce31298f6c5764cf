//! The built-in specification of registers with compare-and-set, with which the search is tested on public histories.

use super::spec::{Operation, SequentialSpec};
use crate::history::names::NONE;

/// One operation on a register with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// A read of this value; `None` of no value.
    Read(Option<u64>),
    /// A write of this value.
    Write(u64),
    /// A compare-and-set that succeeded.
    Cas {
        /// The value that it compared with.
        expected: u64,
        /// The value that it set.
        new: u64,
    },
    /// A compare-and-set that found another value.
    CasFailed {
        /// The value that it compared with.
        expected: u64,
    },
}

/// A register with compare-and-set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Register {
    /// The value before the first operation; `None` without one.
    pub start: Option<u64>,
}

/// The most values at the start that are tried.
const STARTS: usize = 64;

/// Returns the values that a register can have at the start, if the history does not name one: those that an operation can
/// have observed before any write. Returns `None` if they are too many.
pub(super) fn starts(operations: &[Operation<RegisterOp>]) -> Option<Vec<Option<u64>>> {
    let writes = |op: &RegisterOp| matches!(op, RegisterOp::Write(_) | RegisterOp::Cas { .. });
    let mutations = || operations.iter().filter(|operation| writes(&operation.op));
    let first_call = mutations().map(|operation| operation.call).min().unwrap_or(u64::MAX);
    let first_reply = mutations()
        .filter_map(|operation| operation.reply)
        .min()
        .unwrap_or(u64::MAX);
    let mut observed: Vec<(u64, u64)> = Vec::new();
    for operation in operations.iter().filter(|operation| operation.call <= first_reply) {
        let (RegisterOp::Read(Some(value)) | RegisterOp::Cas { expected: value, .. }) = operation.op else {
            continue;
        };
        let reply = operation.reply.unwrap_or(u64::MAX);
        if reply < first_call && !writes(&operation.op) {
            return Some(vec![Some(value)]);
        }
        observed.push((reply, value));
    }
    observed.sort_unstable();
    let mut starts: Vec<Option<u64>> = Vec::new();
    for value in observed.into_iter().map(|(_, value)| Some(value)) {
        if !starts.contains(&value) {
            starts.push(value);
        }
        if starts.len() > STARTS {
            return None;
        }
    }
    starts.push(None);
    Some(starts)
}

impl SequentialSpec for Register {
    type Op = RegisterOp;
    type State = Option<u64>;

    fn initial(&self) -> Option<u64> {
        self.start
    }

    fn step(&self, state: Option<u64>, op: &RegisterOp) -> Option<Option<u64>> {
        match *op {
            RegisterOp::Read(value) => (value == state).then_some(state),
            RegisterOp::Write(value) => Some(Some(value)),
            RegisterOp::Cas { expected, new } => (state == Some(expected)).then_some(Some(new)),
            RegisterOp::CasFailed { expected } => (state != Some(expected)).then_some(state),
        }
    }

    fn is_observer(&self, op: &RegisterOp) -> bool {
        matches!(op, RegisterOp::Read(_) | RegisterOp::CasFailed { .. })
    }

    fn class(&self, op: &RegisterOp) -> Option<u64> {
        match *op {
            RegisterOp::Write(value) if value < 1 << 30 => Some(value << 32 | u64::from(NONE)),
            RegisterOp::Cas { expected, new } if expected < 1 << 30 && new < u64::from(NONE) => {
                Some(expected << 32 | new)
            }
            _ => None,
        }
    }
}
