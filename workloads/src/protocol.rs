//! The client protocol: JSON lines between the harness and a lock client, over the client's stdin and stdout.
//!
//! Only the messages are here, so that both ends are written against one definition. `docs/client-protocol.md` describes
//! the protocol for a client in any language, so a change here is a change for every foreign client.
//!
//! Every request names its client, because one process may serve several, and carries an `id` that its one reply
//! repeats. A client has at most one request open. Signals may come at any time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contract::Contract;

/// A request, from the harness to the client: `{"id":2,"client":3,"op":"release","lock":"l0"}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Larger for every further request to the same process.
    pub id: u64,
    /// The number of the client in its run, as in `c3`.
    pub client: u32,
    #[serde(flatten)]
    pub op: ClientOp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum ClientOp {
    /// Comes first, once for each client: connect, and answer when ready to acquire.
    Open(OpenRequest),
    /// Answer `ok` when the lock is held, `fail` when it surely is not, `info` when it may be held or not.
    Acquire(AcquireRequest),
    /// Answer `ok` when the lock was held and no longer is, `fail` when it was not held, `info` when it may still be held.
    Release { lock: String },
    /// Answer `ok` when the lock is held for a whole lease from here on, `fail` when it is not extended, with `not held` when it is not
    /// held (any more), `info` when it may be extended or not. Only asked of clients whose contract has `extends`.
    Extend { lock: String },
    /// Comes last: release what is held, disconnect, answer.
    Close,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// `zk`, `etcd`, `redis`, `valkey`, `postgres`, `mariadb`, `nats`, or the name of a described store.
    pub backend: String,
    /// `host:port` of every server as this client must reach it, through its own proxied links.
    pub endpoints: Vec<String>,
    /// Session timeout or time to live to ask for, in milliseconds.
    pub lease_ms: u64,
    /// The sentinels that choose the server, if there are some: `endpoints` are theirs then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentinel: Option<SentinelEndpoints>,
    /// The addresses of a cluster, in which each server has a part of the keys, and names the one that has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterEndpoints>,
}

impl OpenRequest {
    /// Makes an `open` request for servers that a client reaches at their own addresses.
    pub fn plain(backend: &str, endpoints: Vec<String>, lease: Duration) -> Self {
        OpenRequest {
            backend: backend.to_owned(),
            endpoints,
            lease_ms: lease.as_millis() as u64,
            sentinel: None,
            cluster: None,
        }
    }
}

/// The name of a run's master at the sentinels of a Redis.
pub const MASTER_NAME: &str = "harness";

/// The way in which a client finds the master that sentinels choose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentinelEndpoints {
    /// The name that the client asks the sentinels for.
    pub master: String,
    /// `host:port` as the sentinels say it of a server or sentinel, and as this client must reach it, through its own proxied links.
    pub addresses: BTreeMap<String, String>,
}

/// The way in which a client follows the servers of a Redis Cluster to one another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterEndpoints {
    /// `host:port` as the servers name one another, and as this client must reach it, through its own proxied links.
    pub addresses: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireRequest {
    pub lock: String,
    /// The longest wait for a taken lock, in milliseconds; 0 is a try-lock.
    pub wait_ms: u64,
    /// `read` or `write`, for read/write locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The number of permits, for semaphores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
}

/// A line from the client to the harness: the reply to a request, or a signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Message {
    /// It happened.
    Ok {
        id: u64,
        /// The fencing token of a grant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<u64>,
        /// The server's name for the owner of a grant: a session, a lease, a random value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// In the answer to `open`: the promises of the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        contract: Option<Box<Contract>>,
    },
    /// It surely did not happen, and never will.
    Fail {
        id: u64,
        error: FailReason,
    },
    /// It may have happened or not, or happen later: the reply of a server was lost.
    Info {
        id: u64,
        error: String,
    },
    Signal(LockSignal),
}

/// The reason for which an operation surely did not happen. On the wire it is one string: a word, and a detail after a colon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum FailReason {
    /// `busy`: a try-lock found the lock taken.
    Busy,
    /// `timeout`: the lock stayed taken for as long as the client was to wait.
    Timeout,
    /// `not held`, with a detail such as `not held: own node is gone`. `not-held` is read as the same.
    NotHeld(Option<String>),
    /// Any other reason, as text.
    Other(String),
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailReason::Busy => f.write_str("busy"),
            FailReason::Timeout => f.write_str("timeout"),
            FailReason::NotHeld(None) => f.write_str("not held"),
            FailReason::NotHeld(Some(detail)) => write!(f, "not held: {detail}"),
            FailReason::Other(reason) => f.write_str(reason),
        }
    }
}

impl From<String> for FailReason {
    fn from(text: String) -> Self {
        let not_held = text.strip_prefix("not held").or_else(|| text.strip_prefix("not-held"));
        match (text.as_str(), not_held) {
            ("busy", _) => FailReason::Busy,
            ("timeout", _) => FailReason::Timeout,
            (_, Some("")) => FailReason::NotHeld(None),
            (_, Some(detail)) if detail.starts_with(':') => FailReason::NotHeld(Some(detail[1..].trim().to_owned())),
            _ => FailReason::Other(text),
        }
    }
}

impl From<FailReason> for String {
    fn from(reason: FailReason) -> Self {
        reason.to_string()
    }
}

/// An unasked message of a client: `{"type":"signal","client":3,"f":"lost","lock":"l0","at":123456789,"cause":"…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSignal {
    pub client: u32,
    pub f: LockSignalKind,
    pub lock: String,
    /// The client's own `CLOCK_MONOTONIC` at the moment it knew, in nanoseconds.
    pub at: u64,
    #[serde(default)]
    pub cause: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockSignalKind {
    /// The client no longer believes that it holds the lock.
    Lost,
    /// A waiter was woken: a notification of the server for this lock reached it, whether or not it then got the lock.
    Woken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_in_every_spelling_and_written_in_one() {
        let not_held = |detail: &str| FailReason::NotHeld(Some(detail.into()));
        for (read, reason, written) in [
            ("busy", FailReason::Busy, "busy"),
            ("timeout", FailReason::Timeout, "timeout"),
            ("not held", FailReason::NotHeld(None), "not held"),
            ("not-held", FailReason::NotHeld(None), "not held"),
            (
                "not held: own key is gone",
                not_held("own key is gone"),
                "not held: own key is gone",
            ),
            ("not-held:expired", not_held("expired"), "not held: expired"),
            (
                "not held by me",
                FailReason::Other("not held by me".into()),
                "not held by me",
            ),
        ] {
            let line = format!(r#"{{"type":"fail","id":1,"error":"{read}"}}"#);
            let message: Message = serde_json::from_str(&line).unwrap();
            assert_eq!(message, Message::Fail { id: 1, error: reason });
            assert_eq!(
                serde_json::to_string(&message).unwrap(),
                format!(r#"{{"type":"fail","id":1,"error":"{written}"}}"#)
            );
        }
    }
}
