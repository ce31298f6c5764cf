//! `server-kill`, `server-pause`, `server-restart`: servers are killed and started again on their data on disk, or stopped and
//! continued. The leader is resolved when the window starts.
//!
//! A killed process leaves all that it wrote to the kernel, synced or not. `lost` removes unsynced writes, as a power cut does.
//!
//! The cluster executes the commands in their order, even after the fault that sent them is dropped: so a `Drop` can send a heal.

use std::time::Duration;

use async_trait::async_trait;
use rand_chacha::ChaCha8Rng;
use tokio::sync::oneshot::error::RecvError;

use super::fault::{NO_DISKS, kind_of, no_models, not_attached, on_servers};
use super::points::{is_point, number_alone};
use super::target::{AtMessage, MessageEnd, MessageMoment};
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed, Inject,
    Injected, Injection, InjectionContext, Needs, NotInjected, Pace, Planned, Shape, Target, acquires_without,
    parse_duration,
};
use crate::cluster::{ClusterError, NodeCommand, NodeControl};
use crate::config::suggest::similar;
use crate::evidence::{Evidence, EvidenceCounter, SERVERS_BACK, STOPPED_MS};

/// An act on servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnServers {
    /// Killed (SIGKILL), and started again on their data when the window heals.
    Kill,
    /// Stopped, and continued when the window heals.
    Pause,
    /// Killed and started again at once, one after the other, each after the previous one serves.
    Restart,
}

/// The targets of `server-kill` by default, in turn. A lock that most servers know is lost only with most of them.
const KILLED_BY_TURNS: [&str; 2] = ["one", "majority"];
/// Arguments for the fate of the unsynced writes of a server.
const KEPT: &str = "kept";
const LOST: &str = "lost";
/// The suffix of a message whose server is killed before the message arrives.
const BEFORE: &str = ":before";
const SERVERS_KILLED: EvidenceCounter = EvidenceCounter::new("servers_killed", "server", "killed");
/// Files that lost unsynced writes with the power.
const FILES_SET_BACK: EvidenceCounter = EvidenceCounter::new("files_set_back", "file", "without its last writes");
const SERVERS_PAUSED: EvidenceCounter = EvidenceCounter::new("servers_paused", "server", "paused");

impl Fault for OnServers {
    fn definition(&self) -> FaultDefinition {
        let (name, summary, argument) = match self {
            Self::Kill => (
                "server-kill",
                "servers are killed, and started again on their data",
                "one | leader | majority | all, a time, kept | lost, such as all:2s:lost, which loses unsynced data (default: one and a majority by turns, for the window, kept) | any:57, or any:57:before (the server that gets the 57th of all messages except pings, before it answers, or before the message arrives)",
            ),
            Self::Pause => (
                "server-pause",
                "servers are paused, and resumed",
                "one | leader | majority (default: one)",
            ),
            Self::Restart => (
                "server-restart",
                "every server is killed and started again, one after the other",
                "kept | lost, for data that was not synced to disk (default: kept)",
            ),
        };
        let killed = FaultDefinition {
            name,
            summary,
            argument,
            family: FaultFamily::Cluster,
            pace: Pace::Varied,
            verb: "touched",
            counters: &[SERVERS_KILLED, FILES_SET_BACK, SERVERS_BACK],
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

    fn applies(&self, argument: Option<&str>, shape: &Shape) -> Result<(), String> {
        let name = self.definition().name;
        if argument.is_some_and(|argument| argument.split(':').any(|part| part == LOST)) {
            let of_disks = format!("{name}={LOST}");
            not_attached(&of_disks, "removes unsynced data from a server's disk", shape)?;
            let hint = "--runtime local or virtual, or --fault server-kill, which keeps all data";
            no_models(&of_disks, NO_DISKS, hint, shape)?;
        }
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
                "{name} acts on servers, and harness did not start those of --servers\nhint: name the commands: {hint}"
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

    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let name = self.definition().name;
        let (known, done): (&[&str], _) = match self {
            Self::Kill => (&["one", "leader", "majority", "all"], "killed, then started again"),
            // a pause of all servers would show nothing
            Self::Pause => {
                let some = kind_of(name, argument, &["one", "leader", "majority"])?;
                let paused = ServerFault::plain(*self);
                return Ok(on_servers(some, paused, ("paused", "continue"), shape, rng));
            }
            Self::Restart => (&[], "every server, one by one"),
        };
        if let Some(message) = argument.filter(|argument| *self == Self::Kill && is_point(argument)) {
            return at_message(message, done, shape);
        }
        let (kind, mut fault) = parse(*self, argument.unwrap_or_default(), known)?;
        let kind = kind.unwrap_or(KILLED_BY_TURNS[number as usize % KILLED_BY_TURNS.len()]);
        let after = fault.down.map(|down| format!(" after {} ms", down.as_millis()));
        let without = if fault.lost {
            ", without what was not synced"
        } else {
            ""
        };
        let done = format!("{done}{}{without}", after.unwrap_or_default());
        // a lock that most servers know is lost with most of them
        let most = !matches!(kind, "one" | "leader") || shape.servers == 1;
        fault.forgets = fault.lost || (*self == Self::Kill && most && !shape.backend.software.keeps_data);
        if *self == Self::Restart {
            let target = Target::Servers((0..shape.servers).collect());
            return Ok(Injection::new(target, fault, Acquires::GoOn, done, "start"));
        }
        Ok(on_servers(kind, fault, (&done, "start"), shape, rng))
    }
}

/// Plans the kill of the server that gets a message, before the message arrives or before its reply is sent.
fn at_message(argument: &str, done: &str, shape: &Shape) -> Planned {
    let (message, moment) = match argument.strip_suffix(BEFORE) {
        Some(message) => (message, MessageMoment::Sent),
        None => (argument, MessageMoment::CarriedOut),
    };
    let number = number_alone(message, shape)?;
    let when = match moment {
        MessageMoment::Sent => "before it arrives",
        _ => "before it answers",
    };
    let target = Target::AtMessage(AtMessage {
        number,
        end: MessageEnd::Server,
        moment,
    });
    let title = format!("the server of message {number}, {when}: {done}");
    let fault = ServerFault::plain(OnServers::Kill);
    let acquires = acquires_without(1, shape);
    Ok(Injection::new(target, fault, acquires, title, "start"))
}

/// Parses `leader:2s:lost`: the servers, the time, and the fate of unsynced writes; each may be left out.
fn parse<'a>(what: OnServers, text: &'a str, known: &[&'a str]) -> Result<(Option<&'a str>, ServerFault), String> {
    let name = what.definition().name;
    let mut fault = ServerFault::plain(what);
    let mut kind = None;
    for part in text.split(':').filter(|part| !part.is_empty()) {
        let is_time = what == OnServers::Kill && part.starts_with(|letter: char| letter.is_ascii_digit());
        match part {
            LOST => fault.lost = true,
            KEPT => fault.lost = false,
            _ if known.contains(&part) && kind.is_none() => kind = Some(part),
            _ if is_time && fault.down.is_none() => {
                let down = parse_duration(part).map_err(|why| format!("{name}={text}: {why}"))?;
                fault.down = Some(down);
            }
            _ => {
                let all: Vec<&str> = known.iter().copied().chain([KEPT, LOST]).collect();
                let hint = match similar(part, all.iter().copied()).first() {
                    Some(nearest) if kind != Some(nearest) => format!("did you mean `{nearest}`?"),
                    _ => format!("it takes one of {}", all.join(", ")),
                };
                return Err(format!("{name}={text}: `{part}` is not understood\nhint: {hint}"));
            }
        }
    }
    Ok((kind, fault))
}

/// An act on the servers of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerFault {
    what: OnServers,
    /// Whether unsynced writes are lost when they start again.
    lost: bool,
    /// Whether a lock may be lost by it, so that one must be held when it strikes.
    forgets: bool,
    /// The time after which they start again, if that is not the end of the window.
    down: Option<Duration>,
}

impl ServerFault {
    fn plain(what: OnServers) -> Self {
        Self {
            what,
            lost: false,
            forgets: false,
            down: None,
        }
    }

    /// Returns the command that does it to each of them at once.
    fn order(self) -> NodeCommand {
        match self.what {
            OnServers::Pause => NodeCommand::Pause,
            OnServers::Kill | OnServers::Restart => NodeCommand::Kill,
        }
    }

    /// Whether a heal has nothing to undo on a server whose command failed for this reason. The cluster does not count a kill that
    /// failed; a pause that failed may have stopped a part of the server.
    fn needs_no_heal(self, why: &ClusterError) -> bool {
        self.what == OnServers::Kill || matches!(why, ClusterError::Unchanged { .. })
    }
}

#[async_trait]
impl Inject for ServerFault {
    fn needs(&self) -> Needs {
        Needs {
            disk_gates: self.lost,
            own_disks: self.lost,
            held_lock: self.forgets,
            works_past_heal: self.forgets,
            ..Needs::default()
        }
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        // the guard exists before the first command
        let mut active = HealOnDrop::new(ActiveOnServers {
            fault: *self,
            lost_before: context.env.losses().files,
            env: context.env.clone(),
            nodes: context.nodes(),
            done: 0,
            back: 0,
            trouble: None,
            healed: false,
        });
        // restarts are one after the other, while the window is open
        if self.what != OnServers::Restart {
            let ordered = active.env.servers.order_each(&active.nodes, self.order());
            for (node, done) in active.nodes.clone().into_iter().zip(ordered) {
                match done.await {
                    Ok(Ok(())) => active.done += 1,
                    Ok(Err(why)) if self.needs_no_heal(&why) => {
                        if let Some(why) = down_after_failure(&active.env.servers, node, why).await {
                            return Err(NotInjected::Failed(why));
                        }
                        // to start it or to resume it would end the act of another window on it
                        active.nodes.retain(|other| *other != node);
                    }
                    _ => {}
                }
            }
        }
        Ok(active.on(Affected::servers(context.target.servers())))
    }
}

/// Servers that are killed, stopped or being restarted.
struct ActiveOnServers {
    fault: ServerFault,
    /// The number of files that had lost data before the injection.
    lost_before: u64,
    env: FaultEnv,
    nodes: Vec<u32>,
    /// The number of servers on which the act succeeded.
    done: u64,
    /// The number of servers that served again.
    back: u64,
    /// The reason for which the run cannot continue: one kept writes that it should have lost, or did not start.
    trouble: Option<String>,
    healed: bool,
}

impl ActiveOnServers {
    /// Returns the command that undoes it; a restart undoes itself.
    fn opposite(&self) -> Option<NodeCommand> {
        match self.fault.what {
            OnServers::Kill => Some(NodeCommand::Start),
            OnServers::Pause => Some(NodeCommand::Resume),
            OnServers::Restart => None,
        }
    }

    fn evidence(&self, lasted: Duration) -> Evidence {
        match self.fault.what {
            OnServers::Pause => {
                let stopped = if self.done > 0 { lasted } else { Duration::ZERO };
                Evidence::default()
                    .with(&SERVERS_PAUSED, self.done)
                    .with(&STOPPED_MS, stopped.as_millis() as u64)
            }
            OnServers::Kill | OnServers::Restart => Evidence::default()
                .with(&SERVERS_KILLED, self.done)
                .with(
                    &FILES_SET_BACK,
                    self.env.losses().files.saturating_sub(self.lost_before),
                )
                .with(&SERVERS_BACK, self.back),
        }
    }

    /// Removes the unsynced writes of a killed server, if the fault has `lost`.
    async fn lose(&mut self, node: u32) {
        if !self.fault.lost {
            return;
        }
        if let Ok(Err(why)) = self.env.servers.order(node, NodeCommand::CutPower).await {
            self.trouble = Some(why.to_string());
        }
    }

    /// Kills a server and starts it again.
    async fn restart(&mut self, node: u32) -> StartOutcome {
        if !self.fault.lost {
            return self.env.servers.order(node, NodeCommand::Restart).await;
        }
        // all commands are sent before the first wait, so that the end of a run cannot fall between them
        let [killed, cut, started] =
            [NodeCommand::Kill, NodeCommand::CutPower, NodeCommand::Start].map(|act| self.env.servers.order(node, act));
        let killed = killed.await;
        if let Ok(Err(why)) = cut.await {
            self.trouble = Some(why.to_string());
        }
        let started = started.await;
        match killed {
            Ok(Ok(())) => started,
            // the start then does nothing, which is no error
            not_killed => not_killed,
        }
    }

    /// Undoes it, once.
    async fn start_again(&mut self, patient: bool) {
        let Some(act) = self.opposite().filter(|_| !self.healed) else {
            return;
        };
        self.healed = true;
        let mut outcomes = Vec::new();
        for done in self.env.servers.order_each(&self.nodes, act) {
            outcomes.push(done.await);
        }
        for (node, started) in self.nodes.clone().into_iter().zip(outcomes) {
            self.env.redirect(node);
            // one that was resumed serves at once
            let is_awaited = act == NodeCommand::Start || matches!(started, Ok(Err(_)));
            if patient && is_awaited {
                let serves = self.env.servers.is_back(node).await;
                self.started(&started, serves);
            }
        }
    }

    /// Records the outcome of a command that starts or resumes a server, and whether the server serves after it.
    fn started(&mut self, outcome: &StartOutcome, serves: bool) {
        self.back += u64::from(serves && matches!(outcome, Ok(Ok(()))));
        self.trouble = self.trouble.take().or_else(|| why_down(outcome, serves));
    }
}

/// The outcome of a command; an error of the channel means that the cluster was dropped.
type StartOutcome = Result<Result<(), ClusterError>, RecvError>;

/// Returns the reason for which a server is down beyond its window: the command that kills, starts or resumes it failed, and it does not
/// serve. A command may fail and have had its effect.
fn why_down(outcome: &StartOutcome, serves: bool) -> Option<String> {
    match outcome {
        Ok(Err(why)) if !serves && !matches!(why, ClusterError::Unchanged { .. }) => Some(why.to_string()),
        _ => None,
    }
}

/// Returns the reason for which a server is down after a command failed to kill it.
pub(super) async fn down_after_failure(servers: &NodeControl, node: u32, why: ClusterError) -> Option<String> {
    let is_unchanged = matches!(why, ClusterError::Unchanged { .. });
    let lives = is_unchanged || servers.lives(node).await;
    why_down(&Ok(Err(why)), lives)
}

#[async_trait]
impl ActiveFault for ActiveOnServers {
    async fn act(&mut self, until: u64) {
        if self.fault.what == OnServers::Kill {
            for node in self.nodes.clone() {
                self.lose(node).await;
            }
        }
        if let Some(down) = self.fault.down {
            let left = Duration::from_nanos(until.saturating_sub(self.env.clock.now_ns()));
            self.env.clock.sleep(down.min(left)).await;
            self.start_again(true).await;
        }
        if self.fault.what != OnServers::Restart {
            return;
        }
        for node in self.nodes.clone() {
            let restarted = self.restart(node).await;
            self.done += u64::from(matches!(restarted, Ok(Ok(()))));
            self.env.redirect(node);
            let serves = self.env.servers.is_back(node).await;
            self.started(&restarted, serves);
        }
    }

    async fn heal(&mut self, lasted: Duration, patient: bool) -> Healed {
        self.start_again(patient).await;
        Healed {
            trouble: self.trouble.take(),
            ..self.evidence(lasted).into()
        }
    }

    fn undo(&mut self) {
        if let Some(act) = self.opposite().filter(|_| !self.healed) {
            self.healed = true;
            self.env.servers.order_each(&self.nodes, act);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(fault: OnServers, kind: &str, servers: u32, seed: u64) -> Result<Target, String> {
        let injection = fault.planned(Some(kind), 0, &Shape::of_servers(servers), seed)?;
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
    fn one_and_a_majority_are_killed_by_turns_where_nobody_says_which() {
        let of_five = Shape::of_servers(5);
        for argument in [None, Some(":lost"), Some("2s")] {
            let killed = |number| {
                let injection = OnServers::Kill.planned(argument, number, &of_five, 1).unwrap();
                match injection.target {
                    Target::Servers(servers) => servers.len(),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!([0, 1, 2, 3].map(killed), [1, 3, 1, 3], "{argument:?}");
        }
    }

    fn untouched() -> ClusterError {
        let (node, what, why) = ("n1".to_owned(), "be stopped", "it is new".to_owned());
        ClusterError::Unchanged { node, what, why }
    }

    #[test]
    fn a_server_that_was_not_touched_is_left_out_of_the_heal_and_one_that_may_be_stopped_in_part_is_not() {
        let gone = ClusterError::Gone { node: "n2".to_owned() };
        let [kill, pause] = [OnServers::Kill, OnServers::Pause].map(ServerFault::plain);
        assert!(kill.needs_no_heal(&untouched()) && pause.needs_no_heal(&untouched()));
        assert!(kill.needs_no_heal(&gone) && !pause.needs_no_heal(&gone));
    }

    #[test]
    fn a_server_that_could_not_be_started_and_does_not_serve_ends_the_run() {
        let refused = |why: &str| ClusterError::Disobeyed {
            node: "n1".into(),
            what: "start",
            why: why.into(),
        };
        let down = why_down(&Ok(Err(refused("exit status 1"))), false);
        assert!(down.unwrap().contains("exit status 1"));
        assert_eq!(why_down(&Ok(Err(refused("a warning"))), true), None);
        assert_eq!(why_down(&Ok(Err(untouched())), false), None);
        assert_eq!(why_down(&Ok(Ok(())), false), None, "another fault may act on it");
    }

    #[test]
    fn a_leader_is_known_when_the_window_starts() {
        assert_eq!(planned(OnServers::Pause, "leader", 3, 1), Ok(Target::Leader));
    }

    #[test]
    fn servers_that_harness_did_not_start_are_touched_with_a_command_for_it() {
        let attached = |kill, pause| Shape {
            attached: Some(crate::cluster::ServersObey { kill, pause }),
            ..Shape::example()
        };
        assert_eq!(OnServers::Restart.applies(None, &attached(true, false)), Ok(()));
        assert_eq!(OnServers::Pause.applies(None, &attached(false, true)), Ok(()));
        for shape in [attached(true, false), Shape::example().simulated()] {
            assert_eq!(OnServers::Kill.applies(Some("all:kept"), &shape), Ok(()));
        }
    }

    #[test]
    fn what_becomes_of_data_and_for_how_long_are_as_they_were_typed_in_any_order() {
        let fault = |what: OnServers, argument: &str| {
            let injection = what.planned(Some(argument), 0, &Shape::example(), 1).unwrap();
            let fault = *injection.action_as::<ServerFault>();
            let needs = injection.action.needs();
            assert_eq!((needs.disk_gates, needs.own_disks), (fault.lost, fault.lost));
            (injection.target, fault.lost, fault.down)
        };
        let all = Target::Servers(vec![0, 1, 2]);
        let half = Some(Duration::from_millis(500));
        for argument in ["all:500ms:lost", "all:lost:500ms", "lost:all:500ms"] {
            let read = fault(OnServers::Kill, argument);
            assert_eq!(read, (all.clone(), true, half), "{argument}");
        }
        assert_eq!(fault(OnServers::Kill, "leader"), (Target::Leader, false, None));
        assert_eq!(fault(OnServers::Kill, "leader:kept"), (Target::Leader, false, None));
        assert_eq!(fault(OnServers::Restart, "lost"), (all, true, None));
    }
}
