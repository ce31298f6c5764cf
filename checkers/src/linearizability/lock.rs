//! The state of one lock in a sweep of linearizability: pending operations, and the beginning of its free time.

use super::counterexample::Counterexample;
use super::mutant::{Mutant, mutated};
use crate::history::names::{FastMap, NONE};
use crate::history::{Mode, PackedEvent, Renumbered};

/// The number of owners up to which a linear search finds one.
const FEW: usize = 16;

/// The hold of one owner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Active {
    pub process: u32,
    pub depth: u32,
    pub permits: u64,
    pub mode: Mode,
    pub token: Option<u64>,
    /// The position of the reply with the token.
    pub token_at: u32,
    /// The position of the reply that began it, or set its mode.
    pub got: u32,
}

impl Active {
    /// Creates the hold of a grant at a position.
    pub(super) fn of(grant: PackedEvent, got: u32, permits: u64, token: Option<u64>) -> Self {
        Self {
            process: grant.process,
            depth: 1,
            permits,
            mode: grant.mode,
            token,
            token_at: got,
            got,
        }
    }
}

/// Busy answers while the lock was free: those that ended first, all at one instant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parked {
    pub instant: u64,
    /// Each process with such an answer, and the position of the answer.
    pub answers: Vec<(u32, u32)>,
    /// Acquires that may have held for a while and were called by then; at that instant only those of processes without such an answer,
    /// since a later call cannot explain the first of the answers.
    fleeting: u64,
    /// Whether an acquire that was called by then may hold for ever, and explains all of them.
    held: bool,
}

impl Parked {
    fn has(&self, process: u32) -> bool {
        self.answers.iter().any(|(answered, _)| *answered == process)
    }
}

/// Pending acquires: each may explain a busy answer to another one.
#[derive(Debug, Clone, Default)]
pub(super) struct Contenders {
    /// The number of all calls of acquires.
    calls: u64,
    /// For each process, the number of calls up to its own, and whether another acquire was pending then.
    in_flight: FastMap<u32, (u64, bool)>,
    /// Whether one with an unknown outcome is pending for ever.
    forever: bool,
}

/// Only the pending acquires and whether each has met another matter later, and not the times of the calls.
impl PartialEq for Contenders {
    fn eq(&self, other: &Self) -> bool {
        let same = |(process, flight)| {
            other
                .in_flight
                .get(process)
                .is_some_and(|own| other.met(own) == self.met(flight))
        };
        self.forever == other.forever
            && self.in_flight.len() == other.in_flight.len()
            && self.in_flight.iter().all(same)
    }
}

impl Contenders {
    /// Returns whether another acquire was pending at some instant since the call of a pending one.
    fn met(&self, (calls, met): &(u64, bool)) -> bool {
        *met || self.calls > *calls
    }

    pub(super) fn called(&mut self, process: u32) {
        let met = self.forever || !self.in_flight.is_empty();
        self.calls += 1;
        self.in_flight.insert(process, (self.calls, met));
    }

    /// Returns whether another acquire was pending at some instant between the call of a process and its answer, which is now.
    pub(super) fn answered(&mut self, process: u32) -> bool {
        let own = self.in_flight.remove(&process);
        own.is_some_and(|own| self.met(&own) && !mutated(Mutant::ContendersAreBlind))
    }

    pub(super) fn never_answered(&mut self, process: u32) {
        self.forever |= self.in_flight.remove(&process).is_some();
    }

    /// Renumbers the processes. A process that is forgotten has no more answers.
    fn renumber(&mut self, renumbered: &Renumbered) {
        let before = std::mem::take(&mut self.in_flight);
        for (process, flight) in before {
            match renumbered.process(process) {
                NONE => self.forever = true,
                process => {
                    self.in_flight.insert(process, flight);
                }
            }
        }
    }
}

/// The state of one lock in a sweep: only pending operations and holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lock {
    pub active: Vec<Active>,
    /// The place in `active` of each process, if there are too many for a linear search.
    places: Option<FastMap<u32, usize>>,
    /// The number of writers in `active`.
    pub writers: usize,
    pub taken: u64,
    /// Losses of processes without a later release: of holds of a reentrant lock, of permits, or of the lock. A signal is the client's
    /// view, so the server may still accept a release for each of them.
    pub lapsed: FastMap<u32, u64>,
    /// Processes whose release will be answered "not held" although they hold, with the reply that began their hold.
    pub denied: Vec<(u32, u32)>,
    /// Processes whose release has no answer yet, with the reply that began the hold which it ended; `NONE` if it ended none.
    pub unanswered: Vec<(u32, u32)>,
    pub contenders: Contenders,
    pub last_token: Option<(u64, u32)>,
    /// The release that ended the last hold; `NONE` if another event did.
    pub last_release: u32,
    /// The instant since which the lock is certainly free, plus one.
    pub free_after: Option<u64>,
    /// The busy answers that ended first since then.
    pub parked: Option<Parked>,
    /// The reply of the release that began the free time.
    pub freed_by: u32,
    /// The earliest call of an acquire with an unknown outcome that would hold for ever.
    pub unknown_call: u64,
    /// The number of acquires with an unknown outcome that may have held until their lease ended, and the number of needed ones.
    pub fleeting: u64,
    pub needed: u64,
    pub fault: Option<Counterexample>,
}

impl Lock {
    pub(super) fn new() -> Self {
        Self {
            active: Vec::new(),
            places: None,
            writers: 0,
            taken: 0,
            lapsed: FastMap::default(),
            denied: Vec::new(),
            unanswered: Vec::new(),
            contenders: Contenders::default(),
            last_token: None,
            last_release: NONE,
            free_after: Some(0),
            parked: None,
            freed_by: NONE,
            unknown_call: u64::MAX,
            fleeting: 0,
            needed: 0,
            fault: None,
        }
    }

    /// Returns whether a loss of a process may still end a hold.
    pub(super) fn concerns(&self, process: u32) -> bool {
        let mut pairs = self.denied.iter().chain(&self.unanswered);
        self.own(process).is_some() || pairs.any(|(other, _)| *other == process)
    }

    /// Returns the positions of all events that it may still need.
    pub(super) fn positions(&self) -> impl Iterator<Item = u32> {
        let holds = self.active.iter().flat_map(|active| [active.got, active.token_at]);
        let pairs = self.denied.iter().chain(&self.unanswered).map(|(_, got)| *got);
        let parked = self
            .parked
            .iter()
            .flat_map(|parked| parked.answers.iter().map(|(_, position)| *position));
        let token = self.last_token.iter().map(|(_, position)| *position);
        let single = [self.last_release, self.freed_by].into_iter();
        holds.chain(pairs).chain(parked).chain(token).chain(single)
    }

    /// Renumbers the processes and positions.
    pub(super) fn renumber(&mut self, renumbered: &Renumbered) {
        for active in &mut self.active {
            active.process = renumbered.process(active.process);
            active.got = renumbered.position(active.got);
            active.token_at = renumbered.position(active.token_at);
        }
        if self.places.is_some() {
            self.note_places();
        }
        let both = |(process, position): &mut (u32, u32)| {
            (*process, *position) = (renumbered.process(*process), renumbered.position(*position));
            *process != NONE
        };
        self.denied.retain_mut(both);
        self.unanswered.retain_mut(both);
        if let Some(parked) = &mut self.parked {
            parked.answers.iter_mut().for_each(|answer| {
                both(answer);
            });
        }
        // A process that is forgotten never releases again.
        let lapsed = std::mem::take(&mut self.lapsed).into_iter();
        let lapsed = lapsed.map(|(process, left)| (renumbered.process(process), left));
        self.lapsed = lapsed.filter(|(process, _)| *process != NONE).collect();
        self.contenders.renumber(renumbered);
        if let Some((_, position)) = &mut self.last_token {
            *position = renumbered.position(*position);
        }
        self.last_release = renumbered.position(self.last_release);
        self.freed_by = renumbered.position(self.freed_by);
    }

    pub(super) fn own(&self, process: u32) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(&process).copied(),
            None => self.active.iter().position(|active| active.process == process),
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, active: Active) {
        self.writers += usize::from(active.mode == Mode::Write);
        let process = active.process;
        self.active.push(active);
        if self.places.is_some() || self.active.len() > FEW {
            self.note_place(process);
        }
    }

    /// Stores the place of the latest of many owners.
    #[cold]
    fn note_place(&mut self, latest: u32) {
        if let Some(places) = &mut self.places {
            places.insert(latest, self.active.len() - 1);
        } else {
            self.note_places();
        }
    }

    fn note_places(&mut self) {
        let each = self.active.iter().enumerate();
        self.places = Some(each.map(|(place, active)| (active.process, place)).collect());
    }

    pub(super) fn set_mode(&mut self, place: usize, mode: Mode) {
        let before = std::mem::replace(&mut self.active[place].mode, mode);
        self.writers -= usize::from(before == Mode::Write);
        self.writers += usize::from(mode == Mode::Write);
    }

    pub(super) fn end(&mut self, place: usize) {
        let active = self.active.swap_remove(place);
        if let Some(places) = &mut self.places {
            places.remove(&active.process);
            if let Some(moved) = self.active.get(place) {
                places.insert(moved.process, place);
            }
        }
        self.writers -= usize::from(active.mode == Mode::Write);
        self.taken -= active.permits;
        self.last_release = NONE;
    }

    /// Handles the call of an acquire with an unknown outcome: it may hold until its lease ends, or for ever.
    pub(super) fn unknown_acquire(&mut self, process: u32, instant: u64, leased: bool) {
        let runs_out = leased && self.own(process).is_none();
        if runs_out {
            self.fleeting += 1;
        } else {
            self.unknown_call = self.unknown_call.min(instant);
        }
        let Some(parked) = self.parked.as_mut().filter(|parked| parked.instant == instant) else {
            return;
        };
        // At one time, only answers to the same process are certainly earlier.
        let others = !parked.has(process);
        parked.held |= others && !runs_out;
        parked.fleeting += u64::from(others && runs_out);
    }

    /// Returns whether an acquire that was called at a time explains all parked busy answers. At one time, only answers to the same process
    /// are certainly earlier than its call.
    pub(super) fn explains(&self, process: u32, called: u64) -> bool {
        let earlier = |parked: &Parked| parked.instant < called || parked.instant == called && parked.has(process);
        !self.parked.as_ref().is_some_and(earlier)
    }

    /// Parks a busy answer while the lock was free.
    pub(super) fn park(&mut self, process: u32, instant: u64, position: u32) {
        let (fleeting, held) = (self.fleeting, instant >= self.unknown_call);
        let parked = self.parked.get_or_insert_with(|| Parked {
            instant,
            answers: Vec::new(),
            fleeting,
            held,
        });
        if parked.instant == instant {
            parked.answers.push((process, position));
        }
    }

    /// Returns the fault at the end: parked busy answers need an acquire that may have happened before they ended.
    pub(super) fn finish(mut self) -> Option<Counterexample> {
        let held = |parked: &Parked| parked.held && !mutated(Mutant::UnknownAcquireNeverHolds);
        let parked = self.parked.take().filter(|parked| !held(parked));
        let fault = parked.and_then(|parked| self.not_run_out(&parked, NONE));
        self.fault.or(fault)
    }

    /// Returns the fault of parked busy answers that ended before this acquire was called, which ends the free time.
    pub(super) fn unexplained(&mut self, process: u32, called: u64, next: u32) -> Option<Counterexample> {
        let explained = self.explains(process, called);
        let parked = self.parked.take();
        self.free_after = None;
        self.not_run_out(&parked.filter(|_| !explained)?, next)
    }

    /// Returns the fault of answers that are not explained by an acquire that may have held for a while and that no other free time needs.
    /// One explains all busy answers of its free time, and those called early enough for one free time are early enough for the next.
    fn not_run_out(&mut self, parked: &Parked, next: u32) -> Option<Counterexample> {
        if parked.fleeting > self.needed {
            self.needed += 1;
            return None;
        }
        let (_, busy) = *parked.answers.first()?;
        Some(Counterexample::SpuriousBusy {
            freed_by: self.freed_by,
            busy,
            next,
        })
    }
}
