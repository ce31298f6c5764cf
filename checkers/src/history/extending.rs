//! Extensions of a lease by the holder (`extend`) in a history.

use super::answers::Refusal;
use super::builder::HistoryBuilder;
use super::entry::{EventFields, F, RareFields};
use super::error::FormError;
use super::event::Kind;
use super::names::{NONE, Symbol};

impl HistoryBuilder {
    /// Adds a call or an answer of an extension. For a process with the lock, an answer confirms the hold, or is stored as a loss. For a
    /// process that had lost the lock, the extension is stored as an acquire.
    pub(super) fn add_extension(
        &mut self,
        fields: &EventFields,
        rare: Option<&RareFields>,
        process: u32,
        lock: Symbol,
    ) -> Result<(), FormError> {
        let mut rare = rare.copied().unwrap_or_default();
        let state = self.states[process as usize];
        let number = self.history.number_of(lock);
        let retakes = match fields.kind {
            Kind::Invoke => state.has_lost(number),
            _ => state.retakes,
        };
        // a line need not name the mode and the permits with which the process had the lock
        let grant = self.grants.get(&(process, number)).filter(|_| retakes);
        let (mode, permits) = grant.copied().unwrap_or((fields.mode, 1));
        let error = self.history.name(rare.rare.error);
        let is_lost = fields.kind == Kind::Fail && error.map(Refusal::parse) == Some(Refusal::NotHeld);
        let mut seen = EventFields {
            f: if retakes { F::Acquire } else { F::Extend },
            mode,
            ..*fields
        };
        let call = self.pair(&seen, process, lock)?;
        self.watch_time(fields);
        if is_lost && !retakes {
            (seen.f, seen.kind) = (F::Lost, Kind::Signal);
        }
        rare.rare.extends = retakes;
        if permits > 1 && rare.rare.permits == NONE {
            rare.rare.permits = permits;
        }
        self.store(&seen, Some(&rare), process, (lock, call));
        self.states[process as usize].retakes = retakes && fields.kind == Kind::Invoke;
        Ok(())
    }
}
