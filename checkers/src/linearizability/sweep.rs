//! Linearizability of locks whose acquires have owners, decided exactly, event by event and without a search; `decide` walks a history.
//!
//! Every acquire takes effect at the last instant before its reply, every release at the first after its call. That is
//! the least that any process can be holding at any instant, so the history is linearizable exactly when this is legal
//! throughout, and each process's own order makes sense. No published algorithm for locks with owners was found; the
//! argument is this paragraph, and `tests/independent.rs` tries it against every order.
//!
//! `busy` answers are explained by longer holds: only the instants between a release's reply and the next acquire's call are certainly
//! free. If contenders see each other, another pending acquire explains them, too.

use super::counterexample::Counterexample;
use super::finder::CounterexampleFinder;
use super::lock::{Active, Lock};
use super::mutant::{Mutant, mutated};
use super::order::OrderedEvent;
use super::replies::{denies, fencing_token, found_taken, permits_of};
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History, Mode, PackedEvent};
use crate::model::Model;

/// Returns whether a sweep by a model handles an event that is no signal. Calls of acquires, and answers that are no grant, matter if busy
/// answers are judged; the call of a reader may be that of a downgrade. Answers to releases, except refusals, matter only if they were not
/// known at the call.
pub(super) fn changes_something(model: &Model, f: F, kind: Kind, online: bool) -> bool {
    match (f, kind) {
        (F::Acquire, Kind::Invoke) => model.judges_busy() || *model == Model::ReadWrite,
        (F::Acquire, Kind::Fail | Kind::Info) => model.judges_busy(),
        (F::Release, Kind::Ok) => online || model.judges_busy() || mutated(Mutant::ReplyEnds),
        (F::Release, Kind::Info) => online,
        (F::Extend, _) => false,
        _ => true,
    }
}

pub(super) struct Sweep<'a> {
    pub(super) history: &'a History,
    pub(super) model: &'a Model,
    pub(super) locks: Vec<Lock>,
    /// Whether the server may end a grant.
    pub(super) leased: bool,
    /// Whether the history grows: a call without an answer may still get one.
    pub(super) online: bool,
    /// Whether several events of one lock had one time.
    pub(super) tied: bool,
}

impl<'a> Sweep<'a> {
    /// Creates a sweep over a whole history, before its first event.
    pub(super) fn of(history: &'a History, model: &'a Model, locks: Vec<Lock>) -> Self {
        Self {
            history,
            model,
            locks,
            leased: history.header.may_have_lease(),
            online: false,
            tied: false,
        }
    }

    pub(super) fn see(&mut self, ordered: OrderedEvent) {
        self.see_event(ordered, self.history.event(ordered.position));
    }

    pub(super) fn see_event(&mut self, ordered: OrderedEvent, event: PackedEvent) {
        let (instant, position, lock) = (ordered.instant, ordered.position, ordered.lock as usize);
        if self.locks.get(lock).is_none_or(|lock| lock.fault.is_some()) {
            return;
        }
        if matches!(event.f, F::Lost | F::Died) {
            return self.lost(lock, event);
        }
        if self.is_void(ordered.void) {
            return self.void_grant(lock, event);
        }
        let fault = match (event.f, event.kind) {
            (F::Acquire, Kind::Ok) => self.got(lock, event, position),
            (F::Acquire, Kind::Invoke) => {
                match self.model {
                    Model::TryLock => self.locks[lock].contenders.called(event.process),
                    Model::ExactTryLock => self.asked(lock, event, instant),
                    Model::ReadWrite => self.asked_to_share(lock, event),
                    _ => {}
                }
                None
            }
            (F::Acquire, Kind::Fail) if self.model.judges_busy() => self.refused(lock, event, instant, position),
            (F::Acquire, Kind::Info) if *self.model == Model::TryLock => {
                self.locks[lock].contenders.never_answered(event.process);
                None
            }
            (F::Release, Kind::Invoke) => self.release(lock, event, position),
            (F::Release, _) if self.online && !self.locks[lock].unanswered.is_empty() => {
                self.answered_late(lock, event, instant, position)
            }
            (F::Release, Kind::Fail) => self.denied(lock, event),
            (F::Release, Kind::Ok) if self.model.judges_busy() || mutated(Mutant::ReplyEnds) => {
                self.released(lock, event, instant, position);
                None
            }
            _ => None,
        };
        if fault.is_some() {
            self.locks[lock].fault = fault;
        }
    }

    /// Handles the call of a try-lock's acquire: one with an unknown outcome may explain a busy answer.
    fn asked(&mut self, lock: usize, event: PackedEvent, instant: u64) {
        let answered = event.mate != NONE && self.history.counts.acquires_info == 0;
        if answered || self.outcome(event) != Kind::Info {
            return;
        }
        let leased = self.leased;
        self.locks[lock].unknown_acquire(event.process, instant, leased);
    }

    /// Handles the call of a downgrade: one that may have happened has the weaker mode from its call on.
    fn asked_to_share(&mut self, lock: usize, event: PackedEvent) {
        if event.mode == Mode::Read
            && self.outcome(event) != Kind::Fail
            && let Some(place) = self.locks[lock].own(event.process)
        {
            self.locks[lock].set_mode(place, Mode::Read);
        }
    }

    /// Returns the outcome of a call.
    fn outcome(&self, call: PackedEvent) -> Kind {
        let reply = self.history.reply(call);
        reply.map_or(Kind::Info, |reply| reply.kind)
    }

    fn got(&mut self, lock: usize, event: PackedEvent, position: u32) -> Option<Counterexample> {
        let permits = permits_of(self.history, self.model, event);
        let state = &mut self.locks[lock];
        if !state.lapsed.is_empty() {
            state.lapsed.remove(&event.process);
        }
        if *self.model == Model::TryLock {
            state.contenders.answered(event.process);
        }
        if self.model.judges_busy() {
            state.free_after = None;
            if state.parked.is_some() {
                let fault = state.unexplained(event.process, self.history.instant(event.mate), event.mate);
                if fault.is_some() {
                    return fault;
                }
            }
        }
        let own = state.own(event.process);
        if let Some(place) = own
            && !matches!(self.model, Model::Semaphore { .. })
        {
            return self.again(lock, place, event, position);
        }
        let shares = *self.model == Model::ReadWrite && event.mode == Mode::Read && state.writers == 0;
        let rival = match self.model {
            Model::Semaphore { .. } => None,
            Model::ReadWrite if mutated(Mutant::OnlyWritersExclude) => {
                state.active.iter().find(|active| active.mode == event.mode)
            }
            _ if shares => None,
            Model::ReadWrite if event.mode == Mode::Read => {
                state.active.iter().find(|active| active.mode == Mode::Write)
            }
            _ => state.active.first(),
        };
        if let Some(rival) = rival {
            return Some(Counterexample::Overlap {
                first: rival.got,
                second: position,
            });
        }
        if matches!(self.model, Model::Semaphore { .. })
            && state.taken + permits > self.model.capacity() + u64::from(mutated(Mutant::OnePermitMore))
        {
            return Some(self.evidence(lock).crowd(&self.locks[lock].active, permits, position));
        }
        let fault = self.token(lock, event, position);
        let state = &mut self.locks[lock];
        state.taken += permits;
        match own {
            Some(place) => state.active[place].permits += permits,
            None => {
                let token = fencing_token(self.history, self.model, event);
                state.begin(Active::of(event, position, permits, token));
            }
        }
        fault
    }

    /// Handles a second acquire of a process that holds already.
    fn again(&mut self, lock: usize, place: usize, event: PackedEvent, position: u32) -> Option<Counterexample> {
        let state = &mut self.locks[lock];
        let alone = state.active.len() == 1;
        let active = &mut state.active[place];
        match *self.model {
            Model::Reentrant { limit } | Model::ReentrantFenced { limit } => {
                let too_deep = (active.depth >= limit).then_some(*active);
                active.depth += u32::from(too_deep.is_none() && !mutated(Mutant::DepthIsOne));
                let token = fencing_token(self.history, self.model, event);
                let before = token.and_then(|token| active.token.replace(token));
                let token_fault = match (before, token) {
                    (_, None) => None,
                    (Some(outer), Some(token)) => (outer != token).then_some(Counterexample::TokenChanged {
                        first: active.token_at,
                        second: position,
                    }),
                    // The first token of this hold.
                    (None, Some(_)) => {
                        active.token_at = position;
                        self.token(lock, event, position)
                    }
                };
                // A wrong token takes fewer events to prove than a hold that is too deep.
                token_fault.or_else(|| Some(self.evidence(lock).too_deep(&too_deep?, position)))
            }
            // The sweep has handled the call of a downgrade already, so an equal mode may be its answer.
            Model::ReadWrite if event.mode == Mode::Read && self.history.event(active.got).mode == Mode::Write => {
                active.got = position;
                None
            }
            Model::ReadWrite if event.mode == Mode::Write && active.mode == Mode::Read => {
                if alone {
                    active.got = position;
                    state.set_mode(place, Mode::Write);
                    return None;
                }
                let rival = state.active.iter().find(|active| active.process != event.process);
                rival.map(|rival| Counterexample::Overlap {
                    first: rival.got,
                    second: position,
                })
            }
            _ => Some(Counterexample::AlreadyHeld {
                first: active.got,
                second: position,
            }),
        }
    }

    fn evidence(&self, lock: usize) -> CounterexampleFinder<'a> {
        CounterexampleFinder {
            history: self.history,
            model: self.model,
            lock,
        }
    }

    fn token(&mut self, lock: usize, event: PackedEvent, position: u32) -> Option<Counterexample> {
        let token = fencing_token(self.history, self.model, event)?;
        let last = self.locks[lock].last_token.replace((token, position))?;
        // a process that gave up in doubt may extend the same grant
        let extends = || self.history.rare(event).extends && self.history.event(last.1).process == event.process;
        let is_low = token < last.0 || token == last.0 && !extends() && !mutated(Mutant::EqualTokens);
        is_low.then(|| Counterexample::TokenBack {
            first: last.1,
            second: position,
            between: if token == last.0 {
                self.evidence(lock).end_between(last.1, position)
            } else {
                NONE
            },
        })
    }

    fn release(&mut self, lock: usize, event: PackedEvent, position: u32) -> Option<Counterexample> {
        let history = self.history;
        let reply = || history.reply(event);
        let outcome = || reply().map_or(Kind::Info, |reply| reply.kind);
        let permits = permits_of(self.history, self.model, event);
        let state = &mut self.locks[lock];
        let Some(place) = state.own(event.process) else {
            if let Some(left) = state.lapsed.get_mut(&event.process).filter(|left| **left >= permits) {
                *left -= permits;
                return None;
            }
            return self.excess_release(lock, event, position);
        };
        let active = state.active[place];
        // Expiry is a legal release by the server, and a session's lease may be older than its hold.
        if !self.leased && history.failed_releases > 0 && reply().is_some_and(|reply| denies(history, reply)) {
            // A signal of its loss may still come before the answer: then it may still release its other holds or permits.
            state.denied.push((event.process, active.got));
            state.end(place);
            let left = u64::from(active.depth).max(active.permits).saturating_sub(permits);
            if left > 0 {
                state.lapsed.insert(event.process, left);
            }
            return None;
        }
        match self.model {
            Model::Semaphore { .. } if permits > active.permits => {
                return self.excess_release(lock, event, position);
            }
            Model::Semaphore { .. } if permits < active.permits => {
                state.active[place].permits -= permits;
                state.taken -= permits;
            }
            _ if mutated(Mutant::ReplyEnds) && outcome() == Kind::Ok => {}
            _ if mutated(Mutant::UnknownReleaseKeeps) && outcome() == Kind::Info => {}
            _ if mutated(Mutant::FailedReleaseKeeps) && outcome() == Kind::Fail => {}
            _ if active.depth > 1 => state.active[place].depth -= 1,
            _ => {
                if self.online && event.mate == NONE && !self.leased {
                    state.unanswered.push((event.process, active.got));
                }
                state.end(place);
                state.last_release = position;
            }
        }
        None
    }

    /// Handles a release of more than its process has: impossible if answered `ok`, without effect otherwise.
    fn excess_release(&mut self, lock: usize, event: PackedEvent, position: u32) -> Option<Counterexample> {
        if self.online && event.mate == NONE {
            self.locks[lock].unanswered.push((event.process, NONE));
        }
        (self.outcome(event) == Kind::Ok).then_some(Counterexample::NotHolder { release: position })
    }

    /// Handles the answer to a release that was called before its answer was known.
    fn answered_late(
        &mut self,
        lock: usize,
        event: PackedEvent,
        instant: u64,
        position: u32,
    ) -> Option<Counterexample> {
        let state = &mut self.locks[lock];
        let place = state
            .unanswered
            .iter()
            .position(|(process, _)| *process == event.process);
        if let Some(place) = place {
            let (_, got) = state.unanswered.swap_remove(place);
            let release = event.mate;
            if got == NONE {
                return (event.kind == Kind::Ok).then_some(Counterexample::NotHolder { release });
            }
            if denies(self.history, event) {
                return Some(Counterexample::FalseNotHeld { got, release });
            }
        }
        if event.kind == Kind::Fail {
            return self.denied(lock, event);
        }
        if event.kind == Kind::Ok && self.model.judges_busy() {
            self.released(lock, event, instant, position);
        }
        None
    }

    /// Handles the answer "not held" to a process that held and had no signal of a loss.
    fn denied(&mut self, lock: usize, event: PackedEvent) -> Option<Counterexample> {
        let denied = &mut self.locks[lock].denied;
        let place = denied.iter().position(|(process, _)| *process == event.process)?;
        let (_, got) = denied.swap_remove(place);
        Some(Counterexample::FalseNotHeld {
            got,
            release: event.mate,
        })
    }

    fn released(&mut self, lock: usize, event: PackedEvent, instant: u64, position: u32) {
        let state = &mut self.locks[lock];
        if mutated(Mutant::ReplyEnds)
            && let Some(place) = state.own(event.process)
        {
            state.end(place);
        }
        if state.active.is_empty() && (state.last_release == event.mate || mutated(Mutant::FreeTooSoon)) {
            state.free_after = Some(instant + 1);
            state.freed_by = position;
            state.parked = None;
        }
    }

    /// Handles a `busy` answer while the lock was free. If only a hold explains it, it is stored until the end of the free time is known.
    fn refused(&mut self, lock: usize, event: PackedEvent, instant: u64, position: u32) -> Option<Counterexample> {
        let state = &mut self.locks[lock];
        let alone = *self.model != Model::TryLock || !state.contenders.answered(event.process);
        if !alone || !state.active.is_empty() {
            return None;
        }
        let after = state.free_after?;
        let called = self.history.instant(event.mate);
        // At one time, only the process's own release is certainly earlier.
        let own = || {
            self.history
                .events
                .get(state.freed_by as usize)
                .map(|event| event.process)
        };
        let freed = called + 1 > after || called + 1 == after && own() == Some(event.process);
        if !freed || !found_taken(self.history, event) {
            return None;
        }
        if *self.model == Model::TryLock {
            return Some(Counterexample::SpuriousBusy {
                freed_by: state.freed_by,
                busy: position,
                next: NONE,
            });
        }
        state.park(event.process, instant, position);
        None
    }
}
