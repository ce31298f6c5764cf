//! HL011, calls in time: an acquire is answered by the end of its wait, a release soon, a release that was answered ok has freed
//! the lock, and one that was answered `fail` has not.
//!
//! Judged where no fault excuses it; a call that was made under a fault, when the bound of HL005 is over after it. The driver of a
//! run gives up on a client that does not answer; that counts as late, too. An acquire that gives up long before its wait is over is not in
//! time either, where the lock promises to wait: [`given_up`].

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

/// A call that was not done in time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LateCall<'a> {
    Unanswered(UnansweredCall),
    GivenUp(GivenUpCall),
    /// The grant stayed for so many nanoseconds although the release was answered ok.
    GrantStays(AnsweredRelease<'a>, u64),
    /// The grant was removed by a request of a release, and the release was answered `fail`.
    Denied(AnsweredRelease<'a>),
}

/// An acquire or a release that was not answered in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnansweredCall {
    pub lock: usize,
    /// The positions of the call, and of its answer if one came at all.
    pub call: u32,
    pub reply: Option<u32>,
    /// When it was to be answered: the end of its wait, or of the fault under which it was made.
    pub due_ns: u64,
    /// How much later it was answered, or its process ended, and how much is allowed.
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

/// What was decided about HL011.
#[derive(Default)]
pub(crate) struct CallsInTime<'a> {
    /// Not applicable when no call can be judged.
    pub verdict: Verdict,
    /// Calls that no fault excuses.
    pub judged: u64,
    /// How late an answer may be, in nanoseconds.
    pub bound_ns: u64,
    /// The latest first.
    pub late: Vec<LateCall<'a>>,
}

/// Decides HL011.
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
        // one that waits for ever is never late
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
        // what was sent while a fault was on may be lost, and is not answered in time by anybody; but it is by when the lock must have
        // moved again
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

/// Grants that outlive a release that was answered ok, and grants that a release ended which was answered `fail`.
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
        let lag_ns = context.sight().lag_ns(reply.time).max(limits::OBSERVER_LAG_NS) + context.tick_ns;
        let release = AnsweredRelease {
            hold,
            grant,
            end,
            reply,
        };
        if reply.is_ok(F::Release) {
            let late = match release.is_told_removed(history) {
                true => &mut removed_late,
                false => &mut decided.late,
            };
            late.extend(release.stays(context, lag_ns, &serving));
        } else if reply.kind == Kind::Fail
            && let Some(removed_ns) = release.carried_out_ns(context, lag_ns)
            // one that compares nothing removes what is another's
            && context.release_of_another(hold, removed_ns, lag_ns).is_none()
        {
            denied.push(LateCall::Denied(release));
        }
    }
    if removed_late.len() as u64 >= limits::LATE_REMOVALS {
        decided.late.extend(removed_late);
    }
    // what is no client of the run may have removed one of them at that moment
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
    /// Whether the observer told that its grant ended, and not with its lease.
    fn is_told_removed(self, history: &History) -> bool {
        self.grant.revoked != NONE && !self.grant.has_expired(history)
    }

    /// How its grant stayed although it was answered ok, if it did.
    ///
    /// A grant that expired was not removed by the release, and a client that was answered by the store knows that: a fault on
    /// the client or its links is no excuse. One on a server is, which may forget what it has answered.
    fn stays(self, context: &Context<'_>, lag_ns: u64, serving: &[(u64, u64)]) -> Option<LateCall<'a>> {
        let (history, sight, grant) = (context.history, context.sight(), self.grant);
        let told_ns = grant.revoked_ns(history).unwrap_or(history.end_ns);
        let after_ns = told_ns.saturating_sub(self.reply.time);
        let lag_ns = match self.is_told_removed(history) {
            // how late the observer was is measured by that end, too
            true if after_ns > limits::RELEASE_NS => sight.lag_beside_ns(self.end.time, told_ns)? + context.tick_ns,
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

    /// When its grant was removed by a request, if that was while it was under way, without a fault.
    fn carried_out_ns(self, context: &Context<'_>, lag_ns: u64) -> Option<u64> {
        let history = context.history;
        let removed = self.grant.revoked_ns(history);
        let removed = removed.filter(|_| self.grant.was_deleted(history));
        let meanwhile = |removed_ns: &u64| self.end.time <= *removed_ns && *removed_ns <= self.reply.time + lag_ns;
        let calm = || calm::span_of(context, self.end.time, self.reply.time).is_some();
        let by_request = |removed_ns: &u64| !phantom::may_be_an_expiry(context, self.hold, self.grant, *removed_ns);
        removed.filter(meanwhile).filter(|_| calm()).filter(by_request)
    }
}
