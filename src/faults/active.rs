//! `ActiveFault`: a fault while its window is open, its heal, and its effect.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_trait::async_trait;

use crate::evidence::Evidence;
use harness_proxy::MatchedMessage;

/// An injection while its window is open. Dropping it heals it: [`HealOnDrop`] calls [`ActiveFault::undo`] unless it was healed.
#[async_trait]
pub trait ActiveFault: Send {
    /// Acts while the window is open, until about this reading of [`FaultEnv::clock`](super::FaultEnv::clock); the heal waits for
    /// it. Most faults need only their injection.
    async fn act(&mut self, _until: u64) {}

    /// Whether its window ends with the act, and not only at its time.
    fn ends_with_act(&self) -> bool {
        false
    }

    /// Heals it, and returns its effect. Its window was open for `lasted`. A `patient` heal waits until servers serve again.
    async fn heal(&mut self, lasted: Duration, patient: bool) -> Healed;

    /// Begins to heal it without waiting, in an interrupted run and when a panic unwinds. After a heal it does nothing. That is
    /// nothing where guards heal, or where what was begun comes to its end by itself.
    fn undo(&mut self) {}
}

/// The clients, servers and links that an active fault acts on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affected {
    pub clients: Vec<u32>,
    /// From 0.
    pub servers: Vec<u32>,
    /// `c3->n1`
    pub links: Vec<String>,
}

impl Affected {
    pub fn servers(servers: Vec<u32>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }

    /// Returns the names of its clients and servers: `c3`, `n1`.
    pub fn names(&self) -> Vec<String> {
        let clients = self.clients.iter().map(|client| format!("c{client}"));
        let servers = self.servers.iter().map(|server| format!("n{}", server + 1));
        clients.chain(servers).collect()
    }
}

/// The result of an active fault after its heal.
#[derive(Debug, Default)]
pub struct Healed {
    pub evidence: Evidence,
    /// Its act in words, if its counters do not suffice.
    pub detail: Option<String>,
    /// The reason for which the heal failed: the run cannot continue.
    pub trouble: Option<String>,
    /// The message that it acted on, if it waited for one and found it.
    pub message: Option<MatchedMessage>,
    /// The reason for which it did not act as planned.
    pub missed: Option<String>,
}

impl From<Evidence> for Healed {
    fn from(evidence: Evidence) -> Self {
        Self {
            evidence,
            ..Self::default()
        }
    }
}

/// An active fault that heals when it is dropped.
pub struct HealOnDrop<F: ActiveFault + ?Sized>(F);

/// An active fault as the schedule has it.
pub struct Injected {
    pub active: Box<HealOnDrop<dyn ActiveFault>>,
    /// The clients, servers and links that it acts on.
    pub affected: Affected,
    /// Its title, if that was decided at its injection.
    pub title: Option<String>,
}

impl<F: ActiveFault + 'static> HealOnDrop<F> {
    /// Wraps a fault. One that waits during its injection is wrapped before it changes anything.
    pub fn new(fault: F) -> Self {
        Self(fault)
    }

    /// Returns it as a fault that acts on these.
    pub fn on(self, affected: Affected) -> Injected {
        Injected {
            active: Box::new(self),
            affected,
            title: None,
        }
    }
}

impl<F: ActiveFault + ?Sized> Deref for HealOnDrop<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F: ActiveFault + ?Sized> DerefMut for HealOnDrop<F> {
    fn deref_mut(&mut self) -> &mut F {
        &mut self.0
    }
}

impl<F: ActiveFault + ?Sized> Drop for HealOnDrop<F> {
    fn drop(&mut self) {
        self.0.undo();
    }
}
