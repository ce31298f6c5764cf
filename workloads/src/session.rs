//! What can go wrong with a session, whatever the store.

use crate::client::NotOk;

/// The three errors of a session. Which one it is decides verdicts, so a session never guesses: what is not surely
/// one of the others is [`Indefinite`](SessionError::Indefinite).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It did not happen, and never will.
    #[error("{0}")]
    Definite(String),
    /// Nobody can know whether it happened, or whether it still will.
    #[error("{0}")]
    Indefinite(String),
    /// The session is over, and with it all that it owned. Nothing more can be asked of it.
    #[error("{0}")]
    Lost(String),
}

impl SessionError {
    /// The answer to a `release` that ended so. A lost session owns nothing any more.
    pub(crate) fn on_release(self) -> NotOk {
        match self {
            SessionError::Definite(reason) | SessionError::Lost(reason) => NotOk::Fail(format!("not held: {reason}")),
            SessionError::Indefinite(reason) => NotOk::Info(reason),
        }
    }
}

/// The answer to an `acquire` that ended so, when nothing of it can be left behind in the first case.
///
/// A lost session is `info`: the client knows that it is over, and the server may need a moment more.
impl From<SessionError> for NotOk {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Definite(reason) => NotOk::Fail(reason),
            SessionError::Indefinite(reason) | SessionError::Lost(reason) => NotOk::Info(reason),
        }
    }
}
