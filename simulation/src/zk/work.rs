//! The work of servers of an ensemble ([`Work`]), and the decisions of their leader ([`Proposal`]).

use std::collections::BTreeSet;

use crate::servers::RequestOrigin;

/// The work of a server at its time.
pub(super) enum Work {
    /// Applies the log up to this entry.
    Apply(usize),
    /// As the leader: appends a decision.
    Propose(Option<RequestOrigin>, Proposal),
    /// As the leader: hears of sessions on another server.
    Touch(BTreeSet<i64>),
    /// As the leader: answers whether a session is alive.
    Validate(RequestOrigin, i64),
    Validated(RequestOrigin, i64, bool),
    /// As the leader: answers which entries of the log there are (`sync`).
    Sync(RequestOrigin),
    /// Answers a `sync` when so many entries are applied.
    Synced(RequestOrigin, usize),
    /// Closes every connection: there is no leader any more.
    StepDown,
}

pub(super) enum Proposal {
    Open {
        timeout: u64,
    },
    Create {
        path: String,
        owner: i64,
        session: i64,
        sequential: bool,
    },
    Delete {
        path: String,
        session: i64,
    },
    Close {
        session: i64,
        expired: bool,
    },
}
