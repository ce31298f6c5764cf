//! HL001, mutual exclusion: no two processes' certain holds of one lock overlap.
//!
//! What overlaps is found by [`crate::overlaps`]. What an overlap *is* comes from what the server said and from the lease.
//!
//! Leases: C. Gray and D. Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency"
//! (1989), <https://doi.org/10.1145/74850.74870>.

pub(crate) mod cause;
mod doubles;

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

/// What an overlap is, by what the server said and by what was done to the first holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverlapClass {
    /// The server gave the lock to a second owner while the first had it: a double grant by its own lines.
    GrantedTwice,
    /// The server gave it to one of the two, and the other was told that it has it all the same.
    ToldWithoutGrant,
    /// Both were told that they have it, and what the server gave is not known.
    ToldTwice,
    /// The server had taken the lock back from the first holder, who went on.
    StaleHolder,
    /// The lock was removed on request while the first held it and had not asked for that.
    ForeignRelease,
    /// The value of the lock was overwritten by the second's acquire while the first held it.
    Overwritten,
    /// One release by the first, which had taken the lock more often, freed it.
    EarlyRelease,
    /// An extension was answered ok, and another client had the lock by then, or had it because that removed it.
    WrongExtension,
    /// More permits of a semaphore were held than there are.
    TooManyPermits,
}

impl OverlapClass {
    /// As it is in `verdict.json`.
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

/// Stores of which locks are queues of entries.
const OF_ENTRIES: [&str; 2] = ["zk", "etcd"];

/// What was decided about HL001.
pub(crate) struct Exclusion<'a> {
    /// Not applicable to a register, inconclusive without a hold.
    pub verdict: Verdict,
    /// The classes of the conflicts that are described, in the order of [`Context::conflicts`].
    pub classes: Vec<OverlapClass>,
    /// Grants that the server gave while others stood, of holds that do not overlap.
    pub doubles: Vec<DoubleGrant<'a>>,
    /// Overlaps that began before the lease of the first holder could have run out.
    pub within_lease: usize,
}

/// Decides HL001.
pub(crate) fn decide<'a>(context: &'a Context<'_>) -> Exclusion<'a> {
    let doubles = doubles::of(context);
    let verdict = if !context.model.is_lock() {
        Verdict::NotApplicable
    } else if !doubles.is_empty() {
        Verdict::Violated
    } else if context.holds.iter().all(is_lost_at_once) {
        // a hold that was lost in the instant in which it began shows nothing
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
            // lines of one observer: a grant that began when the other had ended was not given twice
            let is_before = second.revoked < first.granted;
            let apart = first.revoked < second.granted || is_before;
            // the one that was told later had it before, and its entry was overwritten while the answer was under way
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
        (None, Some(_)) if has_no_grant(context, &overlap.first) => return OverlapClass::ToldWithoutGrant,
        _ => {}
    }
    let (from, second_ns) = (history.ns(overlap.first.from), history.ns(overlap.second.from));
    // a grant that a release ends before the observer has asked for its owner has no name; nor has one that expires so soon
    let unnamed = || phantom::unnamed_grants(context, &overlap.first, limits::OBSERVER_LAG_NS);
    let has_expired = |grant: &ServerGrant| {
        let between = from..=second_ns.saturating_add(limits::OBSERVER_LAG_NS);
        let ended = grant.revoked_ns(history).is_some_and(|ended| between.contains(&ended));
        ended && grant.has_expired(history)
    };
    let release = || context.release_of_another(&overlap.first, second_ns, limits::OBSERVER_LAG_NS);
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

/// The class of an overlap that began when the server had ended the grant of the first.
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

/// Whether the server had ended the first grant when the second was told that it has the lock. The observer's lines are in the
/// server's order, and come late: what the first asked for itself came after the overlap had begun.
fn ended_before(context: &Context<'_>, overlap: &Overlap, first: &ServerGrant, second: Option<&ServerGrant>) -> bool {
    let history = context.history;
    let Some(ended_ns) = first.revoked_ns(history) else {
        return false;
    };
    // of a process that died in its release, the server may carry that out
    let own = matches!(overlap.first.ended, Ended::Released | Ended::Died)
        && first.was_released(history)
        && ended_ns >= history.ns(overlap.first.to);
    match second.filter(|second| second.granted != NONE) {
        _ if own || outlived(context, overlap, first, ended_ns) => false,
        // lines of one look have no order
        Some(second) => first.revoked < second.granted || second.granted_ns(history) == Some(ended_ns),
        None => ended_ns <= history.ns(overlap.second.from) + limits::OBSERVER_LAG_NS,
    }
}

/// Whether the first grant ran out when the overlap was over, and so early that it cannot have run out before.
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

/// Whether the observer would have shown a grant of this hold, and showed none, not even one whose owner it did not learn.
fn has_no_grant(context: &Context<'_>, hold: &LockHold) -> bool {
    let unnamed = || phantom::unnamed_grants(context, hold, limits::OBSERVER_LAG_NS).next();
    context.grants.is_named(context.history, hold) && unnamed().is_none()
}

/// Whether another process was releasing the lock when the first grant ended.
fn is_beside_a_release(context: &Context<'_>, overlap: &Overlap, first: &ServerGrant) -> bool {
    let ended_ns = first.revoked_ns(context.history).unwrap_or(0);
    let other = context.release_of_another(&overlap.first, ended_ns, limits::OBSERVER_LAG_NS);
    other.is_some()
}

/// Whether one look of the observer showed the second owner in place of the first. Lines of two moments are of two requests, however near.
/// Where each contender has an entry of its own, the next one is the owner as the first entry goes.
fn is_overwritten(context: &Context<'_>, first: &ServerGrant, second: Option<&ServerGrant>) -> bool {
    let history = context.history;
    let store = history.header.backend.as_deref();
    if store.is_some_and(|store| OF_ENTRIES.contains(&store)) {
        return false;
    }
    let ended = first
        .revoked_ns(history)
        .filter(|_| first.cause(history) == Some(RevokeCause::Deleted));
    let began = second.and_then(|second| second.granted_ns(history));
    matches!((ended, began), (Some(ended), Some(began)) if began == ended)
}

/// Whether the lease of the first, which began at that time, may have run out before the second got the lock, without any renewal.
fn after_lease(context: &Context<'_>, overlap: &Overlap, since_ns: u64) -> bool {
    context.may_be_over(context.history.ns(overlap.from()).saturating_sub(since_ns))
}

/// When the lease of a hold began at the earliest that was on at a time: when it was granted, or when the last extension was called that was
/// answered ok by then.
fn leased_after_ns(context: &Context<'_>, hold: &LockHold, ns: u64) -> u64 {
    let called_ns = |answer: PackedEvent| context.history.event(answer.mate).time;
    let extended_ns = context.last_extension(hold, ns).map_or(0, called_ns);
    granted_after_ns(context, hold).max(extended_ns)
}

/// Holds that began before one: the last of them to be released is among these.
const BEFORE: usize = 16;

/// When a hold was granted at the earliest: not before it was asked for, nor before the last one that ended before it was released.
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

/// The hold that went on as this one, in another mode.
pub(crate) fn before_change<'a>(context: &'a Context<'_>, hold: &LockHold) -> Option<&'a LockHold> {
    let mut own = context.holds.by_lock[hold.lock(context.history)].iter();
    own.find(|other| other.process == hold.process && other.ended == Ended::Changed && other.end == hold.got)
}

/// Where permits or the write mode were given up of what one acquire got, and this hold is what went on.
pub(crate) fn given_up(context: &Context<'_>, hold: &LockHold) -> impl Iterator<Item = u32> {
    let (got, from) = (hold.got, hold.from);
    let own = context.holds.by_lock[hold.lock(context.history)].iter();
    own.filter(move |other| other.got == got && other.to <= from && !other.is_empty())
        .map(|other| other.end)
}

/// Besides the two of an overlap, the fewest holds of that instant that make it too many.
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
