//! `server-replace`: a server leaves its cluster permanently, with its data, and a new one without data joins in its place, while
//! clients work.
//!
//! Most of the members know each lock all the time, and the new one votes only after it knows them, too: sessions and leases
//! survive it. It is the replacement of a machine, and a way in which a cluster forgets its grants if it goes wrong.

use std::time::Duration;

use async_trait::async_trait;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::fault::{kind_of, no_models, not_attached};
use super::insistence::{InsistentOrder, PAUSE};
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed, Inject,
    Injected, Injection, InjectionContext, Needs, NotInjected, Pace, Planned, Shape, Target,
};
use crate::backends;
use crate::cluster::NodeCommand;
use crate::evidence::{Evidence, EvidenceCounter, SERVERS_BACK};
use crate::limits::SERVER_CHANGED;

pub struct ServerReplace;

const NAME: &str = "server-replace";
/// The targets of an argument.
const ROLES: [&str; 3] = ["leader", "follower", "one"];
/// The targets of windows without an argument, in turn.
const BY_TURNS: [&str; 2] = ["leader", "follower"];
/// The least time for which a server is asked to leave: etcd wants all members connected for five seconds before.
const ASKED_TO_LEAVE: Duration = Duration::from_secs(8);
const SERVERS_REPLACED: EvidenceCounter = EvidenceCounter::new("servers_replaced", "server", "replaced");

impl Fault for ServerReplace {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: NAME,
            summary: "a server leaves its cluster for good, and a new one without data joins in its place",
            argument: "leader | follower | one (default: the leader and a follower by turns)",
            family: FaultFamily::Cluster,
            pace: Pace::Long,
            verb: "left without a server",
            counters: &[SERVERS_REPLACED, SERVERS_BACK],
            trace: &[SERVERS_REPLACED],
            no_effect_hint: Some(
                "the cluster did not remove a server: lengthen the windows (--window 10s), or leave out faults that separate \
                 its members",
            ),
        }
    }

    fn applies(&self, _: Option<&str>, shape: &Shape) -> Result<(), String> {
        let Some(membership) = shape.backend.software.membership else {
            let can = backends::names(" or ", |backend| backend.software.membership.is_some());
            return Err(format!(
                "{NAME} is for {can}, whose members can be replaced, and not for {} as harness starts it\n\
                 hint: --fault server-restart starts each server again, on its data",
                shape.backend.product()
            ));
        };
        not_attached(NAME, "starts a server in place of another one", shape)?;
        let why = "the members of simulated clusters do not change";
        no_models(NAME, why, "--runtime local, virtual or docker", shape)?;
        if shape.servers < 2 {
            return Err(format!(
                "{NAME}: a new server needs another one to get the data from\nhint: --nodes 3"
            ));
        }
        match shape.tls && !membership.with_tls() {
            true => Err(format!(
                "{NAME}: {} takes no new server that serves only TLS\nhint: leave --tls out",
                shape.backend.product()
            )),
            false => Ok(()),
        }
    }

    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let role = match argument {
            None => BY_TURNS[number as usize % BY_TURNS.len()],
            Some(_) => kind_of(NAME, argument, &ROLES)?,
        };
        let title = "leaves for good, then a new one joins without data";
        let (target, title) = match role {
            // the title begins with its name when it is known
            "leader" => (Target::Leader, title.to_owned()),
            "follower" => (Target::Follower(rng.random_range(0..shape.servers)), title.to_owned()),
            _ => {
                let server = rng.random_range(0..shape.servers);
                (Target::Servers(vec![server]), format!("n{}: {title}", server + 1))
            }
        };
        // the remaining members are a cluster, and a majority
        Ok(Injection::new(target, Replacement, Acquires::GoOn, title, "join"))
    }
}

/// An act on the server of one window.
#[derive(Debug, Clone, Copy)]
struct Replacement;

#[async_trait]
impl Inject for Replacement {
    fn needs(&self) -> Needs {
        Needs {
            replaceable_servers: true,
            // its lock must survive the change
            held_lock: true,
            ..Needs::default()
        }
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let (server, node) = context.one_server("no known server could leave")?;
        let replaced = HealOnDrop::new(ReplacedServer {
            env: context.env.clone(),
            node,
            leaving: InsistentOrder::new(node, NodeCommand::Leave),
            healed: false,
        });
        Ok(replaced.on(Affected::servers(vec![server])))
    }
}

/// A server that leaves, and the new one.
struct ReplacedServer {
    env: FaultEnv,
    node: u32,
    leaving: InsistentOrder,
    healed: bool,
}

impl ReplacedServer {
    /// Makes the new server join, and waits until it is a member as the others are; a `patient` heal takes more time.
    async fn replace(&self, patient: bool) -> Result<(), String> {
        let clock = self.env.clock;
        let deadline = clock.after(if patient { SERVER_CHANGED } else { Duration::ZERO });
        let mut joining = InsistentOrder::new(self.node, NodeCommand::Join);
        joining.insist(&self.env, deadline, |_| true).await;
        if let Some(why) = joining.refused.filter(|_| !joining.done) {
            return Err(why.to_string());
        }
        self.env.redirect(self.node);
        if !patient {
            return Ok(());
        }
        let settle = || async {
            match self.env.servers.is_back(self.node).await {
                true => self.env.servers.settle(self.node).await,
                false => Err("it does not serve".to_owned()),
            }
        };
        clock.try_until(deadline, PAUSE, settle).await
    }
}

#[async_trait]
impl ActiveFault for ReplacedServer {
    /// Asks it to leave until it does.
    async fn act(&mut self, until: u64) {
        let deadline = until.max(self.env.clock.after(ASKED_TO_LEAVE));
        self.leaving.insist(&self.env, deadline, |_| true).await;
    }

    async fn heal(&mut self, _: Duration, patient: bool) -> Healed {
        self.leaving.hear().await;
        self.healed = true;
        if !self.leaving.done {
            return Healed {
                missed: self.leaving.refused.take().map(|why| why.to_string()),
                ..Healed::default()
            };
        }
        let replaced = self.replace(patient).await;
        let (name, is_replaced) = (self.env.servers.name(self.node), replaced.is_ok());
        let trouble = replaced.err().map(|why| format!("no new {name} joined: {why}"));
        Healed {
            trouble,
            ..Evidence::default()
                .with(&SERVERS_REPLACED, is_replaced.into())
                .with(&SERVERS_BACK, (patient && is_replaced).into())
                .into()
        }
    }

    fn undo(&mut self) {
        if self.leaving.given && !std::mem::replace(&mut self.healed, true) {
            // only the cluster knows whether it left
            self.env.servers.order(self.node, NodeCommand::Join);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_workloads::BackendId;

    fn planned(argument: Option<&str>, number: u32) -> Result<Target, String> {
        let injection = ServerReplace.planned(argument, number, &Shape::example(), 7)?;
        assert!(injection.action.needs().replaceable_servers);
        Ok(injection.target)
    }

    #[test]
    fn the_leader_and_a_follower_leave_by_turns_where_nobody_says_which() {
        let leads = [0, 1, 2, 3].map(|number| planned(None, number).unwrap() == Target::Leader);
        assert_eq!(leads, [true, false, true, false]);
        assert!(matches!(planned(None, 1), Ok(Target::Follower(_))));
        assert_eq!(planned(Some("leader"), 1), Ok(Target::Leader));
        assert!(matches!(planned(Some("follower"), 0), Ok(Target::Follower(_))));
        assert!(matches!(planned(Some("one"), 0), Ok(Target::Servers(one)) if one.len() == 1 && one[0] < 3));
    }

    #[test]
    fn a_store_whose_members_stay_is_sent_to_no_other_runtime_and_etcd_has_it_with_tls() {
        let nats = Shape::of_backend(BackendId::Nats).simulated();
        assert!(ServerReplace.applies(None, &nats).unwrap_err().contains("not for NATS"));
        let etcd = Shape {
            tls: true,
            ..Shape::of_backend(BackendId::Etcd)
        };
        assert_eq!(ServerReplace.applies(None, &etcd), Ok(()));
    }
}
