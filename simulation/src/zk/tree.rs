//! The data of a ZooKeeper server as a pure state machine ([`ZkTree`]): nodes, sessions and watches. It applies transactions of one log,
//! and returns the events of watches.
//!
//! Not modelled: data, versions and ACLs of nodes, containers, quotas, persistent watches, `multi`.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

use super::request::{ZkCode, ZkStat, ZkWatchKind};
use crate::mutants::is_mutant;
use crate::network::CallDigest;

/// The path of a node. All servers of an ensemble share its text, and look for the end of its parent's path once.
#[derive(Debug, Clone, PartialOrd, Ord)]
pub struct NodePath {
    text: Rc<str>,
    /// The place of the last slash.
    slash: usize,
}

impl NodePath {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn parent(&self) -> &str {
        before_slash(&self.text, self.slash)
    }

    fn name(&self) -> &str {
        &self.text[self.slash + 1..]
    }
}

impl PartialEq for NodePath {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NodePath {}

impl Hash for NodePath {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.text.hash(hasher);
    }
}

impl Borrow<str> for NodePath {
    fn borrow(&self) -> &str {
        &self.text
    }
}

fn last_slash(path: &str) -> usize {
    path.bytes().rposition(|letter| letter == b'/').unwrap_or(0)
}

/// Returns the path of the parent, which ends at the last slash.
fn before_slash(path: &str, slash: usize) -> &str {
    if slash == 0 { "/" } else { &path[..slash] }
}

/// Returns a path with a sequence number of ten digits behind it, and the sign before them where there is one.
fn sequential_path(path: &str, count: i32) -> Rc<str> {
    let Ok(mut left) = u32::try_from(count) else {
        return format!("{path}{count:010}").into();
    };
    let mut digits = [b'0'; 10];
    for digit in digits.iter_mut().rev() {
        *digit += (left % 10) as u8;
        left /= 10;
    }
    let mut text = String::with_capacity(path.len() + digits.len());
    text.push_str(path);
    text.extend(digits.map(char::from));
    text.into()
}

/// A change that the leader has decided, as every server applies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkTransaction {
    OpenSession {
        session: i64,
    },
    Create {
        path: NodePath,
        /// 0: not ephemeral.
        owner: i64,
    },
    Delete {
        path: NodePath,
    },
    /// The session's nodes go with it.
    CloseSession {
        session: i64,
    },
    /// A write that was refused: it takes a number all the same.
    Refused(ZkCode),
}

/// Hashes paths: each server looks for a few nodes in each transaction.
#[derive(Debug, Clone, Copy, Default)]
struct PathHasher(CallDigest);

impl Hasher for PathHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.bytes(bytes);
    }

    /// Ignores the byte that follows a text: there is nothing behind it.
    fn write_u8(&mut self, _: u8) {}

    fn finish(&self) -> u64 {
        let value = self.0.value();
        value ^ (value >> 32)
    }
}

/// A few paths in their order.
#[derive(Debug, Clone, Default)]
struct SortedPaths(Vec<NodePath>);

impl SortedPaths {
    fn insert(&mut self, path: NodePath) {
        if let Err(place) = self.0.binary_search(&path) {
            self.0.insert(place, path);
        }
    }

    fn remove(&mut self, path: &NodePath) {
        if let Ok(place) = self.0.binary_search(path) {
            self.0.remove(place);
        }
    }
}

#[derive(Debug, Clone, Default)]
struct TreeNode {
    czxid: i64,
    owner: i64,
    /// The last change of its children.
    pzxid: i64,
    /// Number of children that were created: the next sequence number.
    creates: i32,
    /// Their paths.
    children: SortedPaths,
}

/// A watch event for one connection.
pub type TreeEvent = (u64, &'static str, String);

/// The nodes by their paths.
#[expect(
    clippy::disallowed_types,
    reason = "nobody goes through it, and its hasher has no seed"
)]
type NodeTable = std::collections::HashMap<NodePath, TreeNode, BuildHasherDefault<PathHasher>>;

/// The data of one server.
#[derive(Debug)]
pub struct ZkTree {
    nodes: NodeTable,
    /// The nodes of each session.
    sessions: BTreeMap<i64, SortedPaths>,
    /// The last transaction that was applied.
    zxid: i64,
    data_watches: WatchingConnections,
    child_watches: WatchingConnections,
}

/// Connections that watch, by path, each in the order of their numbers; the paths are in no order. A server has a few of them, and most
/// watches fire soon: a list keeps its room.
#[derive(Debug, Default)]
struct WatchingConnections(Vec<(String, Vec<u64>)>);

impl WatchingConnections {
    fn place(&self, path: &str) -> Option<usize> {
        self.0.iter().position(|(watched, _)| watched == path)
    }

    fn of(&mut self, path: &str) -> &mut Vec<u64> {
        let place = self.place(path).unwrap_or_else(|| {
            self.0.push((path.to_owned(), Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    fn get(&self, path: &str) -> Option<&Vec<u64>> {
        self.place(path).map(|place| &self.0[place].1)
    }

    fn remove(&mut self, path: &str) -> Option<Vec<u64>> {
        self.place(path).map(|place| self.0.swap_remove(place).1)
    }

    /// A connection watches no path any more that `is_meant`.
    fn forget(&mut self, connection: u64, is_meant: impl Fn(&str) -> bool) {
        self.0.retain_mut(|(path, watching)| {
            if is_meant(path) {
                watching.retain(|other| *other != connection);
            }
            !watching.is_empty()
        });
    }
}

impl Default for ZkTree {
    fn default() -> Self {
        let root = NodePath {
            text: "/".into(),
            slash: 0,
        };
        ZkTree {
            nodes: NodeTable::from_iter([(root, TreeNode::default())]),
            sessions: BTreeMap::new(),
            zxid: 0,
            data_watches: WatchingConnections::default(),
            child_watches: WatchingConnections::default(),
        }
    }
}

impl ZkTree {
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    pub fn has_session(&self, session: i64) -> bool {
        self.sessions.contains_key(&session)
    }

    pub fn sessions(&self) -> impl Iterator<Item = i64> + '_ {
        self.sessions.keys().copied()
    }

    /// Returns the transaction of a create: the leader decides it on what it has decided before.
    pub fn plan_create(&self, path: &str, sequential: bool, owner: i64) -> ZkTransaction {
        let slash = last_slash(path);
        let Some(parent) = self.nodes.get(before_slash(path, slash)) else {
            return ZkTransaction::Refused(ZkCode::NoNode);
        };
        let count = if is_mutant("zk: sequence numbers count children") {
            parent.children.0.len() as i32
        } else {
            parent.creates
        };
        let text: Rc<str> = if sequential {
            sequential_path(path, count)
        } else {
            path.into()
        };
        let path = NodePath { text, slash };
        if self.nodes.contains_key(&path) && !is_mutant("zk: a node can be created twice") {
            return ZkTransaction::Refused(ZkCode::NodeExists);
        }
        if parent.owner != 0 && !is_mutant("zk: ephemeral nodes have children") {
            return ZkTransaction::Refused(ZkCode::NoChildrenForEphemerals);
        }
        ZkTransaction::Create { path, owner }
    }

    /// Returns the transaction of a delete.
    pub fn plan_delete(&self, path: &str) -> ZkTransaction {
        match self.nodes.get_key_value(path) {
            None => ZkTransaction::Refused(ZkCode::NoNode),
            Some((_, node)) if !node.children.0.is_empty() => ZkTransaction::Refused(ZkCode::NotEmpty),
            Some((path, _)) => ZkTransaction::Delete { path: path.clone() },
        }
    }

    /// Applies the next transaction, and returns the events of the connections that it notifies.
    pub fn apply(&mut self, zxid: i64, transaction: &ZkTransaction) -> Vec<TreeEvent> {
        self.zxid = zxid;
        let mut events = Vec::new();
        match transaction {
            ZkTransaction::OpenSession { session } => drop(self.sessions.insert(*session, SortedPaths::default())),
            ZkTransaction::Create { path, owner } => self.create(zxid, path, *owner, &mut events),
            ZkTransaction::Delete { path } => self.delete(zxid, path, &mut events),
            ZkTransaction::CloseSession { session } => {
                let nodes = self.sessions.remove(session).unwrap_or_default();
                for path in nodes.0.iter().filter(|_| !is_mutant("zk: nodes outlive their session")) {
                    self.delete(zxid, path, &mut events);
                }
            }
            ZkTransaction::Refused(_) => {}
        }
        events
    }

    fn create(&mut self, zxid: i64, path: &NodePath, owner: i64, events: &mut Vec<TreeEvent>) {
        let parent = path.parent();
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.creates = parent.creates.wrapping_add(1);
            parent.pzxid = zxid;
            parent.children.insert(path.clone());
        }
        let node = TreeNode {
            czxid: zxid,
            owner,
            pzxid: zxid,
            ..TreeNode::default()
        };
        self.nodes.insert(path.clone(), node);
        if let Some(nodes) = self.sessions.get_mut(&owner) {
            nodes.insert(path.clone());
        }
        self.fire(ZkWatchKind::Data, path.as_str(), "NodeCreated", events);
        self.fire(ZkWatchKind::Child, parent, "NodeChildrenChanged", events);
    }

    fn delete(&mut self, zxid: i64, path: &NodePath, events: &mut Vec<TreeEvent>) {
        let Some(node) = self.nodes.remove(path) else { return };
        let parent = path.parent();
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.pzxid = zxid;
            parent.children.remove(path);
        }
        if let Some(nodes) = self.sessions.get_mut(&node.owner) {
            nodes.remove(path);
        }
        // one that watches both data and children is told once
        let before = events.len();
        self.fire(ZkWatchKind::Data, path.as_str(), "NodeDeleted", events);
        let of_data = events.len();
        self.fire(ZkWatchKind::Child, path.as_str(), "NodeDeleted", events);
        let mut next = of_data;
        while next < events.len() {
            let connection = events[next].0;
            if events[before..of_data].iter().any(|(told, ..)| *told == connection) {
                events.remove(next);
            } else {
                next += 1;
            }
        }
        self.fire(ZkWatchKind::Child, parent, "NodeChildrenChanged", events);
    }

    fn watches(&mut self, kind: ZkWatchKind) -> &mut WatchingConnections {
        match kind {
            ZkWatchKind::Data | ZkWatchKind::Exist => &mut self.data_watches,
            ZkWatchKind::Child => &mut self.child_watches,
        }
    }

    fn fire(&mut self, watches: ZkWatchKind, path: &str, event: &'static str, events: &mut Vec<TreeEvent>) {
        if is_mutant("zk: children are not watched") && watches == ZkWatchKind::Child {
            return;
        }
        let watches = self.watches(watches);
        let watching = if is_mutant("zk: watches fire again and again") {
            watches.get(path).cloned()
        } else {
            watches.remove(path)
        };
        let watching = watching.into_iter().flatten();
        events.extend(watching.map(|connection| (connection, event, path.to_owned())));
    }

    pub fn watch(&mut self, kind: ZkWatchKind, path: &str, connection: u64) {
        let watching = self.watches(kind).of(path);
        if let Err(place) = watching.binary_search(&connection) {
            watching.insert(place, connection);
        }
    }

    /// Removes every watch of a connection on a path.
    pub fn unwatch(&mut self, path: &str, connection: u64) {
        for watches in [&mut self.data_watches, &mut self.child_watches] {
            watches.forget(connection, |watched| watched == path);
        }
    }

    /// Removes the watches of a connection that is over.
    pub fn disconnected(&mut self, connection: u64) {
        for watches in [&mut self.data_watches, &mut self.child_watches] {
            watches.forget(connection, |_| true);
        }
    }

    /// Removes the watches of all connections.
    pub fn forget_watches(&mut self) {
        self.data_watches.0.clear();
        self.child_watches.0.clear();
    }

    /// Sets a watch again after a reconnection; an event since `last_zxid` fires at once.
    pub fn watch_again(
        &mut self,
        kind: ZkWatchKind,
        path: &str,
        last_zxid: i64,
        connection: u64,
    ) -> Option<&'static str> {
        let node = self.nodes.get(path);
        let event = match (kind, node) {
            (ZkWatchKind::Data | ZkWatchKind::Child, None) => Some("NodeDeleted"),
            (ZkWatchKind::Exist, Some(_)) => Some("NodeCreated"),
            (ZkWatchKind::Data, Some(node)) if node.czxid > last_zxid => Some("NodeDataChanged"),
            (ZkWatchKind::Child, Some(node)) if node.pzxid > last_zxid => Some("NodeChildrenChanged"),
            _ => None,
        };
        if event.is_none() {
            self.watch(kind, path, connection);
        }
        event
    }

    pub fn stat(&self, path: &str) -> Option<ZkStat> {
        self.nodes.get(path).map(|node| ZkStat {
            czxid: node.czxid,
            owner: node.owner,
        })
    }

    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        let node = self.nodes.get(path)?;
        Some(node.children.0.iter().map(|path| path.name().to_owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_is_written_as_a_server_prints_it() {
        for count in [0, 7, 42, 1_999_999_999, i32::MAX, -1, i32::MIN] {
            assert_eq!(*sequential_path("/l/lock-", count), format!("/l/lock-{count:010}"));
        }
    }

    #[test]
    fn paths_are_found_by_their_text_whatever_its_length_is() {
        let mut tree = ZkTree::default();
        let mut path = String::new();
        for zxid in 1..40 {
            path.push_str(if zxid % 3 == 0 { "/a" } else { "/abcdefgh" });
            assert_eq!(tree.stat(&path), None);
            let create = tree.plan_create(&path, false, 0);
            tree.apply(zxid, &create);
            assert_eq!(tree.stat(&path).map(|stat| stat.czxid), Some(zxid));
            assert_eq!(tree.stat(&path[..path.len() - 1]), None);
        }
    }
}
