//! The session trait that NATS recipes are written against ([`NatsSession`]), with no more than they need.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::SessionError;

/// A way to a cluster.
#[async_trait(?Send)]
pub trait NatsConnect {
    /// Connects to one of the servers, each time to the next one. Answers within a part of the lease.
    async fn connect(&self) -> Result<Rc<dyn NatsSession>, SessionError>;
}

/// One connection to a server, which leads every call to the server that leads the bucket. Every call answers within a part of the
/// lease; one that does not is [`SessionError::Indefinite`] and ends the connection. No call is ever sent twice. A call that could
/// not be sent is [`SessionError::Lost`].
#[async_trait(?Send)]
pub trait NatsSession {
    /// Whether the connection is known to be over.
    fn is_broken(&self) -> bool;

    /// Makes the bucket whose keys end when they were not written for a lease, unless it is there.
    async fn make_bucket(&self, lease: Duration) -> Result<(), SessionError>;

    /// Returns the last message of a key.
    async fn read(&self, key: &str) -> Result<Option<KeyMessage>, SessionError>;

    /// Writes a key whose last message has the revision `last`, 0 where there is none; any key without it. Answers the new
    /// revision, which is larger than all before it in the bucket. `None`: the last message is another one.
    async fn put(&self, key: &str, value: &str, last: Option<u64>) -> Result<Option<u64>, SessionError>;

    /// Writes a delete marker over the message of this revision. `false`: the last message is another one.
    async fn mark_deleted(&self, key: &str, revision: u64) -> Result<bool, SessionError>;

    /// Removes the message of this revision, and leaves no marker. `false`: there is none.
    async fn remove(&self, revision: u64) -> Result<bool, SessionError>;

    /// Removes the messages of a key, whatever they are. `false`: there were none.
    async fn purge(&self, key: &str) -> Result<bool, SessionError>;
}

/// A message of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMessage {
    /// Its number in the stream of the bucket.
    pub revision: u64,
    pub value: String,
    /// Whether it is a delete marker.
    pub deleted: bool,
}
