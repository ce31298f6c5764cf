//! The watches of a client session: their paths, their waiters, and the watches to remove at the server; as `WatchManager` and `Depot` of
//! the crate keep them (`session/watch.rs`, `session/depot.rs`).

use std::collections::{BTreeMap, BTreeSet};

use harness_workloads::zk::WatchEvent;
use tokio::sync::oneshot;

use super::request::ZkWatchKind;

struct Watcher {
    id: u64,
    kind: ZkWatchKind,
    sender: oneshot::Sender<WatchEvent>,
}

#[derive(Default)]
pub(super) struct ClientWatches {
    count: u64,
    paths: BTreeMap<String, Vec<Watcher>>,
    /// The paths of requests with a watch that have no answer yet, in no order; there are few.
    asking: Vec<String>,
    /// Paths whose watches are to be taken back when those are answered.
    to_remove: BTreeSet<String>,
}

impl ClientWatches {
    /// Notes that a request with a watch on this path is sent.
    pub fn asks(&mut self, path: &str) {
        self.asking.push(path.to_owned());
    }

    /// Notes the answer to such a request; returns whether watches on the path must be removed now.
    pub fn answered(&mut self, path: &str, is_watched: bool) -> bool {
        if let Some(place) = self.asking.iter().position(|asked| asked == path) {
            self.asking.swap_remove(place);
        }
        if is_watched {
            self.to_remove.remove(path);
            return false;
        }
        !self.asks_for(path) && self.to_remove.remove(path)
    }

    fn asks_for(&self, path: &str) -> bool {
        self.asking.iter().any(|asked| asked == path)
    }

    /// Notes that the connection ended, and with it every request.
    pub fn disconnected(&mut self) {
        self.asking.clear();
        self.to_remove.clear();
    }

    /// Adds a watch: returns its number, and the receiver of its event.
    pub fn add(&mut self, path: &str, kind: ZkWatchKind) -> (u64, oneshot::Receiver<WatchEvent>) {
        self.count += 1;
        let (sender, receiver) = oneshot::channel();
        let id = self.count;
        self.paths
            .entry(path.to_owned())
            .or_default()
            .push(Watcher { id, kind, sender });
        (id, receiver)
    }

    /// Forgets a watch that nobody waits for; returns whether the server's watches on the path are to be removed.
    pub fn remove(&mut self, path: &str, id: u64) -> bool {
        let Some(watchers) = self.paths.get_mut(path) else {
            return false;
        };
        let before = watchers.len();
        watchers.retain(|watcher| watcher.id != id);
        if watchers.len() == before || !watchers.is_empty() {
            return false;
        }
        self.paths.remove(path);
        if self.asks_for(path) {
            self.to_remove.insert(path.to_owned());
            return false;
        }
        true
    }

    /// Notifies those who wait; returns whether anyone watches that path at all.
    pub fn notify(&mut self, path: &str, kind: &'static str) -> bool {
        let Some(watchers) = self.paths.remove(path) else {
            return false;
        };
        let is_told = |watcher: &Watcher| match kind {
            "NodeDeleted" => true,
            "NodeChildrenChanged" => watcher.kind == ZkWatchKind::Child,
            _ => watcher.kind != ZkWatchKind::Child,
        };
        let (told, stay): (Vec<_>, Vec<_>) = watchers.into_iter().partition(is_told);
        if !stay.is_empty() {
            self.paths.insert(path.to_owned(), stay);
        }
        for watcher in told {
            let path = path.to_owned();
            // the waiter may have gone meanwhile
            let _ = watcher.sender.send(WatchEvent::Fired { kind, path });
        }
        true
    }

    /// Ends all watches with the session.
    pub fn end(&mut self) {
        for watcher in std::mem::take(&mut self.paths).into_values().flatten() {
            let _ = watcher.sender.send(WatchEvent::SessionOver);
        }
    }

    /// Returns the watches to set again after a reconnection.
    pub fn all(&self) -> Vec<(ZkWatchKind, String)> {
        let each = self.paths.iter().flat_map(|(path, watchers)| {
            let kinds: BTreeSet<ZkWatchKind> = watchers.iter().map(|watcher| watcher.kind).collect();
            kinds.into_iter().map(|kind| (kind, path.clone()))
        });
        each.collect()
    }
}
