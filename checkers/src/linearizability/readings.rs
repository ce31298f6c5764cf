//! The two readings of a mutex: ours, in which a release call ends the hold of its owner whatever its answer, and
//! Jepsen's, in which a failed release has no effect and nobody in particular holds. Where they differ, the reader of a verdict is told.

use super::anonymous::LazyFailure;
use super::minimal::{TOO_MANY_AT_ONCE, blocked_at};
use super::operations::{self, Operations};
use super::specs::LockOp;
use super::{Decision, anonymous, decisions};
use crate::context::Context;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History};
use crate::model::Model;

/// Operations that are named.
const NAMED: usize = 8;

/// A lock on which the two readings answer differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadingDifference {
    /// Dense.
    pub lock: usize,
    /// Whether it is linearizable by our reading, and not by the other; else it is the other way round.
    pub ours: bool,
    /// Whether failed releases make the difference.
    pub by_failed_releases: bool,
    /// Indices of the latest of those releases; without any, of the operations that prove the violation.
    pub events: Vec<u64>,
}

/// The locks on which the reading that was not asked for answers otherwise.
pub(super) fn differences(context: &Context<'_>, decided: &[Decision]) -> Vec<ReadingDifference> {
    let history = context.history;
    let asked = context.model;
    if !matches!(asked, Model::OwnerMutex | Model::Mutex) {
        return Vec::new();
    }
    let failed = failed_releases(history);
    // Without either, the two readings agree.
    if failed.is_empty() && !decided.iter().any(|decision| matches!(decision, Decision::Illegal(_))) {
        return Vec::new();
    }
    let other = if asked == Model::OwnerMutex {
        operations::locks(history, &Model::Mutex).iter().map(strict).collect()
    } else {
        decisions(
            history,
            &Model::OwnerMutex,
            context.options.budget,
            context.options.clock,
        )
    };
    let (ours, strict) = if asked == Model::OwnerMutex {
        (decided, other.as_slice())
    } else {
        (other.as_slice(), decided)
    };
    let each = ours.iter().zip(strict).enumerate();
    each.filter_map(|(lock, pair)| difference(history, lock, pair, &failed))
        .collect()
}

fn failed_releases(history: &History) -> Vec<u32> {
    let events = history.events.iter().enumerate();
    events
        .filter(|(_, event)| event.f == F::Release && event.kind == Kind::Fail)
        .map(|(position, _)| position as u32)
        .collect()
}

/// Jepsen's reading of one lock; only what cannot be ordered is told, nothing is shrunk.
fn strict(all: &Operations<LockOp>) -> Decision {
    match anonymous::decide(all) {
        Ok(_) => Decision::Legal,
        Err(LazyFailure::GaveUp) => Decision::Unknown(TOO_MANY_AT_ONCE),
        Err(LazyFailure::Blocked(blocked)) => blocked_at(all, blocked),
    }
}

fn difference(
    history: &History,
    lock: usize,
    pair: (&Decision, &Decision),
    failed: &[u32],
) -> Option<ReadingDifference> {
    let (counterexample, ours) = match pair {
        (Decision::Legal, Decision::Illegal(counterexample)) => (counterexample, true),
        (Decision::Illegal(counterexample), Decision::Legal) => (counterexample, false),
        _ => return None,
    };
    let mut proof: Vec<u32> = counterexample.positions();
    proof.retain(|position| *position != NONE);
    let replies = proof.iter().map(|position| history.events[*position as usize].mate);
    let until = replies
        .filter(|reply| *reply != NONE)
        .chain(proof.iter().copied())
        .max()?;
    let before = failed.iter().copied().filter(|position| *position <= until);
    let releases: Vec<u32> = before
        .filter(|position| history.lock_number(&history.events[*position as usize]) == Some(lock))
        .collect();
    let by_failed_releases = !releases.is_empty();
    let named = if by_failed_releases { releases } else { proof };
    let latest = &named[named.len().saturating_sub(NAMED)..];
    let index = |position: &u32| history.events[*position as usize].index;
    Some(ReadingDifference {
        lock,
        ours,
        by_failed_releases,
        events: latest.iter().map(index).collect(),
    })
}
