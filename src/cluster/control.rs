//! `NodeControl`: kills the nodes of a running cluster and starts them again, pauses, resumes and promotes them.
//!
//! A task that lives as long as the cluster executes commands one after the other. It executes a queued command even if its
//! sender was dropped, because a `Drop` may queue the heal of a fault.
//!
//! Between commands the task checks whether every server that was not killed still runs.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use harness_checkers::history::ServerEnd;
use harness_tls::TlsRelay;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};

use super::membership::{ClusterMember, Membership};
use super::ready::Serving;
use super::replication::Replication;
use super::{ClusterError, Endpoints, EndpointsReceiver, Node, RunningNodes, ServerAccess, ServerQueries};
use crate::clock::{GroundClock, RunningTask};
use crate::limits::{PROBE, READY_POLL, SERVER_BACK, SERVER_BACK_VIRTUAL};

/// A command to a node. Kills and pauses are counted: a node is back after as many of the opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCommand {
    /// SIGKILL; its data folder stays.
    Kill,
    /// Unsynced writes of a killed node are lost, as without power.
    CutPower,
    /// Its disk has no free block from now on; its end is then no accident.
    FillDisk,
    /// Its disk has space again.
    FreeDisk,
    /// If it ended for lack of space it starts again; from now on its end is an accident.
    Recover,
    /// Starts with the same data, on the same ports.
    Start,
    Pause,
    Resume,
    /// Kill and start in one command, so that the end of a run cannot fall between them.
    Restart,
    /// A replica becomes the primary.
    Promote,
    /// It leaves its cluster permanently: the other members remove it, and it is killed.
    Leave,
    /// A new server without data joins in the place of one that left, if one did.
    Join,
    /// It ends in order and starts from the other version, on its data; one command, as [`Self::Restart`] is.
    Upgrade,
    /// The new server is a member as all others are. Until then other faults spare it: it could not start again.
    Joined,
    /// A node becomes a replica of the node at the far end of its peer proxy, and deletes data that that node does not have.
    Follow,
}

use NodeCommand::{
    CutPower, FillDisk, Follow, FreeDisk, Join, Joined, Kill, Leave, Pause, Promote, Recover, Restart, Resume, Start,
    Upgrade,
};

/// A command's outcome; an error of the channel means that the cluster was dropped.
pub type CommandOutcome = oneshot::Receiver<Result<(), ClusterError>>;

struct QueuedCommand {
    node: usize,
    command: NodeCommand,
    done: oneshot::Sender<Result<(), ClusterError>>,
}

#[derive(Clone)]
pub struct NodeControl {
    // unbounded, since a `Drop` cannot wait; there are at most as many commands as windows and nodes
    queue: mpsc::UnboundedSender<QueuedCommand>,
    endpoints: watch::Sender<Endpoints>,
    queries: Arc<dyn ServerQueries>,
    names: Arc<[String]>,
    /// Whether each node was started from the other version.
    upgraded: Arc<[AtomicBool]>,
    /// Whether the window of a pause of each node is open.
    paused: Arc<[AtomicBool]>,
    /// The first server that ended by itself, and not by a command.
    pub ended: watch::Receiver<Option<ServerEnd>>,
}

impl NodeControl {
    /// Queues a command for a node, from 0, and returns at once.
    pub fn order(&self, node: u32, command: NodeCommand) -> CommandOutcome {
        let (done, outcome) = oneshot::channel();
        let node = node as usize;
        let _ = self.queue.send(QueuedCommand { node, command, done });
        outcome
    }

    /// Queues a command for several nodes, in their order.
    pub fn order_each(&self, nodes: &[u32], command: NodeCommand) -> Vec<CommandOutcome> {
        nodes.iter().map(|node| self.order(*node, command)).collect()
    }

    pub fn address(&self, node: u32) -> SocketAddr {
        self.endpoints.borrow().nodes()[node as usize]
    }

    /// Returns the access to a node without links.
    pub fn access(&self, node: u32) -> ServerAccess {
        let address = self.address(node);
        self.endpoints.borrow().access(address)
    }

    /// Returns the current endpoints of the nodes, and which one is the primary.
    pub fn endpoints(&self) -> Endpoints {
        self.endpoints.borrow().clone()
    }

    /// Returns a receiver of the endpoints.
    pub fn watch_endpoints(&self) -> EndpointsReceiver {
        self.endpoints.subscribe()
    }

    /// Makes this node the one that clients reach.
    pub fn set_primary(&self, node: u32) {
        self.endpoints
            .send_modify(|endpoints| endpoints.set_primary(node as usize));
    }

    /// Returns the commands for replication, if the product has a primary with replicas.
    pub(super) fn replication(&self) -> Option<&dyn Replication> {
        self.queries.replication()
    }

    /// Returns the commands that replace a node, if the product can replace members of a cluster.
    pub(super) fn member(&self, node: usize) -> Option<(&'static dyn Membership, ClusterMember)> {
        self.queries.member(node, &self.endpoints())
    }

    /// Returns the clock for waits on the cluster.
    pub(super) fn clock(&self) -> GroundClock {
        self.endpoints.borrow().clock()
    }

    pub fn name(&self, node: u32) -> &str {
        &self.names[node as usize]
    }

    /// Returns the state that a node reports now, or `None` if it does not serve.
    pub async fn serving(&self, node: u32) -> Option<Serving> {
        self.queries.ask(node as usize, self.address(node)).await.ok()
    }

    /// Returns each server's role now, or `None` for one that does not serve.
    pub async fn roles(&self) -> Vec<(String, Option<Serving>)> {
        let mut roles = Vec::new();
        for (node, name) in (0..).zip(&*self.names) {
            roles.push((name.clone(), self.serving(node).await));
        }
        roles
    }

    /// Receives the prefix of the keys of the locks: if each key may have its own leader, theirs is asked for.
    pub fn set_key_prefix(&self, keys: &str) {
        self.queries.set_key_prefix(keys);
    }

    /// Returns the node that leads now, from 0; waits for an election.
    pub async fn leader(&self, within: Duration) -> Option<u32> {
        let deadline = self.clock().after(within);
        let look = || async { self.look_for_leader().await.ok_or(()) };
        self.clock().try_until(deadline, READY_POLL, look).await.ok()
    }

    async fn look_for_leader(&self) -> Option<u32> {
        if let Some(primary) = self.endpoints.borrow().primary() {
            return Some(primary);
        }
        let roles = self.roles().await;
        let mut serving = roles.iter().map(|(_, serving)| serving.as_ref());
        let leader = serving.position(|serving| serving.is_some_and(|serving| serving.leads))?;
        Some(leader as u32)
    }

    /// Waits until a restarted node serves; returns whether it does.
    pub async fn is_back(&self, node: u32) -> bool {
        self.serves(node, back_within(self.clock())).await
    }

    /// Waits until a node serves again; returns whether it does.
    pub async fn serves(&self, node: u32, within: Duration) -> bool {
        let deadline = self.clock().after(within);
        let ask = || self.queries.ask(node as usize, self.address(node));
        self.clock().try_until(deadline, READY_POLL, ask).await.is_ok()
    }

    /// Returns whether a node lives that a command failed to kill: it serves again, or another window has paused it.
    pub async fn lives(&self, node: u32) -> bool {
        let is_paused = || self.paused[node as usize].load(Relaxed);
        is_paused() || self.is_back(node).await || is_paused()
    }

    /// Returns the nodes that still have the version with which the run began.
    pub fn not_upgraded(&self) -> Vec<u32> {
        let nodes = (0..).zip(self.upgraded.iter());
        let old = nodes.filter(|(_, upgraded)| !upgraded.load(Relaxed));
        old.map(|(node, _)| node).collect()
    }
}

/// Returns the time for a restarted node to serve.
pub(super) fn back_within(clock: GroundClock) -> Duration {
    match clock {
        GroundClock::Real => SERVER_BACK,
        GroundClock::Virtual(_) => SERVER_BACK_VIRTUAL,
    }
}

/// The kills and pauses of a node without their opposites.
#[derive(Debug, Clone, Copy, Default)]
struct Outages {
    killed: u32,
    paused: u32,
    /// Windows in which its disk is full.
    full: u32,
    /// Windows with a full disk that have not recovered: until then the end of the server is no accident.
    short_of_space: u32,
    /// It left its cluster. That counts as a kill, too.
    left: bool,
    /// It is new and not a member yet.
    joins: bool,
}

impl Outages {
    /// Returns the command to execute now, or `None` while another window still needs the node as it is.
    fn count(&mut self, command: NodeCommand) -> Option<NodeCommand> {
        let due = match command {
            FillDisk => {
                self.full += 1;
                self.short_of_space += 1;
                self.full == 1
            }
            FreeDisk => {
                let was_full = self.full > 0;
                self.full = self.full.saturating_sub(1);
                was_full && self.full == 0
            }
            Recover => {
                let had_none = self.short_of_space > 0;
                self.short_of_space = self.short_of_space.saturating_sub(1);
                // one that could not be freed is filled again by the next window
                self.full = self.full.min(self.short_of_space);
                had_none && self.short_of_space == 0 && self.killed == 0
            }
            Leave => {
                self.killed += 1;
                self.left = true;
                true
            }
            Join => {
                let left = std::mem::take(&mut self.left);
                self.killed = self.killed.saturating_sub(left.into());
                self.joins |= left;
                left
            }
            Joined => std::mem::take(&mut self.joins),
            CutPower => self.killed > 0,
            Kill => {
                self.killed += 1;
                self.killed == 1
            }
            Start => {
                // a node that was not killed, since that was refused, runs
                let killed = self.killed > 0;
                self.killed = self.killed.saturating_sub(1);
                killed && self.killed == 0
            }
            Pause => {
                self.paused += 1;
                self.paused == 1 && self.killed == 0
            }
            Resume => {
                self.paused = self.paused.saturating_sub(1);
                self.paused == 0 && self.killed == 0
            }
            Restart | Promote | Follow | Upgrade => self.killed == 0,
        };
        due.then_some(command)
    }

    /// Returns whether a command started the server while the window of a pause is open: that stops it again.
    fn stops_again(&self, due: Option<NodeCommand>) -> bool {
        matches!(due, Some(Start | Restart)) && self.paused > 0
    }

    /// Takes back the count of a command that failed; `before` has the counts before it. `has_ended`: the server does not run.
    fn take_back(&mut self, command: NodeCommand, before: Self, has_ended: bool) {
        match command {
            // it may have taken some blocks, and its window sends the opposite in any case
            FillDisk => {}
            // it was killed and did not start
            Restart | Upgrade if has_ended => {
                let killed = before.killed + 1;
                *self = Self { killed, ..before };
            }
            _ => *self = before,
        }
    }
}

/// Returns the reason for which members cannot change now, or a server cannot be stopped.
fn unfit(command: NodeCommand, outages: &[Outages], node: usize) -> Option<&'static str> {
    let own = outages[node];
    match command {
        Kill | Restart | Pause | Leave | Upgrade if own.joins => Some("it is new and not a member yet"),
        Leave if outages.iter().any(|other| other.left) => Some("a server has left and is not replaced yet"),
        Leave | Upgrade if own.killed > 0 || own.paused > 0 => Some("another fault has stopped it"),
        Join if own.left && own.killed > 1 => Some("another fault has stopped it"),
        _ => None,
    }
}

/// Starts the task that executes commands. It ends with the last strong reference to `running`.
pub(super) fn spawn(
    running: &Arc<AsyncMutex<Box<dyn RunningNodes>>>,
    endpoints: Endpoints,
    queries: Arc<dyn ServerQueries>,
    nodes: Vec<Node>,
    relays: Vec<TlsRelay>,
) -> (NodeControl, RunningTask) {
    let (queue, queued) = mpsc::unbounded_channel();
    let (end, ended) = watch::channel(None);
    let control = NodeControl {
        queue,
        endpoints: watch::channel(endpoints).0,
        queries,
        names: nodes.iter().map(|node| node.name.clone()).collect(),
        upgraded: nodes.iter().map(|_| AtomicBool::new(false)).collect(),
        paused: nodes.iter().map(|_| AtomicBool::new(false)).collect(),
        ended,
    };
    let executor = CommandExecutor {
        running: Arc::downgrade(running),
        control: control.clone(),
        nodes,
        relays,
        ended: end,
    };
    let running = control.clock().spawn(executor.run(queued));
    (control, running)
}

pub(super) struct CommandExecutor {
    running: Weak<AsyncMutex<Box<dyn RunningNodes>>>,
    pub(super) control: NodeControl,
    nodes: Vec<Node>,
    /// The relays of the nodes; empty if clients reach servers directly.
    relays: Vec<TlsRelay>,
    /// The first server that ended by itself.
    ended: watch::Sender<Option<ServerEnd>>,
}

impl CommandExecutor {
    async fn run(self, mut queued: mpsc::UnboundedReceiver<QueuedCommand>) {
        let mut outages = vec![Outages::default(); self.nodes.len()];
        loop {
            let next = tokio::select! {
                biased;
                next = queued.recv() => next,
                () = self.watch(&outages) => unreachable!("it looks until it is dropped"),
            };
            let Some(QueuedCommand { node, command, done }) = next else {
                return;
            };
            let Some(running) = self.running.upgrade() else { return };
            let before = outages[node];
            let outcome = match unfit(command, &outages, node) {
                // the node is unchanged
                Some(why) => Err(self.refused(node, command, why.to_owned())),
                None => {
                    let due = outages[node].count(command);
                    let carried_out = match due {
                        None => Ok(()),
                        Some(command) => self.carry_out(node, command, &running).await,
                    };
                    match carried_out {
                        Err(error) => {
                            let restarts = matches!(command, Restart | Upgrade);
                            let has_ended = restarts && running.lock().await.ended(node).await.is_some();
                            outages[node].take_back(command, before, has_ended);
                            Err(error)
                        }
                        Ok(()) if outages[node].stops_again(due) => self.carry_out(node, Pause, &running).await,
                        Ok(()) => Ok(()),
                    }
                }
            };
            self.control.paused[node].store(outages[node].paused > 0, Relaxed);
            // the sender may be gone
            let _ = done.send(outcome);
        }
    }

    /// Watches for the first server that ends although no command killed it. Never returns.
    async fn watch(&self, outages: &[Outages]) {
        while self.ended.borrow().is_none() {
            let Some(running) = self.running.upgrade() else { break };
            let pause = running.lock().await.look_every();
            drop(running);
            self.control.clock().sleep(pause).await;
            let Some(running) = self.running.upgrade() else { break };
            let mut running = running.lock().await;
            for (number, node) in self.nodes.iter().enumerate() {
                let Outages {
                    killed, short_of_space, ..
                } = outages[number];
                if killed == 0
                    && short_of_space == 0
                    && let Some(how) = running.ended(number).await
                {
                    let server = node.name.clone();
                    let log = node.log.display().to_string();
                    self.ended.send_replace(Some(ServerEnd { server, how, log }));
                    break;
                }
            }
        }
        pending().await
    }

    async fn carry_out(
        &self,
        node: usize,
        command: NodeCommand,
        running: &AsyncMutex<Box<dyn RunningNodes>>,
    ) -> Result<(), ClusterError> {
        if matches!(command, Leave | Join) {
            return self.replace(node, command, running).await;
        }
        let mut running = running.lock().await;
        match command {
            Kill => running.kill(node).await,
            CutPower => running.cut_power(node).await,
            FillDisk => running.fill_disk(node).await,
            FreeDisk => running.free_disk(node).await,
            Recover => running.recover(node).await,
            Pause => running.pause(node).await,
            Resume => running.resume(node).await,
            Start | Restart => {
                if command == Restart {
                    running.kill(node).await?;
                }
                let started = running.start(node).await?;
                self.serves_at(node, started);
                Ok(())
            }
            Upgrade => {
                let started = running.upgrade(node).await?;
                self.serves_at(node, started);
                self.control.upgraded[node].store(true, Relaxed);
                Ok(())
            }
            Promote | Follow => self.replicate(node, command).await,
            Leave | Join | Joined => Ok(()),
        }
    }

    /// Records the address at which a restarted node serves, if that may have changed.
    pub(super) fn serves_at(&self, node: usize, started: Option<SocketAddr>) {
        let Some(address) = started else { return };
        match self.relays.get(node) {
            Some(relay) => relay.lead_to(address),
            None => {
                let endpoints = &self.control.endpoints;
                endpoints.send_modify(|endpoints| endpoints.set_address(node, address));
            }
        }
    }

    async fn replicate(&self, node: usize, command: NodeCommand) -> Result<(), ClusterError> {
        let what = match command {
            Promote => "be promoted",
            _ => "follow another",
        };
        let refused = |why: String| ClusterError::Disobeyed {
            node: self.control.names[node].clone(),
            what,
            why,
        };
        let replication = self.control.replication();
        let replication = replication.ok_or_else(|| refused("servers of this product have no replicas".into()))?;
        let server = self.control.access(node as u32);
        let asked = match (command, self.nodes[node].peer_proxy) {
            (Promote, _) => replication.promote(server),
            (_, Some(primary)) => replication.follow(server, primary),
            (_, None) => return Ok(()),
        };
        let answer = self.control.clock().answer_within(PROBE, asked).await;
        answer.map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicU32;

    use async_trait::async_trait;
    use harness_simulation::World;

    use super::*;
    use crate::cluster::BoxFuture;

    /// Servers whose kill fails.
    struct Unkillable;

    #[async_trait]
    impl RunningNodes for Unkillable {
        async fn kill(&mut self, _: usize) -> Result<(), ClusterError> {
            Err(ClusterError::Nothing("exit status 1".to_owned()))
        }

        async fn start(&mut self, _: usize) -> Result<Option<SocketAddr>, ClusterError> {
            Ok(None)
        }

        async fn pause(&mut self, _: usize) -> Result<(), ClusterError> {
            Ok(())
        }

        async fn resume(&mut self, _: usize) -> Result<(), ClusterError> {
            Ok(())
        }

        async fn stop(self: Box<Self>) {}
    }

    /// Answers from the third question on.
    struct LateAnswers(AtomicU32);

    impl ServerQueries for LateAnswers {
        fn ask(&self, _: usize, _: SocketAddr) -> BoxFuture<'_, Result<Serving, String>> {
            let answer = match self.0.fetch_add(1, Relaxed) {
                0 | 1 => Err("it does not answer".to_owned()),
                _ => Ok(Serving::new("leader", true, "1.0")),
            };
            Box::pin(std::future::ready(answer))
        }
    }

    #[tokio::test]
    async fn a_server_that_could_not_be_killed_may_answer_late_and_is_not_asked_while_it_is_paused() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let node = Node {
            name: "n1".to_owned(),
            address,
            log: PathBuf::new(),
            peer_proxy: None,
        };
        let nodes: Box<dyn RunningNodes> = Box::new(Unkillable);
        let running = Arc::new(AsyncMutex::new(nodes));
        let answers = Arc::new(LateAnswers(AtomicU32::new(0)));
        let at = Endpoints::new(vec![address], None);
        let (control, _executor) = spawn(&running, at, answers.clone(), vec![node], Vec::new());
        assert!(control.order(0, Kill).await.unwrap().is_err());
        assert!(control.lives(0).await);
        answers.0.store(0, Relaxed);
        control.order(0, Pause).await.unwrap().unwrap();
        assert!(control.lives(0).await);
        assert_eq!(answers.0.load(Relaxed), 0, "its window is open");
        control.order(0, Resume).await.unwrap().unwrap();
        assert!(control.lives(0).await);
        assert_eq!(answers.0.load(Relaxed), 3);
    }

    fn due(commands: &[NodeCommand]) -> Vec<bool> {
        let mut outages = Outages::default();
        let mut due = |command: &NodeCommand| outages.count(*command).is_some();
        commands.iter().map(&mut due).collect()
    }

    #[test]
    fn a_busy_machine_has_time_to_restart_a_server_and_a_replay_has_the_time_of_its_run() {
        assert!(back_within(GroundClock::Real) > 2 * Duration::from_secs(22));
        let of_worlds = World::run(7, |world| std::future::ready(back_within(GroundClock::Virtual(world))));
        assert_eq!(of_worlds, Duration::from_secs(15));
    }

    #[test]
    fn a_server_that_two_windows_killed_starts_with_the_second_heal() {
        assert_eq!(due(&[Kill, Kill, Start, Start]), [true, false, false, true]);
    }

    #[test]
    fn only_a_dead_server_loses_its_power() {
        let commands = [CutPower, Kill, CutPower, Start, CutPower];
        assert_eq!(due(&commands), [false, true, true, true, false]);
    }

    #[test]
    fn a_dead_server_is_neither_paused_nor_resumed_nor_restarted() {
        let commands = [Kill, Pause, Restart, Resume, Start, Restart];
        assert_eq!(due(&commands), [true, false, false, false, true, true]);
    }

    #[test]
    fn a_server_that_starts_in_the_window_of_a_pause_is_paused_until_its_end() {
        let mut outages = Outages::default();
        let stops_again = |command: NodeCommand| {
            let due = outages.count(command);
            outages.stops_again(due)
        };
        let commands = [Restart, Pause, Restart, Kill, Start, Resume, Restart];
        let stopped = commands.map(stops_again);
        assert_eq!(stopped, [false, false, true, false, true, false, false]);
    }

    #[test]
    fn one_server_at_a_time_is_replaced_and_its_end_is_no_accident_until_a_new_one_has_joined() {
        let commands = [Join, Leave, Kill, Start, Join, Join, Joined, Joined];
        assert_eq!(due(&commands), [false, true, false, false, true, false, true, false]);
        let mut outages = [Outages::default(); 2];
        assert!(unfit(Leave, &outages, 0).is_none() && unfit(Join, &outages, 0).is_none());
        outages[1].count(Leave);
        assert!(unfit(Leave, &outages, 0).is_some(), "the other one is not back");
        assert!(unfit(Join, &outages, 1).is_none());
        outages[1].count(Kill);
        assert!(unfit(Join, &outages, 1).is_some(), "another window wants it dead");
        outages[1].count(Start);
        outages[1].count(Join);
        for command in [Kill, Leave] {
            assert!(unfit(command, &outages, 1).is_some(), "it is not a member yet");
        }
        assert!(outages[1].count(Start).is_none(), "it runs");
        outages[1].count(Joined);
        outages[0].count(Kill);
        assert!(unfit(Leave, &outages, 0).is_some(), "it is dead");
        assert!(unfit(Leave, &outages, 1).is_none());
    }

    #[test]
    fn a_server_that_another_window_has_stopped_is_not_upgraded() {
        assert_eq!(due(&[Upgrade, Kill, Start, Upgrade]), [true, true, true, true]);
        let mut outages = [Outages::default(); 2];
        assert!(unfit(Upgrade, &outages, 0).is_none());
        for (stop, go_on) in [(Kill, Start), (Pause, Resume)] {
            outages[0].count(stop);
            assert!(unfit(Upgrade, &outages, 0).is_some(), "{stop:?}");
            assert!(unfit(Upgrade, &outages, 1).is_none());
            outages[0].count(go_on);
            assert!(unfit(Upgrade, &outages, 0).is_none(), "{go_on:?}");
        }
        outages[0].count(Leave);
        outages[0].count(Join);
        assert!(unfit(Upgrade, &outages, 0).is_some(), "it is not a member yet");
    }

    #[test]
    fn a_restart_that_failed_counts_as_a_kill_if_the_server_has_ended() {
        for (command, has_ended, killed) in [(Restart, false, 0), (Restart, true, 1), (Upgrade, true, 1)] {
            let mut outages = Outages::default();
            outages.take_back(command, Outages::default(), has_ended);
            assert_eq!(outages.killed, killed, "{command:?} {has_ended}");
        }
    }

    #[test]
    fn a_full_disk_is_freed_by_the_last_window_and_its_server_starts_again_unless_another_wants_it_dead() {
        let (fill, free) = (FillDisk, FreeDisk);
        let commands = [fill, fill, free, Recover, free, Recover, Recover];
        assert_eq!(due(&commands), [true, false, false, false, true, true, false]);
        let at_once = [fill, fill, free, free, Recover, Recover, free];
        assert_eq!(due(&at_once), [true, false, false, true, false, true, false]);
        let mut outages = Outages::default();
        outages.count(fill);
        outages.take_back(fill, Outages::default(), false);
        assert!(outages.count(free).is_some(), "it took some blocks");
        let commands = [fill, Kill, free, Recover, Start];
        assert_eq!(due(&commands), [true, true, true, false, true]);
    }
}
