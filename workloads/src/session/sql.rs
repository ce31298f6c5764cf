//! The session trait that recipes for SQL servers are written against ([`SqlSession`]), with no more than they need.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::SessionError;

/// The owner of a lock on the server; the lock ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockScope {
    /// A named lock of the session.
    Session,
    /// A named lock of a transaction, which is open for as long as the lock is held.
    Transaction,
    /// A row that a transaction locked. A row that is locked is skipped, so that nobody waits on the server.
    Row,
}

/// The way in which a lease in a row is taken and given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseForm {
    /// Only if it is free, or the client's own: the server compares in the statement that writes.
    Compared,
    /// Whatever the row says.
    Blind,
}

/// A way to one server.
#[async_trait(?Send)]
pub trait SqlConnect {
    /// Makes one connection. Answers within a part of the lease.
    async fn connect(&self) -> Result<Rc<dyn SqlSession>, SessionError>;
}

/// One connection, and the session that it has on the server. Every call answers within a part of the lease (and the wait that it
/// was given); one that does not is [`SessionError::Indefinite`] and ends the connection. No call is ever sent twice. A call on a
/// connection that was over before is [`SessionError::Lost`].
#[async_trait(?Send)]
pub trait SqlSession {
    /// Whether the connection is known to be over.
    fn is_broken(&self) -> bool;

    /// Ready when the connection is over.
    async fn broken(&self);

    /// Makes the tables that recipes use on the server, unless they are there.
    async fn make_tables(&self) -> Result<(), SessionError>;

    /// As [`Self::make_tables`], also where another client makes them at the same time.
    async fn prepare(&self) -> Result<(), SessionError> {
        match self.make_tables().await {
            Err(SessionError::Definite(_)) => self.make_tables().await,
            answer => answer,
        }
    }

    /// Takes a lock, and waits for it for at most `wait`: the server's name for the session that has it now. `None`: it is taken.
    async fn lock(&self, scope: LockScope, lock: &str, wait: Duration) -> Result<Option<String>, SessionError>;

    /// Gives a lock back. `false`: the session did not have it.
    async fn unlock(&self, scope: LockScope, lock: &str) -> Result<bool, SessionError>;

    /// Whether a lease is nobody's by the server's clock.
    async fn is_free(&self, lock: &str) -> Result<bool, SessionError>;

    /// Writes a new lease, which runs from now by the server's clock: its fencing token. `None`: it is another's.
    async fn take_lease(
        &self,
        form: LeaseForm,
        lock: &str,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<u64>, SessionError>;

    /// Ends a lease. `false`: it was not this owner's, or had run out.
    async fn end_lease(&self, form: LeaseForm, lock: &str, owner: &str) -> Result<bool, SessionError>;
}
