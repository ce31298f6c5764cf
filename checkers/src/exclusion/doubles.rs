//! Double grants: two owners of one lock at a time by the server's lines, whose holds do not overlap only because the second was answered
//! after the release of the first.
//!
//! Lines of the observer come late and never early, and in the server's order. So a grant that its client had not released yet, and that
//! cannot have expired, existed at the line of the second.

use crate::context::Context;
use crate::grants::ServerGrant;
use crate::history::OrderBasis;
use crate::history::names::{FastMap, NONE, Symbol};
use crate::holds::LockHold;
use crate::model::Model;

/// A grant that began while the grant of another client existed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DoubleGrant<'a> {
    pub first: &'a LockHold,
    pub second: &'a LockHold,
    /// The grant of the second.
    pub grant: &'a ServerGrant,
    pub granted_ns: u64,
}

/// Grants before one that may still exist: no server forgets more of them at once.
const BEFORE: usize = 4;

/// Returns the double grants of locks that one client has at a time.
pub(super) fn of<'a>(context: &'a Context<'_>) -> Vec<DoubleGrant<'a>> {
    let history = context.history;
    let exclusive = context.model.is_lock() && context.model.capacity() == 1 && context.model != Model::ReadWrite;
    let in_order = history.order == OrderBasis::Time && context.clock_error_ns == 0;
    if context.not_watched.is_some() || !exclusive || !in_order {
        return Vec::new();
    }
    let holds = holds_of_grants(context);
    let mut found = Vec::new();
    for lock in 0..history.locks.len() {
        let grants = context.grants.of_lock(lock);
        for (place, second) in grants.iter().enumerate() {
            let before = &grants[place.saturating_sub(BEFORE)..place];
            found.extend(
                before
                    .iter()
                    .find_map(|first| double_of(context, &holds, first, second)),
            );
        }
    }
    found
}

/// Returns the holds whose grants are unambiguous, by the first line of the grant. A repeated name is, if the line came during the acquire
/// or the hold, and too late to be that of the previous hold.
fn holds_of_grants<'a>(context: &'a Context<'_>) -> FastMap<u32, &'a LockHold> {
    let (history, grants) = (context.history, &context.grants);
    let mut got_ns: FastMap<(usize, Symbol), u64> = FastMap::default();
    let mut holds = FastMap::default();
    for (lock, hold) in context.holds.with_locks() {
        let from_ns = history.ns(hold.from);
        let before_ns = got_ns.insert((lock, hold.owner(history)), from_ns);
        let Some(grant) = grants.of_hold(history, hold) else {
            continue;
        };
        let is_its_own = |ns: u64| {
            let is_later = before_ns.is_none_or(|before_ns| before_ns.saturating_add(context.sight().lag_ns(ns)) < ns);
            is_later && (hold.asked_ns(history)..=history.ns(hold.to)).contains(&ns)
        };
        if grants.is_sure(history, hold) || grant.granted_ns(history).is_some_and(is_its_own) {
            holds.insert(grant.first(), hold);
        }
    }
    holds
}

/// Returns the second of two grants, if the first certainly existed when it began.
fn double_of<'a>(
    context: &'a Context<'_>,
    holds: &FastMap<u32, &'a LockHold>,
    first: &ServerGrant,
    second: &'a ServerGrant,
) -> Option<DoubleGrant<'a>> {
    let history = context.history;
    let (first_ns, granted_ns) = (first.granted_ns(history)?, second.granted_ns(history)?);
    let of_two = first.owner != second.owner && first.owner != NONE && second.owner != NONE;
    // lines of one poll have no order
    let goes_on = first.revoked_ns(history).is_none_or(|ended_ns| ended_ns > granted_ns);
    if !of_two || !goes_on || first.granted > second.granted || first.is_out_of_sight(history) {
        return None;
    }
    let (held, other) = (*holds.get(&first.first())?, *holds.get(&second.first())?);
    let client = history.client_of(held.process);
    let until_ns = history.ns(held.to);
    // overlaps of holds are other violations
    let apart = other.from >= held.to || held.from >= other.to;
    let two_clients = client != history.client_of(other.process);
    let not_given_back = granted_ns < until_ns;
    let runs = context.is_lease_known() && !context.may_be_over(granted_ns.saturating_sub(held.asked_ns(history)));
    let was_released = first.was_released(history);
    let mut windows = context.windows_that_concern(client, first_ns, granted_ns);
    let calm = windows.next().is_none();
    let awake = context.standstills_in(first_ns, granted_ns).next().is_none();
    let told = context.sight().is_whole(first_ns, granted_ns);
    (apart && two_clients && not_given_back && (runs || was_released) && calm && awake && told).then_some(DoubleGrant {
        first: held,
        second: other,
        grant: second,
        granted_ns,
    })
}
