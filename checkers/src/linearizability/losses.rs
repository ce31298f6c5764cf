//! Losses of a lock, reentrant or not, before and after the release that meets them; grants that were lost by the time their process was told
//! of them, which are no holds ([`super::order`] finds them).

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

    /// Whether a grant that was lost before it was told counts for nothing. A try-lock's may be what a busy answer saw.
    pub(super) fn is_void(&self, void: bool) -> bool {
        void && !self.model.judges_busy()
    }

    /// A grant that its process lost before it was told of it excludes nobody; a release of it may still be accepted. What the process
    /// held before is gone, too.
    pub(super) fn got_in_vain(&mut self, lock: usize, event: PackedEvent) {
        let permits = permits_of(self.history, self.model, event);
        let state = &mut self.locks[lock];
        let mut lapsed = permits;
        if let Some(place) = state.own(event.process) {
            let active = state.active[place];
            lapsed += u64::from(active.depth).max(active.permits);
            state.end(place);
        } else if self.model.is_reentrant() {
            // lost while it asked once more: the hold and what it asked for are given back
            lapsed += state.lapsed.get(&event.process).copied().unwrap_or(0);
        }
        state.lapsed.insert(event.process, lapsed);
    }
}

impl OperationReader<'_> {
    /// The server may have given and taken the lock without a moment at which the process had it by what it was told. Of a mutex
    /// without owners, another's release may have ended that.
    pub(super) fn got_in_vain(&mut self, lock: usize, event: PackedEvent) {
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
