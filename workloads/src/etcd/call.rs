//! Calls of a client to a cluster ([`EtcdCall`]), their answers, and the way on which they go to one member ([`EtcdLine`]), a real one or a
//! simulated one.

use std::rc::Rc;

use async_trait::async_trait;

use crate::session::SessionError;
use crate::session::etcd::{EtcdKey, EtcdWatch, Leader};

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

    /// Makes a transaction that deletes a key if it is of this lease, and so exists.
    pub fn delete_owned(key: &str, lease: i64) -> Self {
        let key = key.to_owned();
        EtcdTxn {
            success: vec![EtcdOp::Delete { key: key.clone() }],
            failure: Vec::new(),
            compare: EtcdCompare::Lease { key, lease },
        }
    }

    /// Returns the key that is compared.
    pub fn key(&self) -> &str {
        match &self.compare {
            EtcdCompare::Created { key, .. } | EtcdCompare::Lease { key, .. } => key,
        }
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdCall {
    /// One key, or all keys with a prefix in the order of their creation.
    Range {
        key: String,
        is_prefix: bool,
    },
    /// It is sent again where a member was not reached.
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
}

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
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdAnswer {
    Keys {
        keys: Vec<EtcdKey>,
        revision: i64,
    },
    /// With the keys that each operation found; none for a put and a delete.
    Txn {
        succeeded: bool,
        responses: Vec<Vec<EtcdKey>>,
        revision: i64,
    },
    /// Whether there was a key.
    Deleted(bool),
    /// In seconds.
    Lease {
        id: i64,
        ttl: i64,
    },
    /// In seconds; 0: there is no such lease.
    KeptAlive {
        ttl: i64,
    },
    /// A watch has begun.
    Watching,
    Locked {
        key: String,
    },
    Elected(Leader),
    Done,
}

/// An answer, and the events of a watch.
pub type EtcdReply = (EtcdAnswer, Option<Box<dyn EtcdWatch>>);

/// What is known of a call that has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdFailureKind {
    /// It was not sent: there is no connection.
    NotSent,
    /// It was refused: nothing was done.
    Refused,
    /// The same, since there is no such lease.
    NotFound,
    /// It may have been done.
    Unknown,
}

/// The failure of a call.
#[derive(Debug)]
pub struct EtcdFailure {
    pub kind: EtcdFailureKind,
    pub words: String,
}

impl EtcdFailure {
    pub fn new(kind: EtcdFailureKind, words: impl Into<String>) -> Self {
        let words = words.into();
        EtcdFailure { kind, words }
    }
}

impl From<EtcdFailure> for SessionError {
    fn from(EtcdFailure { kind, words }: EtcdFailure) -> Self {
        match kind {
            EtcdFailureKind::NotSent | EtcdFailureKind::Refused | EtcdFailureKind::NotFound => {
                SessionError::Definite(words)
            }
            EtcdFailureKind::Unknown => SessionError::Indefinite(words),
        }
    }
}

/// The connection to one member, made when it is first needed and when it has ended. No call is sent over it twice, unless the member
/// refused it for a token that it does not know.
#[async_trait(?Send)]
pub trait EtcdLine {
    async fn call(&self, call: EtcdCall) -> Result<EtcdReply, EtcdFailure>;
}
