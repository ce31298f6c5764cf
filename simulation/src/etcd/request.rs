//! Requests of clients to a simulated etcd ([`EtcdRequest`]), and its answers, with gRPC's names of methods and about its sizes.

use harness_workloads::etcd::{EtcdAnswer, EtcdCall, EtcdCompare, EtcdKey, EtcdOp, EtcdTxn};

use crate::network::{CallDigest, PassingMessage, WireMessage};

/// A message of a client: a call, or a frame of HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdFrame {
    Call(EtcdCall),
    /// The caller has gone: the reset of a stream.
    Cancel,
    /// It is answered at once.
    Ping,
}

/// A message with its number: the stream, and 1 for the only message in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdRequest {
    pub number: u64,
    pub frame: EtcdFrame,
}

/// A change of a key, at the revision `key.mod_revision`; of a key that was deleted, its state before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEvent {
    pub key: EtcdKey,
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

/// An answer, or the reason for which there is none.
pub type EtcdOutcome = Result<EtcdAnswer, EtcdStatus>;

/// A message of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdMessage {
    Reply {
        number: u64,
        name: &'static str,
        outcome: EtcdOutcome,
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

fn txn_bytes(txn: &EtcdTxn) -> usize {
    let of = |op: &EtcdOp| match op {
        EtcdOp::Put { key, value, .. } => key.len() + value.len() + 18,
        EtcdOp::Get { key } | EtcdOp::Delete { key } => key.len() + 6,
        EtcdOp::First { prefix } => 2 * prefix.len() + 14,
    };
    let ops = txn.success.iter().chain(&txn.failure);
    txn.key().len() + 16 + ops.map(of).sum::<usize>()
}

/// Returns the key that a call is about, or nothing.
fn subject(call: &EtcdCall) -> &str {
    match call {
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

fn digest(call: &EtcdCall) -> u64 {
    let lease = match call {
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
    let digest = CallDigest::of(call.name()).number(lease as u64);
    digest.bytes(subject(call).as_bytes()).value()
}

impl WireMessage for EtcdRequest {
    fn passing(&self) -> PassingMessage<'_> {
        match &self.frame {
            EtcdFrame::Call(call) => PassingMessage::Request {
                number: self.number,
                name: call.name(),
                digest: digest(call),
            },
            EtcdFrame::Cancel | EtcdFrame::Ping => PassingMessage::Control,
        }
    }

    fn bytes(&self) -> usize {
        let call = match &self.frame {
            EtcdFrame::Call(call) => call,
            EtcdFrame::Cancel => return 13,
            EtcdFrame::Ping => return 17,
        };
        CALL + match call {
            EtcdCall::Range { key, .. } => 2 * key.len() + 8,
            EtcdCall::Txn(txn) => txn_bytes(txn),
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
            EtcdMessage::Reply { number, name, outcome } => PassingMessage::Reply {
                number: *number,
                name,
                refuses: matches!(outcome, Err(_) | Ok(EtcdAnswer::Txn { succeeded: false, .. })),
            },
            EtcdMessage::Events { events, .. } => PassingMessage::Notification {
                name: "Watch",
                subject: events.first().map_or("", |event| &event.key.name),
            },
            EtcdMessage::Ended { .. } | EtcdMessage::Pong => PassingMessage::Control,
        }
    }

    fn bytes(&self) -> usize {
        let key = |stored: &EtcdKey| stored.name.len() + stored.value.len() + 26;
        match self {
            EtcdMessage::Pong => 17,
            EtcdMessage::Ended { .. } => 30,
            EtcdMessage::Events { events, .. } => {
                14 + HEADER + events.iter().map(|event| key(&event.key) + 4).sum::<usize>()
            }
            EtcdMessage::Reply { outcome, .. } => {
                ANSWER
                    + HEADER
                    + match outcome {
                        Ok(EtcdAnswer::Keys { keys, .. }) => keys.iter().map(key).sum(),
                        Ok(EtcdAnswer::Txn { responses, .. }) => responses.iter().flatten().map(key).sum(),
                        Ok(EtcdAnswer::Lease { .. } | EtcdAnswer::KeptAlive { .. }) => 12,
                        Ok(EtcdAnswer::Locked { key }) => key.len() + 2,
                        Ok(EtcdAnswer::Elected(leader)) => leader.name.len() + leader.key.len() + 18,
                        Ok(EtcdAnswer::Deleted(_) | EtcdAnswer::Watching | EtcdAnswer::Done) => 2,
                        Err(_) => 40,
                    }
            }
        }
    }
}
