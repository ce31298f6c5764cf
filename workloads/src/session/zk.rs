//! The session trait that ZooKeeper recipes are written against ([`ZkSession`]), with no more than they need.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::SessionError;

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

    /// Creates an ephemeral node at `prefix` and a sequence number, and its parents if they are missing.
    async fn create_sequential(&self, prefix: &str) -> Result<Znode, SessionError>;

    /// Creates an ephemeral node at `path`, and its parents if they are missing. `None`: there is one already.
    async fn create(&self, path: &str) -> Result<Option<Znode>, SessionError>;

    /// Returns the names of the node's children, in no order; none if there is no such node.
    async fn children(&self, path: &str) -> Result<Vec<String>, SessionError>;

    /// As [`Self::children`], with a watch for the next change of them.
    async fn watch_children(&self, path: &str) -> Result<(Vec<String>, ZkWatch), SessionError>;

    /// Returns the node at `path`, if there is one.
    async fn exists(&self, path: &str) -> Result<Option<Znode>, SessionError>;

    /// As [`Self::exists`], with a watch for its creation, change or deletion.
    async fn watch_exists(&self, path: &str) -> Result<(Option<Znode>, ZkWatch), SessionError>;

    /// Waits until the server of this session has applied all that the leader had decided when it was asked (`sync`).
    async fn sync(&self, path: &str) -> Result<(), SessionError>;

    /// Deletes the node. `false`: there was none.
    async fn delete(&self, path: &str) -> Result<bool, SessionError>;

    /// Takes the lock that comes with the client library, under `parent`; returns its own node's path once it is held. `None`:
    /// the wait was over, and the library has surely deleted its node.
    async fn library_lock(&self, parent: &str, wait: Duration) -> Result<Option<String>, SessionError>;

    /// Ends the session, and deletes its nodes with it, as far as the server can be reached.
    async fn close(&self);
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
