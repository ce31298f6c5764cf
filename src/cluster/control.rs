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
use super::outages::{NodeCommand, Outages, unfit};
use super::ready::Serving;
use super::replication::Replication;
use super::{ClusterError, Endpoints, EndpointsReceiver, Node, RunningNodes, ServerAccess, ServerQueries};
use crate::clock::{GroundClock, RunningTask};
use crate::limits::{PROBE, READY_POLL, SERVER_BACK, SERVER_BACK_VIRTUAL};

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
            self.control.paused[node].store(outages[node].is_paused(), Relaxed);
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
                if outages[number].should_run()
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

    #[test]
    fn a_busy_machine_has_time_to_restart_a_server_and_a_replay_has_the_time_of_its_run() {
        assert!(back_within(GroundClock::Real) > 2 * Duration::from_secs(22));
        let of_worlds = World::run(7, |world| std::future::ready(back_within(GroundClock::Virtual(world))));
        assert_eq!(of_worlds, Duration::from_secs(15));
    }
}
