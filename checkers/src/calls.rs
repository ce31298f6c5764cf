//! HL011, calls in time: an acquire is answered by the end of its wait, a release soon, and a release that was answered ok has
//! freed the lock.
//!
//! Judged where no fault excuses a late answer. The driver of a run gives up on a client that does not answer; that counts as
//! late, too.

use crate::calm::{self, CalmSpan};
use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::F;
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
}

impl LateCall<'_> {
    pub(crate) fn late_ns(&self) -> u64 {
        match self {
            Self::Unanswered { late_ns, .. } => *late_ns,
            Self::GrantStays { stays_ns, .. } => *stays_ns,
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
    grants_that_stay(context, &calm, &mut decided);
    decided.late.sort_by_key(|late| std::cmp::Reverse(late.late_ns()));
    decided.verdict = match (decided.judged, decided.late.is_empty()) {
        (0, _) => Verdict::NotApplicable,
        (_, true) => Verdict::Holds,
        (_, false) => Verdict::Violated,
    };
    decided
}

/// The calm span that has all of a time.
fn span_of(calm: &[CalmSpan], from_ns: u64, to_ns: u64) -> Option<&CalmSpan> {
    calm.iter().find(|span| span.from_ns <= from_ns && to_ns <= span.to_ns)
}

fn unanswered(context: &Context<'_>, calm: &[CalmSpan], decided: &mut CallsInTime<'_>) {
    let history = context.history;
    let died = history.deaths();
    for (position, event) in history.events.iter().enumerate() {
        let wait_ns = match event.f {
            F::Acquire if event.kind == Kind::Invoke => match history.rare(event).wait_ms {
                // one that waits for ever is never late
                NONE => continue,
                wait_ms => limits::ns(u64::from(wait_ms)),
            },
            F::Release if event.kind == Kind::Invoke => 0,
            _ => continue,
        };
        let Some(lock) = history.lock_number(event) else {
            continue;
        };
        let reply = history.events.get(event.mate as usize);
        let answered_ns = reply.map_or(died[event.process as usize].min(history.end_ns), |reply| reply.time);
        let due_ns = event.time + wait_ns;
        let from_ns = due_ns.min(answered_ns);
        // what was sent while a fault was on may be lost, and is not answered in time by anybody
        let Some(span) = span_of(calm, event.time, answered_ns) else {
            continue;
        };
        decided.judged += 1;
        let late_ns = answered_ns - from_ns;
        if late_ns > decided.bound_ns + span.retransmission_ns {
            decided.late.push(LateCall::Unanswered {
                lock,
                call: position as u32,
                reply: reply.map(|_| event.mate),
                late_ns,
            });
        }
    }
}

fn grants_that_stay<'a>(context: &'a Context<'_>, calm: &[CalmSpan], decided: &mut CallsInTime<'a>) {
    let history = context.history;
    if context.not_watched.is_some() || context.model.is_reentrant() {
        return;
    }
    let sight = ObserverSight::of(context);
    for hold in context.holds.iter().filter(|hold| hold.ended == Ended::Released) {
        let end = &history.events[hold.end as usize];
        let Some(reply) = history
            .events
            .get(end.mate as usize)
            .filter(|reply| reply.is_ok(F::Release))
        else {
            continue;
        };
        // a name that comes again may have been granted the lock again
        let named = context.grants.token_of(hold).is_some() || context.grants.is_single(hold);
        let Some(grant) = context.grants.of_hold(history, hold).filter(|_| named) else {
            continue;
        };
        let stays_until = grant.revoked_ns(history).unwrap_or(history.end_ns);
        let stays_ns = stays_until.saturating_sub(reply.time);
        let lag_ns = sight.lag_ns(reply.time).max(limits::OBSERVER_LAG_NS);
        let seen = grant.granted != NONE && !grant.is_out_of_sight(history) && sight.is_whole(end.time, stays_until);
        if stays_ns > limits::RELEASE_NS + lag_ns && seen && span_of(calm, end.time, stays_until).is_some() {
            decided.late.push(LateCall::GrantStays {
                hold,
                grant,
                reply: end.mate,
                stays_ns,
            });
        }
    }
}
