//! Random scripts for ZooKeeper: three sessions on the nodes below two parents.

use std::rc::Rc;
use std::time::Duration;

use harness_workloads::zk::{WatchEvent, ZkConnect, ZkServers, ZkSession, ZkWatch, Znode};
use harness_workloads::{RecipeHost, SessionError, TokioHost, within};

use super::servers::{open_request, zookeeper};
use super::{CLIENTS, STEPS, answered, assert_same_answers, draws, in_real_time, kinds, plain, transcripts};
use crate::World;
use crate::network::SimulatedLink;
use crate::zk::{SimulatedZk, ZkRoutes};

/// Long: calls must not time out on a busy machine.
const LEASE: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_millis(200);
/// The time until no notification is under way.
const SETTLE: Duration = Duration::from_millis(400);

const MUTANTS: [&str; 6] = [
    "zk: sequence numbers count children",
    "zk: a node can be created twice",
    "zk: ephemeral nodes have children",
    "zk: nodes outlive their session",
    "zk: children are not watched",
    "zk: watches fire again and again",
];

#[derive(Debug, Clone, Copy)]
struct ZkStep {
    client: usize,
    /// One of two parents.
    parent: usize,
    /// One of three nodes, or of those with a sequence number.
    node: usize,
    what: ZkStepKind,
}

kinds! {
    ZkStepKind:
    CreateSequential 2, Create 2,
    // below an ephemeral node, if it is there
    CreateBelow 1,
    Children 1, WatchChildren 2, Exists 1, WatchExists 2, Delete 1,
    // a node that was made with a sequence number
    DeleteSequential 1,
    DeleteParent 1, Sync 1,
    // drops a watch that did not fire
    Unwatch 1,
    // ends the session, and begins another one
    Reopen 1,
    // until notifications have arrived: which watches have fired?
    Look 0,
}

fn script(number: u64) -> Vec<ZkStep> {
    let mut draw = draws(number, "conformance zk");
    let kinds = ZkStepKind::drawn();
    let looks_at = draw(STEPS);
    let steps = (0..STEPS).map(|place| ZkStep {
        client: draw(CLIENTS),
        parent: draw(2),
        node: draw(3),
        what: match kinds[draw(kinds.len())] {
            _ if place == looks_at => ZkStepKind::Look,
            what => what,
        },
    });
    steps.collect()
}

/// The sessions, nodes and watches of a script.
struct ZkStand {
    host: Rc<dyn RecipeHost>,
    store: Rc<dyn ZkConnect>,
    sessions: Vec<Rc<dyn ZkSession>>,
    /// The ids of all sessions there were: an id differs from run to run, its place here does not.
    ids: Vec<i64>,
    sequential: Vec<String>,
    watches: Vec<(usize, Option<ZkWatch>)>,
    newest: i64,
    prefix: String,
}

impl ZkStand {
    /// Runs the script of this number.
    async fn run(host: Rc<dyn RecipeHost>, store: Rc<dyn ZkConnect>, number: u64) -> Vec<String> {
        let mut stand = ZkStand {
            host,
            store,
            sessions: Vec::new(),
            ids: Vec::new(),
            sequential: Vec::new(),
            watches: Vec::new(),
            newest: 0,
            prefix: format!("/s{number}"),
        };
        for _ in 0..CLIENTS {
            let session = stand.open().await;
            stand.sessions.push(session);
        }
        let mut transcript = answered(script(number), async |step| stand.step(step).await).await;
        transcript.push(stand.look().await);
        transcript
    }

    async fn open(&mut self) -> Rc<dyn ZkSession> {
        let session = self.store.connect().await.expect("the server takes sessions");
        self.ids.push(session.id());
        session
    }

    async fn step(&mut self, step: &ZkStep) -> String {
        let parent = format!("{}/p{}", self.prefix, step.parent);
        let path = format!("{parent}/n{}", step.node);
        let session = self.sessions[step.client].clone();
        match step.what {
            ZkStepKind::CreateSequential => {
                let created = session.create_sequential(&format!("{parent}/lock-")).await;
                self.sequential.extend(created.iter().map(|node| node.path.clone()));
                self.node(created.map(Some))
            }
            ZkStepKind::Create => self.node(session.create(&path).await),
            ZkStepKind::CreateBelow => self.node(session.create(&format!("{path}/below")).await),
            ZkStepKind::Children => names(session.children(&parent).await),
            ZkStepKind::WatchChildren => {
                let watched = session.watch_children(&parent).await;
                names(watched.map(|found| self.watched(step.client, found)))
            }
            ZkStepKind::Exists => self.node(session.exists(&path).await),
            ZkStepKind::WatchExists => {
                let watched = session.watch_exists(&path).await;
                let found = watched.map(|found| self.watched(step.client, found));
                self.node(found)
            }
            ZkStepKind::Delete => plain(session.delete(&path).await),
            ZkStepKind::DeleteParent => plain(session.delete(&parent).await),
            ZkStepKind::Sync => plain(session.sync(&path).await),
            ZkStepKind::DeleteSequential => {
                let place = step.node % self.sequential.len().max(1);
                let Some(path) = self.sequential.get(place) else {
                    return "none".into();
                };
                plain(session.delete(path).await)
            }
            ZkStepKind::Reopen => {
                session.close().await;
                self.sessions[step.client] = self.open().await;
                "reopened".into()
            }
            ZkStepKind::Unwatch => {
                let own = self
                    .watches
                    .iter_mut()
                    .rev()
                    .find(|(client, watch)| *client == step.client && watch.is_some());
                // whether it has fired by now is not looked at
                format!("{}", own.and_then(|(_, watch)| watch.take()).is_some())
            }
            ZkStepKind::Look => self.look().await,
        }
    }

    /// Keeps the watch of an answer, and returns the rest.
    fn watched<T>(&mut self, client: usize, (found, watch): (T, ZkWatch)) -> T {
        self.watches.push((client, Some(watch)));
        found
    }

    /// Returns the watches that have fired, each with its event.
    async fn look(&mut self) -> String {
        self.host.sleep(SETTLE).await;
        let mut fired = Vec::new();
        for (number, (_, slot)) in self.watches.iter_mut().enumerate() {
            let Some(watch) = slot else { continue };
            match within(&*self.host, Duration::from_millis(1), watch).await {
                Some(WatchEvent::Fired { kind, path }) => fired.push(format!("watch {number}: {kind} {path}")),
                Some(WatchEvent::SessionOver) => fired.push(format!("watch {number}: over")),
                None => continue,
            }
            *slot = None;
        }
        fired.join(", ")
    }

    /// Returns a node without the parts that differ from run to run: with the place of its session, and whether it is the newest so far.
    fn node(&mut self, answer: Result<Option<Znode>, SessionError>) -> String {
        let node = match answer {
            Ok(Some(node)) => node,
            answer => return plain(answer.map(|_| "none")),
        };
        let owner = self.ids.iter().position(|id| *id == node.owner);
        let is_newest = node.czxid > self.newest;
        self.newest = self.newest.max(node.czxid);
        format!("{} of {owner:?}, newest: {is_newest}", node.path)
    }
}

fn names(answer: Result<Vec<String>, SessionError>) -> String {
    plain(answer.map(|mut names| {
        names.sort();
        names
    }))
}

fn on_the_model(number: u64) -> Vec<String> {
    World::run(number, async |world: World| {
        let zk = SimulatedZk::start(world, 1, TICK);
        let process = world.process("c0");
        let store = ZkRoutes::new(zk, SimulatedLink::of_client(world, 0, 1), process, LEASE);
        ZkStand::run(process.host(), Rc::new(store), number).await
    })
}

/// Returns the answers of a real server to these scripts; `None`: there is no ZooKeeper here.
fn on_a_real_server(numbers: &[u64]) -> Option<Vec<Vec<String>>> {
    in_real_time(async {
        let server = zookeeper(TICK).await?;
        let open = open_request("zk", &[server.address], LEASE);
        let host = TokioHost::shared();
        let run = |number| {
            let store = ZkServers::new(&open, None, host.clone());
            ZkStand::run(host.clone(), Rc::new(store), number)
        };
        Some(transcripts(numbers, run).await)
    })
}

#[test]
fn random_scripts_have_the_same_answers_on_the_model_and_on_a_real_zookeeper() {
    assert_same_answers(on_a_real_server, on_the_model, &MUTANTS);
}
