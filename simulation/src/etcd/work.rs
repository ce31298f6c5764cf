//! The work of a member ([`MemberWork`]), and the requests of one member to another that it belongs to.

use std::cell::RefCell;

use tokio::sync::oneshot;

use super::lessor::LeaseRenewal;
use super::store::StoreChange;

/// The number of a request among those to members.
pub(super) type RequestId = u64;

/// Requests that wait for an answer.
pub(super) type AnswersDue<T> = RefCell<WaitingRequests<T>>;

/// Requests by number, in no order: there are few, most often one, and a list keeps its room.
pub(super) struct WaitingRequests<T>(Vec<(RequestId, oneshot::Sender<T>)>);

impl<T> Default for WaitingRequests<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> WaitingRequests<T> {
    /// Adds a request; returns the receiver of its answer.
    pub fn ask(&mut self, number: RequestId) -> oneshot::Receiver<T> {
        let (asked, answer) = oneshot::channel();
        self.0.push((number, asked));
        answer
    }

    pub fn remove(&mut self, number: RequestId) -> Option<oneshot::Sender<T>> {
        let place = self.0.iter().rposition(|(waits, _)| *waits == number)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Answers a request, if it waits still.
    pub fn answer(&mut self, number: RequestId, answer: T) {
        if let Some(asked) = self.remove(number) {
            // the caller may be gone
            let _ = asked.send(answer);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

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
