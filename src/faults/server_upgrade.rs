//! `server-upgrade`: a server ends in order, as by an operator, and starts from another version on its data, while clients work:
//! the followers one after the other, then the leader.
//!
//! In the meantime servers of two versions are one cluster. The fault shows whether a new version reads the data of the old one,
//! and whether both understand each other.

use std::time::Duration;

use async_trait::async_trait;
use rand_chacha::ChaCha8Rng;

use super::fault::{no_models, not_attached};
use super::insistence::{InsistentOrder, PAUSE};
use super::{
    ActiveFault, Affected, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed, Inject, Injected,
    Injection, InjectionContext, Needs, NotInjected, Pace, Planned, Shape, Target, acquires_without,
};
use crate::backends;
use crate::cluster::{ClusterError, NodeCommand, OtherVersion};
use crate::config::upgrade::UPGRADE_FAULT as NAME;
use crate::evidence::{Evidence, EvidenceCounter, SERVERS_BACK};
use crate::limits::SERVER_CHANGED;

pub struct ServerUpgrade;

const SERVERS_UPGRADED: EvidenceCounter = EvidenceCounter::new("servers_upgraded", "server", "upgraded");

impl Fault for ServerUpgrade {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: NAME,
            summary: "each server shuts down and starts from another version on its data, one after the other, the leader last",
            argument: "VERSION that can be fetched | IMAGE:TAG of containers | /FOLDER with the programs of local servers (required)",
            family: FaultFamily::Cluster,
            pace: Pace::Long,
            verb: "left without a server",
            counters: &[SERVERS_UPGRADED, SERVERS_BACK],
            trace: &[SERVERS_UPGRADED],
            no_effect_hint: Some(
                "no server reported another version than before: name another image or folder, or lengthen the windows \
                 (--window 10s)",
            ),
        }
    }

    fn applies(&self, argument: Option<&str>, shape: &Shape) -> Result<(), String> {
        not_attached(NAME, "starts servers from another version", shape)?;
        let why = "models of servers have no versions";
        no_models(NAME, why, "--runtime local, virtual or docker", shape)?;
        if let Err(why) = shape.backend.software.upgrade {
            let can = backends::names(" and ", |backend| backend.software.upgrade.is_ok());
            return Err(format!(
                "{NAME}: servers of {} are not upgraded: {why}\n\
                 hint: {NAME} is for {can}; --fault server-restart starts each server again as it is",
                shape.backend.product()
            ));
        }
        version(argument).map(drop)
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Planned {
        let version = version(argument)?;
        let title = format!("shuts down, then starts from {version}");
        let upgrade = Upgrade { version };
        // the title begins with its name when it is known
        Ok(Injection::new(
            Target::NextUpgrade,
            upgrade,
            acquires_without(1, shape),
            title,
            "serve",
        ))
    }
}

fn version(argument: Option<&str>) -> Result<OtherVersion, String> {
    let Some(typed) = argument else {
        return Err(format!(
            "{NAME} needs the other version\n\
             hint: {NAME}=VERSION of `harness list versions`, {NAME}=IMAGE:TAG for containers, {NAME}=/FOLDER with the programs for \
             local servers"
        ));
    };
    OtherVersion::read(typed).map_err(|why| format!("{NAME}={typed}: {why}"))
}

/// An act on the server of one window.
#[derive(Debug, Clone)]
struct Upgrade {
    version: OtherVersion,
}

#[async_trait]
impl Inject for Upgrade {
    fn needs(&self) -> Needs {
        Needs {
            // its lock must survive the upgrade
            held_lock: true,
            ..Needs::default()
        }
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let (server, node) = context.one_server("no known server could be upgraded")?;
        let upgraded = HealOnDrop::new(UpgradedServer {
            env: context.env.clone(),
            version: self.version.clone(),
            node,
            before: None,
            is_mute: false,
            order: InsistentOrder::new(node, NodeCommand::Upgrade),
        });
        Ok(upgraded.on(Affected::servers(vec![server])))
    }
}

/// A server that is being upgraded.
struct UpgradedServer {
    env: FaultEnv,
    version: OtherVersion,
    node: u32,
    /// The version that it reported before.
    before: Option<String>,
    /// Whether it was asked for that until the time was over.
    is_mute: bool,
    order: InsistentOrder,
}

impl UpgradedServer {
    fn name(&self) -> &str {
        self.env.servers.name(self.node)
    }

    /// Reads its version before the upgrade, until it answers or the time is over.
    async fn ask_version(&mut self, until: u64) {
        while self.before.is_none() && self.env.clock.now_ns() < until {
            self.before = self.env.servers.serving(self.node).await.map(|serving| serving.version);
            if self.before.is_none() {
                self.env.clock.sleep(PAUSE).await;
            }
        }
        self.is_mute = self.before.is_none();
    }

    /// Returns the reason for which it was not upgraded: the run cannot continue if it was stopped.
    fn not_upgraded(&mut self) -> Healed {
        match self.order.refused.take() {
            Some(why) if !is_refusal(&why) => Healed {
                trouble: Some(format!("{} was not upgraded to {}: {why}", self.name(), self.version)),
                ..Healed::default()
            },
            Some(why) => Healed {
                missed: Some(why.to_string()),
                ..Healed::default()
            },
            None => Healed {
                missed: Some(without_order(self.name(), self.is_mute)),
                ..Healed::default()
            },
        }
    }
}

/// Returns the reason for which no upgrade of a server was ordered.
fn without_order(name: &str, is_mute: bool) -> String {
    match is_mute {
        true => format!("{name} did not report its version"),
        false => format!("the window ended before {name} had reported its version"),
    }
}

/// Whether the server was left as it was.
fn is_refusal(why: &ClusterError) -> bool {
    matches!(why, ClusterError::Unchanged { .. })
}

/// Returns the result of an upgrade from the versions that the server reported. `after` is `None` if it did not serve again.
fn outcome(name: &str, before: Option<&str>, after: Option<&str>) -> Healed {
    let changed = matches!((before, after), (Some(before), Some(after)) if before != after);
    let word = |version: Option<&str>| version.unwrap_or("?").to_owned();
    let same = after.is_some() && !changed;
    let (from, to) = (word(before), word(after));
    Healed {
        detail: (!same).then(|| format!("{name} from {from} to {to}")),
        missed: same.then(|| format!("{name} reports {to}, as before, and not another version")),
        ..Evidence::default()
            .with(&SERVERS_UPGRADED, changed.into())
            .with(&SERVERS_BACK, after.is_some().into())
            .into()
    }
}

#[async_trait]
impl ActiveFault for UpgradedServer {
    async fn act(&mut self, until: u64) {
        self.ask_version(until).await;
        if self.before.is_some() {
            self.order.insist(&self.env, until, is_refusal).await;
            self.env.redirect(self.node);
        }
    }

    async fn heal(&mut self, _: Duration, patient: bool) -> Healed {
        self.order.hear().await;
        if !self.order.done {
            return self.not_upgraded();
        }
        self.env.redirect(self.node);
        // other faults may keep it from serving until they are over
        let serves = !patient || self.env.servers.serves(self.node, SERVER_CHANGED).await;
        let after = self.env.servers.serving(self.node).await.map(|serving| serving.version);
        let within = SERVER_CHANGED.as_secs();
        let trouble = || {
            format!(
                "{} does not serve {within} s after it was started from {}",
                self.name(),
                self.version
            )
        };
        Healed {
            trouble: (!serves).then(trouble),
            ..outcome(self.name(), self.before.as_deref(), after.as_deref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{AttachedServers, NodeCommands, Runtime};
    use crate::faults::Acquires;
    use harness_workloads::BackendId;

    fn planned(argument: Option<&str>, servers: u32) -> Planned {
        ServerUpgrade.planned(argument, 0, &Shape::of_servers(servers), 7)
    }

    #[test]
    fn each_window_is_for_the_server_whose_turn_it_is_and_names_the_version() {
        let injection = planned(Some("etcd:3.6"), 3).unwrap();
        assert_eq!(injection.target, Target::NextUpgrade);
        assert_eq!(injection.title, "shuts down, then starts from etcd:3.6");
        assert_eq!(injection.acquires, Acquires::GoOn);
        assert_eq!(planned(Some("etcd:3.6"), 1).unwrap().acquires, Acquires::Stop);
    }

    #[test]
    fn only_servers_that_go_on_with_the_data_of_another_version_have_it() {
        let (zk, of) = (Shape::example(), Shape::of_backend);
        for shape in [
            zk,
            of(BackendId::Etcd),
            of(BackendId::Mariadb),
            Shape::one_redis(),
            Shape { servers: 1, ..zk },
            Shape { tls: true, ..zk },
        ] {
            assert_eq!(ServerUpgrade.applies(Some("image:1"), &shape), Ok(()));
            let refused = ServerUpgrade.applies(None, &shape).unwrap_err();
            assert!(refused.contains("the other version"));
        }
    }

    #[tokio::test]
    async fn a_version_that_the_servers_of_a_run_cannot_come_from_is_refused_before_any_starts() {
        let software = backends::of(BackendId::Etcd).software;
        let folder = tempfile::tempdir().unwrap();
        let attached = AttachedServers {
            servers: Vec::new(),
            commands: NodeCommands::default(),
        };
        let docker = Runtime::Docker {
            image: "etcd:3.5".into(),
        };
        let at = folder.path().display().to_string();
        let provide = async |version: &str, runtime: &Runtime| {
            let provided = OtherVersion::read(version).unwrap().provided(runtime, software).await;
            provided.map_err(|error| error.to_string())
        };
        for (version, runtime, said) in [
            ("etcd:3.6", &Runtime::Local, "--runtime docker"),
            ("etcd:3.6", &Runtime::Attached(attached), "for containers"),
            ("/opt", &docker, "--runtime local"),
            ("/no/such/folder", &Runtime::Local, "no folder /no/such/folder"),
            ("9.9", &Runtime::Virtual, "3.5.16 can be"),
            (&at, &Runtime::Local, "etcd not found in"),
        ] {
            let refused = provide(version, runtime).await.unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        std::fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
        std::fs::write(folder.path().join("usr/bin/etcd"), "").unwrap();
        let found = OtherVersion::Folder(folder.path().into());
        assert_eq!(provide(&at, &Runtime::Local).await, Ok(found));
    }

    #[test]
    fn a_server_that_was_not_asked_to_the_end_is_not_said_to_be_silent() {
        assert!(without_order("n1", true).contains("did not report"));
        assert!(without_order("n1", false).contains("ended before n1"));
    }

    #[test]
    fn what_says_the_same_version_as_before_is_no_upgrade() {
        let upgraded = outcome("n1", Some("3.4.23"), Some("3.5.16"));
        assert_eq!(upgraded.detail.as_deref(), Some("n1 from 3.4.23 to 3.5.16"));
        assert_eq!((upgraded.evidence.get("servers_upgraded"), upgraded.missed), (1, None));
        let same = outcome("n1", Some("3.5.16"), Some("3.5.16"));
        assert_eq!(
            (same.evidence.get("servers_upgraded"), same.evidence.get("servers_back")),
            (0, 1)
        );
        assert!(same.missed.is_some_and(|why| why.contains("3.5.16, as before")));
        let gone = outcome("n1", Some("3.4.23"), None);
        assert_eq!(gone.detail.as_deref(), Some("n1 from 3.4.23 to ?"));
        assert!(!gone.evidence.has_any(&[SERVERS_UPGRADED, SERVERS_BACK]));
    }
}
