//! What a lock asks of a bucket ([`KeyRequest`]), and over what it asks ([`KeyLine`]): a connection to a server, real or
//! simulated.

use std::time::Duration;

use async_trait::async_trait;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, AsyncWrite};

use super::api::{self, BUCKET, JetStreamError, PurgeAnswer, PutAnswer};
use super::connection::{NatsConnection, NatsError, NatsReply, NatsRequest};
use crate::session::nats::KeyMessage;

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

/// What was done, or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyAnswer {
    Done,
    /// The last message of a key.
    Last(Option<KeyMessage>),
    /// The revision of a write, or how many messages were purged.
    Number(u64),
}

/// An answer, or why the request was refused.
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
    /// One for each.
    fn names(&self) -> &[String];

    /// Connects to one of them, by its place, and greets it; the error says why not.
    async fn dial(&self, server: usize) -> Result<Box<dyn KeyLine>, String>;
}

impl KeyAnswer {
    /// The number, where it is one.
    pub(super) fn number(&self) -> u64 {
        match self {
            KeyAnswer::Number(number) => *number,
            KeyAnswer::Done | KeyAnswer::Last(_) => 0,
        }
    }
}

impl KeyRequest {
    /// As it is sent to a server.
    fn encoded(&self) -> NatsRequest {
        match self {
            KeyRequest::Make { age, copies } => api::make_bucket(BUCKET, *age, *copies),
            KeyRequest::Read { key } => api::last_message(BUCKET, key),
            KeyRequest::Put { key, value, last } => api::put(BUCKET, key, value.as_deref(), *last),
            KeyRequest::Remove { revision } => api::remove(BUCKET, *revision),
            KeyRequest::Purge { key } => api::purge(BUCKET, key),
        }
    }

    /// What a server answered to it.
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
