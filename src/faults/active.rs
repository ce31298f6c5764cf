//! `ActiveFault`: a fault while its window is on, how it heals, and what is known of it then.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_trait::async_trait;

use crate::evidence::Evidence;
use harness_proxy::MatchedMessage;

/// A fault that is on. It is dropped healed: [`HealOnDrop`] calls [`ActiveFault::undo`] if nothing healed it before.
#[async_trait]
pub trait ActiveFault: Send {
    /// The clients, servers and links that it acts on.
    fn affected(&self) -> Affected;

    /// What it does, where that was decided only when it was injected.
    fn title(&self) -> Option<String> {
        None
    }

    /// What it does while it is on, until about this reading of [`FaultEnv::clock`](super::FaultEnv::clock); the heal waits for it.
    /// Most faults have done it all when they are injected.
    async fn act(&mut self, _until: u64) {}

    /// Whether its window ends when it has done what it does, and not only when it is due.
    fn ends_with_act(&self) -> bool {
        false
    }

    /// Heals it, and says what it did. It was on for `lasted`. A `patient` heal waits until servers serve again.
    async fn heal(&mut self, lasted: Duration, patient: bool) -> Healed;

    /// Begins to heal it, without waiting: an interrupted run and a panic that unwinds come here. After a heal it does
    /// nothing.
    fn undo(&mut self);
}

/// What an active fault acts on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affected {
    pub clients: Vec<u32>,
    /// From 0.
    pub servers: Vec<u32>,
    /// `c3->n1`
    pub links: Vec<String>,
}

impl Affected {
    pub fn clients(clients: Vec<u32>) -> Self {
        Self {
            clients,
            ..Self::default()
        }
    }

    pub fn servers(servers: Vec<u32>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }

    /// The names of its clients and servers: `c3`, `n1`.
    pub fn names(&self) -> Vec<String> {
        let clients = self.clients.iter().map(|client| format!("c{client}"));
        let servers = self.servers.iter().map(|server| format!("n{}", server + 1));
        clients.chain(servers).collect()
    }
}

/// What is known of a fault when it has healed.
#[derive(Debug, Default)]
pub struct Healed {
    pub evidence: Evidence,
    /// What it did, where its counters do not say it all.
    pub detail: Option<String>,
    /// Why the heal failed, if it did: the run cannot go on.
    pub trouble: Option<String>,
    /// The message that it acted on, if it waited for one and found it.
    pub message: Option<MatchedMessage>,
    /// Why it did not do what was planned, if so.
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

/// A fault that is on, as the schedule knows it.
pub type RunningFault = Box<HealOnDrop<dyn ActiveFault>>;

impl<F: ActiveFault + 'static> HealOnDrop<F> {
    /// A fault that waits while it is injected is put in here before it touches anything.
    pub fn new(fault: F) -> Self {
        Self(fault)
    }

    pub fn running(self) -> RunningFault {
        Box::new(self)
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
