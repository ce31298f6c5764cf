//! Extensions of a lease by the holder (`extend`): what the checkers see of them.

use super::answers::Refusal;
use super::builder::HistoryBuilder;
use super::entry::{EventFields, F, Rare, RareFields};
use super::error::FormError;
use super::event::Kind;
use super::names::{NONE, Symbol};

impl HistoryBuilder {
    /// Adds a call or an answer of an extension. Of a process that has the lock, it says that it still has it, or that it lost it: the answer
    /// is kept as a loss then. A process that had lost the lock asks whether it has it again: as by an acquire.
    pub(super) fn add_extension(
        &mut self,
        fields: &EventFields,
        rare: Option<&RareFields>,
        process: u32,
        lock: Symbol,
    ) -> Result<(), FormError> {
        let rare = rare.copied().unwrap_or_default();
        let state = self.states[process as usize];
        let retakes = match fields.kind {
            Kind::Invoke => state.lost != NONE && state.lost == self.history.number_of(lock),
            _ => state.retakes,
        };
        let error = self.history.name(rare.rare.error);
        let is_lost = fields.kind == Kind::Fail && error.map(Refusal::parse) == Some(Refusal::NotHeld);
        let asked = EventFields {
            f: if retakes { F::Acquire } else { F::Extend },
            ..*fields
        };
        let call = self.pair(&asked, process, lock)?;
        self.watch_time(fields);
        let seen = if is_lost && !retakes {
            EventFields {
                f: F::Lost,
                kind: Kind::Signal,
                ..*fields
            }
        } else {
            asked
        };
        let extends = retakes;
        let rare = RareFields {
            rare: Rare { extends, ..rare.rare },
            ..rare
        };
        self.store(&seen, Some(&rare), process, (lock, call));
        self.states[process as usize].retakes = retakes && fields.kind == Kind::Invoke;
        Ok(())
    }
}
