//! `slow-disk`: the disk of one server is slow. Each call that syncs a file returns later, or when the window heals.
//!
//! No data are lost and no process dies. A server that waits in a sync still answers requests that need no disk, and may use
//! stale state: an etcd leader that waits in `fdatasync` continues to renew leases that others have revoked
//! (<https://github.com/etcd-io/etcd/issues/15247>).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rand_chacha::ChaCha8Rng;

use super::fault::{NO_DISKS, no_models, not_attached, on_servers};
use super::{
    ActiveFault, Affected, Fault, FaultDefinition, FaultFamily, HealOnDrop, Healed, Inject, Injected, InjectionContext,
    Needs, NotInjected, Pace, Planned, Shape, parse_duration,
};
use crate::config::suggest::similar;
use crate::disks::{self, DiskGate};
use crate::evidence::{Evidence, EvidenceCounter};

pub struct SlowDisk;

const NAME: &str = "slow-disk";
/// The targets of an argument, the default first.
const ROLES: [&str; 3] = ["leader", "one", "all"];
/// The delay of a sync without an argument, in leases: every lease is over after it, and so is the window.
const LEASES: u32 = 3;
const DISKS_SLOWED: EvidenceCounter = EvidenceCounter::new("disks_slowed", "disk", "slowed down");
/// Calls that sync a file and were held back.
const SYNCS_DELAYED: EvidenceCounter = EvidenceCounter::new("syncs_delayed", "sync", "delayed");

impl Fault for SlowDisk {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: NAME,
            summary: "each sync of one server's files (fsync, fdatasync, ...) takes longer; its servers sync as in production",
            argument: "leader | one | all, and a time, such as leader:500ms (default: leader and 3 leases)",
            family: FaultFamily::Cluster,
            pace: Pace::Long,
            verb: "kept waiting for its disk",
            counters: &[DISKS_SLOWED, SYNCS_DELAYED],
            trace: &[SYNCS_DELAYED],
            no_effect_hint: Some(
                "the servers synced nothing: they keep nothing on disk, or nothing was written; raise the load \
                 (--clients 12), or lengthen the windows (--window 10s)",
            ),
        }
    }

    fn applies(&self, _: Option<&str>, shape: &Shape) -> Result<(), String> {
        not_attached(NAME, "intercepts the syncs of a server from its start", shape)?;
        no_models(NAME, NO_DISKS, "--runtime local, virtual or docker", shape)?;
        if shape.virtual_time {
            return Ok(());
        }
        disks::missing().map_or(Ok(()), |why| Err(format!("{NAME}: {why}")))
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let typed = argument.unwrap_or_default();
        let (role, by) = parse(typed).map_err(|why| format!("{NAME}={typed}: {why}"))?;
        let slowness = Slowness {
            by: by.unwrap_or(shape.lease * LEASES),
            // the state of a leader that waits in a sync matters where a client that is connected to it relies on it
            while_held: role == "leader",
        };
        let done = format!("each sync takes {} ms longer", slowness.by.as_millis());
        Ok(on_servers(role, slowness, (&done, "speed up"), shape, rng))
    }
}

/// Parses `leader:500ms`, `leader` or `500ms`: the target, and the delay if there is one.
fn parse(text: &str) -> Result<(&str, Option<Duration>), String> {
    let (role, by) = match text.split_once(':') {
        Some((role, by)) => (role, Some(by)),
        None if text.starts_with(|letter: char| letter.is_ascii_digit()) => ("", Some(text)),
        None => (text, None),
    };
    let role = if role.is_empty() { ROLES[0] } else { role };
    if !ROLES.contains(&role) {
        let hint = match similar(role, ROLES).first() {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => format!("one of {}, and a time after a colon: leader:500ms", ROLES.join(", ")),
        };
        return Err(format!("no server is `{role}`\nhint: {hint}"));
    }
    let by = by.map(parse_duration).transpose()?;
    if by.is_some_and(|by| by.is_zero()) {
        return Err("a delay of 0 has no effect".to_owned());
    }
    Ok((role, by))
}

/// The delay of the syncs of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slowness {
    /// The delay of each sync.
    by: Duration,
    /// Whether a client that is connected to the server holds a lock at that time.
    while_held: bool,
}

#[async_trait]
impl Inject for Slowness {
    fn needs(&self) -> Needs {
        Needs {
            disk_gates: true,
            held_lock: self.while_held,
            works_past_heal: self.while_held,
            ..Needs::default()
        }
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let (env, servers) = (context.env, context.target.servers());
        let disks = env.servers.endpoints().of_servers(&servers, &env.server_disks);
        if disks.is_empty() {
            return Err(NotInjected::Missed("no server with such a disk was known"));
        }
        Ok(SlowDisks::slow_down(self.by, disks).on(Affected::servers(servers)))
    }
}

/// Disks that are slow.
struct SlowDisks {
    by: Duration,
    /// Disks with the number of syncs that were delayed before.
    disks: Vec<(Arc<DiskGate>, u64)>,
}

impl SlowDisks {
    fn slow_down(by: Duration, disks: Vec<Arc<DiskGate>>) -> HealOnDrop<Self> {
        let slowed = |disk: Arc<DiskGate>| {
            let before = disk.delayed();
            disk.slow_down(by);
            (disk, before)
        };
        HealOnDrop::new(Self {
            by,
            disks: disks.into_iter().map(slowed).collect(),
        })
    }
}

#[async_trait]
impl ActiveFault for SlowDisks {
    async fn heal(&mut self, _: Duration, _: bool) -> Healed {
        let disks = self.disks.iter();
        let delayed = disks.map(|(disk, before)| disk.delayed().saturating_sub(*before));
        let evidence = Evidence::default()
            .with(&DISKS_SLOWED, self.disks.len() as u64)
            .with(&SYNCS_DELAYED, delayed.sum());
        self.undo();
        evidence.into()
    }

    fn undo(&mut self) {
        for (disk, _) in self.disks.drain(..) {
            disk.speed_up(self.by);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::faults::Target;

    fn planned(argument: Option<&str>, seed: u64) -> Result<(Target, Duration), String> {
        let injection = SlowDisk.planned(argument, 0, &Shape::example(), seed)?;
        let by = injection.action_as::<Slowness>().by;
        Ok((injection.target, by))
    }

    #[test]
    fn the_server_and_the_time_are_as_they_were_typed() {
        let (leases, half) = (Duration::from_secs(6), Duration::from_millis(500));
        for (argument, target, by) in [
            (None, Target::Leader, leases),
            (Some("leader"), Target::Leader, leases),
            (Some("leader:500ms"), Target::Leader, half),
            (Some(":500ms"), Target::Leader, half),
            (Some("500ms"), Target::Leader, half),
            (Some("all:500ms"), Target::Servers(vec![0, 1, 2]), half),
        ] {
            assert_eq!(planned(argument, 1), Ok((target, by)), "{argument:?}");
        }
        assert_eq!(planned(Some("one"), 7), planned(Some("one"), 7));
    }

    #[tokio::test]
    async fn a_disk_is_as_fast_as_before_when_its_window_is_dropped_or_healed_and_what_it_delayed_is_counted() {
        let disk = Arc::new(DiskGate::default());
        disk.syncs.delayed.store(5, SeqCst);
        let slow = || SlowDisks::slow_down(Duration::from_secs(1), vec![Arc::clone(&disk)]);
        let trace = SlowDisk.definition().trace;
        let (one, mut other) = (slow(), slow());
        assert_eq!(disk.syncs.delay(), Duration::from_secs(2));
        drop(one);
        assert_eq!(disk.syncs.delay(), Duration::from_secs(1));
        let nothing = other.heal(Duration::ZERO, true).await.evidence;
        assert!(!nothing.has_any(trace), "no sync was delayed");
        drop(other);
        assert_eq!(disk.syncs.delay(), Duration::ZERO);
        let mut slow = slow();
        disk.syncs.delayed.fetch_add(3, SeqCst);
        assert_eq!(slow.heal(Duration::ZERO, true).await.evidence.get("syncs_delayed"), 3);
    }
}
