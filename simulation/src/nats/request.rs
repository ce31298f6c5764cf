//! Requests of clients to a simulated NATS ([`NatsCall`]), and its answers, with the names that taps give them and about their sizes.

use harness_workloads::nats::{KeyAnswer, KeyOutcome, KeyRequest};

use crate::network::{CallDigest, PassingMessage, WireMessage};

/// A request with its number on its connection, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsCall {
    pub number: u64,
    /// `None` for its greeting, `CONNECT`, `SUB` and `PING`.
    pub asks: Option<KeyRequest>,
}

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NatsMessage {
    /// Its greeting, `INFO`.
    Info,
    /// The answer to the greeting of a client.
    Pong { number: u64 },
    Reply {
        number: u64,
        name: &'static str,
        outcome: KeyOutcome,
    },
}

/// The name of an inbox, with the number of its request.
const INBOX: usize = 34;
/// `PUB` with the lengths and the ends of lines, and the same with headers.
const PUB: usize = 13;
const HPUB: usize = 29;
/// The beginning of the subject of a key, and that of a request to JetStream up to the name of the stream.
const SUBJECT: usize = 12;
const API: usize = 38;
/// A header with the revision that is expected, and one that makes a marker.
const EXPECTED: usize = 40;
const MARKER: usize = 19;

impl NatsCall {
    pub fn name(&self) -> &'static str {
        match &self.asks {
            None => "ping",
            Some(KeyRequest::Make { .. }) => "stream_create",
            Some(KeyRequest::Read { .. }) => "read",
            Some(KeyRequest::Put { value: None, .. }) => "delete",
            Some(KeyRequest::Put { last: None, .. }) => "put",
            Some(KeyRequest::Put { last: Some(0), .. }) => "create",
            Some(KeyRequest::Put { .. }) => "update",
            Some(KeyRequest::Remove { .. }) => "remove",
            Some(KeyRequest::Purge { .. }) => "purge",
        }
    }

    fn digest(&self) -> u64 {
        let (key, number, value) = match &self.asks {
            Some(KeyRequest::Put { key, value, last }) => (key.as_str(), last.unwrap_or_default(), value.as_deref()),
            Some(KeyRequest::Read { key } | KeyRequest::Purge { key }) => (key.as_str(), 0, None),
            Some(KeyRequest::Remove { revision }) => ("", *revision, None),
            Some(KeyRequest::Make { .. }) | None => ("", 0, None),
        };
        let digest = CallDigest::of(self.name()).number(number);
        let digest = digest.bytes(key.as_bytes());
        digest.bytes(value.unwrap_or_default().as_bytes()).value()
    }
}

impl WireMessage for NatsCall {
    fn passing(&self) -> PassingMessage<'_> {
        PassingMessage::Request {
            number: self.number,
            name: self.name(),
            digest: self.digest(),
        }
    }

    fn bytes(&self) -> usize {
        match &self.asks {
            None => 210,
            Some(KeyRequest::Make { .. }) => PUB + INBOX + API + 340,
            Some(KeyRequest::Read { key }) => PUB + INBOX + API + 32 + key.len(),
            Some(KeyRequest::Remove { .. }) => PUB + INBOX + API + 32,
            Some(KeyRequest::Purge { key }) => PUB + INBOX + API + 26 + key.len(),
            Some(KeyRequest::Put { key, value, last }) => {
                let headers = last.map_or(0, |_| EXPECTED) + value.as_ref().map_or(MARKER, |_| 0);
                let line = if headers == 0 { PUB } else { HPUB };
                line + INBOX + SUBJECT + key.len() + headers + value.as_ref().map_or(0, String::len)
            }
        }
    }
}

impl WireMessage for NatsMessage {
    fn passing(&self) -> PassingMessage<'_> {
        match self {
            NatsMessage::Info => PassingMessage::Control,
            NatsMessage::Pong { number } => PassingMessage::Reply {
                number: *number,
                name: "ping",
                refuses: false,
            },
            NatsMessage::Reply { number, name, outcome } => PassingMessage::Reply {
                number: *number,
                name,
                // no revision is 0: it is a purge of nothing
                refuses: matches!(outcome, Err(_) | Ok(KeyAnswer::Last(None) | KeyAnswer::Number(0))),
            },
        }
    }

    fn bytes(&self) -> usize {
        match self {
            NatsMessage::Info => 340,
            NatsMessage::Pong { .. } => 6,
            NatsMessage::Reply { outcome, .. } => match outcome {
                Ok(KeyAnswer::Last(Some(message))) => 230 + message.value.len() * 4 / 3,
                Ok(KeyAnswer::Number(_)) => 80,
                Ok(KeyAnswer::Done) => 130,
                Ok(KeyAnswer::Last(None)) | Err(_) => 190,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_named_by_what_it_expects_and_whether_it_is_a_marker() {
        let put = |value: Option<&str>, last| {
            let asks = KeyRequest::Put {
                key: "k".into(),
                value: value.map(str::to_owned),
                last,
            };
            NatsCall {
                number: 2,
                asks: Some(asks),
            }
        };
        let names = [
            put(Some("v"), Some(0)),
            put(Some("v"), Some(7)),
            put(Some("v"), None),
            put(None, Some(7)),
        ];
        assert_eq!(names.map(|call| call.name()), ["create", "update", "put", "delete"]);
        assert_ne!(put(Some("v"), Some(7)).digest(), put(Some("v"), Some(8)).digest());
    }
}
