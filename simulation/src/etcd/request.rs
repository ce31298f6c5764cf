//! Requests of clients to a simulated etcd ([`EtcdRequest`]), and its answers, with gRPC's names of methods and about its sizes.

use std::rc::Rc;

use harness_workloads::etcd::Leader;

use crate::network::{CallDigest, PassingMessage, WireMessage};

/// The comparison of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdCompare {
    /// The revision of the key's creation; 0 where there is no key.
    Created { key: String, revision: i64 },
    /// The lease of the key; 0 where there is no key.
    Lease { key: String, lease: i64 },
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdOp {
    Put {
        key: String,
        value: String,
        lease: i64,
    },
    Get {
        key: String,
    },
    /// The key with the prefix that was created first.
    First {
        prefix: String,
    },
    Delete {
        key: String,
    },
}

/// A transaction: the first operations if the comparison holds, otherwise the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdTxn {
    pub compare: EtcdCompare,
    pub success: Vec<EtcdOp>,
    pub failure: Vec<EtcdOp>,
}

/// A call of a client, or a message that ends one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdCall {
    /// One key, or all keys with a prefix in the order of their creation.
    Range {
        key: String,
        is_prefix: bool,
    },
    /// It is sent again where a member was not reached, and every member applies it.
    Txn(Rc<EtcdTxn>),
    DeleteRange {
        key: String,
    },
    /// In whole seconds.
    LeaseGrant {
        ttl: i64,
    },
    /// Ends with an error when the member knows no leader.
    LeaseKeepAlive {
        lease: i64,
    },
    LeaseRevoke {
        lease: i64,
    },
    /// Ends with an error when the member knows no leader.
    Watch {
        key: String,
        from_revision: i64,
    },
    Lock {
        name: String,
        lease: i64,
    },
    Unlock {
        key: String,
    },
    Campaign {
        name: String,
        value: String,
        lease: i64,
    },
    Resign(Leader),
    /// The caller has gone: the reset of a stream.
    Cancel,
    /// A frame of HTTP/2 that is answered at once.
    Ping,
}

/// A call with its number: the stream, and 1 for the only message in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdRequest {
    pub number: u64,
    pub call: EtcdCall,
}

/// A key on a member. Answers and events share its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub key: Rc<str>,
    pub value: Rc<str>,
    pub create_revision: i64,
    pub mod_revision: i64,
    /// Number of puts since its creation.
    pub version: i64,
    /// 0 if it has none.
    pub lease: i64,
}

/// A change of a key, at the revision `key.mod_revision`; of a key that was deleted, its state before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEvent {
    pub key: StoredKey,
    pub deleted: bool,
}

/// The reason for which a call failed, as far as a client tells errors apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdStatus {
    /// `NotFound`: requested lease not found.
    LeaseNotFound,
    /// `Unavailable`: it may have happened.
    Unavailable(&'static str),
    /// `Unknown`: the error of the lock and the election service for every error.
    Unknown(&'static str),
}

/// The keys that an operation of a transaction found; nothing for a put and a delete.
pub type OpAnswer = Vec<StoredKey>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdAnswer {
    Keys {
        keys: Vec<StoredKey>,
        revision: i64,
    },
    Txn {
        succeeded: bool,
        responses: Vec<OpAnswer>,
        revision: i64,
    },
    /// The number of keys.
    Deleted(u64),
    /// In seconds.
    Lease {
        id: i64,
        ttl: i64,
    },
    /// In seconds; 0: there is no such lease.
    KeptAlive {
        ttl: i64,
    },
    Watching,
    Locked {
        key: String,
    },
    Elected(Leader),
    Done,
    Failed(EtcdStatus),
}

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdMessage {
    Reply {
        number: u64,
        name: &'static str,
        answer: EtcdAnswer,
    },
    /// For the watch that was asked for by the request of this number.
    Events {
        number: u64,
        events: Vec<StoreEvent>,
    },
    /// A watch ended.
    Ended {
        number: u64,
    },
    Pong,
}

/// Bytes of a frame's head, of the head of a message, and of the headers of a call once their names are in the tables.
const CALL: usize = 9 + 5 + 70;
/// Bytes of the same parts of an answer: headers, a message, trailers.
const ANSWER: usize = 3 * 9 + 5 + 20;
/// A response's header.
const HEADER: usize = 25;

impl EtcdCall {
    /// Returns the name of its method.
    pub fn name(&self) -> &'static str {
        match self {
            EtcdCall::Range { .. } => "Range",
            EtcdCall::Txn(_) => "Txn",
            EtcdCall::DeleteRange { .. } => "DeleteRange",
            EtcdCall::LeaseGrant { .. } => "LeaseGrant",
            EtcdCall::LeaseKeepAlive { .. } => "LeaseKeepAlive",
            EtcdCall::LeaseRevoke { .. } => "LeaseRevoke",
            EtcdCall::Watch { .. } => "Watch",
            EtcdCall::Lock { .. } => "Lock",
            EtcdCall::Unlock { .. } => "Unlock",
            EtcdCall::Campaign { .. } => "Campaign",
            EtcdCall::Resign(_) => "Resign",
            EtcdCall::Cancel | EtcdCall::Ping => "",
        }
    }
}

impl EtcdTxn {
    /// Makes a transaction that puts a key unless it is there, and gets it in either case.
    pub fn create(key: &str, value: &str, lease: i64) -> Self {
        let get = EtcdOp::Get { key: key.to_owned() };
        let put = EtcdOp::Put {
            key: key.to_owned(),
            value: value.to_owned(),
            lease,
        };
        EtcdTxn {
            compare: EtcdCompare::Created {
                key: key.to_owned(),
                revision: 0,
            },
            success: vec![put, get.clone()],
            failure: vec![get],
        }
    }

    fn key(&self) -> &str {
        match &self.compare {
            EtcdCompare::Created { key, .. } | EtcdCompare::Lease { key, .. } => key,
        }
    }

    fn bytes(&self) -> usize {
        let of = |op: &EtcdOp| match op {
            EtcdOp::Put { key, value, .. } => key.len() + value.len() + 18,
            EtcdOp::Get { key } | EtcdOp::Delete { key } => key.len() + 6,
            EtcdOp::First { prefix } => 2 * prefix.len() + 14,
        };
        let ops = self.success.iter().chain(&self.failure);
        self.key().len() + 16 + ops.map(of).sum::<usize>()
    }
}

impl EtcdRequest {
    /// Returns the key that it is about, or nothing.
    fn subject(&self) -> &str {
        match &self.call {
            EtcdCall::Range { key, .. }
            | EtcdCall::DeleteRange { key }
            | EtcdCall::Watch { key, .. }
            | EtcdCall::Unlock { key } => key,
            EtcdCall::Txn(txn) => txn.key(),
            EtcdCall::Lock { name, .. } | EtcdCall::Campaign { name, .. } => name,
            EtcdCall::Resign(leader) => &leader.key,
            _ => "",
        }
    }

    fn digest(&self) -> u64 {
        let lease = match &self.call {
            EtcdCall::LeaseKeepAlive { lease }
            | EtcdCall::LeaseRevoke { lease }
            | EtcdCall::Lock { lease, .. }
            | EtcdCall::Campaign { lease, .. } => *lease,
            EtcdCall::Txn(txn) => match txn.compare {
                EtcdCompare::Created { revision, .. } => revision,
                EtcdCompare::Lease { lease, .. } => lease,
            },
            _ => 0,
        };
        let digest = CallDigest::of(self.call.name()).number(lease as u64);
        digest.bytes(self.subject().as_bytes()).value()
    }
}

impl WireMessage for EtcdRequest {
    fn passing(&self) -> PassingMessage<'_> {
        match self.call {
            EtcdCall::Cancel | EtcdCall::Ping => PassingMessage::Control,
            _ => PassingMessage::Request {
                number: self.number,
                name: self.call.name(),
                digest: self.digest(),
            },
        }
    }

    fn bytes(&self) -> usize {
        CALL + match &self.call {
            EtcdCall::Cancel => return 13,
            EtcdCall::Ping => return 17,
            EtcdCall::Range { key, .. } => 2 * key.len() + 8,
            EtcdCall::Txn(txn) => txn.bytes(),
            EtcdCall::DeleteRange { key } | EtcdCall::Unlock { key } => key.len() + 2,
            EtcdCall::LeaseGrant { .. } => 2,
            EtcdCall::LeaseKeepAlive { .. } | EtcdCall::LeaseRevoke { .. } => 10,
            EtcdCall::Watch { key, .. } => key.len() + 8,
            EtcdCall::Lock { name, .. } => name.len() + 12,
            EtcdCall::Campaign { name, value, .. } => name.len() + value.len() + 14,
            EtcdCall::Resign(leader) => leader.name.len() + leader.key.len() + 18,
        }
    }
}

impl WireMessage for EtcdMessage {
    fn passing(&self) -> PassingMessage<'_> {
        match self {
            EtcdMessage::Reply { number, name, answer } => PassingMessage::Reply {
                number: *number,
                name,
                refuses: matches!(answer, EtcdAnswer::Failed(_) | EtcdAnswer::Txn { succeeded: false, .. }),
            },
            EtcdMessage::Events { events, .. } => PassingMessage::Notification {
                name: "Watch",
                subject: events.first().map_or("", |event| &event.key.key),
            },
            EtcdMessage::Ended { .. } | EtcdMessage::Pong => PassingMessage::Control,
        }
    }

    fn bytes(&self) -> usize {
        let key = |stored: &StoredKey| stored.key.len() + stored.value.len() + 26;
        match self {
            EtcdMessage::Pong => 17,
            EtcdMessage::Ended { .. } => 30,
            EtcdMessage::Events { events, .. } => {
                14 + HEADER + events.iter().map(|event| key(&event.key) + 4).sum::<usize>()
            }
            EtcdMessage::Reply { answer, .. } => {
                ANSWER
                    + HEADER
                    + match answer {
                        EtcdAnswer::Keys { keys, .. } => keys.iter().map(key).sum(),
                        EtcdAnswer::Txn { responses, .. } => responses.iter().flatten().map(key).sum(),
                        EtcdAnswer::Lease { .. } | EtcdAnswer::KeptAlive { .. } => 12,
                        EtcdAnswer::Locked { key } => key.len() + 2,
                        EtcdAnswer::Elected(leader) => leader.name.len() + leader.key.len() + 18,
                        EtcdAnswer::Deleted(_) | EtcdAnswer::Watching | EtcdAnswer::Done => 2,
                        EtcdAnswer::Failed(_) => 40,
                    }
            }
        }
    }
}
