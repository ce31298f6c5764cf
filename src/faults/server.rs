//! `server-kill`, `server-pause`, `server-restart`: servers are killed and started again on what they left on disk, or
//! stopped and continued. Which one leads is asked when the window starts.
//!
//! The cluster carries out each order in turn, even if the fault that gave it is gone: so a heal can be ordered from a
//! `Drop`.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::fault::{kind_of, no_argument, server_names};
use super::{
    Acquires, ActiveFault, Affected, BoxFuture, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed,
    Inject, Injection, InjectionContext, Needs, NotInjected, Pace, RunningFault, Shape, Target, acquires_without,
};
use crate::cluster::{CommandOutcome, NodeCommand};
use crate::evidence::{Evidence, EvidenceCounter, SERVERS_BACK, STOPPED_MS};
use crate::limits::SERVER_BACK;

/// What is done to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnServers {
    /// Killed (SIGKILL), and started again on their data when the window heals.
    Kill,
    /// Stopped, and continued when the window heals.
    Pause,
    /// Killed and started again at once, one after the other, each when the one before it serves.
    Restart,
}

const SERVERS_KILLED: EvidenceCounter = EvidenceCounter::new("servers_killed", "server", "killed");
const SERVERS_PAUSED: EvidenceCounter = EvidenceCounter::new("servers_paused", "server", "paused");

impl Fault for OnServers {
    fn definition(&self) -> FaultDefinition {
        let (name, summary, argument) = match self {
            Self::Kill => (
                "server-kill",
                "servers are killed, and started again on their data",
                "one | leader | majority | all (default: one)",
            ),
            Self::Pause => (
                "server-pause",
                "servers stand still, and go on",
                "one | leader | majority (default: one)",
            ),
            Self::Restart => (
                "server-restart",
                "every server is killed and started again, one after the other",
                "",
            ),
        };
        let killed = FaultDefinition {
            name,
            summary,
            argument,
            family: FaultFamily::Cluster,
            pace: Pace::Varied,
            verb: "touched",
            counters: &[SERVERS_KILLED, SERVERS_BACK],
            trace: &[SERVERS_KILLED],
            no_effect_hint: None,
        };
        match self {
            Self::Kill => killed,
            Self::Restart => FaultDefinition {
                pace: Pace::Long,
                ..killed
            },
            Self::Pause => FaultDefinition {
                counters: &[SERVERS_PAUSED, STOPPED_MS],
                trace: &[STOPPED_MS],
                ..killed
            },
        }
    }

    fn applies(&self, _: Option<&str>, shape: &Shape) -> Result<(), String> {
        let name = self.definition().name;
        let (obey, hint) = match self {
            Self::Kill | Self::Restart => (shape.attached.map(|obey| obey.kill), "--on-kill CMD and --on-start CMD"),
            Self::Pause => (
                shape.attached.map(|obey| obey.pause),
                "--on-pause CMD and --on-resume CMD",
            ),
        };
        match obey {
            None | Some(true) => Ok(()),
            Some(false) => Err(format!(
                "{name} acts on servers, and harness did not start those of --servers\nhint: {hint} say how it is done"
            )),
        }
    }

    fn survivable(&self, shape: &Shape) -> Result<Duration, &'static str> {
        match self {
            Self::Kill | Self::Restart if !shape.backend.software.keeps_data => {
                Err("its servers forget their locks when they start again")
            }
            _ => Ok(Duration::MAX),
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Injection, String> {
        let name = self.definition().name;
        let (known, done): (&[&str], _) = match self {
            Self::Kill => (&["one", "leader", "majority", "all"], "killed, then started again"),
            // a pause of all servers would leave nothing to see
            Self::Pause => (&["one", "leader", "majority"], "paused"),
            Self::Restart => {
                no_argument(name, argument)?;
                let target = Target::Servers((0..shape.servers).collect());
                return Ok(Injection::new(
                    target,
                    *self,
                    Acquires::GoOn,
                    "every server, one by one",
                ));
            }
        };
        let some: Vec<u32> = match kind_of(name, argument, known)? {
            // the title begins with its name when it is known
            "leader" => return Ok(Injection::new(Target::Leader, *self, acquires_without(1, shape), done)),
            "one" => vec![rng.random_range(0..shape.servers)],
            "majority" => majority(shape, rng),
            _ => (0..shape.servers).collect(),
        };
        let title = format!("{}: {done}", server_names(&some));
        let acquires = acquires_without(some.len(), shape);
        Ok(Injection::new(Target::Servers(some), *self, acquires, title))
    }
}

fn majority(shape: &Shape, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let all: Vec<u32> = (0..shape.servers).collect();
    let mut some: Vec<u32> = all.sample(rng, shape.servers as usize / 2 + 1).copied().collect();
    some.sort_unstable();
    some
}

impl Inject for OnServers {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn heal_word(&self) -> &'static str {
        match self {
            Self::Kill | Self::Restart => "start",
            Self::Pause => "continue",
        }
    }

    fn toxics(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    fn inject<'a>(&'a self, context: InjectionContext<'a>) -> BoxFuture<'a, Result<RunningFault, NotInjected>> {
        Box::pin(async move {
            let servers = context.target.servers();
            let endpoints = context.env.servers.endpoints();
            // the guard exists before the first order is given
            let mut active = HealOnDrop::new(ActiveOnServers {
                what: *self,
                env: context.env.clone(),
                nodes: servers.iter().map(|server| endpoints.node_of(*server)).collect(),
                servers,
                done: 0,
                back: 0,
                healed: false,
            });
            let act = match self {
                Self::Kill => NodeCommand::Kill,
                Self::Pause => NodeCommand::Pause,
                // one after the other, while the window is on
                Self::Restart => return Ok(active.running()),
            };
            for done in active.order(act) {
                active.done += u64::from(matches!(done.await, Ok(Ok(()))));
            }
            Ok(active.running())
        })
    }
}

/// Servers that are killed, stopped or being restarted.
struct ActiveOnServers {
    what: OnServers,
    env: FaultEnv,
    /// As clients know them.
    servers: Vec<u32>,
    /// Those behind them.
    nodes: Vec<u32>,
    /// To how many of them it was done.
    done: u64,
    /// How many served again.
    back: u64,
    healed: bool,
}

impl ActiveOnServers {
    /// The order that undoes it; a restart undoes itself.
    fn opposite(&self) -> Option<NodeCommand> {
        match self.what {
            OnServers::Kill => Some(NodeCommand::Start),
            OnServers::Pause => Some(NodeCommand::Resume),
            OnServers::Restart => None,
        }
    }

    fn order(&self, act: NodeCommand) -> Vec<CommandOutcome> {
        let order = |node: &u32| self.env.servers.order(*node, act);
        self.nodes.iter().map(order).collect()
    }

    fn evidence(&self, lasted: Duration) -> Evidence {
        match self.what {
            OnServers::Pause => {
                let stopped = if self.done > 0 { lasted } else { Duration::ZERO };
                Evidence::default()
                    .with(&SERVERS_PAUSED, self.done)
                    .with(&STOPPED_MS, stopped.as_millis() as u64)
            }
            OnServers::Kill | OnServers::Restart => Evidence::default()
                .with(&SERVERS_KILLED, self.done)
                .with(&SERVERS_BACK, self.back),
        }
    }

    async fn serves(&self, node: u32) -> bool {
        self.env.servers.serves(node, SERVER_BACK).await
    }

    /// Points the links at where the node serves now, if clients are led to it: a container may come back with another
    /// address.
    fn redirect(&self, node: u32) {
        let Some(server) = self.env.servers.endpoints().server_of(node) else {
            return;
        };
        let address = self.env.servers.address(node);
        for (_, link) in self.env.links.iter().filter(|((_, to), _)| *to == server) {
            link.redirect(address.into());
        }
    }
}

impl ActiveFault for ActiveOnServers {
    fn affected(&self) -> Affected {
        Affected {
            servers: self.servers.clone(),
            ..Affected::default()
        }
    }

    fn act(&mut self, _: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.what != OnServers::Restart {
                return;
            }
            for node in self.nodes.clone() {
                let restarted = self.env.servers.order(node, NodeCommand::Restart).await;
                self.done += u64::from(matches!(restarted, Ok(Ok(()))));
                self.redirect(node);
                self.back += u64::from(self.serves(node).await);
            }
        })
    }

    fn heal(&mut self, lasted: Duration, patient: bool) -> BoxFuture<'_, Healed> {
        Box::pin(async move {
            if let Some(act) = self.opposite() {
                self.healed = true;
                for done in self.order(act) {
                    let _ = done.await;
                }
                for node in self.nodes.clone() {
                    self.redirect(node);
                    if patient && act == NodeCommand::Start {
                        self.back += u64::from(self.serves(node).await);
                    }
                }
            }
            self.evidence(lasted).into()
        })
    }

    fn undo(&mut self) {
        if let Some(act) = self.opposite().filter(|_| !self.healed) {
            self.healed = true;
            self.order(act);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn planned(fault: OnServers, kind: &str, servers: u32, seed: u64) -> Result<Target, String> {
        let shape = Shape {
            servers,
            ..Shape::example()
        };
        let injection = fault.plan(Some(kind), 0, &shape, &mut ChaCha8Rng::seed_from_u64(seed))?;
        Ok(injection.target)
    }

    #[test]
    fn a_majority_is_more_than_half_of_the_servers_and_each_once() {
        for (servers, more_than_half) in [(1, 1), (3, 2), (4, 3), (5, 3)] {
            for seed in 0..20 {
                let Target::Servers(mut some) = planned(OnServers::Kill, "majority", servers, seed).unwrap() else {
                    panic!("a majority is of servers")
                };
                some.dedup();
                assert_eq!(some.len(), more_than_half);
                assert!(some.iter().all(|server| *server < servers));
            }
        }
    }

    #[test]
    fn a_leader_is_known_when_the_window_starts() {
        assert_eq!(planned(OnServers::Pause, "leader", 3, 1), Ok(Target::Leader));
    }

    #[test]
    fn servers_that_harness_did_not_start_are_touched_only_with_a_command_for_it() {
        use crate::cluster::ServersObey;
        let applies = |fault: OnServers, kill: bool, pause: bool| {
            let shape = Shape {
                attached: Some(ServersObey { kill, pause }),
                ..Shape::example()
            };
            fault.applies(None, &shape)
        };
        for fault in [OnServers::Kill, OnServers::Restart] {
            assert!(applies(fault, false, true).unwrap_err().contains("--on-start"));
            assert_eq!(applies(fault, true, false), Ok(()));
        }
        assert!(
            applies(OnServers::Pause, true, false)
                .unwrap_err()
                .contains("--on-resume")
        );
        assert_eq!(applies(OnServers::Pause, false, true), Ok(()));
        assert_eq!(OnServers::Kill.applies(None, &Shape::example()), Ok(()));
    }

    #[test]
    fn a_pause_of_all_servers_is_refused_since_nothing_would_be_left_to_see() {
        let refused = planned(OnServers::Pause, "all", 3, 1).unwrap_err();
        assert!(refused.contains("one, leader, majority"));
    }
}
