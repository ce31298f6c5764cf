//! HL001, mutual exclusion: no two processes' certain holds of one lock overlap.
//!
//! [`crate::overlaps`] finds the overlaps; this module classifies them by the server's lines and by the lease.
//!
//! Leases: C. Gray and D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency"
//! (1989), <https://doi.org/10.1145/74850.74870>.

pub(crate) mod cause;
mod doubles;
mod late_answers;

use crate::context::Context;
use crate::extensions;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::names::NONE;
use crate::history::{PackedEvent, RevokeCause};
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::overlaps::Overlap;
use crate::phantom::{self, RemovedBy};
pub(crate) use doubles::DoubleGrant;

/// The class of an overlap, by the server's lines and by the faults on the first holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverlapClass {
    /// The server gave the lock to a second owner while the first had it: a double grant by its own lines.
    GrantedTwice,
    /// The server gave the lock to one of the two, and the acquire of the other was answered `ok`.
    ToldWithoutGrant,
    /// Both acquires were answered `ok`, and the server's grants are not known.
    ToldTwice,
    /// The server had ended the grant of the first holder, whose hold continued.
    StaleHolder,
    /// A request removed the lock during the hold of the first, which had not asked for that.
    ForeignRelease,
    /// The acquire of the second overwrote the value of the lock during the hold of the first.
    Overwritten,
    /// One release by the first, which had acquired the lock several times, freed it.
    EarlyRelease,
    /// An extension was answered `ok` although another client had the lock by then, or got it because the extension removed it.
    WrongExtension,
    /// The holders of a semaphore had more permits than there are.
    TooManyPermits,
}

impl OverlapClass {
    /// Returns the name of the class in `verdict.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::GrantedTwice => "granted-twice",
            Self::ToldWithoutGrant => "told-without-grant",
            Self::ToldTwice => "told-twice",
            Self::StaleHolder => "stale-holder",
            Self::ForeignRelease => "foreign-release",
            Self::Overwritten => "overwritten",
            Self::EarlyRelease => "early-release",
            Self::WrongExtension => "wrong-extension",
            Self::TooManyPermits => "too-many-permits",
        }
    }
}

/// Stores whose locks are queues of entries.
const OF_ENTRIES: [&str; 2] = ["zk", "etcd"];

/// The decision on HL001.
pub(crate) struct Exclusion<'a> {
    /// Not applicable to a register, inconclusive without a hold.
    pub verdict: Verdict,
    /// The classes of the conflicts that are described, in the order of [`Context::conflicts`].
    pub classes: Vec<OverlapClass>,
    /// Grants that began while others existed, of holds that do not overlap.
    pub doubles: Vec<DoubleGrant<'a>>,
    /// Overlaps that began before the lease of the first holder could have run out.
    pub within_lease: usize,
}

pub(crate) fn decide<'a>(context: &'a Context<'_>) -> Exclusion<'a> {
    let doubles = doubles::of(context);
    let verdict = if !context.model.is_lock() {
        Verdict::NotApplicable
    } else if !doubles.is_empty() {
        Verdict::Violated
    } else if context.holds.iter().all(is_lost_at_once) {
        // a hold that was lost at the instant of its reply is no evidence
        Verdict::Inconclusive
    } else if context.overlaps.is_empty() && !context.excused.is_empty() {
        Verdict::Inconclusive
    } else {
        Verdict::of(!context.overlaps.is_empty())
    };
    let described = context.conflicts.iter().take(limits::MAX_VIOLATIONS);
    let since_ns = |overlap: &Overlap| granted_after_ns(context, &overlap.first);
    let overlaps = context.overlaps.iter();
    let early = overlaps.filter(|overlap| !after_lease(context, overlap, since_ns(overlap)));
    Exclusion {
        verdict,
        classes: described.map(|conflict| classify(context, &conflict.opening)).collect(),
        doubles,
        within_lease: early.count(),
    }
}

fn is_lost_at_once(hold: &LockHold) -> bool {
    hold.is_empty() && matches!(hold.ended, Ended::Lost | Ended::Died)
}

fn classify(context: &Context<'_>, overlap: &Overlap) -> OverlapClass {
    let history = context.history;
    if context.model.capacity() > 1 {
        return OverlapClass::TooManyPermits;
    }
    let first = context.grants.of_hold(history, &overlap.first);
    let second = context.grants.of_hold(history, &overlap.second);
    if let Some(first) = first.filter(|first| ended_before(context, overlap, first, second)) {
        return taken(context, overlap, first, second);
    }
    if extensions::began_again(history, &overlap.second) {
        return OverlapClass::WrongExtension;
    }
    let granted = |grant: &ServerGrant| grant.granted != NONE;
    match (first, second) {
        (Some(first), Some(second)) if granted(first) && granted(second) => {
            // the lines of one observer are in order: a grant that began after the end of the other is no double grant
            let is_before = second.revoked < first.granted;
            let apart = first.revoked < second.granted || is_before;
            // the second of the two answers belongs to the earlier grant, whose entry was overwritten while the answer was on its way
            let overwritten = || {
                second.cause(history) == Some(RevokeCause::Overwritten) || is_overwritten(context, second, Some(first))
            };
            return if is_before && overwritten() {
                OverlapClass::Overwritten
            } else if apart {
                OverlapClass::ToldWithoutGrant
            } else {
                OverlapClass::GrantedTwice
            };
        }
        (Some(_), None) if has_no_grant(context, &overlap.second) => return OverlapClass::ToldWithoutGrant,
        // the grant of the first may have ended unseen; where the second has none, that of the first goes on
        (None, Some(_)) if has_no_grant(context, &overlap.first) && is_seen_to_begin(context, &overlap.first) => {
            return OverlapClass::ToldWithoutGrant;
        }
        _ => {}
    }
    let (from, second_ns) = (history.ns(overlap.first.from), history.ns(overlap.second.from));
    // a grant that ends before the observer has read its owner has no name, whether by a release or by an expiry
    let unnamed = || phantom::unnamed_grants(context, &overlap.first, limits::OBSERVER_LAG_NS);
    let has_expired = |grant: &ServerGrant| {
        let between = from..=second_ns.saturating_add(limits::OBSERVER_LAG_NS);
        let ended = grant.revoked_ns(history).is_some_and(|ended| between.contains(&ended));
        ended && grant.has_expired(history)
    };
    // a release that was answered before the hold began gave the lock to it
    let in_the_hold = |call: &u32| {
        history
            .reply(history.event(*call))
            .is_none_or(|reply| reply.time >= from)
    };
    let release = || {
        let release = context.release_of_another(&overlap.first, second_ns, limits::OBSERVER_LAG_NS);
        release.filter(in_the_hold)
    };
    let removed = || unnamed().next().is_some() && !unnamed().any(has_expired);
    if first.is_none() && removed() && release().is_some() {
        return OverlapClass::ForeignRelease;
    }
    let client = history.client_of(overlap.first.process);
    let touched = context
        .window_that_touched(client, from, history.ns(overlap.from()))
        .is_some();
    let since_ns = leased_after_ns(context, &overlap.first, history.ns(overlap.from()));
    if after_lease(context, overlap, since_ns) && history.header.lease_ms.is_some() || touched {
        OverlapClass::StaleHolder
    } else {
        OverlapClass::ToldTwice
    }
}

/// Returns the class of an overlap that began after the server had ended the first grant.
fn taken(context: &Context<'_>, overlap: &Overlap, first: &ServerGrant, second: Option<&ServerGrant>) -> OverlapClass {
    let cause = first.cause(context.history);
    match phantom::removal(context, &overlap.first).map(|removal| removal.by) {
        Some(RemovedBy::OwnRelease(_)) => OverlapClass::EarlyRelease,
        Some(RemovedBy::OwnExtension(_)) => OverlapClass::WrongExtension,
        _ if cause == Some(RevokeCause::Overwritten) => OverlapClass::Overwritten,
        _ if cause == Some(RevokeCause::Deleted) && is_beside_a_release(context, overlap, first) => {
            OverlapClass::ForeignRelease
        }
        Some(_) if is_overwritten(context, first, second) => OverlapClass::Overwritten,
        Some(_) if first.was_deleted(context.history) => OverlapClass::ForeignRelease,
        _ => OverlapClass::StaleHolder,
    }
}

/// Returns whether the server had ended the first grant before the second acquire was answered. The observer's lines are in the server's
/// order and come late: an end that the first holder requested came after the overlap had begun.
pub(crate) fn ended_before(
    context: &Context<'_>,
    overlap: &Overlap,
    first: &ServerGrant,
    second: Option<&ServerGrant>,
) -> bool {
    let history = context.history;
    let Some(ended_ns) = first.revoked_ns(history) else {
        return false;
    };
    // the server may execute the release of a process that died during it
    let own = matches!(overlap.first.ended, Ended::Released | Ended::Died)
        && first.was_released(history)
        && ended_ns >= history.ns(overlap.first.to);
    match second.filter(|second| second.granted != NONE) {
        _ if own || outlived(context, overlap, first, ended_ns) => false,
        // lines of one poll have no order
        Some(second) => first.revoked < second.granted || second.granted_ns(history) == Some(ended_ns),
        None => ended_ns <= history.ns(overlap.second.from) + limits::OBSERVER_LAG_NS,
    }
}

/// Returns whether the first grant expired after the overlap, and so early that it cannot have expired before.
fn outlived(context: &Context<'_>, overlap: &Overlap, first: &ServerGrant, ended_ns: u64) -> bool {
    let history = context.history;
    let (from_ns, over_ns) = (
        history.ns(overlap.from()),
        history.ns(overlap.to()) + limits::OBSERVER_LAG_NS,
    );
    let since_ns = leased_after_ns(context, &overlap.first, from_ns);
    first.has_expired(history)
        && ended_ns > over_ns
        && context.grants.is_single(history, &overlap.first)
        && !after_lease(context, overlap, since_ns)
        && context.sight().is_whole(from_ns, over_ns)
}

/// Returns whether the observer would have shown a grant of this hold, and showed none, not even one without the name of its owner.
fn has_no_grant(context: &Context<'_>, hold: &LockHold) -> bool {
    let unnamed = || phantom::unnamed_grants(context, hold, limits::OBSERVER_LAG_NS).next();
    context.grants.is_named(context.history, hold) && unnamed().is_none()
}

/// Returns whether the observer saw everything as a hold began.
fn is_seen_to_begin(context: &Context<'_>, hold: &LockHold) -> bool {
    let from_ns = context.history.ns(hold.from);
    context.sight().is_whole(from_ns, from_ns + limits::OBSERVER_LAG_NS)
}

/// Returns whether a release by another process may have ended the first grant.
fn is_beside_a_release(context: &Context<'_>, overlap: &Overlap, first: &ServerGrant) -> bool {
    let ended_ns = first.revoked_ns(context.history).unwrap_or(0);
    context.release_that_removed(&overlap.first, ended_ns).is_some()
}

/// Returns whether one poll of the observer showed the second owner in place of the first. Lines of two polls are of two requests, however
/// close, and those of one poll may be, if the observer polls slowly. Where each contender has an entry of its own, or waits in a session,
/// the next one becomes the owner as the first is removed.
fn is_overwritten(context: &Context<'_>, first: &ServerGrant, second: Option<&ServerGrant>) -> bool {
    let history = context.history;
    let store = history.header.backend.as_deref();
    if store.is_some_and(|store| OF_ENTRIES.contains(&store)) || cause::is_of_a_session(context) {
        return false;
    }
    let ended = first
        .revoked_ns(history)
        .filter(|_| first.cause(history) == Some(RevokeCause::Deleted));
    let began = second.and_then(|second| second.granted_ns(history));
    // without a measured delay, it is not known to be slow
    let is_quick = |ns: u64| {
        context
            .sight()
            .measured_ns(ns)
            .is_none_or(|lag_ns| lag_ns <= 2 * limits::REWRITE_NS)
    };
    matches!((ended, began), (Some(ended), Some(began)) if began == ended && is_quick(ended))
}

/// Returns whether a lease of the first holder that began at `since_ns` may have ended before the overlap began, without any renewal.
fn after_lease(context: &Context<'_>, overlap: &Overlap, since_ns: u64) -> bool {
    context.may_be_over(context.history.ns(overlap.from()).saturating_sub(since_ns))
}

/// Returns the earliest beginning of the lease that a hold had at a time: the grant, or the call of the last extension that was answered
/// `ok` by then.
fn leased_after_ns(context: &Context<'_>, hold: &LockHold, ns: u64) -> u64 {
    let called_ns = |answer: PackedEvent| context.history.event(answer.mate).time;
    let extended_ns = context.last_extension(hold, ns).map_or(0, called_ns);
    granted_after_ns(context, hold).max(extended_ns)
}

/// The number of holds before one in which the last release is looked for.
const BEFORE: usize = 16;

/// Returns the earliest time of a hold's grant: not before its call, nor before the call of the release of the last hold that ended before.
fn granted_after_ns(context: &Context<'_>, hold: &LockHold) -> u64 {
    let history = context.history;
    let asked_ns = hold.asked_ns(history);
    if context.model.capacity() > 1 {
        return asked_ns;
    }
    let holds = &context.holds.by_lock[hold.lock(history)];
    let place = holds.partition_point(|other| other.from < hold.from);
    let before = &holds[place.saturating_sub(BEFORE)..place];
    let released = before
        .iter()
        .filter(|other| other.ended == Ended::Released && other.to <= hold.from && other.mode == hold.mode);
    released.map(|other| history.ns(other.to)).fold(asked_ns, u64::max)
}

/// Returns the hold that this hold continues in another mode.
pub(crate) fn before_change<'a>(context: &'a Context<'_>, hold: &LockHold) -> Option<&'a LockHold> {
    let mut own = context.holds.by_lock[hold.lock(context.history)].iter();
    own.find(|other| other.process == hold.process && other.ended == Ended::Changed && other.end == hold.got)
}

/// Returns the releases that gave up permits, or the write mode, of an acquire of which this hold is the rest.
pub(crate) fn given_up(context: &Context<'_>, hold: &LockHold) -> impl Iterator<Item = u32> {
    let (got, from) = (hold.got, hold.from);
    let own = context.holds.by_lock[hold.lock(context.history)].iter();
    own.filter(move |other| other.got == got && other.to <= from && !other.is_empty())
        .map(|other| other.end)
}

/// Returns the fewest holds, besides the two of an overlap, that exceed the permits at that instant.
pub(crate) fn beyond_permits<'a>(context: &'a Context<'_>, overlap: &Overlap) -> Vec<&'a LockHold> {
    let (first, second) = (overlap.first, overlap.second);
    let mut holds: Vec<&LockHold> = context.holds.by_lock[second.lock(context.history)]
        .iter()
        .take_while(|hold| hold.from <= second.from)
        .filter(|hold| hold.to > second.from && !hold.is_empty())
        .filter(|hold| ![(first.got, first.from), (second.got, second.from)].contains(&(hold.got, hold.from)))
        .collect();
    holds.sort_by_key(|hold| std::cmp::Reverse(hold.permits));
    let mut out = u64::from(first.permits) + u64::from(second.permits);
    let all = context.model.capacity();
    holds.retain(|hold| {
        let needed = out <= all;
        out += u64::from(hold.permits);
        needed
    });
    holds
}
