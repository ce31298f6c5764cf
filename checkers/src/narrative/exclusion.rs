//! HL001 in words: what an overlap is, how it came to that, and the likely cause.

use super::extending::{REMOVED_BY_EXTENSION, got};
use super::{
    EARLY_RELEASE, OVERWRITTEN, REMOVED_BY_A_REQUEST, at, finding, in_brackets, length, many, thousands, violated,
};
use crate::context::Context;
use crate::exclusion::cause::{self, OverlapCause};
use crate::exclusion::{DoubleGrant, Exclusion, OverlapClass, before_change, beyond_permits, given_up};
use crate::extensions;
use crate::finding::{Because, Finding, Property, Verdict, Violation};
use crate::history::Window;
use crate::history::names::NONE;
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::overlaps::{Conflict, Overlap};
use crate::standstill;
use crate::watched::NotWatched;

/// The finding of HL001.
pub(crate) fn tell(context: &Context<'_>, decided: &Exclusion<'_>) -> Finding {
    let (count, overlaps) = (context.holds.count() as u64, &context.overlaps);
    let holds = many(count, "hold", "holds");
    let mut told = match decided.verdict {
        Verdict::NotApplicable => return finding(Property::Hl001, decided.verdict, "a register has no holders"),
        Verdict::Inconclusive if !context.excused.is_empty() => {
            let overlaps = many(context.excused.len() as u64, "overlap", "overlaps");
            let evidence = format!("{overlaps} of {holds} not judged: {}", standstill::REASON);
            return finding(Property::Hl001, decided.verdict, evidence);
        }
        Verdict::Inconclusive if count > 0 => {
            let evidence = format!("{holds}, and none lasted");
            return finding(Property::Hl001, decided.verdict, evidence);
        }
        Verdict::Inconclusive => return finding(Property::Hl001, decided.verdict, "no client acquired the lock"),
        Verdict::Holds => {
            let none = if context.model.capacity() > 1 {
                "never more than the permits"
            } else {
                "no two overlap"
            };
            finding(Property::Hl001, Verdict::Holds, format!("{holds}, {none}"))
        }
        Verdict::Violated => {
            let conflicts = context.conflicts.iter().zip(&decided.classes);
            let conflicts = conflicts.map(|(conflict, class)| describe(context, conflict, *class));
            let doubles = decided.doubles.iter().map(|double| granted_twice(context, double));
            let (count, twice) = (context.conflicts.len() as u64, decided.doubles.len() as u64);
            let by = many(count, "holder that went on", "holders that went on");
            let mut evidence = format!(
                "{} of {holds}, by {by}",
                many(overlaps.len() as u64, "overlap", "overlaps")
            );
            if twice > 0 {
                evidence += &format!("; {} of a lock that had an owner", many(twice, "grant", "grants"));
            }
            violated(Property::Hl001, evidence, conflicts.chain(doubles), count + twice)
        }
    };
    told.figure("holds", count as f64);
    told.figure("overlaps", overlaps.len() as f64);
    told.figure("overlaps_within_lease", decided.within_lease as f64);
    told
}

/// The likely cause of an overlap of that class, whatever the faults were.
fn likely_of(class: OverlapClass) -> &'static str {
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

/// Whether another client was releasing the lock when the grant of a hold was removed; taken as one where no grant is known.
fn is_beside_a_release(context: &Context<'_>, hold: &LockHold) -> bool {
    let grant = context.grants.of_hold(context.history, hold);
    let removed_ns = grant.and_then(|grant| grant.revoked_ns(context.history));
    removed_ns.is_none_or(|ns| context.release_of_another(hold, ns, limits::OBSERVER_LAG_NS).is_some())
}

/// The same where it depends on the two.
fn of_class(context: &Context<'_>, class: OverlapClass, overlap: &Overlap) -> &'static str {
    match class {
        OverlapClass::WrongExtension if extensions::began_again(context.history, &overlap.second) => EXTENDED_ANOTHERS,
        OverlapClass::ForeignRelease if !is_beside_a_release(context, &overlap.first) => REMOVED_BY_A_REQUEST,
        class => likely_of(class),
    }
}

const STOOD_STILL: &str = "the holder was stopped while its lease ran out, and no client can notice that in time: let the store \
     refuse stale tokens";
const EXTENDED_ANOTHERS: &str = "an `extend` was answered ok although another client had the lock by then: compare the owner and set the time \
     to live in one atomic step";

fn forgotten(window: &Window, may_be_over: bool) -> String {
    format!(
        "the lock was gone after {} {} of {}: a server that restarts without its data grants a held lock again{}; let it write to \
         disk before it answers, or ask a majority of servers",
        window.fault,
        window.number,
        window.started.targets.join(" "),
        if may_be_over {
            ", and by then the lease may have run out as well"
        } else {
            ""
        }
    )
}

fn not_known(context: &Context<'_>, may_be_over: bool) -> String {
    format!(
        "not known from this history: the owner on the server is not recorded; the server lost the lock, a client removed it, {}or an \
         acquire was answered `ok` without a grant{}",
        if may_be_over {
            "a renewal did not come in time, "
        } else {
            ""
        },
        not_seen(context)
    )
}

/// Why nobody saw it, and what would tell.
fn not_seen(context: &Context<'_>) -> &'static str {
    match context.not_watched {
        None | Some(NotWatched::NothingSeen) => "; no server answered the observer at that time",
        Some(NotWatched::NoObserver) => "; an observer of the server would record it",
        Some(_) => "; with `keys` and `owner` in the contract, the observer records it",
    }
}

/// The likely cause, and how to mend it.
fn likely(context: &Context<'_>, class: OverlapClass, overlap: &Overlap) -> String {
    let cause = cause::cause(context, class, overlap);
    match cause {
        OverlapCause::OfClass(class) => of_class(context, class, overlap).to_owned(),
        OverlapCause::Forgotten { window, may_be_over } => forgotten(window, may_be_over),
        OverlapCause::Failover => {
            "the promoted replica did not have the lock: a lock on a single master does not survive a failover; ask a \
             majority, or let the store refuse stale tokens"
                .to_owned()
        }
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
        OverlapCause::ConnectionEnded { client, window } => format!(
            "{} ended connections of c{client} while it held the lock, and a lock of a connection (an advisory lock) ends with it: \
             watch the connection, and stop work when it ends{}",
            window.name(),
            never_told(context.history.counts.lost > 0)
        ),
        OverlapCause::RemovedEarly { lasted_ns, lease_ms } => {
            let request = "a request deleted its key, or revoked its lease";
            early("the lock was removed", lasted_ns, lease_ms, request)
        }
        OverlapCause::EndedEarly { lasted_ns, lease_ms } => {
            let asked = "look at the time to live that the client asked for";
            early("the server ended the grant", lasted_ns, lease_ms, asked)
        }
        OverlapCause::ExtendedInVain { lasted_ns, lease_ms } => in_vain(lasted_ns, lease_ms),
        OverlapCause::StoodStill => STOOD_STILL.to_owned(),
        OverlapCause::MessageKept(message) => format!(
            "the fault kept back `{}` of {}: look at how the library handles a request or a reply that never arrives",
            message.message, message.client
        ),
        OverlapCause::CutOff { window, is_told } => format!(
            "the holder went on after its lease had run out under {}: stop work when the connection is suspended, or let the store \
             refuse stale tokens{}",
            window.name(),
            never_told(is_told)
        ),
        OverlapCause::PastItsLease { is_told } => {
            format!("{}{}", likely_of(OverlapClass::StaleHolder), never_told(is_told))
        }
        OverlapCause::NotKnown { may_be_over } => not_known(context, may_be_over),
    }
}

/// What ended so early, and why.
fn early(what: &str, lasted_ns: u64, lease_ms: u64, why: &str) -> String {
    let lasted = length(lasted_ns);
    format!("{what} {lasted} after it was asked for, before its lease of {lease_ms} ms was over: {why}")
}

/// The same of a lease that was extended.
fn in_vain(lasted_ns: u64, lease_ms: u64) -> String {
    format!(
        "the server ended the grant {} after the call of an extension that was answered ok, before its lease of {lease_ms} ms was over: \
         look at the time to live that the extension sets, and at the answer that it reads",
        length(lasted_ns)
    )
}

/// What is said of a library that never tells of a loss.
fn never_told(is_told: bool) -> &'static str {
    if is_told {
        ""
    } else {
        " (no client of this history ever said `lost`)"
    }
}

/// A grant that the server gave while another one stood, by its own lines.
fn granted_twice(context: &Context<'_>, double: &DoubleGrant<'_>) -> Violation {
    let (history, DoubleGrant { first, second, .. }) = (context.history, double);
    let (class, lock) = (OverlapClass::GrantedTwice, first.lock(history));
    let (given_ns, until_ns) = (double.granted_ns, history.ns(first.to));
    let mut violation = context.violation(class.name(), lock, &[first.process, second.process], given_ns);
    violation.overlap_ns = Some((given_ns, until_ns));
    let (a, b) = history.both(first.process, second.process);
    violation.summary = format!(
        "the server's own record shows a grant of `{}` to {b} while {a} had it",
        violation.lock
    );
    violation.show(history, first.got, "got the lock");
    violation.show(
        history,
        double.grant.granted,
        "the server made another client the owner",
    );
    if let Some(role) = ending(first) {
        violation.show(history, first.end, role);
    }
    let text = format!("{a} got the lock at {}.", at(history.ns(first.from)));
    violation.say(history, text, &[first.got]);
    let text = format!(
        "The server made {b} the owner by {}, and {a} held the lock until {}.",
        at(given_ns),
        at(until_ns)
    );
    violation.say(history, text, &[double.grant.granted]);
    let text = format!(
        "{b} got its reply at {}, so the two holds did not overlap.",
        at(history.ns(second.from))
    );
    violation.say(history, text, &[second.got]);
    violation.likely = Some(likely_of(class).to_owned());
    violation
}

fn describe(context: &Context<'_>, conflict: &Conflict, class: OverlapClass) -> Violation {
    let history = context.history;
    let overlap = &conflict.opening;
    let (first, second) = (&overlap.first, &overlap.second);
    let (from_ns, to_ns) = (history.ns(overlap.from()), history.ns(overlap.to()));
    let lock = second.lock(history);
    let mut violation = context.violation(class.name(), lock, &[first.process, second.process], from_ns);
    violation.overlap_ns = Some((from_ns, to_ns));
    let same = history.client_of(first.process) == history.client_of(second.process);
    let clients = if same {
        "two processes of one client"
    } else {
        "two clients"
    };
    violation.summary = match class {
        OverlapClass::TooManyPermits => format!("more clients held `{}` than it has permits", violation.lock),
        _ => format!(
            "{clients} held `{}` at the same time, for at least {}{}",
            violation.lock,
            length(conflict.shared_ns),
            if conflict.count > 1 {
                format!(" in {} overlaps", thousands(conflict.count))
            } else {
                String::new()
            }
        ),
    };
    for before in [first, second]
        .into_iter()
        .filter_map(|hold| before_change(context, hold))
    {
        violation.show(history, before.got, "had it in another mode");
    }
    let others: Vec<&LockHold> = match class {
        OverlapClass::TooManyPermits => beyond_permits(context, overlap),
        _ => Vec::new(),
    };
    for hold in [first, second].into_iter().chain(others.iter().copied()) {
        for position in given_up(context, hold) {
            violation.show(history, position, "gave up a part of it");
        }
    }
    violation.show(history, first.got, "got the lock");
    for other in others {
        violation.show(history, other.got, "also held the lock");
        if other.end != NONE {
            violation.show(history, other.end, "end of its hold");
        }
    }
    violation.show(history, second.got, "got the lock, too");
    if let Some(role) = ending(first) {
        violation.show(history, first.end, role);
    }
    violation.because = story(context, conflict, class);
    violation.likely = Some(likely(context, class, overlap));
    violation.figure("overlap_ms", conflict.shared_ns as f64 / 1e6);
    violation.figure("overlaps", conflict.count as f64);
    super::stands_up_to(context, &mut violation, conflict.longest_ns);
    violation
}

fn ending(hold: &LockHold) -> Option<&'static str> {
    match hold.ended {
        Ended::Open => None,
        Ended::Released => Some("release call"),
        Ended::Lost => Some("told that it lost the lock"),
        Ended::Died => Some("died"),
        Ended::Changed => Some("changed its mode"),
    }
}

/// At most four sentences, in the order of time: how the first got it and what was done to it, what the server did, how the
/// second got it, until when both held it.
fn story(context: &Context<'_>, conflict: &Conflict, class: OverlapClass) -> Vec<Because> {
    let (history, overlap) = (context.history, &conflict.opening);
    let (first, second) = (&overlap.first, &overlap.second);
    let (a, b) = history.both(first.process, second.process);
    let token = |hold: &LockHold| in_brackets(hold.token(history).map(|token| format!("token {token}")));
    let grants = &context.grants;
    let grant = cause::shown_last(context, first, history.ns(overlap.from()));
    let by_the_server = [
        OverlapClass::ToldWithoutGrant,
        OverlapClass::ToldTwice,
        OverlapClass::GrantedTwice,
    ];
    let before = overwritten_before_it_was_told(context, overlap, class);
    let is_by_the_server = by_the_server.contains(&class) || class == OverlapClass::TooManyPermits;
    let extended = extensions::began_again(history, second);
    let taken = grant.filter(|own| !is_by_the_server && before.is_none() && !extended && !own.is_out_of_sight(history));
    let taken_ns = taken.and_then(|grant| grant.revoked_ns(history));
    let (first_ns, second_ns) = (history.ns(first.from), history.ns(second.from));
    let how = how_it_got_it(context, overlap, (&a, &token(first)), taken_ns);
    let mut told = vec![(first_ns, how)];
    told.extend(before);
    if let (Some(grant), Some(ns)) = (taken, taken_ns) {
        let cause = in_brackets(grant.cause(history));
        let by_release = class == OverlapClass::ForeignRelease;
        let release = by_release.then(|| context.release_of_another(first, ns, limits::OBSERVER_LAG_NS));
        told.push((
            ns,
            match release.flatten().map(|call| (call, history.event(call))) {
                Some((call, event)) => {
                    let by = history.who(event.process);
                    let text = format!(
                        "The release of {by}, called at {}, removed the lock of {a} at {}, and {a} went on.",
                        at(event.time),
                        at(ns)
                    );
                    history.because(text, &[call, grant.revoked])
                }
                None => {
                    let text = format!("The server took it from {a} at {}{cause}, and {a} went on.", at(ns));
                    history.because(text, &[grant.revoked])
                }
            },
        ));
    }
    let got = format!("{b} {} at {}{}.", got(history, second), at(second_ns), token(second));
    let ungranted = class == OverlapClass::ToldWithoutGrant && grants.of_hold(history, second).is_none();
    let got = if ungranted {
        format!("{got} The server shows no grant to it.")
    } else {
        got
    };
    told.push((second_ns, history.because(got, &[second.got])));
    told.sort_by_key(|(ns, _)| *ns);
    let mut chain: Vec<Because> = told.into_iter().map(|(_, because)| because).collect();
    chain.push(last_sentence(context, conflict, (&a, &b)));
    chain
}

/// When the entry of the second was overwritten by that of the first, where the answer to the second was still under way.
fn overwritten_before_it_was_told(
    context: &Context<'_>,
    overlap: &Overlap,
    class: OverlapClass,
) -> Option<(u64, Because)> {
    let history = context.history;
    let first = context.grants.of_hold(history, &overlap.first)?;
    let second = context.grants.of_hold(history, &overlap.second)?;
    let ended_ns = second.revoked_ns(history)?;
    (class == OverlapClass::Overwritten && second.revoked < first.granted).then(|| {
        let (a, b) = history.both(overlap.first.process, overlap.second.process);
        let text = format!(
            "The server had granted it to {b}, and {a} overwrote that grant at {}, before {b} got its reply.",
            at(ended_ns)
        );
        (ended_ns, history.because(text, &[second.granted, second.revoked]))
    })
}

/// How the first got the lock, and what a fault did to it until the server took the lock back, or the second had it.
fn how_it_got_it(context: &Context<'_>, overlap: &Overlap, (a, token): (&str, &str), taken_ns: Option<u64>) -> Because {
    let (history, first) = (context.history, &overlap.first);
    let from_ns = history.ns(first.from);
    let until_ns = taken_ns
        .unwrap_or(u64::MAX)
        .min(history.ns(overlap.from()))
        .max(from_ns);
    let kept = context.kept_working_ms(first).map(|ms| {
        let kept = length(limits::ns(ms));
        format!(", and the schedule kept it working for {kept} as the target of a fault")
    });
    let got = format!(
        "{a} {} at {}{token}{}.",
        got(history, first),
        at(from_ns),
        kept.unwrap_or_default()
    );
    let mut extended = extensions::answered_ok(history, first).filter(|answer| history.event(*answer).time <= until_ns);
    let got = match extended.by_ref().last() {
        Some(answer) => format!(
            "{got} It extended its lease, the last time by {}.",
            at(history.event(answer).time)
        ),
        None => got,
    };
    let touched = || context.window_that_touched(history.client_of(first.process), from_ns, until_ns);
    let Some(window) = cause::end_of_lease(context, overlap).or_else(touched) else {
        return history.because(got, &[first.got]);
    };
    let acted_ns = window.acted_ns();
    let when = if acted_ns < from_ns { "Since" } else { "At" };
    let text = format!(
        "{got} {when} {} it was {} by {}.",
        at(acted_ns),
        verb(window),
        window.name()
    );
    let mut because = history.because(text, &[first.got]);
    because.events.push(window.start_index);
    because
}

/// What a fault does to a client that it names: in its own word, or, in older histories, by its name.
fn verb(window: &Window) -> &str {
    if let Some(verb) = &window.started.verb {
        return verb;
    }
    match window.fault.split('-').next().unwrap_or_default() {
        "partition" | "reset" | "flaky" => "cut off",
        "pause" => "stopped",
        "failover" => "led to another server",
        "kill" => "killed",
        "latency" | "slow" | "delay" => "slowed",
        _ => "touched",
    }
}

fn last_sentence(context: &Context<'_>, conflict: &Conflict, (a, b): (&str, &str)) -> Because {
    let (history, overlap) = (context.history, &conflict.opening);
    let first = conflict.count > 1 || overlap.first.to <= overlap.second.to;
    let (hold, name) = if first {
        (&overlap.first, a)
    } else {
        (&overlap.second, b)
    };
    let until = at(history.ns(hold.to));
    let text = match hold.ended {
        Ended::Open => format!("{name} had not released it when the history ended at {until}."),
        Ended::Released => format!("{name} went on until its release call at {until}."),
        Ended::Lost => format!("{name} went on until it was told of the loss at {until}."),
        Ended::Died => format!("{name} went on until it died at {until}."),
        Ended::Changed => format!("{name} went on in that mode until {until}."),
    };
    history.because(text, &[hold.end])
}
