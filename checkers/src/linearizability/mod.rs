//! HL002, linearizability: the operations have an order inside their call and reply windows that is legal for the model.
//!
//! M. Herlihy and J. Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990),
//! <https://doi.org/10.1145/78969.78972>.
//!
//! Locks with owners are decided by one pass (`sweep`), the plain mutex by another (`anonymous`), registers and a caller's own objects by
//! [`search`]. [`validate`] can check the order of each of them.

#[cfg(test)]
mod agreement;
mod anonymous;
mod certificate;
mod clock_error;
mod collections;
mod counterexample;
mod dead_end;
mod decide;
mod distinct;
mod event_plan;
mod explanation;
mod failures;
mod finder;
mod interleave;
mod linearization;
mod lock;
mod losses;
mod mask;
mod minimal;
mod mutant;
mod mutex_pass;
mod numbered;
mod online;
mod operations;
mod order;
mod permits;
mod plan;
mod possible;
#[cfg(test)]
mod proofs;
#[cfg(test)]
pub(crate) mod random;
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
pub use decide::{DecisionCounts, decide};
pub use explanation::{Explanation, explain};
pub use register::{Register, RegisterOp};
pub use search::Searched;
pub use search_run::{search, search_by_key};
pub use spec::{Invalid, Operation, Polarity, SequentialSpec, validate};
pub use specs::{LockOp, ManyOwners, OneOwner, Owned};

pub(crate) use counterexample::{Counterexample, Decision};
pub(crate) use dead_end::{DeadEnd, dead_end};
pub(crate) use decide::decided_early;
#[cfg(test)]
pub(crate) use decide::decisions;
pub(crate) use linearization::{Linearization, linearization};
pub(crate) use online::OnlineSweep;
pub(crate) use readings::{ReadBy, ReadingDifference};
