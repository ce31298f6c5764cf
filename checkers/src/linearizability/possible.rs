//! A try-lock with events of equal times, decided by all states that it may be in.
//!
//! The order that `ties` gives to the events of one instant is a good one, and for a try-lock not always the best: an answer that
//! is explained now may be missing for another one later. So a lock that it calls violated is seen again, with every state
//! that some order leads to, each process keeping its own. Equal states are one, so that these are few.

use super::lock::Lock;
use super::order::{EventOrder, OrderedEvent};
use super::sweep::Sweep;
use crate::history::History;
use crate::model::Model;

/// States that are kept between two instants, and events that are seen at one, before the answer of `ties` stands.
const MAX_STATES: usize = 128;
const MAX_SEEN: usize = 20_000;

/// Whether some order of the events of one lock is legal; `None` when that was too much to find out.
pub(super) fn is_legal(history: &History, model: &Model, lock: usize) -> Option<bool> {
    let mut possible = Possible {
        sweep: Sweep {
            history,
            model,
            locks: vec![Lock::new(); lock + 1],
            leased: history.header.lease_ms.is_some(),
            online: false,
            tied: true,
        },
        lock,
        states: vec![Lock::new()],
        too_many: false,
    };
    EventOrder::of(history).instants(history, |same| {
        let mut own: Vec<OrderedEvent> = same
            .iter()
            .filter(|event| event.lock as usize == lock)
            .copied()
            .collect();
        // Stable: each process's own order stays.
        own.sort_by_key(|event| history.events[event.position as usize].process);
        possible.see(&own);
    });
    let Possible { states, too_many, .. } = possible;
    let legal = states.into_iter().any(|state| state.finish().is_none());
    (!too_many).then_some(legal)
}

struct Possible<'a> {
    sweep: Sweep<'a>,
    lock: usize,
    /// The states that the lock may be in without a fault.
    states: Vec<Lock>,
    too_many: bool,
}

/// A state, and how many events of each process led to it.
type PartlyOrdered = (Vec<usize>, Lock);

impl Possible<'_> {
    /// Sees the events of one instant, sorted by process.
    fn see(&mut self, same: &[OrderedEvent]) {
        if self.too_many {
            return;
        }
        let events = &self.sweep.history.events;
        let process = |event: &OrderedEvent| events[event.position as usize].process;
        let chains: Vec<&[OrderedEvent]> = same.chunk_by(|a, b| process(a) == process(b)).collect();
        let begun = vec![0; chains.len()];
        let mut reached: Vec<PartlyOrdered> = self.states.drain(..).map(|state| (begun.clone(), state)).collect();
        let mut seen = 0;
        // All states that the same number of events led to, one event further each time.
        for _ in 0..same.len() {
            let mut next: Vec<PartlyOrdered> = Vec::new();
            for (done, state) in &reached {
                for (chain, own) in chains.iter().enumerate() {
                    let Some(event) = own.get(done[chain]) else { continue };
                    let state = self.after(state, event);
                    let mut done = done.clone();
                    done[chain] += 1;
                    if state.fault.is_none() && !next.iter().any(|other| other.0 == done && other.1 == state) {
                        next.push((done, state));
                    }
                    seen += 1 + next.len() / 16;
                }
                if seen > MAX_SEEN {
                    self.too_many = true;
                    return;
                }
            }
            reached = next;
        }
        for (_, state) in reached {
            if !self.states.contains(&state) {
                self.states.push(state);
            }
        }
        self.too_many = self.states.len() > MAX_STATES;
    }

    fn after(&mut self, state: &Lock, event: &OrderedEvent) -> Lock {
        self.sweep.locks[self.lock] = state.clone();
        self.sweep.see(*event);
        std::mem::replace(&mut self.sweep.locks[self.lock], Lock::new())
    }
}
