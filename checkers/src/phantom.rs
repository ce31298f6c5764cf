//! HL007, phantom grant: an acquire was answered ok while the server held nothing for that process, a lock was removed by a
//! process that did not own it, or an acquire was answered fail and the server gave it the lock.
//!
//! Decided only where an observer watched the server and was demonstrably there at the time.

mod orphans;

use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::names::{FastSet, NONE};
use crate::history::{F, Window};
use crate::holds::{Ended, LockHold};
use crate::limits;
pub(crate) use orphans::{OrphanGrant, Refusals};

/// An answer that is not as the server has it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WrongGrant<'a> {
    /// The server had taken the grant back long before the acquire was answered.
    TakenBack { hold: &'a LockHold, grant: &'a ServerGrant },
    /// The server never gave it. `covering`: the grant of another owner that the server showed at the time.
    NeverGiven {
        hold: &'a LockHold,
        covering: Option<&'a ServerGrant>,
    },
    /// The lock was removed while its owner held it.
    Removed(Removal<'a>),
    /// An acquire was refused, and the server gave it the lock.
    Orphan(OrphanGrant<'a>),
}

/// A lock that was removed on request while its owner held it and had not asked for that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removal<'a> {
    pub hold: &'a LockHold,
    pub grant: &'a ServerGrant,
    pub removed_ns: u64,
    pub by: RemovedBy,
}

/// Whose request removed it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RemovedBy {
    Another,
    /// The owner's own release of an inner hold, one of several: the position of its call.
    OwnRelease(u32),
    /// An extension by the owner that was answered ok: the position of its answer.
    OwnExtension(u32),
}

/// What was decided about HL007.
#[derive(Default)]
pub(crate) struct PhantomGrants<'a> {
    /// Not applicable when the lock was not watched; inconclusive when too few holds could be joined to a grant.
    pub verdict: Verdict,
    /// Holds whose reply named a token or an owner of the server's.
    pub known: u64,
    /// Holds that were joined to a grant of the server.
    pub joined: u64,
    /// The first [`limits::MAX_VIOLATIONS`].
    pub wrong: Vec<WrongGrant<'a>>,
    /// All of them.
    pub count: u64,
}

/// Decides HL007.
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
    let orphans = orphans::of(context).into_iter().map(WrongGrant::Orphan);
    for wrong in wrong.chain(orphans) {
        decided.count += 1;
        if decided.wrong.len() < limits::MAX_VIOLATIONS {
            decided.wrong.push(wrong);
        }
    }
    if decided.count > 0 {
        decided.verdict = Verdict::Violated;
    } else if decided.joined > 0 && decided.joined * 100 >= decided.known * limits::JOINED_PERCENT {
        decided.verdict = Verdict::Holds;
    }
    decided
}

/// The grants that an acquire was answered with, by lock and token: none of these is anybody else's.
fn named_grants(context: &Context<'_>) -> FastSet<(u32, u64)> {
    let holds = context.holds.with_locks();
    let named = holds.filter_map(|(lock, hold)| Some((lock as u32, context.grants.token_of(context.history, hold)?)));
    named.collect()
}

/// An acquire that the server knows nothing of, or that it had already taken back.
fn phantom<'a>(context: &'a Context<'_>, named: &FastSet<(u32, u64)>, hold: &'a LockHold) -> Option<WrongGrant<'a>> {
    let history = context.history;
    if hold.is_empty() || !context.grants.is_named(context.history, hold) {
        return None;
    }
    let has_token = context.grants.token_of(context.history, hold).is_some();
    let from = history.ns(hold.from);
    // A name that comes again proves nothing about which of its grants this was; unless the store gives a token with each,
    // this answer came without one, and all of that name's grants were another answer's or had ended before it was asked for.
    let sure =
        |grant: &ServerGrant| grant.token.is_some() && has_token || context.grants.is_single(context.history, hold);
    let without_its_token = history.header.promises.tokens && context.grants.watched().tokens && !has_token;
    let meant = |grant: &&ServerGrant| {
        let mut all = context.grants.of_owner(context.history, hold);
        let is_named = |grant: &ServerGrant| grant.token.is_some_and(|token| named.contains(&(grant.lock, token)));
        let free = |grant: &ServerGrant| !is_named(grant) && !ended_before_the_call(context, grant, hold);
        sure(grant) || !without_its_token || all.any(free)
    };
    let lag_ns = context.sight().lag_ns(from);
    let covering = || covering(context, hold, lag_ns);
    let shows_no_grant = || covering().is_some() || would_show(context, hold, lag_ns);
    if let Some(grant) = context.grants.of_hold(history, hold).filter(meant) {
        if grant.is_out_of_sight(history) || grant.revoked_ns(history)? + limits::OBSERVER_LAG_NS >= from {
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

/// Whether the client stood still while its grant ended, or harness before it read the answer, and it came as soon as that went on: no library
/// can answer earlier, and none can know in that instant that its time is over. So it is on a machine with so much to do that with less the
/// answer would have come within a lease.
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

/// The grant of another owner that the observer showed well before and well after a hold began.
fn covering<'a>(context: &'a Context<'_>, hold: &LockHold, lag_ns: u64) -> Option<&'a ServerGrant> {
    let history = context.history;
    let from = history.ns(hold.from);
    // what is told late seems to stand longer than it did
    if !context.sight().is_whole(from, from + lag_ns) {
        return None;
    }
    let own = context.grants.owner_of(history, hold);
    let covers = |grant: &ServerGrant| {
        let before = grant.granted_ns(history).is_some_and(|granted| granted + lag_ns < from);
        before && grant.revoked_ns(history).unwrap_or(0) > from + lag_ns
    };
    let mut others = alike(context, hold).filter(|grant| own != Some(grant.owner));
    others.find(|grant| covers(grant) && !was_given_back(context, grant, from))
}

/// Whether the observer would have shown a grant of this hold: it was long enough to be seen, and the observer told all, and wrote of this
/// lock before and after.
fn would_show(context: &Context<'_>, hold: &LockHold, lag_ns: u64) -> bool {
    let (history, from) = (context.history, context.history.ns(hold.from));
    let long = history.ns(hold.to).saturating_sub(from) > lag_ns;
    let told = context.sight().is_whole(hold.asked_ns(history), from + lag_ns);
    let unnamed = || unnamed_grants(context, hold, lag_ns).next();
    long && told && observed_around(context, hold, lag_ns) && unnamed().is_none()
}

/// The grants of the lock of a hold of which the observer's lines say what the hold could be joined by.
fn alike<'a>(context: &'a Context<'_>, hold: &LockHold) -> impl Iterator<Item = &'a ServerGrant> {
    let grants = context.grants.of_lock(hold.lock(context.history)).iter();
    grants.filter(move |grant| speaks_alike(context, grant, hold))
}

/// Whether a grant was over when a hold was asked for. Lines of the observer come late and never early, so it was.
fn ended_before_the_call(context: &Context<'_>, grant: &ServerGrant, hold: &LockHold) -> bool {
    let ended = grant.seen_end_ns(context.history);
    ended.is_some_and(|ended| ended < hold.asked_ns(context.history))
}

/// Whether the observer's lines say what this hold could be joined by.
fn speaks_alike(context: &Context<'_>, grant: &ServerGrant, hold: &LockHold) -> bool {
    let grants = &context.grants;
    (grants.token_of(context.history, hold).is_some() && grant.token.is_some())
        || (grants.owner_of(context.history, hold).is_some() && grant.owner != NONE)
}

/// The grants at the beginning of a hold whose owner the observer did not learn: one of them may be the hold's.
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
        came && stays && !speaks_alike(context, grant, hold)
    })
}

/// Whether the owner of a grant had given it back by then, as its own answer says: then the observer showed what was over.
fn was_given_back(context: &Context<'_>, grant: &ServerGrant, ns: u64) -> bool {
    let history = context.history;
    let mut holds = context.holds.by_lock[grant.lock as usize].iter();
    holds.any(|hold| {
        let given_back = hold.ended == Ended::Released && history.ns(hold.to) <= ns;
        let own = || context.grants.of_hold(history, hold);
        given_back && own().is_some_and(|own| own.first() == grant.first())
    })
}

/// Whether the observer wrote about the lock of a hold both shortly before and shortly after its beginning, and had not lost sight of it in
/// between.
fn observed_around(context: &Context<'_>, hold: &LockHold, lag_ns: u64) -> bool {
    let (history, ns) = (context.history, context.history.ns(hold.from));
    let (mut before, mut after) = (false, false);
    let mut blind_since = None;
    let mut last_seen = 0;
    for grant in alike(context, hold) {
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

/// How a lock was removed on request while its owner held it, if it was.
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
    let inside = removed_ns > history.ns(hold.from) + margin && removed_ns < history.ns(hold.to);
    // A loss that the owner was told of shortly after, or its death, may be why the lock was deleted.
    let by_itself = hold.ended != Ended::Released && history.ns(hold.to) < removed_ns + limits::OBSERVER_LAG_NS;
    if inside && let Some(answer) = extension_that_removed(context, hold, removed_ns) {
        return removed(RemovedBy::OwnExtension(answer));
    }
    // all holds of the lock are looked at, so only for an end that would count
    let of_before = || !named && is_of_a_hold_before(context, hold, grant, removed_ns);
    if !inside || by_itself || may_be_an_expiry(context, hold, grant, removed_ns) || of_before() {
        return None;
    }
    removed(inner_release(context, hold, removed_ns).map_or(RemovedBy::Another, RemovedBy::OwnRelease))
}

/// The answer `ok` to an extension of a hold while which its lock was removed. One that compares its owner would not have been answered so if
/// another's request had come before.
fn extension_that_removed(context: &Context<'_>, hold: &LockHold, removed_ns: u64) -> Option<u32> {
    let history = context.history;
    context.extensions_of(hold).find(|answer| {
        let answer = history.event(*answer);
        let called_ns = history.event(answer.mate).time;
        (called_ns..=answer.time.saturating_add(limits::AT_ONCE_NS)).contains(&removed_ns)
    })
}

/// Whether this may be the end of an earlier grant of the same name, told late: of as many ends as there were holds before, and no more.
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

/// The first of several releases by the owner itself, if it was called before the lock was removed.
fn inner_release(context: &Context<'_>, hold: &LockHold, removed_ns: u64) -> Option<u32> {
    if !context.model.is_reentrant() {
        return None;
    }
    let events = context.history.events.iter().enumerate();
    let mut inside = events.take(hold.end as usize).skip(hold.got as usize);
    let release = inside.find(|(_, event)| {
        event.process == hold.process
            && event.is_call(F::Release)
            && context.history.lock_number(*event) == Some(hold.lock(context.history))
            && event.time <= removed_ns
    });
    release.map(|(position, _)| position as u32)
}

/// "Deleted" is all that some stores say of an expiry, too: then it proves nothing once the lease may have run out.
pub(crate) fn may_be_an_expiry(context: &Context<'_>, hold: &LockHold, grant: &ServerGrant, removed: u64) -> bool {
    let history = context.history;
    if grant.was_released(history) {
        return false;
    }
    let asked = hold.asked_ns(history);
    let lease_ns = match context.is_lease_known() {
        true => context.lease_ns,
        false => limits::ns(limits::LEAST_LEASE_MS),
    };
    let client = history.client_of(hold.process);
    let old = removed.saturating_sub(asked) >= lease_ns / 100 * limits::LEASE_SHARE_PERCENT;
    // whether or not it did anything to the client; and observers of other recorders say so of what a server lost, too
    let is_excuse = |window: &Window| {
        let of_a_server = || !window.is_of_clients() && history.phases().is_empty();
        window.names_client(client) || of_a_server()
    };
    old || context.windows_in(asked, removed).any(is_excuse)
}
