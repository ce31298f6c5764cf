//! The session trait that ZooKeeper recipes are written against ([`ZkSession`]), with no more than they need.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::SessionError;

/// The number of times that a node's parents are made before the create is refused since they do not stay.
const PARENTS: usize = 10;

/// A way to an ensemble.
#[async_trait(?Send)]
pub trait ZkConnect {
    /// Returns a new session. Answers within about one lease.
    async fn connect(&self) -> Result<Rc<dyn ZkSession>, SessionError>;
}

/// One session. Every call answers within a part of the session's timeout; one that does not is
/// [`SessionError::Indefinite`].
#[async_trait(?Send)]
pub trait ZkSession {
    /// Returns the session's id, as in a node's `ephemeralOwner`.
    fn id(&self) -> i64;

    /// Returns the session timeout that the server agreed to.
    fn timeout(&self) -> Duration;

    /// Returns the state of the connection, now and as it changes.
    fn connection(&self) -> watch::Receiver<ConnectionStatus>;

    /// Creates an ephemeral node at `path`, or at `path` and a sequence number.
    async fn create_one(&self, path: &str, sequential: bool) -> Result<Znode, ZkFailure>;

    /// Creates a node that stays and those above it, as far as they are missing.
    async fn make_parents(&self, path: &str) -> Result<(), ZkFailure>;

    /// Returns the names of the node's children, in no order, and a watch for the next change of them if it `watches`.
    async fn list(&self, path: &str, watches: bool) -> Result<(Vec<String>, Option<ZkWatch>), ZkFailure>;

    /// Returns the node at `path`, if there is one, and a watch for its creation, change or deletion if it `watches`.
    async fn stat(&self, path: &str, watches: bool) -> Result<(Option<Znode>, Option<ZkWatch>), ZkFailure>;

    /// Deletes the node.
    async fn remove(&self, path: &str) -> Result<(), ZkFailure>;

    /// Waits until the server of this session has applied all that the leader had decided when it was asked (`sync`).
    async fn sync(&self, path: &str) -> Result<(), SessionError>;

    /// Takes the lock that comes with the client library, under `parent`; returns its own node's path once it is held. `None`:
    /// the wait was over, and the library has surely deleted its node.
    async fn library_lock(&self, parent: &str, wait: Duration) -> Result<Option<String>, SessionError>;

    /// Ends the session, and deletes its nodes with it, as far as the server can be reached.
    async fn close(&self);

    /// Creates an ephemeral node at `prefix` and a sequence number, and its parents if they are missing.
    async fn create_sequential(&self, prefix: &str) -> Result<Znode, SessionError> {
        Ok(create_node(self, prefix, true).await?)
    }

    /// Creates an ephemeral node at `path`, and its parents if they are missing. `None`: there is one already.
    async fn create(&self, path: &str) -> Result<Option<Znode>, SessionError> {
        match create_node(self, path, false).await {
            Err(ZkFailure::NodeExists(_)) => Ok(None),
            created => Ok(Some(created?)),
        }
    }

    /// Returns the names of the node's children, in no order; none if there is no such node.
    async fn children(&self, path: &str) -> Result<Vec<String>, SessionError> {
        match self.list(path, false).await {
            Err(ZkFailure::NoNode(_)) => Ok(Vec::new()),
            listed => Ok(listed?.0),
        }
    }

    /// As [`Self::children`], with a watch for the next change of them; an error if there is no such node.
    async fn watch_children(&self, path: &str) -> Result<(Vec<String>, ZkWatch), SessionError> {
        let (names, watch) = self.list(path, true).await?;
        Ok((names, owed(watch)))
    }

    /// Returns the node at `path`, if there is one.
    async fn exists(&self, path: &str) -> Result<Option<Znode>, SessionError> {
        Ok(self.stat(path, false).await?.0)
    }

    /// As [`Self::exists`], with a watch for its creation, change or deletion.
    async fn watch_exists(&self, path: &str) -> Result<(Option<Znode>, ZkWatch), SessionError> {
        let (found, watch) = self.stat(path, true).await?;
        Ok((found, owed(watch)))
    }

    /// Deletes the node. `false`: there was none.
    async fn delete(&self, path: &str) -> Result<bool, SessionError> {
        match self.remove(path).await {
            Err(ZkFailure::NoNode(_)) => Ok(false),
            removed => Ok(removed.map(|()| true)?),
        }
    }
}

/// Creates the node; and again where its parents had to be made first, since it surely was not created then. They may
/// be gone by the next try: a sweep of locks that are out of use may find this one empty.
async fn create_node<S: ZkSession + ?Sized>(session: &S, path: &str, sequential: bool) -> Result<Znode, ZkFailure> {
    let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
    let mut created = session.create_one(path, sequential).await;
    for _ in 0..PARENTS {
        if !matches!(created, Err(ZkFailure::NoNode(_))) {
            break;
        }
        session.make_parents(parent).await?;
        created = session.create_one(path, sequential).await;
    }
    created
}

/// Returns the watch of a call that asked for one and succeeded.
fn owed(watch: Option<ZkWatch>) -> ZkWatch {
    watch.unwrap_or_else(|| Box::pin(std::future::ready(WatchEvent::SessionOver)))
}

/// The failure of a request, where a session has an answer to some.
#[derive(Debug)]
pub enum ZkFailure {
    NoNode(String),
    NodeExists(String),
    /// There was no answer in time.
    Unanswered(String),
    Other(SessionError),
}

impl ZkFailure {
    /// Makes the failure of a request that had no answer within this time.
    pub fn unanswered(what: &str, limit: Duration) -> Self {
        ZkFailure::Unanswered(format!("{what}: no answer in {} ms", limit.as_millis()))
    }
}

impl From<ZkFailure> for SessionError {
    fn from(failure: ZkFailure) -> Self {
        match failure {
            ZkFailure::NoNode(words) | ZkFailure::NodeExists(words) => SessionError::Definite(words),
            ZkFailure::Unanswered(words) => SessionError::Indefinite(words),
            ZkFailure::Other(error) => error,
        }
    }
}

/// The connection under a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionStatus {
    pub state: ConnectionState,
    /// The number of times that the connection was seen broken: it grows even when it came back before anyone looked.
    pub breaks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionState {
    #[default]
    Connected,
    /// The session may or may not be alive.
    Disconnected,
    /// The session is over.
    Expired,
}

/// A node as it was when it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Znode {
    pub path: String,
    /// The transaction that created it: larger for every later node of the ensemble, whatever its name.
    pub czxid: i64,
    /// The session it belongs to, 0 if it is not ephemeral.
    pub owner: i64,
}

/// Ready once, when the server has sent a notification of a change.
pub type ZkWatch = Pin<Box<dyn Future<Output = WatchEvent>>>;

/// The event that ended a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The server's notification: its kind (`NodeDeleted`, …), and the path that it is about.
    Fired { kind: &'static str, path: String },
    /// No notification: the session ended.
    SessionOver,
}
