//! `disk-full`: the disk of a server has no free block until the window heals. Writes that need a new one fail (`ENOSPC`).
//!
//! A server may continue with the blocks that it has (most make their logs longer than they need), refuse writes, leave its
//! cluster for a while, or end: then it starts again at the heal, since the fault ended it.

use std::time::Duration;

use async_trait::async_trait;
use rand_chacha::ChaCha8Rng;

use super::fault::{NO_DISKS, kind_of, no_models, not_attached, on_servers};
use super::{
    ActiveFault, Affected, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed, Inject, Injected,
    InjectionContext, Needs, NotInjected, Pace, Planned, Shape,
};
use crate::cluster::NodeCommand;
use crate::disks::{self, DiskLosses};
use crate::evidence::{Evidence, EvidenceCounter, SERVERS_BACK};

pub struct DiskFull;

const NAME: &str = "disk-full";
/// The targets of an argument, the default first.
const ROLES: [&str; 3] = ["leader", "one", "all"];
/// The time in which a server ends after its last write failed, if it does.
const LAST_WRITE: Duration = Duration::from_millis(500);
/// Disks without a free block when their windows healed.
const DISKS_FILLED: EvidenceCounter = EvidenceCounter::new("disks_filled", "disk", "full");
/// Lines of servers' logs about such a write.
const NO_SPACE_LINES: EvidenceCounter = EvidenceCounter::new("no_space_lines", "log line", "of a write without space");
const SERVERS_ENDED: EvidenceCounter = EvidenceCounter::new("servers_ended", "server", "ended by it");

impl Fault for DiskFull {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: NAME,
            summary: "the disk of one server has no free block; its servers sync as in production",
            argument: "leader | one | all (default: leader)",
            family: FaultFamily::Cluster,
            pace: Pace::Long,
            verb: "left without space on a disk",
            counters: &[DISKS_FILLED, NO_SPACE_LINES, SERVERS_ENDED, SERVERS_BACK],
            trace: &[NO_SPACE_LINES, SERVERS_ENDED],
            no_effect_hint: Some(
                "no server reported a refused write: servers keep nothing on disk, or had enough blocks of their own; lengthen \
                 the windows (--window 20s), or raise the load (--clients 12)",
            ),
        }
    }

    fn applies(&self, _: Option<&str>, shape: &Shape) -> Result<(), String> {
        not_attached(NAME, "fills the disk of a server", shape)?;
        no_models(NAME, NO_DISKS, "--runtime local or virtual", shape)?;
        if shape.virtual_time {
            return Ok(());
        }
        disks::missing().map_or(Ok(()), |why| Err(format!("{NAME}: {why}")))
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let role = kind_of(NAME, argument, &ROLES)?;
        let done = match role {
            "leader" => "its disk has no free block",
            _ => "no free block on its disk",
        };
        Ok(on_servers(role, NoSpace, (done, "free"), shape, rng))
    }
}

/// An act on the disks of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NoSpace;

#[async_trait]
impl Inject for NoSpace {
    fn needs(&self) -> Needs {
        Needs {
            disk_gates: true,
            own_disks: true,
            ..Needs::default()
        }
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let env = context.env;
        // the guard exists before the first command
        let full = HealOnDrop::new(FullDisks {
            before: env.losses(),
            env: env.clone(),
            nodes: context.nodes(),
            freed: false,
            healed: false,
        });
        let filled = full.done(NodeCommand::FillDisk).await;
        filled.map_err(NotInjected::Failed)?;
        Ok(full.on(Affected::servers(context.target.servers())))
    }
}

/// Disks that are full.
struct FullDisks {
    /// The losses before the injection.
    before: DiskLosses,
    env: FaultEnv,
    nodes: Vec<u32>,
    /// Whether the commands that free them were sent.
    freed: bool,
    healed: bool,
}

impl FullDisks {
    /// Sends each of them a command. Returns the error of the first one that failed.
    async fn done(&self, act: NodeCommand) -> Result<(), String> {
        let mut outcome = Ok(());
        for done in self.env.servers.order_each(&self.nodes, act) {
            if let Ok(Err(why)) = done.await {
                outcome = outcome.and(Err(why.to_string()));
            }
        }
        outcome
    }

    fn evidence(&self, back: u64) -> Evidence {
        let (now, before) = (self.env.losses(), self.before);
        Evidence::default()
            .with(&DISKS_FILLED, now.full - before.full)
            .with(&NO_SPACE_LINES, now.refused - before.refused)
            .with(&SERVERS_ENDED, now.ended - before.ended)
            .with(&SERVERS_BACK, back)
    }
}

#[async_trait]
impl ActiveFault for FullDisks {
    async fn heal(&mut self, _: Duration, patient: bool) -> Healed {
        // another window may still need the disk full: the command is counted, and sent once
        self.freed = true;
        let freed = self.done(NodeCommand::FreeDisk).await;
        if patient {
            self.env.clock.sleep(LAST_WRITE).await;
        }
        self.healed = true;
        let recovered = self.done(NodeCommand::Recover).await;
        let mut back = 0;
        for node in self.nodes.iter().filter(|_| patient) {
            back += u64::from(self.env.servers.is_back(*node).await);
        }
        Healed {
            trouble: freed.and(recovered).err(),
            ..self.evidence(back).into()
        }
    }

    fn undo(&mut self) {
        if !std::mem::replace(&mut self.healed, true) {
            if !self.freed {
                self.env.servers.order_each(&self.nodes, NodeCommand::FreeDisk);
            }
            self.env.servers.order_each(&self.nodes, NodeCommand::Recover);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Target;

    fn planned(argument: Option<&str>) -> Result<Target, String> {
        let injection = DiskFull.planned(argument, 0, &Shape::example(), 7)?;
        let needs = injection.action.needs();
        // a client that holds a lock for long keeps others from writing
        assert!(needs.own_disks && needs.disk_gates && !needs.held_lock);
        Ok(injection.target)
    }

    #[test]
    fn the_disk_is_of_the_server_that_was_typed_and_else_of_the_leader() {
        for argument in [None, Some("leader")] {
            assert_eq!(planned(argument), Ok(Target::Leader));
        }
        assert_eq!(planned(Some("all")), Ok(Target::Servers(vec![0, 1, 2])));
        assert!(matches!(planned(Some("one")), Ok(Target::Servers(one)) if one.len() == 1));
    }

    #[test]
    fn only_what_a_server_says_or_its_end_is_an_effect_and_not_the_full_disk_alone() {
        let trace = DiskFull.definition().trace;
        assert!(!Evidence::default().with(&DISKS_FILLED, 1).has_any(trace));
        assert!(Evidence::default().with(&NO_SPACE_LINES, 1).has_any(trace));
        assert!(Evidence::default().with(&SERVERS_ENDED, 1).has_any(trace));
    }
}
