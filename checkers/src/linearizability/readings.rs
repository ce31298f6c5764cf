//! The two readings of a mutex: ours, in which a release call ends the hold of its owner whatever its answer, and
//! Jepsen's, in which a failed release has no effect and nobody in particular holds. Where they differ, a note says so.

use super::fault::Fault;
use super::operations::{self, Operations};
use super::specs::LockOp;
use super::{Decision, anonymous, decisions};
use crate::check::Context;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History};
use crate::model::Model;

/// Operations that a note names.
const NAMED: usize = 8;

/// One note for each lock on which the reading that was not asked for answers otherwise.
pub(super) fn differences(context: &Context<'_>, decided: &[Decision]) -> Vec<String> {
    let history = context.history;
    let asked = context.model;
    if !matches!(asked, Model::OwnerMutex | Model::Mutex) {
        return Vec::new();
    }
    let failed = failed_releases(history);
    // Without either, the two readings agree.
    if failed.is_empty() && !decided.iter().any(|decision| matches!(decision, Decision::Faulty(_))) {
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
    match anonymous::decide(&all.operations, 1) {
        Ok(_) => Decision::Legal,
        Err(blocked) => Decision::Faulty(Fault::NoOrder {
            calls: vec![all.calls[blocked]],
        }),
    }
}

fn difference(history: &History, lock: usize, pair: (&Decision, &Decision), failed: &[u32]) -> Option<String> {
    let (fault, ours, theirs) = match pair {
        (Decision::Legal, Decision::Faulty(fault)) => (fault, "linearizable", "not"),
        (Decision::Faulty(fault), Decision::Legal) => (fault, "not linearizable", "it is"),
        _ => return None,
    };
    let mut proof: Vec<u32> = fault.positions();
    proof.retain(|position| *position != NONE);
    let replies = proof.iter().map(|position| history.events[*position as usize].mate);
    let until = replies
        .filter(|reply| *reply != NONE)
        .chain(proof.iter().copied())
        .max()?;
    let before = failed.iter().copied().filter(|position| *position <= until);
    let mut named: Vec<u32> = before
        .filter(|position| history.lock_number(&history.events[*position as usize]) == Some(lock))
        .collect();
    let what = if named.is_empty() {
        "operations"
    } else {
        "failed releases"
    };
    if named.is_empty() {
        named = proof;
    }
    let latest = &named[named.len().saturating_sub(NAMED)..];
    let indices: Vec<String> = latest
        .iter()
        .map(|position| history.events[*position as usize].index.to_string())
        .collect();
    Some(format!(
        "two readings of `{}` differ: {ours} when a release call ends its owner's hold whatever its answer, {theirs} with \
         `--model mutex`, where a failed release has no effect and nobody in particular holds ({what}: events {})",
        history.lock_name(lock),
        indices.join(", ")
    ))
}
