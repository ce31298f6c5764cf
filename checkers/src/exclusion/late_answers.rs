//! Late answers to acquires, whose leases were over or counted from too late.

use crate::context::Context;
use crate::grants::ServerGrant;
use crate::holds::{Ended, LockHold};
use crate::limits;

/// An answer with its delay after the call of its acquire, or after the grant; and whether the lock was lost at the instant of the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LateAnswer {
    pub client: u32,
    pub after_ns: u64,
    pub is_lost: bool,
}

impl LateAnswer {
    /// Returns the answer of a hold that was not lost at once.
    pub(super) fn of(context: &Context<'_>, hold: &LockHold, after_ns: u64) -> Self {
        Self {
            client: context.history.client_of(hold.process),
            after_ns,
            is_lost: false,
        }
    }
}

/// Returns the late answer of a hold that ended within a lease of that answer, if its grant expired without a renewal.
pub(super) fn counted_from_the_answer(
    context: &Context<'_>,
    hold: &LockHold,
    grant: &ServerGrant,
) -> Option<LateAnswer> {
    let history = context.history;
    let (granted_ns, ended_ns) = (grant.granted_ns(history)?, grant.revoked_ns(history)?);
    let (from_ns, lease_ns) = (history.ns(hold.from), context.lease_ns);
    let after_ns = from_ns.saturating_sub(granted_ns);
    let was_renewed = ended_ns.saturating_sub(granted_ns) > lease_ns + limits::OBSERVER_LAG_NS;
    let within_a_lease = history.ns(hold.to).saturating_sub(from_ns) < lease_ns;
    let is_late = after_ns >= lease_ns / 4;
    let counted_from_it = grant.has_expired(history) && !was_renewed && within_a_lease && is_late;
    counted_from_it.then(|| LateAnswer::of(context, hold, after_ns))
}

/// Returns the answer of a hold that began after the end of its lease: lost at that instant, a lease or longer after the call of its
/// acquire; or, without a renewal, a lease or longer after the end of its wait, by which all its requests had been sent. Returns `None` if
/// the server gave the lock later.
pub(super) fn answered_too_late(context: &Context<'_>, hold: &LockHold) -> Option<LateAnswer> {
    let history = context.history;
    let after_ns = history.ns(hold.from).saturating_sub(hold.asked_ns(history));
    let held_ns = history.ns(hold.to).saturating_sub(history.ns(hold.from));
    let promises = &history.header.promises;
    let is_lost = hold.ended == Ended::Lost && held_ns <= limits::AT_ONCE_NS && promises.lease != Some(false);
    let call = history.events.get(history.event(hold.got).mate as usize)?;
    let may_be_over = promises.lease == Some(true) && promises.renews == Some(false);
    let wait_ns = history.wait_ns(call).filter(|_| may_be_over);
    let is_over = wait_ns.is_some_and(|wait_ns| context.may_be_over(after_ns.saturating_sub(wait_ns)));
    let is_late = is_lost && context.may_be_over(after_ns) || is_over;
    (is_late && !is_of_a_young_grant(context, hold)).then(|| LateAnswer {
        is_lost,
        ..LateAnswer::of(context, hold, after_ns)
    })
}

/// Returns whether the server gave the lock to a hold so shortly before its answer that the lease cannot have been over: its acquire waited
/// for the lock, or asked again after its wait.
fn is_of_a_young_grant(context: &Context<'_>, hold: &LockHold) -> bool {
    let history = context.history;
    let grant = context.grants.of_hold(history, hold);
    let granted_ns = grant.and_then(|grant| grant.granted_ns(history));
    granted_ns.is_some_and(|granted_ns| {
        let earliest_ns = granted_ns.saturating_sub(context.sight().lag_ns(granted_ns));
        !context.may_be_over(history.ns(hold.from).saturating_sub(earliest_ns))
    })
}

/// Returns the late answer of a hold whose grant, by the server's lines, expired before its acquire was answered.
pub(super) fn told_when_over(context: &Context<'_>, hold: &LockHold) -> Option<LateAnswer> {
    let history = context.history;
    let (asked_ns, from_ns) = (hold.asked_ns(history), history.ns(hold.from));
    let mut own = context.grants.of_owner(history, hold);
    let is_over = own.any(|grant| {
        let ran_out =
            grant.has_expired(history) && grant.revoked_ns(history).is_some_and(|ended_ns| ended_ns <= from_ns);
        ran_out
            && grant
                .granted_ns(history)
                .is_some_and(|granted_ns| granted_ns >= asked_ns)
    });
    is_over.then(|| LateAnswer::of(context, hold, from_ns.saturating_sub(asked_ns)))
}
