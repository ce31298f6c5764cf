//! The finder of counterexamples: the events that prove a fault of a sweep, if the state of the sweep does not suffice.

use super::counterexample::Counterexample;
use super::lock::Active;
use super::replies::permits_of;
use crate::history::names::NONE;
use crate::history::{F, History, OrderBasis};
use crate::model::Model;

/// The events of one lock, under the model of the sweep.
pub(super) struct CounterexampleFinder<'a> {
    pub history: &'a History,
    pub model: &'a Model,
    pub lock: usize,
}

impl CounterexampleFinder<'_> {
    /// Returns the fewest acquires that leave too few permits for this one.
    pub(super) fn crowd(&self, active: &[Active], permits: u64, second: u32) -> Counterexample {
        let holders = active.iter();
        let before = (self.history.instant(second), second);
        let mut parts: Vec<Part> = holders.flat_map(|holder| self.parts(holder, before)).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.permits));
        let (mut out, mut there) = (permits, Vec::new());
        for part in parts {
            if out > self.model.capacity() {
                break;
            }
            out += part.permits;
            there.extend(part.positions);
        }
        there.sort_unstable();
        Counterexample::Crowd { there, second, out }
    }

    /// Returns the acquires of the holder that are not released.
    pub(super) fn too_deep(&self, active: &Active, second: u32) -> Counterexample {
        let parts = self.parts(active, (self.history.instant(second), second));
        Counterexample::TooDeep {
            there: parts.into_iter().flat_map(|part| part.positions).collect(),
            second,
        }
    }

    /// Returns the end of the first of two holds with one token, if the second could be nested in it; else `NONE`.
    pub(super) fn end_between(&self, first: u32, second: u32) -> u32 {
        let process = self.history.event(first).process;
        if !self.model.is_reentrant() || self.history.event(second).process != process {
            return NONE;
        }
        let ends = |position: &u32| {
            let event = self.history.event(*position);
            let here = self.history.lock_number(event).is_none_or(|of| of == self.lock);
            event.process == process && here && (event.is_call(F::Release) || matches!(event.f, F::Lost | F::Died))
        };
        (first..second).rev().find(ends).unwrap_or(NONE)
    }

    /// Returns the parts of the hold of one process before an instant and a position at it: acquires that it has not wholly released since.
    pub(super) fn parts(&self, active: &Active, before: (u64, u32)) -> Vec<Part> {
        let history = self.history;
        let in_file = history.order == OrderBasis::Position || !history.has_late_lines;
        let len = history.events.len() as u32;
        let last = if in_file { before.1.min(len) } else { len };
        let mut parts: Vec<Part> = Vec::new();
        for position in active.got..last {
            let event = history.event(position);
            let own = event.process == active.process && history.lock_number(event) == Some(self.lock);
            if !own || (history.instant(position), position) >= before {
                continue;
            }
            let permits = permits_of(history, self.model, event);
            if event.is_ok(F::Acquire) {
                let positions = vec![position];
                parts.push(Part { permits, positions });
            } else if event.is_call(F::Release) && permits <= parts.iter().map(|part| part.permits).sum() {
                give_back(&mut parts, permits, position);
            }
        }
        parts
    }
}

/// One acquire that is still held, or the rest of some, with the releases that ended the other parts.
pub(super) struct Part {
    permits: u64,
    pub positions: Vec<u32>,
}

/// Releases one acquire of as many permits, else the latest ones.
fn give_back(parts: &mut Vec<Part>, permits: u64, position: u32) {
    if let Some(same) = parts.iter().rposition(|part| part.permits == permits) {
        parts.remove(same);
        return;
    }
    let (mut left, mut positions) = (permits, vec![position]);
    while let Some(part) = parts.last_mut() {
        if part.permits > left {
            part.permits -= left;
            part.positions.append(&mut positions);
            return;
        }
        left -= part.permits;
        positions.append(&mut part.positions);
        parts.pop();
    }
}
