//! Linearizability of locks whose holds take turns, as almost all do, decided with a few words a lock.
//!
//! The rules are those of [`super::sweep`], for locks that one process has at a time, in histories in which no two events have one instant:
//! an acquire that is answered finds the lock free, and a release comes from the process that has it. After any other event of a lock,
//! [`Sweep`] continues with its state and decides; this pass only decides that there was none.

use super::lock::{Active, Lock};
use super::mutant;
use super::order::{self, OrderedEvent};
use super::replies::{denies, fencing_token, found_taken};
use super::sweep::{Sweep, changes_something};
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History, PackedEvent};
use crate::model::Model;

/// The state of one lock.
#[derive(Debug, Clone, Copy)]
struct LockTurn {
    /// The process that has it; `NONE` without one, `HANDED_ON` once a sweep continues.
    holder: u32,
    /// The reply that began the last hold, and the call of the last release that ended one; `NONE` before.
    turned: [u32; 2],
}

/// The holder of a lock that a sweep decides: no process has this number.
const HANDED_ON: u32 = NONE - 1;

/// The last token of one lock, and the position of its reply; `NONE` before the first.
type LastToken = (u64, u32);

/// Handles all events of a history in strict order, by a model with one process at a time; returns `None` for others. Returns the sweep
/// that continues some locks; if it has no locks, all are legal.
pub(super) fn sweep_in_turns<'a>(history: &'a History, model: &'a Model) -> Option<Sweep<'a>> {
    let takes_turns = matches!(
        model,
        Model::OwnerMutex
            | Model::Reentrant { .. }
            | Model::Fenced
            | Model::ReentrantFenced { .. }
            | Model::ExactTryLock
            | Model::Election
    );
    if !takes_turns || mutant::is_any() || !order::is_strict(history) {
        return None;
    }
    let fenced = matches!(model, Model::Fenced | Model::ReentrantFenced { .. });
    let locks = history.locks.len();
    let mut pass = TurnsPass {
        locks: vec![LockTurn::FIRST; locks],
        tokens: vec![(0, NONE); if fenced { locks } else { 0 }],
        sweep: Sweep::of(history, model, Vec::new()),
    };
    if fenced {
        pass.see_all::<true>();
    } else {
        pass.see_all::<false>();
    }
    Some(pass.sweep)
}

struct TurnsPass<'a> {
    /// By dense lock number.
    locks: Vec<LockTurn>,
    /// By dense lock number; of models with tokens only.
    tokens: Vec<LastToken>,
    /// Has all locks once one of them was handed on to it.
    sweep: Sweep<'a>,
}

/// The sorts of events in this pass; 0 is ignored.
pub(super) const GRANT: u8 = 1;
pub(super) const RELEASE: u8 = 2;
/// A release that may be denied.
pub(super) const DENIABLE: u8 = 3;
/// A refused acquire, which must be explained.
const REFUSAL: u8 = 4;
/// The call of an acquire whose outcome may be unknown.
const CALL: u8 = 5;
/// Other events that matter to a sweep.
pub(super) const OTHER: u8 = 6;

impl TurnsPass<'_> {
    /// Handles all events. `TOKENS`: the model uses tokens.
    fn see_all<const TOKENS: bool>(&mut self) {
        let (history, model) = (self.sweep.history, *self.sweep.model);
        let judges = model.judges_busy();
        let calls_matter = judges && !all_acquires_are_answered(history);
        let sort = |f, kind| match (f, kind) {
            (F::Acquire, Kind::Ok) => GRANT,
            (F::Release, Kind::Invoke) if history.failed_releases == 0 => RELEASE,
            (F::Release, Kind::Invoke) => DENIABLE,
            (F::Acquire, Kind::Fail) if judges => REFUSAL,
            (F::Acquire, Kind::Invoke) if calls_matter => CALL,
            (F::Acquire, Kind::Invoke) => 0,
            _ if changes_something(&model, f, kind, false) => OTHER,
            _ => 0,
        };
        order::each_sorted_in_file(history, sort, |sort, ordered, event| {
            let Some(lock) = self.locks.get_mut(ordered.lock as usize) else {
                return;
            };
            if sort <= RELEASE {
                // One comparison for both, since the next sort is hard to predict.
                let grants = sort == GRANT;
                let (before, after) = if grants {
                    (NONE, event.process)
                } else {
                    (event.process, NONE)
                };
                if lock.holder == before && (!TOKENS || !grants || grows(&mut self.tokens, history, ordered, event)) {
                    lock.holder = after;
                    lock.turned[usize::from(!grants)] = ordered.position;
                    return;
                }
            } else if lock.holder != HANDED_ON && (sort == OTHER || sort == REFUSAL && lock.holder != NONE) {
                return;
            }
            self.see_other(sort, ordered.lock, ordered.position);
        });
    }

    /// Handles an event that may be more than the next turn. It is read again, since the fast path needs little of it.
    #[cold]
    #[inline(never)]
    fn see_other(&mut self, sort: u8, number: u32, position: u32) {
        let history = self.sweep.history;
        let event = history.event(position);
        let lock = &mut self.locks[number as usize];
        if lock.holder != HANDED_ON {
            let reply = history.reply(event);
            match sort {
                // A release that is denied goes on to a sweep.
                DENIABLE if lock.holder == event.process && !reply.is_some_and(|reply| denies(history, reply)) => {
                    (lock.holder, lock.turned[1]) = (NONE, position);
                    return;
                }
                REFUSAL if lock.explains(history, event, position) => return,
                CALL if reply.is_some_and(|reply| reply.kind != Kind::Info) => return,
                _ => {}
            }
            self.hand_on(number as usize, position);
        }
        self.sweep.see_event(OrderedEvent::of(history, position, event), event);
    }

    /// Hands a lock on to a sweep.
    fn hand_on(&mut self, number: usize, position: u32) {
        if self.sweep.locks.is_empty() {
            self.sweep.locks = vec![Lock::new(); self.locks.len()];
        }
        let (history, model) = (self.sweep.history, self.sweep.model);
        let lock = self.locks[number];
        self.locks[number].holder = HANDED_ON;
        let [got, released] = lock.turned;
        let state = &mut self.sweep.locks[number];
        if lock.holder != NONE {
            let event = history.event(got);
            state.taken = 1;
            state.begin(Active::of(event, got, 1, fencing_token(history, model, event)));
        }
        state.last_release = released;
        state.last_token = self.tokens.get(number).copied().filter(|(_, told)| *told != NONE);
        state.free_after = lock.free_after(history, position);
        if state.free_after.is_some() && released != NONE {
            state.freed_by = history.events.mate(released);
        }
    }
}

impl LockTurn {
    const FIRST: Self = Self {
        holder: NONE,
        turned: [NONE; 2],
    };

    /// Returns the instant, plus one, since which the lock is certainly free, at a position.
    fn free_after(&self, history: &History, position: u32) -> Option<u64> {
        let released = self.turned[1];
        if self.holder != NONE {
            return None;
        }
        if released == NONE {
            return Some(0);
        }
        let reply = history.events.mate(released);
        let answered = reply < position && history.event(reply).kind == Kind::Ok;
        answered.then(|| history.instant(reply) + 1)
    }

    /// Returns whether a busy answer at a position is explained already: the lock was not free during all of the call.
    fn explains(&self, history: &History, answer: PackedEvent, position: u32) -> bool {
        let free_after = self.free_after(history, position);
        let free = free_after.is_some_and(|after| history.instant(answer.mate) + 1 >= after);
        !free || !found_taken(history, answer)
    }
}

/// Returns whether the token of a grant is larger than the previous one, if the model uses tokens; stores it if so.
#[inline]
fn grows(tokens: &mut [LastToken], history: &History, ordered: OrderedEvent, grant: PackedEvent) -> bool {
    let Some(last) = tokens.get_mut(ordered.lock as usize) else {
        return true;
    };
    let Some(token) = history.token(grant) else {
        return true;
    };
    let is_larger = last.1 == NONE || token > last.0;
    if is_larger {
        *last = (token, ordered.position);
    }
    is_larger
}

/// Returns whether the outcome of each acquire is known.
fn all_acquires_are_answered(history: &History) -> bool {
    let counts = &history.counts;
    let answered = counts.acquires_ok + counts.acquires_fail + counts.releases_ok + history.failed_releases;
    counts.acquires_info == 0 && counts.operations == answered
}

#[cfg(test)]
mod tests {
    use super::super::counterexample::Decision;
    use super::super::decide::{sweep, sweep_in};
    use super::super::order::EventOrder;
    use super::super::permits::sweep_permits;
    use super::super::random::{LOCKS, random};
    use super::*;

    /// Compares a short pass with the sweep, on histories that were written for one model.
    fn same(model: Model, written_for: Model) {
        let (mut short, mut handed_on, mut illegal) = (0, 0, 0);
        for seed in 1..=20_000 {
            let history = random(seed, written_for);
            let found = sweep_in_turns(&history, &model).or_else(|| sweep_permits(&history, &model));
            let whole = sweep_in(&EventOrder::of(&history), &history, &model);
            assert_eq!(sweep(&history, &model), whole, "seed {seed} under {model}");
            if let Some(found) = found {
                short += 1;
                handed_on += u32::from(!found.locks.is_empty());
                let is_illegal = |decision: &Decision| matches!(decision, Decision::Illegal(_));
                illegal += u32::from(whole.iter().any(is_illegal));
            }
        }
        assert!(
            illegal > 100 && illegal < handed_on && handed_on + 100 < short,
            "{model}: of {short} {handed_on} were handed on, and {illegal} are illegal"
        );
    }

    #[test]
    fn the_short_passes_and_the_sweep_say_the_same() {
        let none = [Model::Mutex, Model::ReadWrite, Model::TryLock];
        for model in LOCKS.into_iter().filter(|model| !none.contains(model)) {
            match model {
                // Most histories of semaphores have numbers of permits.
                Model::Semaphore { .. } => {}
                _ => same(model, model),
            }
        }
        for permits in 1..=3 {
            same(Model::Semaphore { permits }, Model::OwnerMutex);
        }
    }
}
