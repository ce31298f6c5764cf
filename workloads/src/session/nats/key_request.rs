//! Requests of a lock about a bucket ([`KeyRequest`]), and the connection that they go over ([`KeyLine`]), to a real server or a simulated
//! one.

use std::time::Duration;

use async_trait::async_trait;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, AsyncWrite};

use super::api::{self, BUCKET, JetStreamError, KeyMessage, PurgeAnswer, PutAnswer};
use super::connection::{NatsConnection, NatsError, NatsReply, NatsRequest};

/// A request about the bucket of the recipes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRequest {
    /// Makes the bucket, whose messages end after `age`, with copies on so many servers.
    Make { age: Duration, copies: usize },
    /// Asks for the last message of a key.
    Read { key: String },
    /// Writes a key, or a delete marker where there is no value. `last`: see [`NatsSession::put`](crate::nats::NatsSession::put).
    Put {
        key: String,
        value: Option<String>,
        last: Option<u64>,
    },
    /// Removes the message of a revision.
    Remove { revision: u64 },
    /// Removes the messages of a key.
    Purge { key: String },
}

/// The answer to a request: the change that was made, or the message that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyAnswer {
    Done,
    /// The last message of a key.
    Last(Option<KeyMessage>),
    /// The revision of a write, or the number of messages that were purged.
    Number(u64),
}

/// An answer, or the error of a request that was refused.
pub type KeyOutcome = Result<KeyAnswer, JetStreamError>;

/// A connection to a server, over which one request is asked after the other. One whose caller has gone may still be carried
/// out; its answer is taken for no other's.
#[async_trait(?Send)]
pub trait KeyLine {
    async fn call(&mut self, request: &KeyRequest) -> Result<KeyOutcome, NatsError>;
}

/// The way to several servers.
#[async_trait(?Send)]
pub trait KeyDial {
    /// Returns the names of the servers.
    fn names(&self) -> &[String];

    /// Connects to one of them, by its place, and greets it; the error is the reason of a failure.
    async fn dial(&self, server: usize) -> Result<Box<dyn KeyLine>, String>;
}

impl KeyAnswer {
    /// Returns the number, where the answer is one.
    pub(super) fn number(&self) -> u64 {
        match self {
            KeyAnswer::Number(number) => *number,
            KeyAnswer::Done | KeyAnswer::Last(_) => 0,
        }
    }
}

impl KeyRequest {
    /// Encodes it for a server.
    fn encoded(&self) -> NatsRequest {
        match self {
            KeyRequest::Make { age, copies } => api::make_bucket(BUCKET, *age, *copies),
            KeyRequest::Read { key } => api::last_message(BUCKET, key),
            KeyRequest::Put { key, value, last } => api::put(BUCKET, key, value.as_deref(), *last),
            KeyRequest::Remove { revision } => api::remove(BUCKET, *revision),
            KeyRequest::Purge { key } => api::purge(BUCKET, key),
        }
    }

    /// Parses a server's answer to it.
    fn decoded(&self, reply: &NatsReply) -> KeyOutcome {
        match self {
            KeyRequest::Make { .. } | KeyRequest::Remove { .. } => {
                api::answer::<IgnoredAny>(reply).map(|_| KeyAnswer::Done)
            }
            KeyRequest::Read { .. } => api::message(reply).map(KeyAnswer::Last),
            KeyRequest::Put { .. } => api::answer::<PutAnswer>(reply).map(|answer| KeyAnswer::Number(answer.seq)),
            KeyRequest::Purge { .. } => {
                api::answer::<PurgeAnswer>(reply).map(|answer| KeyAnswer::Number(answer.purged))
            }
        }
    }
}

#[async_trait(?Send)]
impl<S: AsyncRead + AsyncWrite + Unpin> KeyLine for NatsConnection<S> {
    async fn call(&mut self, request: &KeyRequest) -> Result<KeyOutcome, NatsError> {
        let reply = self.ask(&request.encoded()).await?;
        Ok(request.decoded(&reply))
    }
}
