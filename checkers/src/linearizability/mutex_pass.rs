//! Linearizability of the plain mutex if no two events have one instant, decided from the events: the pass of [`super::anonymous`] without
//! its operations.
//!
//! If the `ok` answers to acquires and to releases alternate, which is checked first, the lock is legal.
//!
//! A pending operation is its process's call. Calls of each sort wait in the order in which they came, and go into a heap by their replies
//! only when one of them must take effect early, which is rare. Calls that were answered in the meantime are removed once they are as many
//! as the waiting ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::order;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History};

/// The number of waiting calls from which answered ones are removed.
const LEAST: usize = 256;

/// Returns for each lock the call that blocks every order, if there is one; `None` if events have one instant, or were written late.
pub(super) fn blocked_calls(history: &History) -> Option<Vec<Option<u32>>> {
    if !order::is_strict(history) {
        return None;
    }
    if alternates(history) {
        return Some(vec![None; history.locks.len()]);
    }
    let mut pass = MutexPass {
        history,
        locks: vec![PlainMutex::default(); history.locks.len()],
        open: vec![NONE; history.processes.len()],
    };
    let sort = |f, kind| match (f, kind) {
        (F::Release, Kind::Invoke) => GIVES,
        (F::Acquire, Kind::Invoke) => TAKES,
        (F::Release, Kind::Ok) => GIVES | ANSWERED,
        (F::Acquire, Kind::Ok) => TAKES | ANSWERED,
        _ => 0,
    };
    order::each_sorted_in_file(history, sort, |sort, ordered, event| {
        pass.see(sort, ordered.position, ordered.lock, event.process, event.mate);
    });
    Some(pass.locks.into_iter().map(|lock| lock.blocked).collect())
}

/// Returns whether, for each lock, the answers to acquires and to releases alternate: then each operation may have taken effect at its
/// answer, and no pending operation need be stored.
fn alternates(history: &History) -> bool {
    let (mut alternate, mut taken) = (true, vec![false; history.locks.len()]);
    let sort = |f, kind| match (f, kind) {
        (F::Acquire, Kind::Ok) => TAKES,
        (F::Release, Kind::Ok) => GIVES,
        _ => 0,
    };
    order::each_sorted_in_file(history, sort, |sort, ordered, _| {
        if let Some(taken) = taken.get_mut(ordered.lock as usize) {
            let takes = sort == TAKES;
            alternate &= *taken != takes;
            *taken = takes;
        }
    });
    alternate
}

/// The sorts of events in this pass; 0 is ignored.
const GIVES: u8 = 2;
const TAKES: u8 = 3;
/// Set for an answer.
const ANSWERED: u8 = 4;

struct MutexPass<'a> {
    history: &'a History,
    locks: Vec<PlainMutex>,
    /// By process, its pending call that has not taken effect: it has one at a time, on one lock.
    open: Vec<u32>,
}

/// The state of one lock.
#[derive(Debug, Clone, Default)]
struct PlainMutex {
    taken: bool,
    blocked: Option<u32>,
    /// Releases, acquires.
    in_flight: [CallsInFlight; 2],
}

/// Calls of one sort that may not have taken effect.
#[derive(Debug, Clone, Default)]
struct CallsInFlight {
    /// Each with its process, in order.
    waiting: Vec<(u32, u32)>,
    /// The number of waiting calls from which answered ones are removed.
    limit: usize,
    /// Each with its reply before it and its process after it.
    by_reply: BinaryHeap<Reverse<(u32, u32, u32)>>,
}

impl CallsInFlight {
    fn add(&mut self, call: u32, process: u32, open: &[u32]) {
        if self.waiting.len() >= self.limit {
            self.drop_answered(open);
        }
        self.waiting.push((call, process));
    }

    #[cold]
    #[inline(never)]
    fn drop_answered(&mut self, open: &[u32]) {
        self.waiting.retain(|(call, process)| open[*process as usize] == *call);
        self.limit = LEAST.max(self.waiting.len() * 2);
    }

    /// Returns the process whose call will be answered first; of those without an answer, the one that called first.
    #[inline(never)]
    fn earliest(&mut self, history: &History, open: &[u32]) -> Option<u32> {
        for (call, process) in self.waiting.drain(..) {
            if open[process as usize] == call
                && let Some(reply) = answered_at(history, call)
            {
                self.by_reply.push(Reverse((reply, call, process)));
            }
        }
        loop {
            let Reverse((_, call, process)) = self.by_reply.pop()?;
            if open[process as usize] == call {
                return Some(process);
            }
        }
    }
}

/// Returns the position of a call's answer, `NONE` if it is unknown; `None` for a call that certainly has no effect.
fn answered_at(history: &History, call: u32) -> Option<u32> {
    let mate = history.events.mate(call);
    match history.events.get(mate as usize).map(|reply| reply.kind) {
        Some(Kind::Ok) => Some(mate),
        Some(Kind::Fail) => None,
        _ => Some(NONE),
    }
}

impl MutexPass<'_> {
    /// Handles an event. The parameters are numbers that fit into registers: a copy of the event would take as long as the rest.
    #[inline(never)]
    fn see(&mut self, sort: u8, position: u32, lock: u32, process: u32, mate: u32) {
        let takes = usize::from(sort & 1);
        let process = process as usize;
        let call = if sort & ANSWERED == 0 { NONE } else { mate };
        // Else it took effect early, or never.
        if call != NONE && self.open[process] != call {
            return;
        }
        let Some(lock) = self.locks.get_mut(lock as usize) else {
            return;
        };
        if lock.blocked.is_some() {
            return;
        }
        if call == NONE {
            self.open[process] = position;
            lock.in_flight[takes].add(position, process as u32, &self.open);
            return;
        }
        if lock.taken == (takes == 1) {
            match lock.in_flight[1 - takes].earliest(self.history, &self.open) {
                Some(other) => self.open[other as usize] = NONE,
                None => lock.blocked = Some(call),
            }
        }
        lock.taken = takes == 1;
        self.open[process] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::super::anonymous::{self, Unordered};
    use super::super::operations;
    use super::super::random::random;
    use super::*;
    use crate::model::Model;
    use crate::options::{Budget, Clock};

    #[test]
    fn the_passes_over_events_and_over_operations_say_the_same() {
        let (mut legal, mut illegal) = (0, 0);
        for seed in 1..=20_000 {
            let history = random(seed, Model::Mutex);
            let Some(found) = blocked_calls(&history) else {
                continue;
            };
            let all = operations::locks(&history, &Model::Mutex);
            assert_eq!(found.len(), all.len());
            for (found, all) in found.into_iter().zip(&all) {
                let expected = match anonymous::decide(&history, all, (Budget::default(), Clock::still())) {
                    Ok(_) => None,
                    Err(Unordered::Blocked(place)) => Some(all.calls[place]),
                    Err(Unordered::Undecided(reason)) => panic!("seed {seed}: {reason}"),
                };
                assert_eq!(found, expected, "seed {seed}");
                (legal, illegal) = (legal + u32::from(found.is_none()), illegal + u32::from(found.is_some()));
            }
        }
        assert!(legal > 300 && illegal > 300, "{legal} legal, {illegal} illegal");
    }
}
