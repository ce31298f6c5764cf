//! The sessions and leases that servers give to clients, by the names that servers show as the owners of locks.

use std::sync::{Mutex, MutexGuard};

/// Sessions that are kept; a client that takes a lease for each acquire has many.
const MOST: usize = 4096;

/// A session or a lease, and the client that it was given to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenSession {
    pub client: u32,
    /// `0x1a2b`
    pub name: Box<str>,
    /// The time at which a link of the client first carried that name, by the clock of the link, in nanoseconds.
    pub at: u64,
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    all: Mutex<Vec<SeenSession>>,
}

impl Sessions {
    pub fn all(&self) -> Vec<SeenSession> {
        self.locked().clone()
    }

    /// Notes a session that a server names; a client that connects again with the same one gets its name again.
    pub fn note(&self, client: u32, name: &str, at: u64) {
        let mut all = self.locked();
        let is_known = all
            .iter()
            .rev()
            .any(|known| known.client == client && *known.name == *name);
        if !is_known && all.len() < MOST {
            all.push(SeenSession {
                client,
                name: name.into(),
                at,
            });
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<SeenSession>> {
        self.all.lock().expect("no one panics while holding sessions")
    }
}
