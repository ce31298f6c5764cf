//! `Injection`: what one fault window does, as planned, and the `Inject` trait that does it.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_checkers::history::Requirement;

use super::active::RunningFault;
use super::env::FaultEnv;
use super::shape::Shape;
use super::target::{ResolvedTarget, Target};
use harness_checkers::history::Acquires;
use harness_proxy::LinkFault;

/// What is done to a target, with everything that was drawn for it.
#[async_trait]
pub trait Inject: Any + Debug + Send + Sync {
    /// What the run must be set up with for it. Most faults need nothing.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// What the heal does, in one word.
    fn heal_word(&self) -> &'static str;

    /// By how many milliseconds it steps the wall clocks of its target, less than 0 where it steps them back; `None`: it steps none, as
    /// most faults.
    fn clock_step_ms(&self) -> Option<i64> {
        None
    }

    /// The toxics that do it where links are those of a Toxiproxy; `None` when it touches none of them, as most faults. The
    /// error says what a Toxiproxy lacks.
    fn toxics(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// What is done before the target is resolved. Most faults prepare nothing.
    async fn prepare(&self, _number: u32, _env: &FaultEnv) -> Result<Option<Preparation>, &'static str> {
        Ok(None)
    }

    /// Does it.
    async fn inject(&self, context: InjectionContext<'_>) -> Result<RunningFault, NotInjected>;
}

/// What becomes of acquires when so many servers are out of reach of every client.
pub fn acquires_without(servers_gone: usize, shape: &Shape) -> Acquires {
    let all = shape.servers as usize;
    if 2 * (all - servers_gone) > all {
        Acquires::GoOn
    } else {
        Acquires::Stop
    }
}

/// What an injection needs of a run beyond clients, links and servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Servers must reach each other through the proxy.
    pub peer_proxy: bool,
    /// Servers that clients do not know, which replicate those that they do.
    pub replicas: u32,
    /// Processes must be given wall clocks that can be stepped.
    pub wall_clocks: bool,
    /// Servers must be started behind gates, which tell of their syncs; then they sync as in production.
    pub disk_gates: bool,
    /// Servers must be on file systems of their own, whose power can be cut and which can be filled.
    pub own_disks: bool,
    /// Servers must be able to leave their cluster and to join it while it runs.
    pub replaceable_servers: bool,
    /// A client must hold a lock when the fault strikes, though the target is another: it goes on working.
    pub held_lock: bool,
    /// That client must still work when the fault is healed.
    pub works_past_heal: bool,
}

/// What was prepared before the target was resolved. The holder that the target is resolved to was granted its lock after
/// that.
#[derive(Debug, Default)]
pub struct Preparation {
    /// A fault on links that is on already.
    pub link_fault: Option<LinkFault>,
    /// Keys on the servers: the target's lock must not be one of them.
    pub known_keys: Vec<String>,
}

/// What an injection is given.
pub struct InjectionContext<'a> {
    /// The window's number, from 1.
    pub number: u32,
    pub env: &'a FaultEnv,
    pub target: &'a ResolvedTarget,
    /// The clients that hold a lock now.
    pub holding: Vec<u32>,
    pub preparation: Option<Preparation>,
}

impl InjectionContext<'_> {
    /// The one server of the target, as clients know it and as a node; `missed` is said where none is known.
    pub fn one_server(&self, missed: &'static str) -> Result<(u32, u32), NotInjected> {
        let server = self.target.servers().first().copied();
        let server = server.ok_or(NotInjected::Missed(missed))?;
        Ok((server, self.env.servers.endpoints().node_of(server)))
    }

    /// How many of these clients hold a lock.
    pub fn held_by(&self, clients: &[u32]) -> u64 {
        clients.iter().filter(|client| self.holding.contains(client)).count() as u64
    }
}

/// Why an injection was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotInjected {
    /// There was nothing to do it to; the run goes on.
    Missed(&'static str),
    /// It is not on as it should be; the run cannot go on.
    Failed(String),
}

/// An injection that was drawn, or what the argument should have been.
pub type Planned = Result<Injection, String>;

/// What one window does, as planned.
#[derive(Debug, Clone)]
pub struct Injection {
    pub target: Target,
    pub action: Arc<dyn Inject>,
    pub acquires: Acquires,
    /// What it must achieve for a pass to mean anything.
    pub requirement: Option<Requirement>,
    /// How long it takes beyond what it waits for.
    pub takes: Duration,
    /// What it is, in words, without the fault's name: "holder | every server".
    pub title: String,
}

impl Injection {
    pub fn new(target: Target, action: impl Inject, acquires: Acquires, title: impl Into<String>) -> Self {
        Self {
            target,
            action: Arc::new(action),
            acquires,
            requirement: None,
            takes: Duration::ZERO,
            title: title.into(),
        }
    }

    /// The same injection in a window of this length, which is not asked to achieve what takes longer.
    #[must_use]
    pub fn within(mut self, length: Duration) -> Self {
        let too_short =
            |required: &Requirement| required.stopped_ms.is_some_and(|ms| length < Duration::from_millis(ms));
        self.requirement = self.requirement.filter(|required| !too_short(required));
        self
    }

    /// The same injection, which takes so long beyond what it waits for.
    #[must_use]
    pub fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    /// The same injection, which must achieve this for a pass to mean anything.
    #[must_use]
    pub fn requiring(mut self, requirement: Requirement) -> Self {
        self.requirement = Some(requirement);
        self
    }

    /// The same injection where a Toxiproxy does it: its title says with which toxics. The error says why there are none.
    pub fn through_toxiproxy(mut self, fault: &str) -> Result<Self, String> {
        let needed = |why| format!("{fault} needs the built-in proxy: {why}\nhint: --proxy builtin");
        if let Some(toxics) = self.action.toxics().map_err(needed)? {
            self.title = format!("{} | {toxics}", self.title);
        }
        Ok(self)
    }

    /// The action, where it is of this type.
    #[cfg(test)]
    pub fn action_as<T: Inject>(&self) -> &T {
        let action: &dyn Any = &*self.action;
        action.downcast_ref().expect("the plan makes an action of this type")
    }
}
