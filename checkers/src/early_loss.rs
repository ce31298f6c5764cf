//! HL010, early loss: the server or the library ended a hold before its lease was over, and no fault concerned its client.

use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::F;
use crate::history::event::Kind;
use crate::history::names::FastMap;
use crate::holds::{Ended, LockHold};
use crate::limits;

/// A hold that ended too early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlyLoss<'a> {
    pub hold: &'a LockHold,
    /// The grant that ran out on the server; `None` when the library ended the hold.
    pub grant: Option<&'a ServerGrant>,
    /// The call of its acquire, or of the last extension before its end that was answered `ok`.
    pub since: u32,
    /// The time from that call to its end, in nanoseconds.
    pub lasted_ns: u64,
}

/// The decision on HL010.
#[derive(Default)]
pub(crate) struct EarlyLosses<'a> {
    /// Not applicable to a lock without a lease, or when no hold was undisturbed.
    pub verdict: Verdict,
    /// Holds without a fault on their client, at times when the machine was not overloaded.
    pub undisturbed: u64,
    /// Holds among them that the library ended before their lease.
    pub given_up: u64,
    pub losses: Vec<EarlyLoss<'a>>,
}

pub(crate) fn decide<'a>(context: &'a Context<'_>) -> EarlyLosses<'a> {
    let mut decided = EarlyLosses::default();
    let header = &context.history.header;
    if !context.model.is_lock() || header.lease_ms.is_none() || header.promises.lease == Some(false) {
        return decided;
    }
    let mut given_up = Vec::new();
    // the session of earlier grants began before the call, and may end soon after it if the client renews late
    let mut doubtful = Vec::new();
    for hold in context.holds.iter().filter(|hold| !is_disturbed(context, hold)) {
        decided.undisturbed += 1;
        let expired = expired(context, hold);
        if context.grants.is_single(context.history, hold) {
            decided.losses.extend(expired);
        } else {
            doubtful.extend(expired);
        }
        given_up.extend(gave_up(context, hold));
    }
    if !given_up.is_empty() {
        let mut unknown: FastMap<u32, u32> = FastMap::default();
        let is_unknown = |f, kind| kind == Kind::Info && f != F::Extend;
        context.history.events.each_of(is_unknown, |position, event| {
            unknown.insert(event.process, position);
        });
        // a process with an unknown outcome never acts again, so its application gives up its hold, and not its library
        given_up.retain(|loss: &EarlyLoss<'_>| {
            let LockHold { process, end, .. } = *loss.hold;
            unknown.get(&process).is_none_or(|at| *at > end)
        });
    }
    decided.given_up = given_up.len() as u64;
    if limits::is_habit(doubtful.len() as u64, decided.undisturbed) {
        decided.losses.extend(doubtful);
    }
    // a library may end single holds in doubt about its lease
    if limits::is_habit(decided.given_up, decided.undisturbed) {
        decided.losses.extend(given_up);
    }
    decided.losses.sort_by_key(|loss| loss.lasted_ns);
    if decided.undisturbed > 0 {
        decided.verdict = Verdict::of(!decided.losses.is_empty());
    }
    decided
}

/// Returns whether a fault from a lease and an aftermath before its call on may have ended a hold, or an overloaded machine: a client that
/// renews late ends its hold in doubt, and its session may end soon after an acquire, whatever the names of its owners.
fn is_disturbed(context: &Context<'_>, hold: &LockHold) -> bool {
    let history = context.history;
    if is_on_a_busy_machine(context, hold) {
        return true;
    }
    if context.is_undisturbed() {
        return false;
    }
    let asked_ns = hold.asked_ns(history);
    let from_ns = asked_ns.saturating_sub(2 * context.lease_ns + limits::AFTERMATH_NS);
    context.fault_near(history.client_of(hold.process), from_ns, history.ns(hold.to))
}

/// Returns whether the machine was overloaded during a hold or in the lease before it.
fn is_on_a_busy_machine(context: &Context<'_>, hold: &LockHold) -> bool {
    let from_ns = hold.asked_ns(context.history).saturating_sub(context.lease_ns);
    let length_ns = context.history.ns(hold.to).saturating_sub(from_ns);
    context.busy.counted_ns(from_ns, from_ns + length_ns) < length_ns
}

/// Returns the loss of a hold that ended before this share of the lease, which begins at the earliest with the call of the acquire or of
/// the last extension. Returns `None` also where the answer came so late that the lease may have ended: the lease of a waiter may begin
/// while it waits, and is renewed.
fn early<'a>(context: &Context<'_>, hold: &'a LockHold, ended_ns: u64, percent: u64) -> Option<EarlyLoss<'a>> {
    let history = context.history;
    let extension = context.last_extension(hold, ended_ns);
    let waited_ns = history.ns(hold.from).saturating_sub(hold.asked_ns(history));
    if extension.is_none() && waited_ns > context.lease_ns / 10 {
        return None;
    }
    let since = extension.map_or_else(|| hold.call(history), |answer| answer.mate);
    let lasted_ns = ended_ns.saturating_sub(history.event(since).time);
    let at_most_ns = lasted_ns.saturating_add(context.inexact_ns());
    (at_most_ns < context.lease_ns / 100 * percent).then_some(EarlyLoss {
        hold,
        grant: None,
        since,
        lasted_ns,
    })
}

/// Returns the loss of a hold during which its grant expired. The observer's line comes late, so the grant ended even earlier.
fn expired<'a>(context: &'a Context<'_>, hold: &'a LockHold) -> Option<EarlyLoss<'a>> {
    let history = context.history;
    let grant = context.grants.of_hold(history, hold);
    let grant = grant.filter(|grant| grant.has_expired(history));
    let ended_ns = grant?.revoked_ns(history)?;
    let held = ended_ns > history.ns(hold.from) && ended_ns < history.ns(hold.to);
    let loss = early(context, hold, ended_ns, limits::LEASE_SHARE_PERCENT).filter(|_| held)?;
    Some(EarlyLoss { grant, ..loss })
}

fn gave_up<'a>(context: &Context<'_>, hold: &'a LockHold) -> Option<EarlyLoss<'a>> {
    if hold.ended != Ended::Lost {
        return None;
    }
    // a lease that is not renewed ends by itself, and a library chooses its own margin before that
    let percent = match context.history.header.promises.renews {
        Some(true) => limits::LEASE_SHARE_PERCENT,
        _ => limits::MARGIN_SHARE_PERCENT,
    };
    early(context, hold, context.history.ns(hold.to), percent)
}
