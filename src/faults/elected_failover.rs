//! `failover` on servers that elect their master: it is killed, and sentinels, or the other masters of a cluster, promote a
//! replica. No link is redirected: clients ask for the new master, and the old one becomes its replica when it starts again.
//!
//! Before that, the link by which the other servers reach the master is stalled while no replica has a lock; then a client gets
//! one. No replica learns of it, as of the last writes of any master that dies, since replication is asynchronous.

use std::time::Duration;

use async_trait::async_trait;

use super::held_back::hold_back;
use super::link_injection::done_by;
use super::server::down_after_failure;
use super::{
    ActiveFault, Affected, FaultEnv, HealOnDrop, Healed, Inject, Injected, InjectionContext, Needs, NotInjected,
    Preparation,
};
use crate::cluster::NodeCommand;
use crate::evidence::{SERVERS_BACK, SERVERS_PROMOTED};
use crate::limits::AIM;
use harness_proxy::LinkFault;

/// The time in which bytes that were on their way to the replicas at the stall of the link arrive.
const IN_FLIGHT: Duration = Duration::from_millis(10);
/// The time between two polls for the master.
const LOOK: Duration = Duration::from_millis(100);

/// Kills the master, and with `held_back` its replicas lack its last writes.
#[derive(Debug)]
pub struct KillMaster {
    pub held_back: bool,
}

#[async_trait]
impl Inject for KillMaster {
    fn needs(&self) -> Needs {
        Needs {
            peer_proxy: true,
            ..Needs::default()
        }
    }

    /// Stalls the master's link if `held_back`, at a moment at which no replica has a lock, if there is one soon.
    async fn prepare(&self, number: u32, env: &FaultEnv) -> Result<Option<Preparation>, &'static str> {
        if !self.held_back {
            return Ok(None);
        }
        let master = env.servers.leader(AIM).await.ok_or("there is no master")?;
        let replicas = replicas(env).await;
        if replicas.is_empty() {
            return Err("no replica was in sync with its master");
        }
        let link = env.peer_links.get(&(master, master)).ok_or("its link is not proxied")?;
        let held_back = hold_back(link, IN_FLIGHT, &replicas, number, env).await;
        held_back.map(Some).ok_or("a replica does not answer")
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let env = context.env;
        let cut_off = context.preparation.and_then(|preparation| preparation.link_fault);
        // another server may have become the master
        let master = match &cut_off {
            Some(cut_off) => cut_off_from_others(env, cut_off),
            None => env.servers.leader(AIM).await,
        };
        let master = master.ok_or(NotInjected::Missed("there is no master"))?;
        let mut dead = HealOnDrop::new(DeadMaster {
            env: env.clone(),
            cut_off,
            master,
            promoted: None,
            started: false,
        });
        let down = match env.servers.order(master, NodeCommand::Kill).await {
            Ok(Ok(())) => {
                let links = dead.cut_off.as_ref().map(LinkFault::names).unwrap_or_default();
                let affected = Affected::servers(vec![master]);
                return Ok(dead.on(Affected { links, ..affected }));
            }
            Ok(Err(why)) => down_after_failure(&env.servers, master, why).await,
            Err(_) => None,
        };
        dead.started = true;
        Err(down.map_or(NotInjected::Missed("the master was not killed"), NotInjected::Failed))
    }
}

/// Returns the server whose link this fault stalls.
fn cut_off_from_others(env: &FaultEnv, cut_off: &LinkFault) -> Option<u32> {
    let names = cut_off.names();
    let mut links = env.peer_links.iter();
    links.find_map(|((_, server), link)| names.contains(&link.name().to_owned()).then_some(*server))
}

/// Returns the servers that are replicas now.
async fn replicas(env: &FaultEnv) -> Vec<u32> {
    let mut replicas = Vec::new();
    for node in 0..env.servers.endpoints().nodes().len() as u32 {
        if env.servers.is_replica(node).await {
            replicas.push(node);
        }
    }
    replicas
}

/// A master that was killed.
struct DeadMaster {
    env: FaultEnv,
    /// Its link, if it is stalled.
    cut_off: Option<LinkFault>,
    master: u32,
    /// The replica that took its place.
    promoted: Option<u32>,
    started: bool,
}

#[async_trait]
impl ActiveFault for DeadMaster {
    /// Waits for the promotion of a replica.
    async fn act(&mut self, until: u64) {
        let clock = self.env.clock;
        while self.promoted.is_none() && clock.now_ns() < until {
            clock.sleep(LOOK).await;
            let leader = self.env.servers.leader(Duration::ZERO).await;
            self.promoted = leader.filter(|leader| *leader != self.master);
        }
    }

    /// Starts the old master again, which becomes a replica. A `patient` heal waits until it serves.
    async fn heal(&mut self, _: Duration, patient: bool) -> Healed {
        let held = self.cut_off.take().map(|cut_off| done_by(&cut_off));
        let servers = &self.env.servers;
        let mut back = false;
        if !std::mem::replace(&mut self.started, true) {
            let started = servers.order(self.master, NodeCommand::Start).await;
            back = matches!(started, Ok(Ok(()))) && patient && servers.is_back(self.master).await;
        }
        held.unwrap_or_default()
            .with(&SERVERS_PROMOTED, self.promoted.is_some().into())
            .with(&SERVERS_BACK, back.into())
            .into()
    }

    fn undo(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            self.env.servers.order(self.master, NodeCommand::Start);
        }
    }
}
