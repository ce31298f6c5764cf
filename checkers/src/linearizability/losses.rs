//! Losses of a lock, before and after the release that meets them; and void grants, lost before their answers, which are no holds
//! ([`super::order`] finds them).

use super::mutant::{Mutant, mutated};
use super::operations::{NOBODY, OperationReader};
use super::replies::permits_of;
use super::specs::LockOp;
use super::sweep::Sweep;
use crate::history::names::NONE;
use crate::history::{Mode, PackedEvent};
use crate::model::Model;

impl Sweep<'_> {
    pub(super) fn lost(&mut self, lock: usize, event: PackedEvent) {
        if mutated(Mutant::LostIgnored) {
            return;
        }
        let lock = &mut self.locks[lock];
        lock.denied.retain(|(process, _)| *process != event.process);
        lock.unanswered
            .retain(|(process, got)| *process != event.process || *got == NONE);
        if let Some(place) = lock.own(event.process) {
            let active = lock.active[place];
            lock.end(place);
            lock.free_after = None;
            lock.lapsed
                .insert(event.process, u64::from(active.depth).max(active.permits));
        }
    }

    /// Returns whether a grant that was lost before its answer has no effect. The grant of a try-lock may explain a busy answer.
    pub(super) fn is_void(&self, void: bool) -> bool {
        void && !self.model.judges_busy()
    }

    /// Handles a grant that was lost before its answer: it excludes no other process, but a release of it may still be accepted. Earlier
    /// holds of the process are lost, too.
    pub(super) fn void_grant(&mut self, lock: usize, event: PackedEvent) {
        let permits = permits_of(self.history, self.model, event);
        let state = &mut self.locks[lock];
        let mut lapsed = permits;
        if let Some(place) = state.own(event.process) {
            let active = state.active[place];
            lapsed += u64::from(active.depth).max(active.permits);
            state.end(place);
        } else if self.model.is_reentrant() {
            // lost during a nested acquire: the hold and the nested acquire may be released
            lapsed += state.lapsed.get(&event.process).copied().unwrap_or(0);
        }
        state.lapsed.insert(event.process, lapsed);
    }
}

impl OperationReader<'_> {
    /// Handles a grant that was lost before its answer: the server may have granted and ended it without a hold of the process. Of a mutex
    /// without owners, the release of another process may have ended it.
    pub(super) fn void_grant(&mut self, lock: usize, event: PackedEvent) {
        let permits = u64::from(self.history.permits(event));
        let own = self.held.entry((lock as u32, event.process)).or_default();
        let anybody = *self.model == Model::Mutex;
        let downgrades = own.depth > 0 && own.mode == Mode::Write && event.mode == Mode::Read;
        if let Some(place) = std::mem::take(&mut own.asked).checked_sub(1) {
            let asked = &mut self.all[lock].operations[place];
            if anybody {
                asked.reply = None;
                (own.got, own.got_at) = (asked.call, event.mate);
            } else if *self.model != Model::ReadWrite || !downgrades {
                asked.reply = None;
                asked.op = LockOp::Release {
                    process: NOBODY,
                    permits: 1,
                };
            }
        }
        if own.depth == 0 && !anybody {
            own.lapsed = permits + if self.model.is_reentrant() { own.lapsed } else { 0 };
        } else {
            // The loss, which comes next, ends all of it.
            own.depth += 1;
            own.permits += permits;
        }
    }
}
