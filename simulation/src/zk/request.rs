//! Requests of clients to a simulated ZooKeeper ([`ZkRequest`]), and its answers, with the names and sizes of its records.

use crate::network::{CallDigest, PassingMessage, WireMessage};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkCall {
    /// Opens a session, or takes the session of this id up again; 0 asks for a new one. The time is in milliseconds.
    Connect {
        session: i64,
        timeout: u64,
        last_zxid: i64,
    },
    Create {
        path: String,
        ephemeral: bool,
        sequential: bool,
    },
    Delete {
        path: String,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    RemoveWatches {
        path: String,
    },
    /// After a reconnection: the paths that were watched, for what, and the last transaction that the client saw.
    SetWatches {
        last_zxid: i64,
        watches: Vec<(ZkWatchKind, String)>,
    },
    /// Answered when the server has applied the leader's decisions up to the request.
    Sync {
        path: String,
    },
    Ping,
    CloseSession,
}

/// The event that a watch waits for. `Exist` is a watch on the data of a node that was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZkWatchKind {
    Data,
    Exist,
    Child,
}

/// A request with its number on its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZkRequest {
    pub number: u64,
    pub call: ZkCall,
}

/// The errors of ZooKeeper that recipes can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZkCode {
    NoNode,
    NodeExists,
    NotEmpty,
    NoChildrenForEphemerals,
    SessionExpired,
    /// The session goes on on another server: the connection is closed and nothing is answered.
    SessionMoved,
}

/// The metadata of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZkStat {
    pub czxid: i64,
    /// The session that it belongs to; 0 if it is not ephemeral.
    pub owner: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkAnswer {
    /// The session's id, 0 if it is over, and its time in milliseconds.
    Connected {
        session: i64,
        timeout: u64,
    },
    Created {
        path: String,
        stat: ZkStat,
    },
    Stat(ZkStat),
    Children(Vec<String>),
    Done,
    Failed(ZkCode),
}

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkMessage {
    Reply {
        number: u64,
        name: &'static str,
        zxid: i64,
        answer: ZkAnswer,
    },
    Event {
        kind: &'static str,
        path: String,
    },
}

impl ZkCall {
    pub fn name(&self) -> &'static str {
        match self {
            ZkCall::Connect { .. } => "connect",
            ZkCall::Create { .. } => "create",
            ZkCall::Delete { .. } => "delete",
            ZkCall::Exists { .. } => "exists",
            ZkCall::GetChildren { .. } => "getChildren",
            ZkCall::RemoveWatches { .. } => "removeWatches",
            ZkCall::SetWatches { .. } => "setWatches",
            ZkCall::Sync { .. } => "sync",
            ZkCall::Ping => "ping",
            ZkCall::CloseSession => "closeSession",
        }
    }
}

impl ZkRequest {
    /// Returns the path that it is about, or nothing.
    fn subject(&self) -> &str {
        match &self.call {
            ZkCall::Create { path, .. }
            | ZkCall::Delete { path }
            | ZkCall::Exists { path, .. }
            | ZkCall::GetChildren { path, .. }
            | ZkCall::RemoveWatches { path }
            | ZkCall::Sync { path } => path,
            _ => "",
        }
    }

    fn digest(&self) -> u64 {
        let variant = match &self.call {
            ZkCall::Create {
                ephemeral, sequential, ..
            } => 1 + u8::from(*ephemeral) + 2 * u8::from(*sequential),
            ZkCall::Exists { watch, .. } | ZkCall::GetChildren { watch, .. } => u8::from(*watch),
            _ => 0,
        };
        let digest = CallDigest::of(self.call.name()).number(u64::from(variant));
        digest.bytes(self.subject().as_bytes()).value()
    }
}

impl WireMessage for ZkRequest {
    fn passing(&self) -> PassingMessage<'_> {
        PassingMessage::Request {
            number: self.number,
            name: self.call.name(),
            digest: self.digest(),
        }
    }

    fn bytes(&self) -> usize {
        // length, number and kind come first
        12 + match &self.call {
            ZkCall::Connect { .. } => 37,
            // path, data, one ACL of the world, flags
            ZkCall::Create { path, .. } => path.len() + 39,
            ZkCall::Delete { path } => path.len() + 8,
            ZkCall::Exists { path, .. } | ZkCall::GetChildren { path, .. } => path.len() + 5,
            ZkCall::Sync { path } => path.len() + 4,
            ZkCall::RemoveWatches { path } => path.len() + 8,
            ZkCall::SetWatches { watches, .. } => 20 + watches.iter().map(|(_, path)| path.len() + 4).sum::<usize>(),
            ZkCall::Ping | ZkCall::CloseSession => 0,
        }
    }
}

impl WireMessage for ZkMessage {
    fn passing(&self) -> PassingMessage<'_> {
        match self {
            ZkMessage::Reply {
                number, name, answer, ..
            } => PassingMessage::Reply {
                number: *number,
                name,
                refuses: matches!(answer, ZkAnswer::Failed(_)),
            },
            ZkMessage::Event { kind, path } => PassingMessage::Notification {
                name: kind,
                subject: path,
            },
        }
    }

    fn bytes(&self) -> usize {
        /// A node's stat as a record.
        const STAT: usize = 68;
        match self {
            ZkMessage::Event { path, .. } => 32 + path.len(),
            ZkMessage::Reply { answer, .. } => {
                20 + match answer {
                    ZkAnswer::Connected { .. } => 21,
                    ZkAnswer::Created { path, .. } => STAT + 4 + path.len(),
                    ZkAnswer::Stat(_) => STAT,
                    ZkAnswer::Children(names) => STAT + 4 + names.iter().map(|name| name.len() + 4).sum::<usize>(),
                    ZkAnswer::Done | ZkAnswer::Failed(_) => 0,
                }
            }
        }
    }
}
