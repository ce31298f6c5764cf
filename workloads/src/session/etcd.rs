//! The session trait that etcd recipes are written against ([`EtcdSession`]), with no more than they need.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::SessionError;

/// Calls to whichever server of the cluster answers. Every call answers within a part of the lease; one that does not
/// is [`SessionError::Indefinite`], and the next call goes to another server. No call is ever sent twice. It connects when it is first
/// used, and again where that is needed. Leases are the business of `LeaseSession`.
#[async_trait(?Send)]
pub trait EtcdSession {
    /// Takes a lease. etcd counts in whole seconds, so it may last longer than `ttl`.
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, SessionError>;

    /// Renews a lease once, and answers its time to live. `None`: the server has no such lease (any more).
    async fn keep_alive(&self, lease: i64) -> Result<Option<Duration>, SessionError>;

    /// Ends a lease and deletes its keys. `false`: there was none.
    async fn revoke_lease(&self, lease: i64) -> Result<bool, SessionError>;

    /// Creates the key under the lease unless it exists, in one transaction, and answers the key as it then is.
    ///
    /// # Errors
    ///
    /// [`SessionError::Definite`] also when the server has no such lease.
    async fn create(&self, key: &str, value: &str, lease: i64) -> Result<Created, SessionError>;

    /// Returns the key, if it exists.
    async fn get(&self, key: &str) -> Result<Option<EtcdKey>, SessionError>;

    /// Returns the keys that begin with `prefix`, in the order of their creation, and the revision of the store they were
    /// seen at.
    async fn list(&self, prefix: &str) -> Result<Listing, SessionError>;

    /// Deletes the key. `false`: there was none.
    async fn delete(&self, key: &str) -> Result<bool, SessionError>;

    /// Deletes the key if it belongs to the lease, in one transaction. `false`: there was no such key.
    async fn delete_owned(&self, key: &str, lease: i64) -> Result<bool, SessionError>;

    /// Watches one key from a revision on.
    async fn watch(&self, key: &str, from_revision: i64) -> Result<Box<dyn EtcdWatch>, SessionError>;

    /// Takes the server's own lock: answers when it is held, with the name of its key. `wait` bounds the call.
    async fn lock(&self, name: &str, lease: i64, wait: Duration) -> Result<String, SessionError>;

    /// Releases the server's own lock.
    async fn unlock(&self, key: &str) -> Result<(), SessionError>;

    /// Runs in the server's own election: answers when elected. `wait` bounds the call.
    async fn campaign(&self, name: &str, value: &str, lease: i64, wait: Duration) -> Result<Leader, SessionError>;

    /// Steps down. The server answers the same when there was nothing to resign.
    async fn resign(&self, leader: &Leader) -> Result<(), SessionError>;
}

/// The events of one key, in the order of their revisions.
#[async_trait(?Send)]
pub trait EtcdWatch {
    /// Returns the next events, in order: whether each deleted the key, by a client or with its lease; otherwise it was put. An error ends
    /// the watch: it is not resumed.
    async fn next(&mut self) -> Result<Vec<bool>, SessionError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Never 0.
    pub id: i64,
    /// The server's time to live, which may be longer than the requested one.
    pub ttl: Duration,
}

/// A key at the time at which it was read. Those that know it share its texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdKey {
    pub name: Rc<str>,
    pub value: Rc<str>,
    /// The revision of the store at its creation: larger for every later key. 0 if unknown.
    pub create_revision: i64,
    /// The revision of the store at its last change.
    pub mod_revision: i64,
    /// 0 if it has none.
    pub lease: i64,
}

/// The answer to [`EtcdSession::create`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub key: EtcdKey,
    /// The revision of the store at the time.
    pub revision: i64,
}

/// The answer to [`EtcdSession::list`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub keys: Vec<EtcdKey>,
    pub revision: i64,
}

/// An election that was won, as the server wants it named to resign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leader {
    pub name: String,
    pub key: String,
    pub revision: i64,
    pub lease: i64,
}
