//! Random histories for the tests of the crate: those of `tests/independent`.

#[path = "../../tests/independent/chance.rs"]
pub(super) mod chance;

use self::chance::{Lines, lines};
use super::order::EventOrder;
use crate::history::History;
use crate::history::event::Kind;
use crate::model::Model;

/// Every lock model, with limits that small histories reach.
pub(super) const LOCKS: [Model; 11] = [
    Model::OwnerMutex,
    Model::Mutex,
    Model::Reentrant { limit: 2 },
    Model::Fenced,
    Model::ReentrantFenced { limit: 2 },
    Model::ReadWrite,
    Model::Semaphore { permits: 2 },
    Model::Semaphore { permits: 3 },
    Model::TryLock,
    Model::ExactTryLock,
    Model::Election,
];

/// Every reading of a register.
pub(super) const REGISTERS: [Model; 4] = [
    Model::Register { start: None },
    Model::CasRegister { start: None },
    Model::CasRegister { start: Some(1) },
    Model::ExactCasRegister { start: None },
];

/// Returns whether two events that are no signals have equal times.
pub(super) fn is_coarse(history: &History) -> bool {
    let lines = history.entries().filter(|entry| entry.kind != Kind::Signal);
    let times: Vec<u64> = lines.map(|entry| entry.time_ns).collect();
    times.windows(2).any(|both| both[0] == both[1])
}

/// Returns whether two events have one instant.
pub(super) fn has_ties(history: &History) -> bool {
    let mut ties = false;
    EventOrder::of(history).instants(history, |same| ties |= same.len() > 1);
    ties
}

/// Returns the random history of a seed, in the order of its times.
pub(crate) fn random(seed: u64, model: Model) -> History {
    let lines = Lines {
        by_place: false,
        ..lines(seed, model)
    };
    lines.history().expect("a well-formed history")
}

/// Returns a history as text, for a failed test.
pub(super) fn show(history: &History) -> String {
    let lines: Vec<String> = history.entries().map(|entry| format!("{entry:?}")).collect();
    format!("lease {:?}\n{}", history.header().lease_ms, lines.join("\n"))
}
