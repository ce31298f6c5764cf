//! `failover`: the replica of a Redis master, or the standby of a PostgreSQL primary, is promoted, and clients are redirected to
//! it, as by a proxy in front of both.
//!
//! Replication is asynchronous: a lock that was granted after the link to the replica was stalled is unknown to the new master,
//! which grants it again. The old master is fenced off: it lives, and no client reaches it any more. With the heal it becomes the
//! replica of the new one and forgets its grants.
//!
//! The link is stalled first, while the replica has no lock and before the target is resolved: so the replica never learns of the
//! holder's grant. Then clients are stalled, the replica is promoted, the observer watches it, and clients are redirected to it.
//!
//! Servers that elect their master do so themselves: `elected_failover`.

use std::time::Duration;

use async_trait::async_trait;
use harness_checkers::history::Requirement;
use harness_workloads::BackendId;
use rand_chacha::ChaCha8Rng;

use super::elected_failover::KillMaster;
use super::fault::{kind_of, not_attached, not_virtual};
use super::held_back::hold_back;
use super::link_injection::done_by;
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed, Inject,
    Injected, Injection, InjectionContext, Needs, NotInjected, Pace, Planned, Preparation, Shape, Target,
};
use crate::backends::Topology;
use crate::cluster::{NodeCommand, Peering};
use crate::evidence::{SERVERS_BACK, SERVERS_PROMOTED};
use crate::limits::PROBE;
use harness_proxy::{Behaviour, LinkFault};

pub struct Failover;

const KINDS: [&str; 2] = ["held-back", "clean"];
/// The time in which bytes that were on their way to the replica at the stall of its link arrive.
const IN_FLIGHT: Duration = Duration::from_millis(5);
/// The time in which sentinels, or the masters of a cluster, find a master dead and promote a replica: 1.6 to 3 s, and more if a
/// vote is divided.
const ELECTION_TAKES: Duration = Duration::from_secs(4);

impl Fault for Failover {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: "failover",
            summary: "the replica of a master (Redis, PostgreSQL) is promoted without its last writes, \
                      which violates HL001 in any lock on one server",
            argument: "held-back | clean, a promotion with all writes (default: held-back)",
            family: FaultFamily::Cluster,
            pace: Pace::Long,
            verb: "led to another server",
            counters: &[SERVERS_PROMOTED, SERVERS_BACK],
            trace: &[SERVERS_PROMOTED],
            no_effect_hint: None,
        }
    }

    fn applies(&self, argument: Option<&str>, shape: &Shape) -> Result<(), String> {
        not_attached("failover", "sets up a replica", shape)?;
        // the standby of a PostgreSQL server is a copy that a program of its own makes
        if shape.backend.id == Some(BackendId::Postgres) {
            not_virtual("failover", shape)?;
        }
        match shape.backend.software.peering {
            Peering::Replication(_) if shape.servers == 1 => Ok(()),
            Peering::Replication(_) => {
                Err("failover promotes the replica of one master, and these masters have none: --nodes 1".into())
            }
            Peering::Announced(_) if argument == Some("clean") => Ok(()),
            Peering::Announced(_) if shape.backend.topology == Topology::Cluster && shape.locks > 1 => Err(format!(
                "failover acts on one master, and in a cluster {} locks are on several\nhint: --locks 1, or --fault failover=clean",
                shape.locks
            )),
            Peering::Announced(_) if shape.lease < ELECTION_TAKES => Err(format!(
                "an election takes up to {} s, and a lease of {} s ends before that: no lock would be held by then\nhint: --lease 5s, or --fault failover=clean",
                ELECTION_TAKES.as_secs(),
                shape.lease.as_secs_f32()
            )),
            Peering::Announced(_) => Ok(()),
            Peering::Direct | Peering::Socks | Peering::Dialled { .. } => Err(format!(
                "failover promotes the replica of a master, and servers of {} have none\nhint: --fault server-kill=leader or --fault partition=leader",
                shape.backend
            )),
        }
    }

    fn survivable(&self, _: &Shape) -> Result<Duration, &'static str> {
        Err("a lock that only one master knows is lost with it")
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Planned {
        let held_back = kind_of("failover", argument, &KINDS)? == "held-back";
        let injection = match shape.backend.software.peering {
            Peering::Announced(_) => {
                let title = match held_back {
                    true => "the master dies, and its replicas do not have the lock",
                    false => "the master dies",
                };
                let kill = KillMaster { held_back };
                Injection::new(Target::Holder, kill, Acquires::GoOn, title, "start")
            }
            _ => {
                let title = match held_back {
                    true => "its master fails over to a replica that does not have the lock",
                    false => "its master fails over to a replica that has the lock",
                };
                let promote = PromoteReplica { held_back };
                Injection::new(Target::Holder, promote, Acquires::GoOn, title, "follow")
            }
        };
        let requirement = held_back.then(|| Requirement {
            stopped_ms: None,
            breaks: Some("HL001".into()),
            // any lock that only one server knows
            even_without_lease: true,
        });
        Ok(Injection {
            requirement,
            ..injection
        })
    }
}

/// Promotes the replica, which with `held_back` lacks the master's last writes.
#[derive(Debug)]
struct PromoteReplica {
    held_back: bool,
}

#[async_trait]
impl Inject for PromoteReplica {
    fn needs(&self) -> Needs {
        Needs {
            peer_proxy: true,
            replicas: 1,
            ..Needs::default()
        }
    }

    fn toxics(&self) -> Result<Option<String>, String> {
        Err("it leads clients to another server".into())
    }

    /// Stalls the replication link if `held_back`, at a moment at which the replica has no lock, if there is one soon.
    async fn prepare(&self, number: u32, env: &FaultEnv) -> Result<Option<Preparation>, &'static str> {
        let replica = env.servers.replica().ok_or("there is no replica")?;
        if !env.servers.is_replica(replica).await {
            return Err("the replica was not in sync with its master");
        }
        let mut preparation = Preparation::default();
        if self.held_back {
            let master = env.servers.endpoints().primary().ok_or("there is no master")?;
            let link = env.peer_links.get(&(replica, master));
            let link = link.ok_or("its link is not proxied")?;
            let held_back = hold_back(link, IN_FLIGHT, &[replica], number, env).await;
            preparation = held_back.ok_or("the replica does not answer")?;
        }
        Ok(Some(preparation))
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let env = context.env;
        let replica = env.servers.replica();
        let mut promoted = HealOnDrop::new(PromotedReplica {
            env: env.clone(),
            replication: context.preparation.and_then(|preparation| preparation.link_fault),
            old: env.servers.endpoints().primary().unwrap_or_default(),
            new: replica.ok_or(NotInjected::Missed("there is no replica"))?,
            follows: true,
            in_step: false,
        });
        if promoted.promote(context.number).await {
            let links = promoted.replication.as_ref().map(LinkFault::names).unwrap_or_default();
            let affected = Affected::servers(vec![promoted.old, promoted.new]);
            Ok(promoted.on(Affected { links, ..affected }))
        } else {
            Err(NotInjected::Missed("the replica was not promoted"))
        }
    }
}

/// A replica in the place of its master.
struct PromotedReplica {
    env: FaultEnv,
    /// The replication link, if it is stalled.
    replication: Option<LinkFault>,
    old: u32,
    new: u32,
    /// Whether the old master follows the new one.
    follows: bool,
    in_step: bool,
}

impl PromotedReplica {
    async fn promote(&mut self, number: u32) -> bool {
        let servers = &self.env.servers;
        let links: Vec<_> = self.env.links.values().cloned().collect();
        // dropped at the end, which ends every connection to the old master
        let _stalled = LinkFault::apply(links, number, Behaviour::STALL, true);
        if self.replication.is_none() && !servers.in_sync(self.new, self.old, PROBE).await {
            return false;
        }
        if !matches!(servers.order(self.new, NodeCommand::Promote).await, Ok(Ok(()))) {
            return false;
        }
        self.follows = false;
        servers.set_primary(self.new);
        let address = servers.address(self.new);
        let mut observed = self.env.observed.clone();
        // an observer that does not connect is reported elsewhere; clients are not stalled without a limit
        let arrives = observed.wait_for(|at| *at == Some(address));
        let _ = self.env.clock.within(PROBE, arrives).await;
        for link in self.env.links.values() {
            link.redirect(address);
        }
        true
    }
}

#[async_trait]
impl ActiveFault for PromotedReplica {
    /// Makes the old master follow the new one; a `patient` heal waits until it does.
    async fn heal(&mut self, _: Duration, patient: bool) -> Healed {
        if !std::mem::replace(&mut self.follows, true) {
            let servers = &self.env.servers;
            let _ = servers.order(self.old, NodeCommand::Follow).await;
            self.in_step = patient && servers.follows(self.old).await;
        }
        let held = self.replication.as_ref().map(done_by);
        held.unwrap_or_default()
            .with(&SERVERS_PROMOTED, 1)
            .with(&SERVERS_BACK, self.in_step.into())
            .into()
    }

    fn undo(&mut self) {
        if !std::mem::replace(&mut self.follows, true) {
            self.env.servers.order(self.old, NodeCommand::Follow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_without_the_last_writes_must_break_mutual_exclusion_and_a_clean_one_need_not() {
        let requirement = |kind| {
            let planned = Failover.planned(kind, 0, &Shape::one_redis(), 1);
            planned.unwrap().requirement
        };
        let required = requirement(None).unwrap();
        assert_eq!(required.breaks.as_deref(), Some("HL001"));
        assert!(required.even_without_lease);
        assert_eq!(requirement(Some("clean")), None);
    }

    #[test]
    fn a_clean_failover_or_a_lease_that_outlasts_an_election_will_do() {
        let sentinels = Shape {
            backend: Shape::one_redis().backend.in_topology(Topology::Sentinel).unwrap(),
            servers: 6,
            ..Shape::one_redis()
        };
        let longer = Shape {
            lease: Duration::from_secs(5),
            ..sentinels
        };
        assert_eq!(Failover.applies(Some("clean"), &sentinels), Ok(()));
        let cluster = Shape {
            backend: Shape::one_redis().backend.in_topology(Topology::Cluster).unwrap(),
            ..longer
        };
        assert_eq!(Failover.applies(None, &cluster), Ok(()));
        assert_eq!(Failover.applies(None, &longer), Ok(()));
        let planned = Failover.planned(None, 0, &longer, 1).unwrap();
        assert_eq!(
            (planned.action.needs().replicas, planned.action.needs().peer_proxy),
            (0, true)
        );
        assert!(planned.title.contains("dies"), "{}", planned.title);
    }
}
