//! The grants that an observer sees during `harness client-check`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use harness_checkers::history::event::Fields;

use super::checked_client::ReportedGrant;
use crate::backends::observer::ObservationSink;

/// The grants that the observer saw.
#[derive(Default)]
pub struct SeenGrants(Mutex<Vec<(String, ReportedGrant)>>);

impl ObservationSink for SeenGrants {
    fn signal(&self, name: &'static str, fields: Fields<'_>, _: u64) {
        if name == "granted" {
            let grant = ReportedGrant {
                token: fields.token,
                owner: fields.owner.map(str::to_owned),
            };
            let lock = fields.lock.unwrap_or_default().to_owned();
            self.seen().push((lock, grant));
        }
    }
}

impl SeenGrants {
    fn seen(&self) -> MutexGuard<'_, Vec<(String, ReportedGrant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last grant of a lock.
    pub fn last_of(&self, lock: &str) -> Option<ReportedGrant> {
        let seen = self.seen();
        let mut of_lock = seen.iter().rev().filter(|(seen, _)| seen == lock);
        of_lock.next().map(|(_, grant)| grant.clone())
    }
}
