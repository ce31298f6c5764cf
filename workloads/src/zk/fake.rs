//! A fake ensemble for tests: nodes, sessions and watches in memory, and faults on demand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};

use crate::client::{LockClient, SignalSink};
use crate::recipe::{Constructor, RecipeOptions};
use crate::session::SessionError;
use crate::session::zk::{
    ConnectionState, ConnectionStatus, WatchEvent, ZkConnect, ZkFailure, ZkSession, ZkWatch, Znode,
};
use crate::testing::{CallFault, CallFaults, FakeStore, LEASE};

#[derive(Clone, Default)]
pub(super) struct FakeZk(Rc<RefCell<FakeEnsemble>>, Rc<CallFaults>);

#[derive(Default)]
struct FakeEnsemble {
    nodes: BTreeMap<String, Znode>,
    sequence: i32,
    zxid: i64,
    watches: Vec<FakeZkWatch>,
    connections: Vec<watch::Sender<ConnectionStatus>>,
}

struct FakeZkWatch {
    session: i64,
    path: String,
    on: &'static str,
    sender: oneshot::Sender<WatchEvent>,
}

impl FakeZk {
    /// Lets another client do this before the next call of this name.
    pub(super) fn first(&self, call: &'static str, does: impl Fn(&FakeZk) + 'static) {
        let zk = self.clone();
        self.1.add(call, CallFault::First(Rc::new(move || does(&zk))));
    }

    /// Returns the names of the contenders for the lock `l`, in the order of their creation.
    pub(super) fn contenders(&self) -> Vec<String> {
        let mut nodes: Vec<_> = self.0.borrow().nodes.values().cloned().collect();
        nodes.sort_by_key(|node| node.czxid);
        nodes.into_iter().map(|node| node.path).collect()
    }

    pub(super) fn add(&self, path: &str, owner: i64) -> Znode {
        let mut ensemble = self.0.borrow_mut();
        ensemble.zxid += 1;
        ensemble.sequence += 1;
        let node = Znode {
            path: path.to_owned(),
            czxid: ensemble.zxid,
            owner,
        };
        ensemble.nodes.insert(path.to_owned(), node.clone());
        drop(ensemble);
        self.fire(path, "NodeCreated");
        node
    }

    pub(super) fn remove(&self, path: &str) -> bool {
        let removed = self.0.borrow_mut().nodes.remove(path).is_some();
        if removed {
            self.fire(path, "NodeDeleted");
        }
        removed
    }

    fn fire(&self, path: &str, kind: &'static str) {
        let parent = path.rsplit_once('/').unwrap().0;
        let watches = std::mem::take(&mut self.0.borrow_mut().watches);
        for watch in watches {
            if watch.on == "exists" && watch.path == path {
                let _ = watch.sender.send(WatchEvent::Fired { kind, path: watch.path });
            } else if watch.on == "children" && watch.path == parent {
                let _ = watch.sender.send(WatchEvent::Fired {
                    kind: "NodeChildrenChanged",
                    path: watch.path,
                });
            } else {
                self.0.borrow_mut().watches.push(watch);
            }
        }
    }

    /// Sets the state of a session's connection; sessions are numbered from 1.
    pub(super) fn set_connection(&self, session: i64, state: ConnectionState) {
        let ensemble = self.0.borrow();
        ensemble.connections[usize::try_from(session).unwrap() - 1].send_modify(|status| {
            let broke = state != ConnectionState::Connected;
            *status = ConnectionStatus {
                state,
                breaks: status.breaks + u64::from(broke),
            };
        });
    }

    /// Ends a session as a server does: its nodes go.
    pub(super) fn expire(&self, session: i64) {
        let mut nodes: Vec<_> = self.0.borrow().nodes.values().cloned().collect();
        nodes.retain(|node| node.owner == session);
        for node in nodes {
            self.remove(&node.path);
        }
        self.0.borrow_mut().watches.retain(|watch| watch.session != session);
        self.set_connection(session, ConnectionState::Expired);
    }
}

impl FakeStore for FakeZk {
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Zk(make) = options.recipe.constructor else {
            panic!("not a zk recipe")
        };
        options.build(make, Rc::new(self.clone()), signals, LEASE)
    }

    fn faults(&self) -> &CallFaults {
        &self.1
    }
}

#[async_trait(?Send)]
impl ZkConnect for FakeZk {
    async fn connect(&self) -> Result<Rc<dyn ZkSession>, SessionError> {
        let (sender, connection) = watch::channel(ConnectionStatus::default());
        let mut ensemble = self.0.borrow_mut();
        ensemble.connections.push(sender);
        let id = i64::try_from(ensemble.connections.len()).unwrap();
        Ok(Rc::new(FakeZkSession {
            id,
            zk: self.clone(),
            connection,
        }))
    }
}

struct FakeZkSession {
    id: i64,
    zk: FakeZk,
    connection: watch::Receiver<ConnectionStatus>,
}

impl FakeZkSession {
    async fn call<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> Result<T, ZkFailure> {
        let arrives = || match self.connection.borrow().state {
            ConnectionState::Expired => Err(SessionError::Lost("session expired".into())),
            _ => Ok(()),
        };
        // the connection breaks and comes back
        let lose = || {
            self.zk.set_connection(self.id, ConnectionState::Disconnected);
            self.zk.set_connection(self.id, ConnectionState::Connected);
        };
        let called = self.zk.1.call(name, arrives, async { work() }, lose).await;
        called.map_err(ZkFailure::Other)
    }

    fn watch(&self, path: &str, on: &'static str) -> ZkWatch {
        let (sender, fired) = oneshot::channel();
        let watch = FakeZkWatch {
            session: self.id,
            path: path.to_owned(),
            on,
            sender,
        };
        self.zk.0.borrow_mut().watches.push(watch);
        Box::pin(async move { fired.await.unwrap_or(WatchEvent::SessionOver) })
    }

    fn node(&self, path: &str) -> Option<Znode> {
        self.zk.0.borrow().nodes.get(path).cloned()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let ensemble = self.zk.0.borrow();
        let child = |name: &String| name.strip_prefix(path)?.strip_prefix('/').map(str::to_owned);
        ensemble.nodes.keys().filter_map(child).collect()
    }
}

#[async_trait(?Send)]
impl ZkSession for FakeZkSession {
    fn id(&self) -> i64 {
        self.id
    }

    fn timeout(&self) -> Duration {
        LEASE
    }

    fn connection(&self) -> watch::Receiver<ConnectionStatus> {
        self.connection.clone()
    }

    async fn create_one(&self, path: &str, sequential: bool) -> Result<Znode, ZkFailure> {
        let create = || {
            let number = self.zk.0.borrow().sequence;
            match sequential {
                true => Some(self.zk.add(&format!("{path}{number:010}"), self.id)),
                false => self.node(path).is_none().then(|| self.zk.add(path, self.id)),
            }
        };
        let created = self.call("create", create).await?;
        created.ok_or_else(|| ZkFailure::NodeExists("create: it exists".into()))
    }

    async fn make_parents(&self, _path: &str) -> Result<(), ZkFailure> {
        Ok(())
    }

    async fn list(&self, path: &str, watches: bool) -> Result<(Vec<String>, Option<ZkWatch>), ZkFailure> {
        let list = || (self.names(path), watches.then(|| self.watch(path, "children")));
        self.call("list", list).await
    }

    async fn stat(&self, path: &str, watches: bool) -> Result<(Option<Znode>, Option<ZkWatch>), ZkFailure> {
        let look = || (self.node(path), watches.then(|| self.watch(path, "exists")));
        self.call("exists", look).await
    }

    async fn remove(&self, path: &str) -> Result<(), ZkFailure> {
        let removed = self.call("delete", || self.zk.remove(path)).await?;
        let missing = || ZkFailure::NoNode("delete: there is none".into());
        removed.then_some(()).ok_or_else(missing)
    }

    async fn sync(&self, _path: &str) -> Result<(), SessionError> {
        Ok(self.call("sync", || ()).await?)
    }

    async fn library_lock(&self, _parent: &str, _wait: Duration) -> Result<Option<String>, SessionError> {
        Err(SessionError::Definite("a fake has no library".into()))
    }

    async fn close(&self) {
        self.zk.expire(self.id);
    }
}
