//! The possible states of a try-lock with events of equal times, which decide its linearizability.
//!
//! The order that `ties` gives to the events of one instant is a good one, and for a try-lock not always the best: an explanation that is
//! used now may be missing for another answer later. So a lock with a fault in that order is decided again, with every state that some
//! order leads to, each process in its own. Equal states are one, so that these are few.

use super::lock::Lock;
use super::order::{EventOrder, OrderedEvent};
use super::sweep::Sweep;
use crate::history::names::FastSet;
use crate::history::{History, Renumbered};
use crate::model::Model;

/// The most states between two instants, and the most events that are handled at one, before the decision is given up.
const MAX_STATES: usize = 1_024;
const MAX_SEEN: usize = 100_000;

/// Returns whether some order of the events of one lock is legal; `None` if there were too many states.
pub(super) fn is_legal(history: &History, model: &Model, lock: usize) -> Option<bool> {
    let mut sweep = Sweep {
        tied: true,
        ..Sweep::of(history, model, vec![Lock::new(); lock + 1])
    };
    let mut possible = Some(vec![Lock::new()]);
    EventOrder::of(history).instants(history, |same| {
        let own = same.iter().filter(|event| event.lock as usize == lock);
        let own: Vec<OrderedEvent> = own.copied().collect();
        possible = possible.take().and_then(|states| after(&mut sweep, &states, &own));
    });
    let states = possible?;
    Some(states.into_iter().any(|state| state.finish().is_none()))
}

/// The possible states of a monitor's try-locks. A single one is in the sweep.
#[derive(Debug, Clone, Default)]
pub(super) struct PossibleLocks {
    /// By dense lock number.
    states: Vec<Vec<Lock>>,
    /// Locks that had too many states.
    given_up: FastSet<usize>,
}

impl PossibleLocks {
    /// Handles the events of one instant, as the sweep does. A lock with a fault that is not [`Self::is_open`] has no legal order.
    pub(super) fn see_instant(&mut self, sweep: &mut Sweep<'_>, same: &[OrderedEvent]) {
        if self.states.len() < sweep.locks.len() {
            self.states.resize(sweep.locks.len(), Vec::new());
        }
        let mut same = same.to_vec();
        same.sort_by_key(|event| event.lock);
        for events in same.chunk_by(|a, b| a.lock == b.lock) {
            let lock = events[0].lock as usize;
            let Some(states) = self.states.get_mut(lock).map(std::mem::take) else {
                continue;
            };
            let before = match states.is_empty() {
                true if events.len() > 1 && !self.given_up.contains(&lock) => vec![sweep.locks[lock].clone()],
                _ => states,
            };
            sweep.see_instant(events);
            if before.is_empty() {
                continue;
            }
            let Some(states) = after(sweep, &before, events) else {
                self.given_up.insert(lock);
                continue;
            };
            match <[Lock; 1]>::try_from(states) {
                Ok([one]) => sweep.locks[lock] = one,
                Err(states) => self.states[lock] = states,
            }
        }
    }

    /// Returns whether a lock has several possible states, or had too many, so that a fault of the sweep proves nothing.
    pub(super) fn is_open(&self, lock: usize) -> bool {
        let several = self.states.get(lock).is_some_and(|states| !states.is_empty());
        several || self.given_up.contains(&lock)
    }

    /// Ends the history: returns whether one of the possible states of a lock is legal to the end.
    pub(super) fn may_be_legal(&self, lock: usize) -> bool {
        let mut states = self.states.get(lock).into_iter().flatten();
        states.any(|state| state.clone().finish().is_none()) || self.given_up.contains(&lock)
    }

    /// Returns all states of locks that have several.
    pub(super) fn all(&self) -> impl Iterator<Item = &Lock> {
        self.states.iter().flatten()
    }

    /// Returns the states of a lock that has several.
    pub(super) fn of(&self, lock: u32) -> impl Iterator<Item = &Lock> {
        self.states.get(lock as usize).into_iter().flatten()
    }

    /// Renumbers the processes and positions.
    pub(super) fn renumber(&mut self, renumbered: &Renumbered) {
        for state in self.states.iter_mut().flatten() {
            state.renumber(renumbered);
        }
    }
}

/// A state, and the number of events of each process that led to it.
type PartlyOrdered = (Vec<usize>, Lock);

/// Returns the possible states of a lock after its events of one instant; `None` if they are too many.
fn after(sweep: &mut Sweep<'_>, states: &[Lock], same: &[OrderedEvent]) -> Option<Vec<Lock>> {
    let history = sweep.history;
    let process = |event: &OrderedEvent| history.event(event.position).process;
    let mut same = same.to_vec();
    // The sort is stable, so that each process keeps its own order.
    same.sort_by_key(process);
    let chains: Vec<&[OrderedEvent]> = same.chunk_by(|a, b| process(a) == process(b)).collect();
    let begun = vec![0; chains.len()];
    let mut reached: Vec<PartlyOrdered> = states.iter().map(|state| (begun.clone(), state.clone())).collect();
    let mut seen = 0;
    // All states after the same number of events, one event further each time.
    for _ in 0..same.len() {
        let mut next: Vec<PartlyOrdered> = Vec::new();
        for (done, state) in &reached {
            for (chain, own) in chains.iter().enumerate() {
                let Some(event) = own.get(done[chain]) else { continue };
                let state = seen_by(sweep, state, event);
                let mut done = done.clone();
                done[chain] += 1;
                if state.fault.is_none() && !next.iter().any(|other| other.0 == done && other.1 == state) {
                    next.push((done, state));
                }
                seen += 1 + next.len() / 16;
            }
            if seen > MAX_SEEN {
                return None;
            }
        }
        reached = next;
    }
    let mut states: Vec<Lock> = Vec::new();
    for (_, state) in reached {
        if !states.contains(&state) {
            states.push(state);
        }
    }
    (states.len() <= MAX_STATES).then_some(states)
}

/// Returns the state after an event of its lock.
fn seen_by(sweep: &mut Sweep<'_>, state: &Lock, event: &OrderedEvent) -> Lock {
    let lock = event.lock as usize;
    let kept = std::mem::replace(&mut sweep.locks[lock], state.clone());
    sweep.see(*event);
    std::mem::replace(&mut sweep.locks[lock], kept)
}
