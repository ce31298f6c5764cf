//! The session trait that Redis recipes are written against ([`RedisSession`]), with no more than they need.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::SessionError;

/// A way to one or several servers.
#[async_trait(?Send)]
pub trait RedisConnect {
    /// Returns the number of servers. All but one may be replicas; for `redlock` they are independent masters.
    fn servers(&self) -> usize;

    /// Makes one connection to the server of this number. Answers within a part of the lease.
    async fn connect(&self, server: usize) -> Result<Rc<dyn RedisSession>, SessionError>;
}

/// The way in which a session compares a value before it acts on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareBy {
    /// By a script.
    Script,
    /// By a command of Valkey: `SET … IFEQ`, since 8.1, and `DELIFEQ`, since 9.0.
    Command,
}

/// One connection. Every call answers within a part of the lease; one that does not is [`SessionError::Indefinite`]. No call is ever sent
/// twice. Once [`SessionError::Lost`] was answered the connection is of no more use; the keys outlive it.
#[async_trait(?Send)]
pub trait RedisSession {
    /// Whether the connection is known to be dead.
    fn is_broken(&self) -> bool;

    /// `SET key value NX [PX ttl]`. Whether the key was set.
    async fn set_nx(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, SessionError>;

    /// `GET key`. `None`: there is no such key.
    async fn get(&self, key: &str) -> Result<Option<String>, SessionError>;

    /// `GETSET key value`: the value before; the key has no time to live afterwards.
    async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>, SessionError>;

    /// `PEXPIRE key ttl`, in milliseconds. `false`: there is no such key.
    async fn expire(&self, key: &str, ttl: Duration) -> Result<bool, SessionError>;

    /// `DEL key`. `false`: there was none.
    async fn del(&self, key: &str) -> Result<bool, SessionError>;

    /// Deletes the key if it has this value, in one script or command ([`CompareBy`]). `false`: it had not.
    async fn del_if(&self, key: &str, value: &str) -> Result<bool, SessionError>;

    /// The same, and publishes on `channel` if it was deleted, in one script.
    async fn del_if_and_publish(&self, key: &str, value: &str, channel: &str) -> Result<bool, SessionError>;

    /// Gives the key a new time to live if it has this value, in one script or command. `false`: it had not.
    async fn expire_if(&self, key: &str, value: &str, ttl: Duration) -> Result<bool, SessionError>;

    /// Returns the messages of a channel, on a separate connection.
    async fn subscribe(&self, channel: &str) -> Result<Box<dyn Subscription>, SessionError>;
}

/// The messages of one channel.
#[async_trait(?Send)]
pub trait Subscription {
    /// Returns the next message. `None`: the connection is gone.
    async fn next(&mut self) -> Option<String>;
}
