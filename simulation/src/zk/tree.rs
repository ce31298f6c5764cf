//! The data of a ZooKeeper server as a pure state machine ([`ZkTree`]): nodes, sessions and watches. It applies transactions of one
//! log, and says what they do to watches.
//!
//! What is left out: data, versions and ACLs of nodes, containers, quotas, persistent watches, `multi`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::request::{ZkCode, ZkStat, ZkWatchKind};
use crate::mutants::is_mutant;

/// A change that the leader has decided, as every server applies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkTransaction {
    OpenSession {
        session: i64,
    },
    Create {
        path: Rc<str>,
        /// 0: not ephemeral.
        owner: i64,
    },
    Delete {
        path: Rc<str>,
    },
    /// The session's nodes go with it.
    CloseSession {
        session: i64,
    },
    /// A write that was refused: it takes a number all the same.
    Refused(ZkCode),
}

#[derive(Debug, Clone, Default)]
struct TreeNode {
    czxid: i64,
    owner: i64,
    /// The last change of its children.
    pzxid: i64,
    /// How often a child was created: the next sequence number.
    creates: i32,
    /// Their paths.
    children: BTreeSet<Rc<str>>,
}

/// A watch event for one connection.
pub type TreeEvent = (u64, &'static str, String);

/// The data of one server.
#[derive(Debug)]
pub struct ZkTree {
    /// By path; all servers of an ensemble share the text of one.
    nodes: BTreeMap<Rc<str>, TreeNode>,
    /// The nodes of each session.
    sessions: BTreeMap<i64, BTreeSet<Rc<str>>>,
    /// The last transaction that was applied.
    zxid: i64,
    data_watches: BTreeMap<String, BTreeSet<u64>>,
    child_watches: BTreeMap<String, BTreeSet<u64>>,
}

impl Default for ZkTree {
    fn default() -> Self {
        ZkTree {
            nodes: BTreeMap::from([("/".into(), TreeNode::default())]),
            sessions: BTreeMap::new(),
            zxid: 0,
            data_watches: BTreeMap::new(),
            child_watches: BTreeMap::new(),
        }
    }
}

fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(place) => &path[..place],
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
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

    /// What a create becomes: the leader decides it on what it has decided before.
    pub fn plan_create(&self, path: &str, sequential: bool, owner: i64) -> ZkTransaction {
        let Some(parent) = self.nodes.get(parent_of(path)) else {
            return ZkTransaction::Refused(ZkCode::NoNode);
        };
        let count = if is_mutant("zk: sequence numbers count children") {
            parent.children.len() as i32
        } else {
            parent.creates
        };
        let path: Rc<str> = if sequential {
            format!("{path}{count:010}").into()
        } else {
            path.into()
        };
        if self.nodes.contains_key(&path) && !is_mutant("zk: a node can be created twice") {
            return ZkTransaction::Refused(ZkCode::NodeExists);
        }
        if parent.owner != 0 && !is_mutant("zk: ephemeral nodes have children") {
            return ZkTransaction::Refused(ZkCode::NoChildrenForEphemerals);
        }
        ZkTransaction::Create { path, owner }
    }

    /// What a delete becomes.
    pub fn plan_delete(&self, path: &str) -> ZkTransaction {
        match self.nodes.get_key_value(path) {
            None => ZkTransaction::Refused(ZkCode::NoNode),
            Some((_, node)) if !node.children.is_empty() => ZkTransaction::Refused(ZkCode::NotEmpty),
            Some((path, _)) => ZkTransaction::Delete { path: path.clone() },
        }
    }

    /// Applies the next transaction, and says which connections are notified of what.
    pub fn apply(&mut self, zxid: i64, transaction: &ZkTransaction) -> Vec<TreeEvent> {
        self.zxid = zxid;
        let mut events = Vec::new();
        match transaction {
            ZkTransaction::OpenSession { session } => drop(self.sessions.insert(*session, BTreeSet::new())),
            ZkTransaction::Create { path, owner } => self.create(zxid, path, *owner, &mut events),
            ZkTransaction::Delete { path } => self.delete(zxid, path, &mut events),
            ZkTransaction::CloseSession { session } => {
                let nodes = self.sessions.remove(session).unwrap_or_default();
                for path in nodes.iter().filter(|_| !is_mutant("zk: nodes outlive their session")) {
                    self.delete(zxid, path, &mut events);
                }
            }
            ZkTransaction::Refused(_) => {}
        }
        events
    }

    fn create(&mut self, zxid: i64, path: &Rc<str>, owner: i64, events: &mut Vec<TreeEvent>) {
        let parent = parent_of(path);
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
        self.fire(ZkWatchKind::Data, path, "NodeCreated", events);
        self.fire(ZkWatchKind::Child, parent, "NodeChildrenChanged", events);
    }

    fn delete(&mut self, zxid: i64, path: &str, events: &mut Vec<TreeEvent>) {
        let Some(node) = self.nodes.remove(path) else { return };
        let parent = parent_of(path);
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.pzxid = zxid;
            parent.children.remove(path);
        }
        if let Some(nodes) = self.sessions.get_mut(&node.owner) {
            nodes.remove(path);
        }
        // one that watches both data and children is told once
        let before = events.len();
        self.fire(ZkWatchKind::Data, path, "NodeDeleted", events);
        self.fire(ZkWatchKind::Child, path, "NodeDeleted", events);
        let mut told = BTreeSet::new();
        let mut place = 0;
        events.retain(|(connection, _, _)| {
            place += 1;
            place <= before || told.insert(*connection)
        });
        self.fire(ZkWatchKind::Child, parent, "NodeChildrenChanged", events);
    }

    fn watches(&mut self, kind: ZkWatchKind) -> &mut BTreeMap<String, BTreeSet<u64>> {
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
        self.watches(kind)
            .entry(path.to_owned())
            .or_default()
            .insert(connection);
    }

    /// Takes back every watch of a connection on a path.
    pub fn unwatch(&mut self, path: &str, connection: u64) {
        for watches in [&mut self.data_watches, &mut self.child_watches] {
            if let Some(watching) = watches.get_mut(path) {
                watching.remove(&connection);
                if watching.is_empty() {
                    watches.remove(path);
                }
            }
        }
    }

    /// A connection is over, and its watches with it.
    pub fn disconnected(&mut self, connection: u64) {
        for watches in [&mut self.data_watches, &mut self.child_watches] {
            watches.retain(|_, watching| {
                watching.remove(&connection);
                !watching.is_empty()
            });
        }
    }

    /// Sets a watch again after a reconnection; what happened since `last_zxid` fires at once.
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
        Some(node.children.iter().map(|path| name_of(path).to_owned()).collect())
    }
}
