//! Holds of recordings whose processes renew a lease (`refresh`), as Palantir's of
//! [TimeLock](https://github.com/palantir/atlasdb/tree/0.1155.0/atlasdb-jepsen-tests) have them.
//!
//! A lease ends by itself, and no process is notified. So a hold in such a recording is certain until the call of the last renewal or
//! release that was answered `ok`: from there on another process may have the lock. A signal at that call ends it.

use std::collections::BTreeMap;

use super::History;
use super::builder::HistoryBuilder;
use super::entry::{Entry, F};
use super::error::FormError;
use super::event::{Kind, Process};

/// A place between two events.
#[derive(Debug, Clone, Copy)]
pub(super) struct SignalPlace {
    /// The events before it.
    pub events: usize,
    /// The index and the time of a signal at that place.
    pub index: u64,
    pub time_ns: u64,
}

/// A hold by its process and its lock, with the last place at which it was certain.
type LastKnown = ((u32, String), SignalPlace);

/// The holds of a history that is read, with their renewals.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    /// Holds that continue, by process and lock.
    holds: BTreeMap<(u32, String), SignalPlace>,
    /// The pending renewal of each process.
    calls: BTreeMap<u32, (String, SignalPlace)>,
    /// Holds without a release.
    ended: Vec<LastKnown>,
    /// Whether some process renewed.
    pub any: bool,
}

impl Renewals {
    /// Handles an acquire that was answered `ok`. A hold of the same process on the lock had ended by then, or continues as this one.
    pub fn acquired(&mut self, process: u32, lock: &str, place: SignalPlace) {
        self.ends(process, lock);
        self.holds.insert((process, lock.to_owned()), place);
    }

    /// Handles a release that was answered `ok`, so that the hold continued until its call, or refused.
    pub fn released(&mut self, process: u32, lock: &str, is_ok: bool) {
        if is_ok {
            self.holds.remove(&(process, lock.to_owned()));
        } else {
            self.ends(process, lock);
        }
    }

    /// Handles the call of a renewal.
    pub fn called(&mut self, process: u32, lock: &str, place: SignalPlace) {
        self.any = true;
        self.calls.insert(process, (lock.to_owned(), place));
    }

    /// Handles the answer to a renewal.
    pub fn answered(&mut self, process: u32, is_ok: bool) {
        let Some((lock, called)) = self.calls.remove(&process) else {
            return;
        };
        if !is_ok {
            return self.ends(process, &lock);
        }
        if let Some(known) = self.holds.get_mut(&(process, lock)) {
            *known = called;
        }
    }

    fn ends(&mut self, process: u32, lock: &str) {
        self.ended.extend(self.holds.remove_entry(&(process, lock.to_owned())));
    }

    /// Returns the history with a signal at the last certain place of each hold; without renewals, unchanged.
    pub fn known(mut self, history: History) -> Result<History, FormError> {
        if !self.any {
            return Ok(history);
        }
        self.ended.extend(self.holds);
        self.ended.sort_by_key(|(_, place)| place.events);
        let mut signals = self.ended.iter().peekable();
        let mut builder = HistoryBuilder::new(history.header.clone()).in_order_of_position();
        // values of registers are numbers of these names
        builder.names().clone_from(&history.names);
        if let Some(reason) = history.partial() {
            builder.partial(reason);
        }
        for position in 0..=history.len() {
            while let Some(((process, lock), place)) = signals.next_if(|(_, place)| place.events == position) {
                let process = Process::Client(*process);
                let lost = Entry::new(place.index, place.time_ns, process, Kind::Signal, F::Lost);
                let lock = Some(lock.as_str());
                builder.push(&Entry { lock, ..lost })?;
            }
            if position < history.len() {
                builder.push(&history.entry(position))?;
            }
        }
        let mut history = builder.finish();
        history.is_renewed = true;
        Ok(history)
    }
}
