//! Simulated etcd as the ground of a run: a cluster, and its key changes for the observer.

use std::sync::{Arc, Mutex, MutexGuard};

use harness_simulation::etcd::SimulatedEtcd;
use harness_simulation::etcd::request::StoreEvent;
use harness_simulation::{SimulatedServers, World};
use tokio::sync::mpsc;

use super::ground::ServerModel;
use crate::backends::key_changes::{EtcdKeyChange, KeyChangeStream, OpenedStore, OpeningStore};
use crate::backends::observe_store;
use crate::backends::observer::Unasked;
use crate::cluster::{Cluster, EndpointsReceiver};
use crate::faults::Links;
use crate::run::{ConnectObserver, Ground, RunSpec};

/// The servers of a run, and their key changes for observers.
#[derive(Clone)]
struct EtcdServersOfRun {
    etcd: SimulatedEtcd,
    feed: Arc<Mutex<KeyFeed>>,
}

/// The key changes so far, and the observers that receive them.
#[derive(Default)]
struct KeyFeed {
    changes: Vec<EtcdKeyChange>,
    listening: Vec<(String, mpsc::UnboundedSender<Vec<EtcdKeyChange>>)>,
}

/// Returns servers, links and clients in `world`.
pub fn ground(world: World, spec: &RunSpec) -> (Ground, Cluster) {
    let etcd = SimulatedEtcd::start(world, spec.config.nodes as usize);
    let feed: Arc<Mutex<KeyFeed>> = Arc::default();
    let sending = Arc::clone(&feed);
    etcd.on_change(move |change| lock(&sending).send(change));
    super::ground::ground(world, &EtcdServersOfRun { etcd, feed }, Links::new(), spec)
}

fn lock(feed: &Mutex<KeyFeed>) -> MutexGuard<'_, KeyFeed> {
    feed.lock().expect("no one panics while telling of a key")
}

impl KeyFeed {
    fn send(&mut self, change: &StoreEvent) {
        let change = EtcdKeyChange {
            key: change.key.name.as_bytes().to_owned(),
            deleted: change.deleted,
            create_revision: change.key.create_revision,
            mod_revision: change.key.mod_revision,
            lease: change.key.lease,
        };
        let has = |prefix: &str| change.key.starts_with(prefix.as_bytes());
        // a dropped receiver is removed
        self.listening
            .retain(|(prefix, changes)| !has(prefix) || changes.send(vec![change.clone()]).is_ok());
        self.changes.push(change);
    }
}

impl ServerModel for EtcdServersOfRun {
    fn version(&self) -> &'static str {
        "3.4 (a model)"
    }

    fn servers(&self) -> &dyn SimulatedServers {
        &self.etcd
    }

    fn role(&self, server: usize) -> Result<(&'static str, bool), String> {
        match self.etcd.believed_leader(server) {
            Some(_) if self.etcd.leader() == Some(server) => Ok(("leader", true)),
            Some(_) => Ok(("follower", false)),
            None => Err("it knows no leader".to_owned()),
        }
    }

    fn observe(&self) -> ConnectObserver {
        let servers = self.clone();
        Box::new(move |endpoints, keys| {
            let servers = servers.clone();
            let source = move |_: &EndpointsReceiver, prefix: &str, from| servers.watch(prefix, from);
            Box::pin(observe_store(Box::new(source), endpoints, keys))
        })
    }
}

impl EtcdServersOfRun {
    /// Whether there is a leader that answers, and a majority with it.
    fn leads(&self) -> bool {
        let answering = (0..self.etcd.count()).filter(|server| self.answers(*server)).count();
        self.etcd.leader().is_some_and(|leader| self.answers(leader)) && answering > self.etcd.count() / 2
    }

    fn watch(&self, prefix: &str, from_revision: Option<i64>) -> OpeningStore {
        if !self.leads() {
            return Box::pin(std::future::ready(Err("no server leads".to_owned())));
        }
        let from_revision = from_revision.unwrap_or_else(|| self.etcd.revision() + 1);
        let (changes, mut heard) = mpsc::unbounded_channel();
        let mut feed = lock(&self.feed);
        let is_new = |change: &&EtcdKeyChange| change.mod_revision >= from_revision;
        let missed: Vec<EtcdKeyChange> = feed.changes.iter().filter(is_new).cloned().collect();
        if !missed.is_empty() {
            // the receiver exists
            let _ = changes.send(missed);
        }
        feed.listening.push((prefix.to_owned(), changes));
        let etcd = self.etcd;
        let why = move |lease| match etcd.has_lease(lease) {
            true => Unasked::Deleted,
            false => Unasked::Expired,
        };
        let opened = OpenedStore {
            from_revision,
            // they are read after a compaction, and a model has none
            present: Vec::new(),
            changes: KeyChangeStream::new(Box::pin(futures_util::stream::poll_fn(move |context| {
                heard.poll_recv(context).map(|changes| changes.map(Some))
            }))),
            why: Arc::new(move |lease| Box::pin(std::future::ready(why(lease)))),
        };
        Box::pin(std::future::ready(Ok(opened)))
    }
}
