//! The work of a member ([`MemberWork`]), and the requests of one member to another that it belongs to.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::lessor::LeaseRenewal;
use super::store::StoreChange;

/// The number of a request among those to members.
pub(super) type RequestId = u64;

/// Requests that wait for an answer, by number.
pub(super) type AnswersDue<T> = RefCell<BTreeMap<RequestId, oneshot::Sender<T>>>;

#[derive(Debug, Clone)]
pub(super) struct ProposedChange {
    pub change: StoreChange,
    /// The member that answers, and its number of the request.
    pub origin: Option<(usize, RequestId)>,
}

/// The work of a member at its time.
pub(super) enum MemberWork {
    /// Applies the log up to this entry.
    Apply(usize),
    /// As the leader: appends a change. A member that leads no more sends it on.
    Propose(ProposedChange),
    /// As the leader: answers up to which entry a read has to wait.
    ReadIndex(usize, RequestId),
    ReadFrom(RequestId, usize),
    /// As the leader: renews a lease.
    Renew(usize, RequestId, i64),
    Renewed(RequestId, LeaseRenewal),
    /// Hears who leads.
    Hear(Option<usize>),
    /// Ends the calls of a connection that is over.
    Close(u64),
}
