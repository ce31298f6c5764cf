//! The likely cause of an overlap, in words, and its remedy.

use super::{
    EARLY_RELEASE, OF_AN_EARLIER_SESSION, OVERWRITTEN, RELEASED_BY_ITS_SESSION, REMOVED_BY_A_REQUEST,
    REMOVED_BY_EXTENSION, length,
};
use crate::context::Context;
use crate::exclusion::OverlapClass;
use crate::exclusion::cause::{self, OverlapCause, ShortLease};
use crate::extensions;
use crate::grants::ServerGrant;
use crate::history::Window;
use crate::holds::LockHold;
use crate::overlaps::Overlap;
use crate::phantom::grant_by_another_name;
use crate::watched::NotWatched;

/// Returns the likely cause of an overlap of a class, whatever the faults were.
pub(super) fn likely_of(class: OverlapClass) -> &'static str {
    match class {
        OverlapClass::GrantedTwice => {
            "the server gave the lock to a second owner while the first still had it: look at failover, at a lost key, and \
             at an acquire that does not ask whether the lock is free"
        }
        OverlapClass::ToldWithoutGrant => {
            "the server gave the lock to only one of the two: look for an acquire that is answered `ok` without a grant, \
             such as one that does not wait for its turn"
        }
        OverlapClass::ToldTwice => {
            "both acquires were answered `ok` within one lease: look at failover, at a lost key, or at an acquire that is \
             answered `ok` without a grant"
        }
        OverlapClass::StaleHolder => {
            "the holder went on after its lease had run out: stop work when the connection is suspended, or let \
             the store refuse stale tokens"
        }
        OverlapClass::ForeignRelease => {
            "a client released a lock that it did not own: compare the owner and delete in one atomic step"
        }
        OverlapClass::Overwritten => OVERWRITTEN,
        OverlapClass::EarlyRelease => EARLY_RELEASE,
        OverlapClass::WrongExtension => REMOVED_BY_EXTENSION,
        OverlapClass::TooManyPermits => {
            "more permits were held than there are: look at how an acquire counts the held permits, and at releases that are \
             counted twice"
        }
    }
}

/// Returns whether a release by another client may have removed the grant of a hold, or the grant is not known.
fn is_beside_a_release(context: &Context<'_>, hold: &LockHold) -> bool {
    let grant = context.grants.of_hold(context.history, hold);
    let removed_ns = grant.and_then(|grant| grant.revoked_ns(context.history));
    removed_ns.is_none_or(|ns| context.release_that_removed(hold, ns).is_some())
}

/// Returns whether a holder without a grant relies on the grant of another name of its client.
fn is_by_another_name(context: &Context<'_>, overlap: &Overlap) -> bool {
    let mut holds = [&overlap.first, &overlap.second].into_iter();
    holds.any(|hold| {
        context.grants.of_hold(context.history, hold).is_none() && grant_by_another_name(context, hold).is_some()
    })
}

/// Returns whether the answers of the two holders name one grant of the server.
fn are_of_one_grant(context: &Context<'_>, overlap: &Overlap) -> bool {
    let grant = |hold: &LockHold| context.grants.of_hold(context.history, hold).map(ServerGrant::first);
    grant(&overlap.first).is_some() && grant(&overlap.first) == grant(&overlap.second)
}

/// Returns the likely cause of an overlap of a class, if the two holds matter.
fn of_class(context: &Context<'_>, class: OverlapClass, overlap: &Overlap) -> &'static str {
    match class {
        OverlapClass::WrongExtension if extensions::began_again(context.history, &overlap.second) => EXTENDED_ANOTHERS,
        OverlapClass::ForeignRelease if cause::is_of_a_session(context) => RELEASED_BY_ITS_SESSION,
        OverlapClass::ForeignRelease if !is_beside_a_release(context, &overlap.first) => REMOVED_BY_A_REQUEST,
        OverlapClass::ToldWithoutGrant if is_by_another_name(context, overlap) => OF_AN_EARLIER_SESSION,
        OverlapClass::GrantedTwice if are_of_one_grant(context, overlap) => OF_ONE_GRANT,
        OverlapClass::ToldTwice if context.history.header.promises.lease == Some(false) => OF_NO_LEASE,
        OverlapClass::ToldTwice if context.history.header.lease_ms.is_none() => OF_AN_UNKNOWN_LEASE,
        class => likely_of(class),
    }
}

const OF_ONE_GRANT: &str = "both answers name one grant of the server, which takes the two holders for one owner: give each acquire its own \
     name, and do not share the session or connection that has the lock, as a pool or a pooler does";
const OF_NO_LEASE: &str = "both acquires were answered `ok`, and the lock has no lease: look at a session or connection that ended, at \
     failover, at a lost key, or at an acquire that is answered `ok` without a grant";
const OF_AN_UNKNOWN_LEASE: &str = "both acquires were answered `ok`, and the length of a lease is not known: look at a lease that had run out, \
     at failover, at a lost key, or at an acquire that is answered `ok` without a grant";
const FAILED_OVER: &str = "the promoted replica did not have the lock: a lock on a single master does not survive a failover; ask a \
     majority, or let the store refuse stale tokens";
const STOOD_STILL: &str = "the holder was stopped while its lease ran out, and no client can notice that in time: let the store \
     refuse stale tokens";
const SESSION_ENDED: &str = "the lock, which has no lease, ended by itself on the server, as it does with the session or connection that has \
     it: watch that, and stop work when it ends";
const ENDED_UNEXPLAINED: &str = "the lock, which has no lease, ended on the server, and the observer does not say why: look at the session \
     or connection that has it, and at requests that remove the lock";
const ENDED: &str = "the server ended the grant";
const ASKED_FOR: &str = "it was asked for";
const EXTENDED_ANOTHERS: &str = "an `extend` was answered ok although another client had the lock by then: compare the owner and set the time \
     to live in one atomic step";

fn forgotten(window: &Window, may_be_over: bool) -> String {
    format!(
        "the lock was gone after {} of {}: a server that restarts without its data grants a held lock again{}; let it write to \
         disk before it answers, or ask a majority of servers",
        window.name(),
        window.started.targets.join(" "),
        if may_be_over {
            ", and by then the lease may have run out as well"
        } else {
            ""
        }
    )
}

fn not_known(context: &Context<'_>, overlap: &Overlap, may_be_over: bool) -> String {
    format!(
        "not known from this history: the owner on the server is not recorded; the server lost the lock, a client removed it, {}or an \
         acquire was answered `ok` without a grant{}",
        match (may_be_over, context.history.header.promises.renews) {
            (false, _) => "",
            (true, Some(true)) => "a renewal did not come in time, ",
            (true, Some(false)) => "its lease had run out, ",
            (true, None) => "its lease had run out and is not renewed, a renewal did not come in time, ",
        },
        not_seen(context, overlap)
    )
}

/// Returns the reason why no grant was seen, and the option that would show it. Where the observer saw everything, an answer has no name.
fn not_seen(context: &Context<'_>, overlap: &Overlap) -> &'static str {
    let history = context.history;
    let from_ns = history.ns(overlap.from());
    let grant = cause::shown_last(context, &overlap.first, from_ns);
    let is_lost = grant.is_some_and(|grant| grant.is_out_of_sight(history));
    let sees_all = !is_lost && context.sight().is_whole(history.ns(overlap.first.from), from_ns);
    match context.not_watched {
        None if sees_all => "",
        None | Some(NotWatched::NothingSeen) => "; no server answered the observer at that time",
        Some(NotWatched::NoObserver) => "; an observer of the server would record it",
        Some(_) => "; with `keys` and `owner` in the contract, the observer records it",
    }
}

/// Returns the likely cause, and its remedy.
pub(super) fn likely(context: &Context<'_>, class: OverlapClass, overlap: &Overlap) -> String {
    let cause = cause::cause(context, class, overlap);
    match cause {
        OverlapCause::OfClass(class) => of_class(context, class, overlap).to_owned(),
        OverlapCause::Forgotten { window, may_be_over } => forgotten(window, may_be_over),
        OverlapCause::Failover => FAILED_OVER.to_owned(),
        OverlapCause::ServerClock(window) => format!(
            "the wall clock of {} was stepped while c{} held the lock: a server that measures a time to live with its \
             wall clock ends it early",
            window.started.targets.join(" "),
            context.history.client_of(overlap.first.process)
        ),
        OverlapCause::ClientClock { client, window } => format!(
            "the wall clock of c{client} was stepped by {}: a client that checks the expiry of a lock with its own wall clock \
             is wrong by the same amount; let the server check it, or use a monotonic clock",
            window.name()
        ),
        OverlapCause::AnsweredTooLate(late) => format!(
            "the acquire of c{} was answered {} after it was called, when its lease was over{}: check the time after the reply, and \
             answer `fail` when the lease is over",
            late.client,
            length(late.after_ns),
            if late.is_lost {
                ", and was lost in the same instant"
            } else {
                ""
            }
        ),
        OverlapCause::CountedFromTheAnswer(late) => format!(
            "the acquire of c{} was answered {} after the server had granted it, and the holder went on until less than a lease \
             after the answer: count the lease from before the request",
            late.client,
            length(late.after_ns)
        ),
        OverlapCause::ConnectionEnded(window) => format!(
            "{} ended connections of c{} while it held the lock, and a lock of a connection (an advisory lock, a row that a \
             transaction locks) ends with it: watch the connection, and stop work when it ends{}",
            window.name(),
            context.history.client_of(overlap.first.process),
            never_told(context)
        ),
        OverlapCause::SessionEnded => format!("{SESSION_ENDED}{}", never_told(context)),
        OverlapCause::EndedUnexplained => format!("{ENDED_UNEXPLAINED}{}", never_told(context)),
        OverlapCause::RemovedEarly(lease) => {
            let request = "a request deleted its key, or revoked its lease";
            early("the lock was removed", ASKED_FOR, lease, request)
        }
        OverlapCause::EndedEarly(lease) => ended_early(context, overlap, lease),
        OverlapCause::ExtendedInVain(lease) => {
            let extension = "the call of an extension that was answered ok";
            let look = "look at the time to live that the extension sets, and at the answer that it reads";
            early(ENDED, extension, lease, look)
        }
        OverlapCause::StoodStill => STOOD_STILL.to_owned(),
        OverlapCause::MessageKept(message) => format!(
            "the fault kept back `{}` of {}: look at how the library handles a request or a reply that never arrives",
            message.message, message.client
        ),
        OverlapCause::CutOff(window) => format!(
            "the holder went on after its lease had run out under {}: stop work when the connection is suspended, or let the store \
             refuse stale tokens{}",
            window.name(),
            never_told(context)
        ),
        OverlapCause::PastItsLease => format!("{}{}", likely_of(OverlapClass::StaleHolder), never_told(context)),
        OverlapCause::NotKnown { may_be_over } => not_known(context, overlap, may_be_over),
    }
}

/// Describes a grant that ended early, by an expiry or for a reason that is not known.
fn ended_early(context: &Context<'_>, overlap: &Overlap, lease: ShortLease) -> String {
    let history = context.history;
    let grant = cause::shown_last(context, &overlap.first, history.ns(overlap.from()));
    let why = match grant.is_some_and(|grant| grant.has_expired(history)) {
        true => "look at the time to live that the client asked for",
        false => {
            "the server does not say why; look at the time to live that the client asked for, and at requests that remove the lock"
        }
    };
    early(ENDED, ASKED_FOR, lease, why)
}

/// Describes an end that came soon after a request, before the end of the lease, and its likely cause.
fn early(what: &str, request: &str, ShortLease { lasted_ns, lease_ms }: ShortLease, why: &str) -> String {
    let lasted = length(lasted_ns);
    format!("{what} {lasted} after {request}, before its lease of {lease_ms} ms was over: {why}")
}

/// Returns a remark on a library that never signals a loss.
fn never_told(context: &Context<'_>) -> &'static str {
    match context.history.counts.lost {
        0 => " (no client of this history ever said `lost`)",
        _ => "",
    }
}
