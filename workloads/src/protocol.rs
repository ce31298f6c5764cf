//! The client protocol: JSON lines between the harness and a lock client, over the client's stdin and stdout.
//!
//! Only the messages live here, so that both ends are written against one definition. It is all that someone needs to
//! have their own lock tested, in any language, so a change here is a change for every foreign client.
//!
//! Every request names its client, because one child process may host several, and carries an `id` that its one reply
//! repeats. A client has at most one request open. Signals may come at any time.

use serde::{Deserialize, Serialize};

/// A request, from the harness to the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub client: u32,
    #[serde(flatten)]
    pub op: Op,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Comes first, once for each client: connect, and answer when ready to acquire.
    Open(Open),
    /// Answer `ok` when the lock is held, `fail` when it surely is not, `info` when nobody can know.
    Acquire(Acquire),
    Release {
        lock: String,
    },
    /// Comes last: give back what is held, disconnect, answer.
    Close,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// `zk`, `etcd` or `redis`.
    pub backend: String,
    /// `host:port` of every server as this client must reach it, through its own proxied links.
    pub endpoints: Vec<String>,
    /// Session timeout or time to live to ask for, in milliseconds.
    pub lease_ms: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    pub lock: String,
    /// How long to wait for a taken lock, in milliseconds; 0 is a try-lock.
    pub wait_ms: u64,
    /// `read` or `write`, for read/write locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// How many permits, for semaphores.
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
    },
    /// It surely did not happen: `busy`, `timeout`, `not held`, or any other reason.
    Fail {
        id: u64,
        error: String,
    },
    /// Nobody can know whether it happened: a reply that was lost.
    Info {
        id: u64,
        error: String,
    },
    Signal(Signal),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub client: u32,
    pub f: SignalKind,
    pub lock: String,
    /// The client's own `CLOCK_MONOTONIC` at the moment it knew, in nanoseconds.
    pub at: u64,
    #[serde(default)]
    pub cause: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalKind {
    /// The client no longer believes that it holds the lock.
    Lost,
    /// A waiter was woken: a notification for this lock reached it, whether or not it then got the lock.
    Woken,
}
