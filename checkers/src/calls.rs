//! HL011, calls in time: an acquire is answered by the end of its wait, a release soon, a release that was answered ok has freed
//! the lock, and one that was answered `fail` has not.
//!
//! Judged where no fault excuses it. The driver of a run gives up on a client that does not answer; that counts as
//! late, too.

use crate::calm::{self, CalmSpan, span_of};
use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::F;
use crate::history::PackedEvent;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::phantom::ObserverSight;

/// A call that was not done in time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LateCall<'a> {
    /// `call`: the position of an acquire or a release, answered `late_ns` after it had to be, or not at all.
    Unanswered {
        lock: usize,
        call: u32,
        reply: Option<u32>,
        late_ns: u64,
    },
    /// The grant stayed although the release was answered ok.
    GrantStays {
        hold: &'a LockHold,
        grant: &'a ServerGrant,
        reply: u32,
        stays_ns: u64,
    },
    /// The grant was removed by a request of a release, and the release was answered `fail`.
    Denied {
        hold: &'a LockHold,
        grant: &'a ServerGrant,
        reply: u32,
    },
}

impl LateCall<'_> {
    pub(crate) fn late_ns(&self) -> u64 {
        match self {
            Self::Unanswered { late_ns, .. } => *late_ns,
            Self::GrantStays { stays_ns, .. } => *stays_ns,
            Self::Denied { .. } => 0,
        }
    }
}

/// What was decided about HL011.
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
        verdict: Verdict::NotApplicable,
        judged: 0,
        bound_ns: limits::ns(limits::ANSWER_MS) + context.lease_ns,
        late: Vec::new(),
    };
    if !context.model.is_lock() || context.history.order == crate::history::OrderBasis::Position {
        return decided;
    }
    let calm = calm::spans(context, None);
    unanswered(context, &calm, &mut decided);
    grants_of_releases(context, &calm, &mut decided);
    decided.late.sort_by_key(|late| std::cmp::Reverse(late.late_ns()));
    decided.verdict = match (decided.judged, decided.late.is_empty()) {
        (0, _) => Verdict::NotApplicable,
        (_, true) => Verdict::Holds,
        (_, false) => Verdict::Violated,
    };
    decided
}

fn unanswered(context: &Context<'_>, calm: &[CalmSpan], decided: &mut CallsInTime<'_>) {
    let history = context.history;
    let died = history.deaths();
    let is_judged = |f, kind| matches!(f, F::Acquire | F::Release) && kind == Kind::Invoke;
    history.events.each_of(is_judged, |position, event| {
        let wait_ns = match event.f {
            F::Acquire => match history.wait_ms(event) {
                // one that waits for ever is never late
                NONE => return,
                wait_ms => limits::ns(u64::from(wait_ms)),
            },
            _ => 0,
        };
        let Some(lock) = history.lock_number(event) else {
            return;
        };
        let answer = history.events.answer(event.mate);
        let over_ns = || died[event.process as usize].min(history.end_ns);
        let answered_ns = answer.map_or_else(over_ns, |(_, ns)| ns);
        let due_ns = event.time + wait_ns;
        let from_ns = due_ns.min(answered_ns);
        // what was sent while a fault was on may be lost, and is not answered in time by anybody
        let Some(span) = span_of(calm, event.time, answered_ns) else {
            return;
        };
        decided.judged += 1;
        let late_ns = answered_ns - from_ns;
        if late_ns > decided.bound_ns + span.retransmission_ns {
            decided.late.push(LateCall::Unanswered {
                lock,
                call: position,
                reply: answer.map(|_| event.mate),
                late_ns,
            });
        }
    });
}

/// Grants that outlive a release that was answered ok, and grants that a release ended which was answered `fail`.
fn grants_of_releases<'a>(context: &'a Context<'_>, calm: &[CalmSpan], decided: &mut CallsInTime<'a>) {
    let history = context.history;
    if context.not_watched.is_some() || context.model.is_reentrant() {
        return;
    }
    let sight = ObserverSight::of(context);
    let serving = calm::serving(context);
    let mut denied = Vec::new();
    for hold in context.holds.iter().filter(|hold| hold.ended == Ended::Released) {
        let end = history.event(hold.end);
        let Some(reply) = history.events.get(end.mate as usize) else {
            continue;
        };
        // a name that comes again may have been granted the lock again
        let named =
            context.grants.token_of(context.history, hold).is_some() || context.grants.is_single(context.history, hold);
        let Some(grant) = context.grants.of_hold(history, hold).filter(|_| named) else {
            continue;
        };
        let lag_ns = sight.lag_ns(reply.time).max(limits::OBSERVER_LAG_NS);
        let release = AnsweredRelease {
            hold,
            grant,
            end,
            reply,
        };
        if reply.is_ok(F::Release) {
            decided
                .late
                .extend(release.stays(context, &sight, lag_ns, calm, &serving));
        } else if reply.kind == Kind::Fail
            && let Some(removed_ns) = release.carried_out_ns(context, lag_ns, calm)
        {
            let call = LateCall::Denied {
                hold,
                grant,
                reply: end.mate,
            };
            denied.push((call, hold, removed_ns, lag_ns));
        }
    }
    // one that compares nothing removes what is another's
    let denied = denied.into_iter().filter(|(_, hold, removed_ns, lag_ns)| {
        let other = context
            .releases()
            .of_another(context.history, hold, *removed_ns, *lag_ns);
        other.is_none()
    });
    let denied: Vec<LateCall<'a>> = denied.map(|(call, ..)| call).collect();
    // what is no client of the run may have removed one of them at that moment
    if denied.len() as u64 >= limits::DENIED_RELEASES {
        decided.late.extend(denied);
    }
}

/// A release that was answered, and the grant of its hold.
#[derive(Clone, Copy)]
struct AnsweredRelease<'a> {
    hold: &'a LockHold,
    grant: &'a ServerGrant,
    end: PackedEvent,
    reply: PackedEvent,
}

impl<'a> AnsweredRelease<'a> {
    /// How its grant stayed although it was answered ok, if it did.
    ///
    /// A grant that expired was not removed by the release, and a client that was answered by the store knows that: a fault on
    /// the client or its links is no excuse. One on a server is, which may forget what it has answered.
    fn stays(
        self,
        context: &Context<'_>,
        sight: &ObserverSight,
        lag_ns: u64,
        calm: &[CalmSpan],
        serving: &[(u64, u64)],
    ) -> Option<LateCall<'a>> {
        let (history, grant) = (context.history, self.grant);
        let told_ns = grant.revoked_ns(history).unwrap_or(history.end_ns);
        if told_ns.saturating_sub(self.reply.time) <= lag_ns {
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
            stays_ns > limits::RELEASE_NS + lag_ns && span_of(calm, self.end.time, stays_until).is_some()
        };
        (seen && not_excused).then_some(LateCall::GrantStays {
            hold: self.hold,
            grant,
            reply: self.end.mate,
            stays_ns,
        })
    }

    /// When its grant was removed by a request, if that was while it was under way, without a fault.
    fn carried_out_ns(self, context: &Context<'_>, lag_ns: u64, calm: &[CalmSpan]) -> Option<u64> {
        let history = context.history;
        let removed = self.grant.revoked_ns(history).filter(|_| {
            let cause = self.grant.cause(history);
            cause.is_some_and(|cause| cause.is_removal() || cause.is_release())
        });
        let meanwhile = |removed_ns: &u64| self.end.time <= *removed_ns && *removed_ns <= self.reply.time + lag_ns;
        let calm = || span_of(calm, self.end.time, self.reply.time).is_some();
        removed.filter(meanwhile).filter(|_| calm())
    }
}
