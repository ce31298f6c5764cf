//! HL010, early loss: the server or the library ended a hold before its lease was over, and no fault concerned its client.

use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::holds::{Ended, LockHold};
use crate::limits;

/// A hold that ended too early.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlyLoss<'a> {
    pub hold: &'a LockHold,
    /// The grant that ran out on the server; `None` when the library gave the lock up.
    pub grant: Option<&'a ServerGrant>,
    /// The call of its acquire, or of the last extension before its end that was answered ok.
    pub since: u32,
    /// From that call to its end, in nanoseconds.
    pub lasted_ns: u64,
}

/// What was decided about HL010.
#[derive(Default)]
pub(crate) struct EarlyLosses<'a> {
    /// Not applicable to a lock without a lease, or when no hold was undisturbed.
    pub verdict: Verdict,
    /// Holds that no fault concerned, on a machine with time for them.
    pub undisturbed: u64,
    /// Those that the library gave up before their lease was over.
    pub given_up: u64,
    pub losses: Vec<EarlyLoss<'a>>,
}

/// Decides HL010.
pub(crate) fn decide<'a>(context: &'a Context<'_>) -> EarlyLosses<'a> {
    let mut decided = EarlyLosses::default();
    let header = &context.history.header;
    if !context.model.is_lock() || header.lease_ms.is_none() || header.promises.lease == Some(false) {
        return decided;
    }
    let mut given_up = Vec::new();
    // a session that earlier grants were under began before the call, and may end soon after it where the client was slow to renew it
    let mut doubtful = Vec::new();
    for hold in context.holds.iter().filter(|hold| !is_disturbed(context, hold)) {
        decided.undisturbed += 1;
        let ran_out = ran_out(context, hold);
        if context.grants.is_single(context.history, hold) {
            decided.losses.extend(ran_out);
        } else {
            doubtful.extend(ran_out);
        }
        given_up.extend(gave_up(context, hold));
    }
    decided.given_up = given_up.len() as u64;
    if is_habit(doubtful.len() as u64, decided.undisturbed) {
        decided.losses.extend(doubtful);
    }
    // a library that gives up now and then may have had a doubt
    if is_habit(decided.given_up, decided.undisturbed) {
        decided.losses.extend(given_up);
    }
    decided.losses.sort_by_key(|loss| loss.lasted_ns);
    if decided.undisturbed > 0 {
        decided.verdict = Verdict::of(!decided.losses.is_empty());
    }
    decided
}

/// Whether so many early ends among so many holds are more than doubts.
fn is_habit(early: u64, undisturbed: u64) -> bool {
    early >= limits::EARLY_LOSSES && early * limits::EARLY_SHARE >= undisturbed
}

/// Whether a fault may be why a hold ended: one that was on since a lease and an aftermath before it was asked for. So may a machine on which
/// a client renews late: it gives up in doubt, and a session ends soon after an acquire, whatever the names of its owners.
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

/// Whether the machine had far too much to do while a hold lasted, or for a lease before it.
fn is_on_a_busy_machine(context: &Context<'_>, hold: &LockHold) -> bool {
    let from_ns = hold.asked_ns(context.history).saturating_sub(context.lease_ns);
    let length_ns = context.history.ns(hold.to).saturating_sub(from_ns);
    context.busy.counted_ns(from_ns, from_ns + length_ns) < length_ns
}

/// A hold that ended before this share of the lease: a lease begins with the call of the acquire at the earliest, or with that of the last
/// extension. `None` also where the call was answered so late that the lease may have been over: that of a waiter may begin while it waits,
/// and is renewed.
fn early<'a>(context: &Context<'_>, hold: &'a LockHold, ended_ns: u64, percent: u64) -> Option<EarlyLoss<'a>> {
    let history = context.history;
    let extension = context.last_extension(hold, ended_ns);
    let waited_ns = history.ns(hold.from).saturating_sub(hold.asked_ns(history));
    if extension.is_none() && waited_ns > context.lease_ns / 10 {
        return None;
    }
    let since = extension.map_or_else(|| hold.call(history), |answer| answer.mate);
    let lasted_ns = ended_ns.saturating_sub(history.event(since).time);
    let at_most_ns = lasted_ns.saturating_add(2 * context.clock_error_ns + context.tick_ns);
    (at_most_ns < context.lease_ns / 100 * percent).then_some(EarlyLoss {
        hold,
        grant: None,
        since,
        lasted_ns,
    })
}

/// A grant that the server let run out while its holder held. Its line comes late, so it ended even earlier.
fn ran_out<'a>(context: &'a Context<'_>, hold: &'a LockHold) -> Option<EarlyLoss<'a>> {
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
    // one that is not renewed ends by itself, and by how much a library gives it up before that is its own choice
    let percent = match context.history.header.promises.renews {
        Some(true) => limits::LEASE_SHARE_PERCENT,
        _ => limits::MARGIN_SHARE_PERCENT,
    };
    early(context, hold, context.history.ns(hold.to), percent)
}
