//! The readings of answers that differ: of a mutex ours, in which a release call ends the hold of its owner whatever its answer, and
//! Jepsen's, in which a failed release has no effect and no process in particular holds; of a register Jepsen's, in which a failed
//! operation is no evidence, and one in which every answer is. Notes report the differences.

use super::counterexample::Decision;
use super::decide::decided;
use crate::context::Context;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History, PackedEvent};
use crate::model::Model;

/// Operations that are named.
const NAMED: usize = 8;

/// A lock with different decisions by the two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadingDifference {
    /// Dense.
    pub lock: usize,
    /// Whether it is linearizable by our reading, and not by the other; or the opposite.
    pub ours: bool,
    pub by: ReadBy,
    /// Indices of the latest events that make the difference; without any, of the operations that prove the violation.
    pub events: Vec<u64>,
}

/// The events that the two readings read differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadBy {
    /// Failed releases of a mutex.
    FailedReleases,
    /// The holders of a mutex.
    Holders,
    /// Failed compare-and-sets, reads of nothing, and the value at the start of a register.
    Answers,
}

/// Returns the locks for which the other reading has another decision.
pub(super) fn differences(context: &Context<'_>, here: &[Decision]) -> Vec<ReadingDifference> {
    if let Some(start) = context.model.start() {
        return of_registers(context, start, here);
    }
    if !matches!(context.model, Model::OwnerMutex | Model::Mutex) {
        return Vec::new();
    }
    let history = context.history;
    let failed = failed_releases(history);
    // Without either, the two readings agree.
    if failed.is_empty() && !here.iter().any(|decision| matches!(decision, Decision::Illegal(_))) {
        return Vec::new();
    }
    let each = by_both(context, here, [Model::OwnerMutex, Model::Mutex]);
    let by = (failed.as_slice(), ReadBy::FailedReleases, ReadBy::Holders);
    let each = each.iter().enumerate();
    each.filter_map(|(lock, pair)| difference(history, lock, pair, by))
        .collect()
}

/// Returns the decisions on each lock by two models; `here` has those by the second if it is the model of the check, else by the first.
fn by_both(context: &Context<'_>, here: &[Decision], models: [Model; 2]) -> Vec<(Decision, Decision)> {
    let is_second = context.model == models[1];
    let (budget, clock) = (context.options.budget, context.options.clock);
    let other = &models[usize::from(!is_second)];
    // Only violations are reported.
    let other = decided(context.history, other, budget, clock, false);
    let each = here.iter().cloned().zip(other);
    each.map(|(here, other)| if is_second { (other, here) } else { (here, other) })
        .collect()
}

/// Returns the registers that are linearizable by Jepsen's reading alone.
fn of_registers(context: &Context<'_>, start: Option<u64>, here: &[Decision]) -> Vec<ReadingDifference> {
    let history = context.history;
    let exact = Model::ExactCasRegister { start };
    let asked_exact = context.model == exact;
    let differ = |decision: &Decision| matches!(decision, Decision::Illegal(_)) == asked_exact;
    if !here.iter().any(differ) {
        return Vec::new();
    }
    let both = by_both(context, here, [Model::CasRegister { start }, exact]);
    let says_nothing = |(position, event): (usize, PackedEvent)| {
        let said = history.rare(event);
        let failed = event.f == F::Cas && event.kind == Kind::Fail && history.name(said.error).is_none();
        let nothing = event.is_ok(F::Read) && said.value.is_none();
        (failed || nothing).then_some(position as u32)
    };
    let answers: Vec<u32> = history.events.iter().enumerate().filter_map(says_nothing).collect();
    let each = both.iter().enumerate();
    let found = each.filter(|(_, (jepsens, _))| *jepsens == Decision::Legal);
    found
        .filter_map(|(lock, pair)| difference(history, lock, pair, (&answers, ReadBy::Answers, ReadBy::Answers)))
        .collect()
}

fn failed_releases(history: &History) -> Vec<u32> {
    let mut failed = Vec::new();
    let is_failed = |f, kind| f == F::Release && kind == Kind::Fail;
    history.events.each_of(is_failed, |position, _| failed.push(position));
    failed
}

/// The events that make a difference, and its kind with and without any of them.
type MadeBy<'a> = (&'a [u32], ReadBy, ReadBy);

fn difference(
    history: &History,
    lock: usize,
    pair: &(Decision, Decision),
    (failed, with, without): MadeBy<'_>,
) -> Option<ReadingDifference> {
    let (counterexample, ours) = match pair {
        (Decision::Legal, Decision::Illegal(counterexample)) => (counterexample, true),
        (Decision::Illegal(counterexample), Decision::Legal) => (counterexample, false),
        _ => return None,
    };
    let mut proof: Vec<u32> = counterexample.positions();
    proof.retain(|position| *position != NONE);
    let replies = proof.iter().map(|position| history.event(*position).mate);
    let until = replies
        .filter(|reply| *reply != NONE)
        .chain(proof.iter().copied())
        .max()?;
    let before = failed.iter().copied().filter(|position| *position <= until);
    let releases: Vec<u32> = before
        .filter(|position| history.lock_number(history.event(*position)) == Some(lock))
        .collect();
    let by = if releases.is_empty() { without } else { with };
    let named = if releases.is_empty() { proof } else { releases };
    let latest = &named[named.len().saturating_sub(NAMED)..];
    let index = |position: &u32| history.index(*position);
    Some(ReadingDifference {
        lock,
        ours,
        by,
        events: latest.iter().map(index).collect(),
    })
}
