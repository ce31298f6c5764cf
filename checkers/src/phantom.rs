//! HL007, phantom grant: an acquire was answered `ok` without a grant, a process removed the lock of another, or an acquire was
//! answered `fail` and the server granted the lock.
//!
//! Decided only where an observer watched the server and was certainly connected at that time.

mod orphans;

use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::names::{FastSet, NONE};
use crate::history::{F, PackedEvent, Window};
use crate::holds::{Ended, LockHold};
use crate::limits;
pub(crate) use orphans::{OrphanGrant, Refusals};

/// A contradiction between an answer and the server's grants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WrongGrant<'a> {
    /// The server had ended the grant long before the acquire was answered.
    TakenBack { hold: &'a LockHold, grant: &'a ServerGrant },
    /// The server gave no grant. `covering`: the grant of another owner at that time.
    NeverGiven {
        hold: &'a LockHold,
        covering: Option<&'a ServerGrant>,
    },
    /// The lock was removed during a hold of its owner.
    Removed(Removal<'a>),
    /// An acquire was refused, and the server granted the lock.
    Orphan(OrphanGrant<'a>),
}

/// A lock that a request removed during a hold of its owner, which had not asked for that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removal<'a> {
    pub hold: &'a LockHold,
    pub grant: &'a ServerGrant,
    pub removed_ns: u64,
    pub by: RemovedBy,
}

/// The origin of the request that removed a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RemovedBy {
    Another,
    /// The owner's own release of an inner hold, one of several: the position of its call.
    OwnRelease(u32),
    /// An extension by the owner that was answered `ok`: the position of its answer.
    OwnExtension(u32),
}

/// The decision on HL007.
#[derive(Default)]
pub(crate) struct PhantomGrants<'a> {
    /// Not applicable when the lock was not watched; inconclusive when too few holds could be joined to a grant.
    pub verdict: Verdict,
    /// Holds whose reply named a token or an owner of the server.
    pub known: u64,
    /// Holds that were joined to a grant of the server.
    pub joined: u64,
    pub wrong: Vec<WrongGrant<'a>>,
}

pub(crate) fn decide<'a>(context: &'a Context<'_>) -> PhantomGrants<'a> {
    let known = |hold: &&LockHold| context.grants.is_named(context.history, hold);
    let mut decided = PhantomGrants {
        known: context.holds.iter().filter(known).count() as u64,
        ..PhantomGrants::default()
    };
    if context.not_watched.is_some() {
        return decided;
    }
    decided.verdict = Verdict::Inconclusive;
    let named = named_grants(context);
    let holds = context.holds.iter().inspect(|hold| {
        decided.joined += u64::from(context.grants.of_hold(context.history, hold).is_some());
    });
    let wrong = holds.filter_map(|hold| {
        let removed = || removal(context, hold).map(WrongGrant::Removed);
        phantom(context, &named, hold).or_else(removed)
    });
    decided.wrong = wrong.collect();
    decided
        .wrong
        .extend(orphans::of(context).into_iter().map(WrongGrant::Orphan));
    if !decided.wrong.is_empty() {
        decided.verdict = Verdict::Violated;
    } else if decided.joined > 0 && decided.joined * 100 >= decided.known * limits::JOINED_PERCENT {
        decided.verdict = Verdict::Holds;
    }
    decided
}

/// Returns the grants that are in an answer to an acquire, by lock and token: each belongs to one client.
fn named_grants(context: &Context<'_>) -> FastSet<(u32, u64)> {
    let holds = context.holds.with_locks();
    let named = holds.filter_map(|(lock, hold)| Some((lock as u32, context.grants.token_of(context.history, hold)?)));
    named.collect()
}

/// Returns the contradiction of a hold without a grant, or whose grant had ended before its reply.
fn phantom<'a>(context: &'a Context<'_>, named: &FastSet<(u32, u64)>, hold: &'a LockHold) -> Option<WrongGrant<'a>> {
    let history = context.history;
    if hold.is_empty() || !context.grants.is_named(context.history, hold) {
        return None;
    }
    let has_token = context.grants.token_of(context.history, hold).is_some();
    let from = history.ns(hold.from);
    // A repeated name does not identify its grant; unless the store gives a token with each, this answer came without one, and all of that
    // name's grants belong to another answer or had ended before this call.
    let sure =
        |grant: &ServerGrant| grant.token.is_some() && has_token || context.grants.is_single(context.history, hold);
    let without_its_token = history.header.promises.tokens && context.grants.watched().tokens && !has_token;
    let meant = |grant: &&ServerGrant| {
        let mut all = context.grants.of_owner(context.history, hold);
        let is_named = |grant: &ServerGrant| grant.token.is_some_and(|token| named.contains(&(grant.lock, token)));
        let free = |grant: &ServerGrant| !is_named(grant) && !ended_before_the_call(context, grant, hold);
        sure(grant) || !without_its_token || all.any(free)
    };
    let apart_ns = context.apart_ns();
    let lag_ns = context.sight().lag_ns(from) + context.inexact_ns();
    let covering = || covering(context, hold, lag_ns);
    let shows_no_grant = || covering().is_some() || would_show(context, hold, lag_ns);
    if let Some(grant) = context.grants.of_hold(history, hold).filter(meant) {
        if grant.is_out_of_sight(history) || grant.revoked_ns(history)? + limits::OBSERVER_LAG_NS + apart_ns >= from {
            return None;
        }
        if was_stopped_meanwhile(context, hold, grant) {
            return None;
        }
        let gone = |grant: &ServerGrant| grant.revoked_ns(history).is_some_and(|revoked| revoked + lag_ns < from);
        let all_gone = || context.grants.candidates(history, hold).all(gone);
        let taken_back = sure(grant) || all_gone() && shows_no_grant();
        return taken_back.then_some(WrongGrant::TakenBack { hold, grant });
    }
    (context.grants.is_shown(hold) && shows_no_grant()).then(|| WrongGrant::NeverGiven {
        hold,
        covering: covering(),
    })
}

/// Returns whether the client was stopped while its grant ended, or harness before it read the answer, and the answer came as soon as that
/// continued: no library can answer earlier or know at that instant that its lease is over. The same holds on a machine so overloaded that
/// otherwise the answer would have come within a lease.
fn was_stopped_meanwhile(context: &Context<'_>, hold: &LockHold, grant: &ServerGrant) -> bool {
    let history = context.history;
    let granted = grant.granted_ns(history).unwrap_or(0);
    let revoked = grant.revoked_ns(history).unwrap_or(u64::MAX);
    let from = history.ns(hold.from);
    let stopped = context.stopped_until(history.client_of(hold.process), granted, revoked);
    let mut went_on = stopped.into_iter().chain(context.harness_went_on(granted, from));
    let in_time_ns = from.saturating_sub(granted).min(context.lease_ns);
    went_on.any(|went_on| from <= went_on.saturating_add(limits::AFTERMATH_NS))
        || context.busy.counted_ns(granted, from) < in_time_ns
}

/// Returns the grant of another owner that the observer showed well before and well after the beginning of a hold.
fn covering<'a>(context: &'a Context<'_>, hold: &LockHold, lag_ns: u64) -> Option<&'a ServerGrant> {
    let history = context.history;
    let from = history.ns(hold.from);
    // the end of a grant comes late, so the grant seems longer than it was
    if !context.sight().is_whole(from, from + lag_ns) {
        return None;
    }
    let own = context.grants.owner_of(history, hold);
    let covers = |grant: &ServerGrant| {
        let before = grant.granted_ns(history).is_some_and(|granted| granted + lag_ns < from);
        before && grant.revoked_ns(history).unwrap_or(0) > from + lag_ns
    };
    let mut others = comparable_grants(context, hold).filter(|grant| own != Some(grant.owner));
    others.find(|grant| covers(grant) && !was_given_back(context, grant, from))
}

/// Returns the grant at the beginning of a hold that its client asked for as another owner, such as a session that has ended.
pub(crate) fn grant_by_another_name<'a>(context: &'a Context<'_>, hold: &LockHold) -> Option<&'a ServerGrant> {
    let history = context.history;
    let (from, client) = (history.ns(hold.from), history.client_of(hold.process));
    let own = context.grants.owner_of(history, hold);
    let there = |grant: &ServerGrant| {
        let granted = grant.granted_ns(history).is_some_and(|granted| granted <= from);
        granted && grant.revoked_ns(history).is_none_or(|revoked| revoked > from)
    };
    let mut others = comparable_grants(context, hold).filter(|grant| own != Some(grant.owner));
    others.find(|grant| there(grant) && orphans::is_owner_of(context, client, grant.owner))
}

/// Returns whether the observer would have shown a grant of this hold: the hold was long enough, and the observer saw everything, and wrote
/// lines about this lock before and after it.
fn would_show(context: &Context<'_>, hold: &LockHold, lag_ns: u64) -> bool {
    let (history, from) = (context.history, context.history.ns(hold.from));
    let long = history.ns(hold.to).saturating_sub(from) > lag_ns;
    let told = context.sight().is_whole(hold.asked_ns(history), from + lag_ns);
    let unnamed = || unnamed_grants(context, hold, lag_ns).next();
    long && told && observed_around(context, hold, lag_ns) && unnamed().is_none()
}

/// Returns the grants of a hold's lock whose lines have the names by which the hold could be joined.
fn comparable_grants<'a>(context: &'a Context<'_>, hold: &LockHold) -> impl Iterator<Item = &'a ServerGrant> {
    let grants = context.grants.of_lock(hold.lock(context.history)).iter();
    grants.filter(move |grant| is_comparable(context, grant, hold))
}

/// Returns whether a grant had ended before a hold's call. Lines of the observer come late and never early, so the end is certain.
fn ended_before_the_call(context: &Context<'_>, grant: &ServerGrant, hold: &LockHold) -> bool {
    let ended = grant.seen_end_ns(context.history);
    ended.is_some_and(|ended| ended < hold.asked_ns(context.history))
}

/// Returns whether the observer's lines have the names by which this hold could be joined.
fn is_comparable(context: &Context<'_>, grant: &ServerGrant, hold: &LockHold) -> bool {
    let grants = &context.grants;
    (grants.token_of(context.history, hold).is_some() && grant.token.is_some())
        || (grants.owner_of(context.history, hold).is_some() && grant.owner != NONE)
}

/// Returns the grants at the beginning of a hold whose owner the observer did not learn: one of them may be the hold's.
pub(crate) fn unnamed_grants<'a>(
    context: &'a Context<'_>,
    hold: &'a LockHold,
    lag_ns: u64,
) -> impl Iterator<Item = &'a ServerGrant> {
    let history = context.history;
    let from = history.ns(hold.from);
    let of_lock = context.grants.of_lock(hold.lock(history)).iter();
    of_lock.filter(move |grant| {
        let came = grant.granted_ns(history).is_none_or(|granted| granted < from + lag_ns);
        let stays = grant.revoked_ns(history).is_none_or(|revoked| revoked + lag_ns > from);
        came && stays && !is_comparable(context, grant, hold)
    })
}

/// Returns whether the owner of a grant had released it by then, by its own answer: then the observer's line of the end was late.
fn was_given_back(context: &Context<'_>, grant: &ServerGrant, ns: u64) -> bool {
    let history = context.history;
    let mut holds = context.holds.by_lock[grant.lock as usize].iter();
    holds.any(|hold| {
        let given_back = hold.ended == Ended::Released && history.ns(hold.to) <= ns;
        let own = || context.grants.of_hold(history, hold);
        given_back && own().is_some_and(|own| own.first() == grant.first())
    })
}

/// Returns whether the observer wrote lines about a hold's lock shortly before and shortly after its beginning, and did not lose sight of
/// it in between.
fn observed_around(context: &Context<'_>, hold: &LockHold, lag_ns: u64) -> bool {
    let (history, ns) = (context.history, context.history.ns(hold.from));
    let (mut before, mut after) = (false, false);
    let mut blind_since = None;
    let mut last_seen = 0;
    for grant in comparable_grants(context, hold) {
        let lost_sight = match context.grants.is_end_missed(grant) {
            true => grant.granted_ns(history),
            false => grant.revoked_ns(history).filter(|_| grant.is_out_of_sight(history)),
        };
        blind_since = blind_since.max(lost_sight.filter(|at| *at <= ns));
        let shown = [grant.granted_ns(history), grant.revoked_ns(history)];
        for seen in shown.into_iter().flatten() {
            let near = seen.abs_diff(ns) < limits::OBSERVER_GAP_NS;
            before |= near && seen + lag_ns < ns;
            after |= near && seen > ns + lag_ns;
            if seen <= ns {
                last_seen = last_seen.max(seen);
            }
        }
    }
    before && after && blind_since.is_none_or(|since| since < last_seen)
}

/// Returns the removal of a lock on request during a hold of its owner, if there was one.
pub(crate) fn removal<'a>(context: &'a Context<'_>, hold: &'a LockHold) -> Option<Removal<'a>> {
    let history = context.history;
    let grant = context.grants.of_hold(history, hold)?;
    let removed_ns = grant.revoked_ns(history).filter(|_| grant.was_deleted(history))?;
    let removed = |by: RemovedBy| {
        Some(Removal {
            hold,
            grant,
            removed_ns,
            by,
        })
    };
    let has_token = context.grants.token_of(context.history, hold).is_some();
    let named = grant.token.is_some() && has_token || context.grants.is_single(context.history, hold);
    let margin = if named { 0 } else { limits::OBSERVER_LAG_NS };
    let (from_ns, to_ns, apart_ns) = (history.ns(hold.from), history.ns(hold.to), context.apart_ns());
    let inside = removed_ns > from_ns + margin + apart_ns && removed_ns + apart_ns < to_ns;
    // The lock may have been deleted because of a loss that the owner was told of shortly after, or because of its death.
    let told_ns = context.sight().lag_ns(removed_ns) + apart_ns;
    let by_itself = hold.ended != Ended::Released && to_ns < removed_ns + told_ns;
    if inside && let Some(answer) = extension_that_removed(context, hold, removed_ns) {
        return removed(RemovedBy::OwnExtension(answer));
    }
    // this reads all holds of the lock, so it is done only for an end that would count
    let of_before = || !named && is_of_a_hold_before(context, hold, grant, removed_ns);
    if !inside || by_itself || may_be_an_expiry(context, hold, grant, removed_ns) || of_before() {
        return None;
    }
    removed(inner_release(context, hold, removed_ns).map_or(RemovedBy::Another, RemovedBy::OwnRelease))
}

/// Returns the `ok` answer to an extension that was pending when the lock was removed. An extension that compares the owner would have been
/// refused if another client's request had come before.
fn extension_that_removed(context: &Context<'_>, hold: &LockHold, removed_ns: u64) -> Option<u32> {
    let history = context.history;
    context.extensions_of(hold).find(|answer| {
        let answer = history.event(*answer);
        let called_ns = history.event(answer.mate).time;
        (called_ns..=answer.time.saturating_add(limits::AT_ONCE_NS)).contains(&removed_ns)
    })
}

/// Returns whether this may be the late line of an earlier grant of the same name: there are at most as many ends as earlier holds.
fn is_of_a_hold_before(context: &Context<'_>, hold: &LockHold, grant: &ServerGrant, removed_ns: u64) -> bool {
    let history = context.history;
    let lock = hold.lock(history);
    let holds = context.holds.by_lock[lock]
        .iter()
        .take_while(|other| other.from < hold.from);
    let before = holds
        .filter(|other| other.owner(history) == hold.owner(history))
        .count();
    let of_lock = context.grants.of_lock(lock).iter();
    let of_name = of_lock.filter(|other| other.owner == grant.owner);
    let ended = of_name.filter(|other| other.revoked_ns(history).is_some_and(|ns| ns <= removed_ns));
    ended.count() <= before
}

/// Returns the first of several releases by the owner itself that may have removed the lock: it was pending then, or had been answered for
/// no longer than the observer's delay.
fn inner_release(context: &Context<'_>, hold: &LockHold, removed_ns: u64) -> Option<u32> {
    if !context.model.is_reentrant() {
        return None;
    }
    let lag_ns = context.sight().lag_ns(removed_ns);
    let is_near = |reply: PackedEvent| reply.time.saturating_add(lag_ns) >= removed_ns;
    let events = context.history.events.iter().enumerate();
    let mut inside = events.take(hold.end as usize).skip(hold.got as usize);
    let release = inside.find(|(_, event)| {
        event.process == hold.process
            && event.is_call(F::Release)
            && context.history.lock_number(*event) == Some(hold.lock(context.history))
            && event.time <= removed_ns
            && context.history.reply(*event).is_none_or(is_near)
    });
    release.map(|(position, _)| position as u32)
}

/// Returns whether a removal may be an expiry: some stores call both "deleted", so it proves nothing once the lease may have ended.
pub(crate) fn may_be_an_expiry(context: &Context<'_>, hold: &LockHold, grant: &ServerGrant, removed: u64) -> bool {
    let history = context.history;
    if grant.was_released(history) {
        return false;
    }
    let asked = hold.asked_ns(history);
    let client = history.client_of(hold.process);
    let old_ns = removed.saturating_sub(asked) + context.apart_ns();
    let old = old_ns >= context.least_lease_ns() / 100 * limits::LEASE_SHARE_PERCENT;
    // whether or not it had an effect on the client; and other recorders' observers call a server's loss the same
    let is_excuse = |window: &Window| {
        let of_a_server = || !window.is_of_clients() && history.phases().is_empty();
        window.names_client(client) || of_a_server()
    };
    old || context.windows_in(asked, removed).any(is_excuse)
}
