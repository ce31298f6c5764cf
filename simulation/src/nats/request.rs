//! What clients of a simulated NATS send and what it answers, with the names that taps give it and about the sizes of its
//! messages.

use harness_workloads::nats::{KeyAnswer, KeyOutcome, KeyRequest};

use crate::network::{CallDigest, PassingKind, WireMessage};

/// A request with its number on its connection, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsCall {
    pub number: u64,
    /// `None` for its greeting, `CONNECT`, `SUB` and `PING`.
    pub asks: Option<KeyRequest>,
}

/// What a server sends.
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
/// What the subject of a key begins with, and that of a request to JetStream up to the name of the stream.
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
}

impl WireMessage for NatsCall {
    fn kind(&self) -> PassingKind {
        PassingKind::Request
    }

    fn name(&self) -> &'static str {
        self.name()
    }

    fn subject(&self) -> &str {
        match &self.asks {
            Some(KeyRequest::Read { key } | KeyRequest::Put { key, .. } | KeyRequest::Purge { key }) => key,
            Some(KeyRequest::Make { .. } | KeyRequest::Remove { .. }) | None => "",
        }
    }

    fn number(&self) -> u64 {
        self.number
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

    fn digest(&self) -> u64 {
        let (number, value) = match &self.asks {
            Some(KeyRequest::Put { value, last, .. }) => (last.unwrap_or_default(), value.as_deref()),
            Some(KeyRequest::Remove { revision }) => (*revision, None),
            _ => (0, None),
        };
        let digest = CallDigest::of(self.name()).number(number);
        let digest = digest.bytes(self.subject().as_bytes());
        digest.bytes(value.unwrap_or_default().as_bytes()).value()
    }
}

impl WireMessage for NatsMessage {
    fn kind(&self) -> PassingKind {
        match self {
            NatsMessage::Info => PassingKind::Control,
            NatsMessage::Pong { .. } | NatsMessage::Reply { .. } => PassingKind::Reply,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            NatsMessage::Info => "",
            NatsMessage::Pong { .. } => "ping",
            NatsMessage::Reply { name, .. } => name,
        }
    }

    fn number(&self) -> u64 {
        match self {
            NatsMessage::Info => 0,
            NatsMessage::Pong { number } | NatsMessage::Reply { number, .. } => *number,
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

    fn refuses(&self) -> bool {
        let NatsMessage::Reply { outcome, .. } = self else {
            return false;
        };
        matches!(outcome, Err(_) | Ok(KeyAnswer::Last(None)))
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
