//! Simulated ZooKeeper as the ground of a run: an ensemble, and its node changes for the observer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use harness_simulation::zk::{SimulatedZk, ZkChange};
use harness_simulation::{SimulatedServers, World};
use harness_workloads::zk::owner_name;
use tokio::sync::mpsc;

use super::ground::ServerModel;
use crate::backends::ensemble::{NodeChange, NodeOwner, NodeQueries, OpenedEnsemble, OpeningEnsemble};
use crate::backends::observer::Unasked;
use crate::backends::{self, zk_tick};
use crate::cluster::{BoxFuture, Cluster, EndpointsReceiver};
use crate::faults::Links;
use crate::run::{ConnectObserver, Ground, RunSpec};

/// The servers of a run, and their node changes for observers.
#[derive(Clone)]
struct ZkServersOfRun {
    zk: SimulatedZk,
    feed: Arc<Mutex<NodeFeed>>,
}

/// The nodes by the leader's reports, and the observers that receive their changes.
#[derive(Default)]
struct NodeFeed {
    owners: BTreeMap<String, NodeOwner>,
    /// Sessions that are over, by their names as owners.
    over: BTreeSet<String>,
    listening: Vec<(String, mpsc::UnboundedSender<(NodeChange, String)>)>,
}

/// Returns servers, links and clients in `world`.
pub fn ground(world: World, spec: &RunSpec) -> (Ground, Cluster) {
    let zk = SimulatedZk::start(world, spec.config.nodes as usize, zk_tick(spec.config.lease));
    let feed: Arc<Mutex<NodeFeed>> = Arc::default();
    let sending = Arc::clone(&feed);
    zk.on_change(move |change| lock(&sending).send(change));
    super::ground::ground(world, &ZkServersOfRun { zk, feed }, Links::new(), spec)
}

fn lock(feed: &Mutex<NodeFeed>) -> MutexGuard<'_, NodeFeed> {
    feed.lock().expect("no one panics while telling of a node")
}

impl NodeFeed {
    fn send(&mut self, change: &ZkChange<'_>) {
        match change {
            ZkChange::Created { path, owner, czxid } => {
                let (session, czxid) = (*owner, *czxid);
                self.owners.insert((*path).to_owned(), NodeOwner { session, czxid });
                self.announce(NodeChange::Created, path);
            }
            ZkChange::Deleted { path } => {
                self.owners.remove(*path);
                self.announce(NodeChange::Deleted, path);
            }
            ZkChange::SessionOver { session, .. } => {
                self.over.insert(owner_name(*session));
                let owned = self.owners.iter().filter(|(_, owner)| owner.session == *session);
                let paths: Vec<String> = owned.map(|(path, _)| path.clone()).collect();
                for path in paths {
                    self.owners.remove(&path);
                    self.announce(NodeChange::Deleted, &path);
                }
            }
        }
    }

    /// Sends a change of a node to the observers of all nodes below its root; a dropped receiver is removed.
    fn announce(&mut self, change: NodeChange, path: &str) {
        let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
        self.listening
            .retain(|(root, changes)| !below(root) || changes.send((change, path.to_owned())).is_ok());
    }
}

impl ServerModel for ZkServersOfRun {
    fn version(&self) -> &'static str {
        "3.8 (a model)"
    }

    fn servers(&self) -> &dyn SimulatedServers {
        &self.zk
    }

    fn role(&self, server: usize) -> Result<(&'static str, bool), String> {
        match self.zk.leader() {
            Some(leader) if leader == server => Ok(("leader", true)),
            Some(_) => Ok(("follower", false)),
            None => Err("no server leads".to_owned()),
        }
    }

    fn observe(&self) -> ConnectObserver {
        let servers = self.clone();
        Box::new(move |endpoints, keys| {
            let servers = servers.clone();
            let source = move |_: &EndpointsReceiver, root: &str| servers.connect(root);
            Box::pin(backends::observe_ensemble(Box::new(source), endpoints, keys))
        })
    }
}

impl ZkServersOfRun {
    /// Whether there is a leader that answers: a leader has a majority.
    fn leads(&self) -> bool {
        self.zk.leader().is_some_and(|leader| self.answers(leader))
    }

    fn connect(&self, root: &str) -> OpeningEnsemble {
        if !self.leads() {
            return Box::pin(std::future::ready(Err("no server leads".to_owned())));
        }
        let (changes, heard) = mpsc::unbounded_channel();
        lock(&self.feed).listening.push((root.to_owned(), changes));
        let opened = OpenedEnsemble {
            queries: Arc::new(self.clone()),
            changes: heard.into(),
        };
        Box::pin(std::future::ready(Ok(opened)))
    }
}

impl NodeQueries for ZkServersOfRun {
    fn children(&self, path: &str) -> BoxFuture<'static, Option<Vec<String>>> {
        Box::pin(std::future::ready(Some(self.zk.children(path))))
    }

    fn owner(&self, path: &str) -> BoxFuture<'static, Option<NodeOwner>> {
        let owner = lock(&self.feed).owners.get(path).copied();
        Box::pin(std::future::ready(owner))
    }

    /// Returns a long time: a model reports every change, a proof only shows a leader, and an election takes twice as long.
    fn beat(&self) -> Duration {
        Duration::from_millis(200)
    }

    fn proves(&self) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(self.leads()))
    }

    fn why(&self, session: &str) -> BoxFuture<'static, Unasked> {
        let over = lock(&self.feed).over.contains(session);
        let why = if over { Unasked::Expired } else { Unasked::Deleted };
        Box::pin(std::future::ready(why))
    }
}
