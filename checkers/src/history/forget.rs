//! Forgetting: a builder continues with the few events that are still needed, so that a stream of any length needs memory only for pending
//! operations and holds.

use super::History;
use super::builder::HistoryBuilder;
use super::form::ProcessState;
use super::names::{FastSet, NONE, Names};
use super::packed::{EventDetails, EventIndices, KeptDetails, PackedEvent};
use crate::limits;

/// The longest time by which a later line may be older than the events that are kept.
const LATE_NS: u64 = 5_000_000_000;

/// The new numbers of kept events and processes; `NONE` for forgotten ones.
pub(crate) struct Renumbered {
    /// The positions of the events that were kept, ascending.
    positions: Vec<u32>,
    /// By the previous dense number.
    processes: Vec<u32>,
}

impl Renumbered {
    /// Returns the new position of an event.
    pub(crate) fn position(&self, before: u32) -> u32 {
        self.positions.binary_search(&before).map_or(NONE, |place| place as u32)
    }

    /// Returns the new dense number of a process.
    pub(crate) fn process(&self, before: u32) -> u32 {
        self.processes.get(before as usize).copied().unwrap_or(NONE)
    }
}

impl HistoryBuilder {
    /// Returns the events so far.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns whether a process never acts again.
    pub(crate) fn is_gone(&self, process: u32) -> bool {
        let state = &self.states[process as usize];
        state.unknown != NONE || state.died != NONE
    }

    /// Returns whether a process is known to have died.
    pub(crate) fn has_died(&self, process: u32) -> bool {
        self.states[process as usize].died != NONE
    }

    /// Forgets all events but these, calls without an answer, and the events that belong to both; and all processes but theirs and these.
    /// The locks keep their dense numbers. A process that is forgotten may come back as a new one, so the rules of a well-formed history
    /// are checked only for the events in memory.
    pub(crate) fn keep_only(&mut self, positions: &[u32], processes: &FastSet<u32>) -> Renumbered {
        let (kept, stays) = self.kept(positions, processes);
        let renumbered = Renumbered {
            positions: kept,
            processes: numbered(&stays),
        };
        let kept = renumbered.positions.iter();
        let mut events: Vec<PackedEvent> = kept.map(|position| self.history.event(*position)).collect();
        self.forget_windows(&events);
        self.rename_locks(&mut events);
        self.renumber_events(events, &renumbered);
        self.renumber_processes(&stays, &renumbered);
        renumbered
    }

    /// Returns the positions of the kept events, ascending, and whether each process is kept.
    fn kept(&self, positions: &[u32], processes: &FastSet<u32>) -> (Vec<u32>, Vec<bool>) {
        let events = &self.history.events;
        let mut kept: Vec<u32> = Vec::with_capacity(2 * (positions.len() + self.states.len()));
        let mut stays = vec![false; self.states.len()];
        let mut keep = |position: u32| {
            let event = events.get(position as usize)?;
            kept.push(position);
            kept.extend(Some(event.mate).filter(|mate| *mate != NONE));
            Some(event.process)
        };
        for position in positions
            .iter()
            .copied()
            .chain(self.states.iter().map(|state| state.open))
        {
            if let Some(process) = keep(position) {
                stays[process as usize] = true;
            }
        }
        for process in processes {
            stays[*process as usize] = true;
        }
        for (state, _) in self.states.iter().zip(&stays).filter(|(_, stays)| **stays) {
            for position in [state.last, state.unknown, state.died] {
                keep(position);
            }
        }
        kept.sort_unstable();
        kept.dedup();
        (kept, stays)
    }

    /// Forgets the windows that were healed too long before the kept events to disturb an answer that is still to come. The last one stays,
    /// which violations name.
    fn forget_windows(&mut self, kept: &[PackedEvent]) {
        let history = &mut self.history;
        let lease_ns = limits::ns(history.header.lease_ms.unwrap_or(limits::LEASE_MS));
        let earliest_ns = kept.iter().map(|event| event.time).min().unwrap_or(history.end_ns);
        let since_ns = earliest_ns.saturating_sub(lease_ns).saturating_sub(LATE_NS);
        let last = history.windows.last().map(|window| window.start_index);
        history.windows.retain(|window| {
            Some(window.start_index) == last || window.heal_ns.is_none_or(|heal_ns| heal_ns >= since_ns)
        });
    }

    /// Replaces the names by those of the locks in their order, and the details by those of these events.
    fn rename_locks(&mut self, events: &mut [PackedEvent]) {
        let history = &mut self.history;
        let before = std::mem::take(&mut history.names);
        let mut names = Names::default();
        let dense: Vec<u32> = std::mem::take(&mut history.lock_of_name);
        history.locks = history
            .locks
            .iter()
            .map(|lock| names.intern(before.get(*lock)))
            .collect();
        history.lock_of_name = vec![NONE; names.len()];
        for (number, lock) in history.locks.iter().enumerate() {
            history.lock_of_name[*lock as usize] = number as u32;
        }
        let (mut details, mut rare) = (Vec::new(), Vec::new());
        for event in events {
            if event.lock != NONE {
                event.lock = history.locks[dense[event.lock as usize] as usize];
            }
            let Some(before_details) = history.details.get(event.details as usize) else {
                continue;
            };
            // Owners are not needed any more.
            let mut kept = EventDetails {
                owner: NONE,
                ..before_details.details()
            };
            if let Some(own) = history.rare.get(kept.rare as usize) {
                let mut own = *own;
                for name in [&mut own.cause, &mut own.error] {
                    if *name != NONE {
                        *name = names.intern(before.get(*name));
                    }
                }
                kept.rare = rare.len() as u32;
                rare.push(own);
            }
            event.details = details.len() as u32;
            details.push(KeptDetails::of(kept));
        }
        history.lock_of_name.resize(names.len(), NONE);
        (history.names, history.details, history.rare) = (names, details, rare);
        (self.last_rare, self.last_details, self.last_lock) = (None, None, None);
    }

    fn renumber_events(&mut self, mut events: Vec<PackedEvent>, renumbered: &Renumbered) {
        let mut indices = EventIndices::default();
        for (place, position) in renumbered.positions.iter().enumerate() {
            indices.push(place as u32, self.history.index(*position));
        }
        self.history.indices = indices;
        for event in &mut events {
            event.process = renumbered.process(event.process);
            event.mate = renumbered.position(event.mate);
        }
        self.history.events.refill(&events);
        self.history.wire.clear();
        self.history.nodes.clear();
        self.history.nemesis.clear();
    }

    fn renumber_processes(&mut self, stays: &[bool], renumbered: &Renumbered) {
        let history = &mut self.history;
        let of_kept = |all: &[u32]| -> Vec<u32> {
            let kept = all.iter().zip(stays).filter(|(_, stays)| **stays);
            kept.map(|(one, _)| *one).collect()
        };
        history.processes = of_kept(&history.processes);
        history.clients = of_kept(&history.clients);
        let mut stays = stays.iter();
        self.states.retain(|_| *stays.next().expect("one for each process"));
        for ProcessState {
            open,
            last,
            unknown,
            died,
            ..
        } in &mut self.states
        {
            for position in [open, last, unknown, died] {
                *position = renumbered.position(*position);
            }
        }
        let grants = std::mem::take(&mut self.grants).into_iter();
        let grants = grants.map(|((process, lock), grant)| ((renumbered.process(process), lock), grant));
        self.grants = grants.filter(|((process, _), _)| *process != NONE).collect();
        self.dense.clear();
        for (dense, number) in history.processes.iter().enumerate() {
            self.dense.insert(*number, dense as u32);
        }
    }
}

/// Returns the new numbers of the kept ones, from 0.
fn numbered(keeps: &[bool]) -> Vec<u32> {
    let mut next = 0;
    let number = |keeps: &bool| {
        if !keeps {
            return NONE;
        }
        next += 1;
        next - 1
    };
    keeps.iter().map(number).collect()
}
