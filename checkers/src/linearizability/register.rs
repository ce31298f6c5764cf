//! The built-in specification of registers, with compare and set: there to prove the search on public histories.

use super::spec::SequentialSpec;
use crate::history::names::NONE;

/// One operation on a register with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegisterOp {
    /// What was read; `None` is the value that was never written.
    Read(Option<u64>),
    /// What was written.
    Write(u64),
    /// A compare-and-set that succeeded.
    Cas {
        /// What it compared with.
        expected: u64,
        /// What it set.
        new: u64,
    },
    /// A compare-and-set that found another value.
    CasFailed {
        /// What it compared with in vain.
        expected: u64,
    },
}

/// A register with compare and set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Register;

impl SequentialSpec for Register {
    type Op = RegisterOp;
    type State = Option<u64>;

    fn initial(&self) -> Option<u64> {
        None
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
