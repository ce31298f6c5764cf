//! Sessions with a store: the traits that recipes are written against, one file a kind of store, and their errors
//! ([`SessionError`]), the same for every backend. The session with NATS is no trait: `nats/` has it for all servers.

pub mod etcd;
pub mod nats;
pub mod redis;
pub mod sql;
pub mod zk;

use std::time::Duration;

use crate::client::LockError;

/// One call, and one attempt to connect, may take the lease divided by this.
pub const CALLS_A_LEASE: u32 = 3;
/// The pause before the next try after a failed call, so that a server that refuses at once is not asked in a loop.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The three errors of a session. Which one it is decides verdicts, so a session never guesses: what is not surely
/// one of the others is [`Indefinite`](SessionError::Indefinite).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It did not happen, and never will.
    #[error("{0}")]
    Definite(String),
    /// It may have happened, or may still happen: the answer was lost or late.
    #[error("{0}")]
    Indefinite(String),
    /// The session is over, and with it all that it owned. Nothing more can be asked of it.
    #[error("{0}")]
    Lost(String),
}

impl SessionError {
    /// Returns the answer to an `acquire` before which leftovers could not be removed.
    pub(crate) fn on_cleaning(self) -> LockError {
        LockError::refused(format!("cleaning up first: {self}"))
    }

    /// Returns the answer to a `release` with this error. A lost session owns nothing any more.
    pub(crate) fn on_release(self) -> LockError {
        match self {
            SessionError::Definite(reason) | SessionError::Lost(reason) => LockError::no_longer_held(reason),
            SessionError::Indefinite(reason) => LockError::Unknown(reason),
        }
    }
}

/// The answer of a call that may have been repeated.
pub(crate) struct Retried<T> {
    pub answer: T,
    /// Whether it took more than one try, so that an earlier one may have done it.
    pub again: bool,
}

/// The answer to an `acquire` that ended so, where a definite error leaves nothing on the server.
///
/// A lost session is `info`: the client knows that it is over, and the server may need a moment more.
impl From<SessionError> for LockError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Definite(reason) => LockError::refused(reason),
            SessionError::Indefinite(reason) | SessionError::Lost(reason) => LockError::Unknown(reason),
        }
    }
}
