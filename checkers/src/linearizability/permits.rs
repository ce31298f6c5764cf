//! Linearizability of semaphores with single permits, acquired and released one at a time: decided with one number a lock.
//!
//! The rules are those of [`super::sweep`], for histories in which no two events have one instant and no event has a number of permits: an
//! acquire that is answered finds a permit left, and a release comes from a process that has one. After any other event, [`Sweep`]
//! continues with the whole state and decides. With one permit each, the proof of too many holders has all of them, in any order.

use super::lock::{Active, Lock};
use super::mutant;
use super::order::{self, OrderedEvent};
use super::replies::denies;
use super::sweep::{Sweep, changes_something};
use super::turns::{DENIABLE, GRANT, OTHER, RELEASE};
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History};
use crate::model::Model;

/// The permit of a process.
#[derive(Debug, Clone, Copy)]
struct OwnPermit {
    /// `NONE` without a permit.
    lock: u32,
    /// The reply that granted it.
    got: u32,
}

impl OwnPermit {
    const NONE: Self = Self { lock: NONE, got: NONE };
}

/// Decides as [`super::turns::sweep_in_turns`] does, for a semaphore.
pub(super) fn sweep_permits<'a>(history: &'a History, model: &'a Model) -> Option<Sweep<'a>> {
    let Model::Semaphore { permits } = *model else {
        return None;
    };
    if history.says_permits || mutant::is_any() || !order::is_strict(history) {
        return None;
    }
    let mut pass = PermitsPass {
        permits,
        taken: vec![0; history.locks.len()],
        own: vec![OwnPermit::NONE; history.processes.len()],
        sweep: Sweep::of(history, model, Vec::new()),
    };
    pass.see_all();
    Some(pass.sweep)
}

struct PermitsPass<'a> {
    /// The number of permits of each lock.
    permits: u32,
    /// By dense lock number; of locks that are not handed on.
    taken: Vec<u32>,
    /// By dense number of the process.
    own: Vec<OwnPermit>,
    /// Has all locks once they were handed on to it.
    sweep: Sweep<'a>,
}

impl PermitsPass<'_> {
    fn see_all(&mut self) {
        let (history, model) = (self.sweep.history, *self.sweep.model);
        let sort = |f, kind| match (f, kind) {
            (F::Acquire, Kind::Ok) => GRANT,
            (F::Release, Kind::Invoke) if history.failed_releases == 0 => RELEASE,
            (F::Release, Kind::Invoke) => DENIABLE,
            _ if changes_something(&model, f, kind, false) => OTHER,
            _ => 0,
        };
        order::each_sorted_in_file(history, sort, |sort, ordered, event| {
            let (Some(taken), Some(own)) = (
                self.taken.get_mut(ordered.lock as usize),
                self.own.get_mut(event.process as usize),
            ) else {
                return;
            };
            if sort == GRANT && own.lock == NONE && *taken < self.permits {
                *taken += 1;
                (own.lock, own.got) = (ordered.lock, ordered.position);
            } else if sort == RELEASE && own.lock == ordered.lock {
                *taken -= 1;
                own.lock = NONE;
            } else {
                self.see_other(sort, ordered.lock, ordered.position);
            }
        });
    }

    /// Handles an event that may be more than the next permit. It is read again, since the fast path needs little of it.
    #[cold]
    #[inline(never)]
    fn see_other(&mut self, sort: u8, lock: u32, position: u32) {
        let history = self.sweep.history;
        let event = history.event(position);
        if self.sweep.locks.is_empty() {
            let own = &mut self.own[event.process as usize];
            let reply = history.reply(event);
            match sort {
                OTHER => return,
                // A release that is denied goes on to a sweep.
                DENIABLE if own.lock == lock && !reply.is_some_and(|reply| denies(history, reply)) => {
                    self.taken[lock as usize] -= 1;
                    own.lock = NONE;
                    return;
                }
                _ => self.hand_on(),
            }
        }
        self.sweep.see_event(OrderedEvent::of(history, position, event), event);
    }

    /// Hands all locks on to a sweep.
    fn hand_on(&mut self) {
        let history = self.sweep.history;
        let mut held: Vec<OwnPermit> = self.own.iter().copied().filter(|own| own.lock != NONE).collect();
        held.sort_unstable_by_key(|own| own.got);
        let mut locks = vec![Lock::new(); self.taken.len()];
        for OwnPermit { lock, got } in held {
            let (state, event) = (&mut locks[lock as usize], history.event(got));
            state.taken += 1;
            state.begin(Active::of(event, got, 1, None));
        }
        self.sweep.locks = locks;
        self.own.fill(OwnPermit::NONE);
        // From here on no permit is left for this pass.
        self.permits = 0;
    }
}
