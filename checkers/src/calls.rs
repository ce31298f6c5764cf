//! HL011, calls in time: an acquire is answered by the end of its wait, and a release soon; a release that is answered `ok` has ended the
//! grant, and one that is answered `fail` has not.
//!
//! Calls under a fault are judged from the heal on, by the bound of HL005. A client that never answers, so that the driver of the run gives
//! up on it, counts as late. An acquire of a lock that promises to wait also violates HL011 if it is refused long before the end of its
//! wait: [`given_up`].

mod given_up;

use crate::calm;
use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History, PackedEvent};
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::phantom;
use crate::wait::Wait;
pub(crate) use given_up::GivenUpCall;

/// A call that violates HL011.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LateCall<'a> {
    Unanswered(UnansweredCall),
    GivenUp(GivenUpCall),
    /// The grant stayed for so many nanoseconds although the release was answered `ok`.
    GrantStays(AnsweredRelease<'a>, u64),
    /// The grant was removed by a request of a release, and the release was answered `fail`.
    Denied(AnsweredRelease<'a>),
}

/// An acquire or a release that was not answered in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnansweredCall {
    pub lock: usize,
    /// The positions of the call, and of its answer if there is one.
    pub call: u32,
    pub reply: Option<u32>,
    /// The end of its wait, or of the fault under which it was called.
    pub due_ns: u64,
    /// The time from then to its answer, or to the end of its process; and the limit of that time.
    pub late_ns: u64,
    pub bound_ns: u64,
}

impl LateCall<'_> {
    pub(crate) fn late_ns(&self) -> u64 {
        match self {
            Self::Unanswered(call) => call.late_ns,
            Self::GrantStays(_, stays_ns) => *stays_ns,
            Self::GivenUp(_) | Self::Denied(_) => 0,
        }
    }
}

/// The decision on HL011.
#[derive(Default)]
pub(crate) struct CallsInTime<'a> {
    /// Not applicable when no call can be judged.
    pub verdict: Verdict,
    /// Calls that no fault excuses.
    pub judged: u64,
    /// The latest time of an answer after it is due, in nanoseconds.
    pub bound_ns: u64,
    /// The latest first.
    pub late: Vec<LateCall<'a>>,
}

pub(crate) fn decide<'a>(context: &'a Context<'_>) -> CallsInTime<'a> {
    let mut decided = CallsInTime {
        bound_ns: limits::ns(limits::ANSWER_MS) + context.lease_ns,
        ..CallsInTime::default()
    };
    if !context.model.is_lock() || context.history.order == crate::history::OrderBasis::Position {
        return decided;
    }
    unanswered(context, &mut decided);
    let given_up = given_up::of(context).into_iter().map(LateCall::GivenUp);
    decided.late.extend(given_up);
    grants_of_releases(context, &mut decided);
    decided.late.sort_by_key(|late| std::cmp::Reverse(late.late_ns()));
    if decided.judged > 0 {
        decided.verdict = Verdict::of(!decided.late.is_empty());
    }
    decided
}

fn unanswered(context: &Context<'_>, decided: &mut CallsInTime<'_>) {
    let history = context.history;
    let progress_ns = context.progress_ns();
    let is_judged = |f, kind| matches!(f, F::Acquire | F::Release | F::Extend) && kind == Kind::Invoke;
    history.each_of_locks(is_judged, |lock, position, event| {
        // a call without a limit is never late
        let wait_ns = match event.f {
            F::Acquire => history.wait_ns(event),
            _ => Some(0),
        };
        let Some(wait_ns) = wait_ns else { return };
        let wait = Wait::of(context, position, event);
        let answered_ns = wait.to_ns;
        let wait_ends_ns = event.time + wait_ns;
        let whole = calm::span_of(context, event.time, answered_ns);
        let Some(span) = whole.or_else(|| calm::span_of(context, answered_ns, answered_ns)) else {
            return;
        };
        // a request under a fault may be lost without an answer, but by the end of the bound of HL005 the lock must have been acquired
        // again
        let (due_ns, bound_ns) = match whole {
            Some(_) => (wait_ends_ns, decided.bound_ns),
            None => (
                wait_ends_ns.max(span.from_ns),
                progress_ns.max(decided.bound_ns) + span.patience_ns,
            ),
        };
        let bound_ns = bound_ns + span.retransmission_ns;
        let late_ns = answered_ns.saturating_sub(due_ns);
        let is_late = context.busy.counted_ns(due_ns, answered_ns) > bound_ns;
        decided.judged += u64::from(whole.is_some() || is_late);
        if is_late {
            decided.late.push(LateCall::Unanswered(UnansweredCall {
                lock,
                call: position,
                reply: wait.answer(),
                due_ns,
                late_ns,
                bound_ns,
            }));
        }
    });
}

/// Finds the grants that outlive a release that was answered `ok`, and the grants that a release ended which was answered `fail`.
fn grants_of_releases<'a>(context: &'a Context<'_>, decided: &mut CallsInTime<'a>) {
    let history = context.history;
    if context.not_watched.is_some() || context.model.is_reentrant() {
        return;
    }
    let serving = calm::serving(context);
    let (mut denied, mut removed_late) = (Vec::new(), Vec::new());
    for hold in context.holds.iter().filter(|hold| hold.ended == Ended::Released) {
        let end = history.event(hold.end);
        let Some(reply) = history.reply(end) else {
            continue;
        };
        let grant = context.grants.of_hold(history, hold);
        let Some(grant) = grant.filter(|_| context.grants.is_sure(history, hold)) else {
            continue;
        };
        let apart_ns = context.apart_ns();
        let lag_ns = context.sight().lag_ns(reply.time) + context.inexact_ns();
        let release = AnsweredRelease {
            hold,
            grant,
            end,
            reply,
        };
        if reply.is_ok(F::Release) {
            let late = match release.is_shown_removed(history) {
                true => &mut removed_late,
                false => &mut decided.late,
            };
            late.extend(release.stays(context, lag_ns, &serving));
        } else if reply.kind == Kind::Fail
            && let Some(removed_ns) = release.carried_out_ns(context, lag_ns)
            // a request that compares nothing removes the grant of another owner, too
            && context
                .release_of_another(hold, removed_ns + apart_ns, lag_ns + apart_ns)
                .is_none()
        {
            denied.push(LateCall::Denied(release));
        }
    }
    if removed_late.len() as u64 >= limits::LATE_REMOVALS {
        decided.late.extend(removed_late);
    }
    // any of them may be the work of a client outside of the run
    if denied.len() as u64 >= limits::DENIED_RELEASES {
        decided.late.extend(denied);
    }
}

/// A release that was answered, and the grant of its hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredRelease<'a> {
    pub hold: &'a LockHold,
    pub grant: &'a ServerGrant,
    pub end: PackedEvent,
    pub reply: PackedEvent,
}

impl<'a> AnsweredRelease<'a> {
    /// Returns whether the observer's lines show that the grant was removed, and not by the end of its lease.
    fn is_shown_removed(self, history: &History) -> bool {
        self.grant.revoked != NONE && !self.grant.has_expired(history)
    }

    /// Returns the late end of the grant of a release that was answered `ok`, if its end was late.
    ///
    /// A fault on the client or its links is no excuse: an expired grant was not removed by the release, and a client that has the store's
    /// answer knows that. A fault on a server is one, since the server may forget its answer.
    fn stays(self, context: &Context<'_>, lag_ns: u64, serving: &[(u64, u64)]) -> Option<LateCall<'a>> {
        let (history, sight, grant) = (context.history, context.sight(), self.grant);
        let told_ns = grant.revoked_ns(history).unwrap_or(history.end_ns);
        let after_ns = told_ns.saturating_sub(self.reply.time);
        let lag_ns = match self.is_shown_removed(history) {
            // the end itself is evidence of the observer's delay
            true if after_ns > limits::RELEASE_NS => {
                sight.lag_beside_ns(self.end.time, told_ns)? + context.inexact_ns()
            }
            _ => lag_ns,
        };
        if after_ns <= lag_ns {
            return None;
        }
        let stays_until = context.stood_until(self.hold.lock(history), grant);
        let stays_ns = stays_until.saturating_sub(self.reply.time);
        let seen =
            grant.granted != NONE && !grant.is_out_of_sight(history) && sight.is_whole(self.end.time, stays_until);
        let is_within = |(from_ns, to_ns): &(u64, u64)| *from_ns <= self.end.time && stays_until <= *to_ns;
        let not_excused = if grant.has_expired(history) {
            stays_ns > lag_ns && serving.iter().any(is_within)
        } else {
            let counted_ns = context.busy.counted_ns(self.reply.time, stays_until);
            counted_ns > limits::RELEASE_NS + lag_ns && calm::span_of(context, self.end.time, stays_until).is_some()
        };
        (seen && not_excused).then_some(LateCall::GrantStays(self, stays_ns))
    }

    /// Returns the time at which a request removed the grant, if the release was pending at that time and no fault was active.
    fn carried_out_ns(self, context: &Context<'_>, lag_ns: u64) -> Option<u64> {
        let history = context.history;
        let removed = self.grant.revoked_ns(history);
        let removed = removed.filter(|_| self.grant.was_deleted(history));
        let called_ns = self.end.time + context.apart_ns();
        let meanwhile = |removed_ns: &u64| called_ns <= *removed_ns && *removed_ns <= self.reply.time + lag_ns;
        let calm = || calm::span_of(context, self.end.time, self.reply.time).is_some();
        let by_request = |removed_ns: &u64| !phantom::may_be_an_expiry(context, self.hold, self.grant, *removed_ns);
        removed.filter(meanwhile).filter(|_| calm()).filter(by_request)
    }
}
