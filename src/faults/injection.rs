//! `Injection`: the plan of one fault window, and the `Inject` trait, which executes it.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_checkers::history::Requirement;

use super::active::Injected;
use super::env::FaultEnv;
use super::shape::Shape;
use super::target::{ResolvedTarget, Target};
use harness_checkers::history::Acquires;
use harness_proxy::LinkFault;

/// An act on a target, with all that was drawn for it.
#[async_trait]
pub trait Inject: Any + Debug + Send + Sync {
    /// Returns the requirements on the setup of the run. Most faults have none.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Returns the milliseconds by which it steps the wall clocks of its target, negative for a step back, or `None` if it steps
    /// none, as most faults.
    fn clock_step_ms(&self) -> Option<i64> {
        None
    }

    /// Returns the toxics that replace it on the links of a Toxiproxy, or `None` if it acts on no link, as most faults. The error
    /// names the feature that Toxiproxy lacks.
    fn toxics(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Prepares the injection before the target is resolved. Most faults need no preparation.
    async fn prepare(&self, _number: u32, _env: &FaultEnv) -> Result<Option<Preparation>, &'static str> {
        Ok(None)
    }

    /// Executes the injection.
    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected>;
}

/// Returns the fate of acquires while no client can reach this number of servers.
pub fn acquires_without(servers_gone: usize, shape: &Shape) -> Acquires {
    let all = shape.servers as usize;
    if 2 * (all - servers_gone) > all {
        Acquires::GoOn
    } else {
        Acquires::Stop
    }
}

/// The requirements of an injection on a run beyond clients, links and servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Servers must reach each other through the proxy.
    pub peer_proxy: bool,
    /// Replicas that clients do not know, of the servers that they do.
    pub replicas: u32,
    /// Processes must be given wall clocks that can be stepped.
    pub wall_clocks: bool,
    /// Servers must start behind gates that report their syncs; then they sync as in production.
    pub disk_gates: bool,
    /// Servers must have file systems of their own, which can lose power or be filled.
    pub own_disks: bool,
    /// Servers must be able to leave their cluster and to join it while it runs.
    pub replaceable_servers: bool,
    /// A client must hold a lock when the fault strikes, though the target is another: it continues to work.
    pub held_lock: bool,
    /// The same client must still work at the heal.
    pub works_past_heal: bool,
}

/// The result of the preparation. The holder that the target is then resolved to was granted its lock after it.
#[derive(Debug, Default)]
pub struct Preparation {
    /// A fault on links that is already active.
    pub link_fault: Option<LinkFault>,
    /// Keys on the servers: the target's lock must not be one of them.
    pub known_keys: Vec<String>,
}

/// The arguments of an injection.
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
    /// Returns the nodes that are the servers of the target now.
    pub fn nodes(&self) -> Vec<u32> {
        let endpoints = self.env.servers.endpoints();
        let servers = self.target.servers();
        servers.iter().map(|server| endpoints.node_of(*server)).collect()
    }

    /// Returns the one server of the target, as clients know it and as a node, or the error `missed` if there is none.
    pub fn one_server(&self, missed: &'static str) -> Result<(u32, u32), NotInjected> {
        let mut servers = self.target.servers().into_iter().zip(self.nodes());
        servers.next().ok_or(NotInjected::Missed(missed))
    }
}

/// The reason for which an injection was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotInjected {
    /// It had no target; the run continues.
    Missed(&'static str),
    /// It is not active as planned; the run cannot continue.
    Failed(String),
}

/// A drawn injection. The error describes a valid argument.
pub type Planned = Result<Injection, String>;

/// The plan of one window.
#[derive(Debug, Clone)]
pub struct Injection {
    pub target: Target,
    pub action: Arc<dyn Inject>,
    pub acquires: Acquires,
    /// The least effect without which a pass means nothing.
    pub requirement: Option<Requirement>,
    /// Its duration beyond the wait for its target.
    pub takes: Duration,
    /// Its title, without the fault's name: "holder | every server".
    pub title: String,
    /// The act of its heal, in a word or two.
    pub heal: &'static str,
}

impl Injection {
    pub fn new(
        target: Target,
        action: impl Inject,
        acquires: Acquires,
        title: impl Into<String>,
        heal: &'static str,
    ) -> Self {
        Self {
            target,
            action: Arc::new(action),
            acquires,
            requirement: None,
            takes: Duration::ZERO,
            title: title.into(),
            heal,
        }
    }

    /// Drops the requirement if a window of this length is too short for it.
    #[must_use]
    pub fn within(mut self, length: Duration) -> Self {
        let too_short =
            |required: &Requirement| required.stopped_ms.is_some_and(|ms| length < Duration::from_millis(ms));
        self.requirement = self.requirement.filter(|required| !too_short(required));
        self
    }

    /// Adds the toxics to the title for a run with a Toxiproxy. The error has the reason for which there are none.
    pub fn through_toxiproxy(mut self, fault: &str) -> Result<Self, String> {
        let needed = |why| format!("{fault} needs the built-in proxy: {why}\nhint: --proxy builtin");
        if let Some(toxics) = self.action.toxics().map_err(needed)? {
            self.title = format!("{} | {toxics}", self.title);
        }
        Ok(self)
    }

    /// Returns the action as this type.
    #[cfg(test)]
    pub fn action_as<T: Inject>(&self) -> &T {
        let action: &dyn Any = &*self.action;
        action.downcast_ref().expect("the plan makes an action of this type")
    }
}
