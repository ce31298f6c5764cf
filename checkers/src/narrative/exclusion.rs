//! HL001 in words: what an overlap is, how it came to that, and the likely cause.

use super::{at, finding, length, many, thousands, violated};
use crate::calm;
use crate::context::Context;
use crate::exclusion::{Exclusion, OverlapClass, before_change, beyond_permits, given_up};
use crate::finding::{Because, Finding, Property, Verdict, Violation};
use crate::history::names::NONE;
use crate::history::{RevokeCause, Window};
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::overlaps::{Conflict, Overlap};
use crate::standstill;

/// The finding of HL001.
pub(crate) fn tell(context: &Context<'_>, decided: &Exclusion) -> Finding {
    let (count, overlaps) = (context.holds.count() as u64, &context.overlaps);
    let holds = many(count, "hold", "holds");
    let mut told = match decided.verdict {
        Verdict::NotApplicable => return finding(Property::Hl001, decided.verdict, "a register is not held"),
        Verdict::Inconclusive if !context.excused.is_empty() => {
            let overlaps = many(context.excused.len() as u64, "overlap", "overlaps");
            let evidence = format!("{overlaps} of {holds} not judged: {}", standstill::REASON);
            return finding(Property::Hl001, decided.verdict, evidence);
        }
        Verdict::Inconclusive if count > 0 => {
            let evidence = format!("{holds}, and none lasted");
            return finding(Property::Hl001, decided.verdict, evidence);
        }
        Verdict::Inconclusive => return finding(Property::Hl001, decided.verdict, "nobody acquired the lock"),
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
            let violations = conflicts
                .map(|(conflict, class)| describe(context, conflict, *class))
                .collect();
            let count = context.conflicts.len() as u64;
            let by = many(count, "holder that went on", "holders that went on");
            let evidence = format!(
                "{} of {holds}, by {by}",
                many(overlaps.len() as u64, "overlap", "overlaps")
            );
            violated(Property::Hl001, evidence, violations, count)
        }
    };
    told.figures.insert("holds".into(), count as f64);
    told.figures.insert("overlaps".into(), overlaps.len() as f64);
    told.figures
        .insert("overlaps_within_lease".into(), decided.within_lease as f64);
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
            "the server gave the lock to one of the two only: look for an acquire that is answered without having won, \
             such as a jump of the queue"
        }
        OverlapClass::ToldTwice => {
            "both were told that they have the lock within one lease: look at failover, at a lost key, or at an acquire \
             that is answered without having won"
        }
        OverlapClass::StaleHolder => {
            "the holder went on after its lease had run out: stop work when the connection is suspended, or let \
             the store refuse tokens that go back"
        }
        OverlapClass::ForeignRelease => {
            "a client released a lock that it did not own: compare the owner and delete in one atomic step"
        }
        OverlapClass::Overwritten => {
            "an acquire wrote over the value of another owner: write it only where there is none (SET NX, a create, a \
             transaction that compares)"
        }
        OverlapClass::EarlyRelease => "a release that does not count how often its owner took the lock",
        OverlapClass::TooManyPermits => {
            "more permits were given out than there are: look at releases that are counted twice"
        }
    }
}

/// Why a holder went on without its lock: what was done to it, if anything, and how its grant ended.
fn likely(context: &Context<'_>, class: OverlapClass, first: &LockHold, from_ns: u64) -> String {
    let history = context.history;
    let client = history.client_of(first.process);
    let grant = context.grants.of_hold(history, first);
    let cause = grant.and_then(|grant| grant.cause(history));
    let told = matches!(
        class,
        OverlapClass::StaleHolder | OverlapClass::ToldTwice | OverlapClass::GrantedTwice
    );
    if let Some(window) = server_that_forgot(context, first, from_ns).filter(|_| told) {
        return format!(
            "the lock was gone when {} came back from {} {}: a server that restarts without its data gives a lock again; \
             let it write to disk before it answers, or ask a majority of servers",
            window.started.targets.join(" "),
            window.fault,
            window.number
        );
    }
    if class != OverlapClass::StaleHolder {
        return likely_of(class).to_owned();
    }
    if cause == Some(RevokeCause::Failover) {
        return "the replica that took over did not have the lock: one that lives on a single master does not survive its \
                failover; ask a majority, or let the store refuse tokens that go back"
            .to_owned();
    }
    let expired = cause.as_ref().is_none_or(|cause| *cause == RevokeCause::Expired);
    if let Some(window) = stepped_server(context, first, from_ns).filter(|_| expired) {
        return format!(
            "the wall clock of {} was stepped while c{client} held the lock: a server that counts a time to live by the time of day \
             ends it early",
            window.started.targets.join(" ")
        );
    }
    let asked_ns = first.asked_ns(history);
    let ended_ns = grant.and_then(|grant| grant.revoked_ns(history));
    let early = ended_ns.and_then(|ended_ns| {
        let lease_ms = history.header.lease_ms?;
        let lasted_ns = ended_ns.saturating_sub(asked_ns);
        (lasted_ns < context.lease_ns / 100 * limits::LEASE_SHARE_PERCENT).then_some((lasted_ns, lease_ms))
    });
    // what a request did, nothing that befell the holder explains
    if let (Some((lasted_ns, lease_ms)), Some(RevokeCause::Deleted | RevokeCause::Overwritten)) = (early, cause) {
        return format!(
            "the lock was removed {} after it was asked for, before its lease of {lease_ms} ms was over: a request \
             deleted its key, or revoked its lease",
            length(lasted_ns)
        );
    }
    let window = context.window_that_touched(client, history.ns(first.from), from_ns);
    if window.is_some_and(Window::stops) {
        return "the holder stood still while its lease ran out, and no client can notice that in time: let the store \
                refuse tokens that go back"
            .to_owned();
    }
    if let Some(message) = window.and_then(|window| window.healed.as_ref()?.matched.as_ref()) {
        return format!(
            "the fault kept back `{}` of {}: look at how the library takes a request or a reply that never arrives",
            message.message, message.client
        );
    }
    match early {
        Some((lasted_ns, lease_ms)) => format!(
            "the server ended the grant {} after it was asked for, before its lease of {lease_ms} ms was over: look at \
             the time to live that the client asked for",
            length(lasted_ns)
        ),
        None => likely_of(class).to_owned(),
    }
}

/// The window in which the wall clock of a server was stepped while the first held the lock.
fn stepped_server<'a>(context: &'a Context<'_>, first: &LockHold, from_ns: u64) -> Option<&'a Window> {
    let history = context.history;
    let stepped = |window: &&Window| {
        let held = history.ns(first.from) <= window.start_ns && window.start_ns <= from_ns;
        held && window.fault == "clock" && !window.is_of_clients()
    };
    context.windows.iter().rev().find(stepped)
}

/// The window in which every server was killed or started again while the first held the lock, where the grant did not end in a way
/// that the server tells of: by a request, or by its lease.
fn server_that_forgot<'a>(context: &'a Context<'_>, first: &LockHold, from_ns: u64) -> Option<&'a Window> {
    let history = context.history;
    let grant = context.grants.of_hold(history, first)?;
    let ended_ns = grant.revoked_ns(history).unwrap_or(u64::MAX);
    let told = matches!(grant.cause(history), Some(cause) if cause.is_removal() || cause == RevokeCause::Expired);
    let restarts = |window: &&Window| {
        let held = history.ns(first.from) <= window.start_ns && window.start_ns <= from_ns;
        let is_restart = ["server-kill", "server-restart"].contains(&window.fault.as_str());
        held && is_restart && window.start_ns <= ended_ns && calm::takes_all_servers(context, window)
    };
    context.windows.iter().rev().filter(|_| !told).find(restarts)
}

fn describe(context: &Context<'_>, conflict: &Conflict, class: OverlapClass) -> Violation {
    let history = context.history;
    let overlap = &conflict.opening;
    let (first, second) = (&overlap.first, &overlap.second);
    let (from_ns, to_ns) = (history.ns(overlap.from()), history.ns(overlap.to()));
    let lock = second.lock(history);
    let mut violation = history.violation(class.name(), lock, &[first.process, second.process], from_ns);
    violation.overlap_ns = Some((from_ns, to_ns));
    violation.window = context.window_before(from_ns).map(|window| window.number);
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
        violation
            .events
            .push(history.step(before.got, "had it in another mode"));
    }
    let others: Vec<&LockHold> = match class {
        OverlapClass::TooManyPermits => beyond_permits(context, overlap),
        _ => Vec::new(),
    };
    for hold in [first, second].into_iter().chain(others.iter().copied()) {
        let given_up = given_up(context, hold).map(|position| history.step(position, "gave up a part of it"));
        violation.events.extend(given_up);
    }
    violation.events.push(history.step(first.got, "got the lock"));
    for other in others {
        violation.events.push(history.step(other.got, "had it as well"));
        if other.end != NONE {
            violation.events.push(history.step(other.end, "until here"));
        }
    }
    violation.events.push(history.step(second.got, "got the lock, too"));
    if let Some(role) = ending(first) {
        violation.events.push(history.step(first.end, role));
    }
    violation.because = story(context, conflict, class);
    violation.likely = Some(likely(context, class, first, from_ns));
    violation
        .figures
        .insert("overlap_ms".into(), conflict.shared_ns as f64 / 1e6);
    violation.figures.insert("overlaps".into(), conflict.count as f64);
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
    let time = at;
    let token = |hold: &LockHold| {
        hold.token(history)
            .map(|token| format!(" (token {token})"))
            .unwrap_or_default()
    };
    let grants = &context.grants;
    let grant = grants.of_hold(history, first);
    let by_the_server = [
        OverlapClass::ToldWithoutGrant,
        OverlapClass::ToldTwice,
        OverlapClass::GrantedTwice,
    ];
    let taken = grant.filter(|_| !by_the_server.contains(&class) && class != OverlapClass::TooManyPermits);
    let taken_ns = taken.and_then(|grant| grant.revoked_ns(history));
    let (first_ns, second_ns) = (history.ns(first.from), history.ns(second.from));
    let mut told = vec![(
        first_ns,
        how_it_got_it(context, overlap, (&a, &token(first)), taken_ns, &time),
    )];
    if let (Some(grant), Some(ns)) = (taken, taken_ns) {
        let cause = grant.cause(history);
        let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
        let by_release = class == OverlapClass::ForeignRelease;
        let release = by_release.then(|| {
            context
                .releases()
                .of_another(context.history, first, ns, limits::OBSERVER_LAG_NS)
        });
        told.push((
            ns,
            match release.flatten().map(|call| (call, history.event(call))) {
                Some((call, event)) => {
                    let by = history.who(event.process);
                    let text = format!(
                        "The release of {by}, called at {}, removed the lock of {a} at {}, and {a} went on.",
                        time(event.time),
                        time(ns)
                    );
                    history.because(text, &[call, grant.revoked])
                }
                None => {
                    let text = format!("The server took it from {a} at {}{cause}, and {a} went on.", time(ns));
                    history.because(text, &[grant.revoked])
                }
            },
        ));
    }
    let got = format!("{b} got the lock at {}{}.", time(second_ns), token(second));
    let ungranted = class == OverlapClass::ToldWithoutGrant && grants.of_hold(history, second).is_none();
    let got = if ungranted {
        format!("{got} The server shows no grant to it.")
    } else {
        got
    };
    told.push((second_ns, history.because(got, &[second.got])));
    told.sort_by_key(|(ns, _)| *ns);
    let mut chain: Vec<Because> = told.into_iter().map(|(_, because)| because).collect();
    chain.push(last_sentence(context, conflict, (&a, &b), &time));
    chain
}

/// How the first got the lock, and what a fault did to it until the server took the lock back, or the second had it.
fn how_it_got_it(
    context: &Context<'_>,
    overlap: &Overlap,
    (a, token): (&str, &str),
    taken_ns: Option<u64>,
    time: &dyn Fn(u64) -> String,
) -> Because {
    let (history, first) = (context.history, &overlap.first);
    let from_ns = history.ns(first.from);
    let until_ns = taken_ns
        .unwrap_or(u64::MAX)
        .min(history.ns(overlap.from()))
        .max(from_ns);
    let kept = context.kept_working_ms(first).map(|ms| {
        let kept = length(limits::ns(ms));
        format!(", and the schedule kept it working for {kept} to have a holder to aim at")
    });
    let got = format!(
        "{a} got the lock at {}{token}{}.",
        time(from_ns),
        kept.unwrap_or_default()
    );
    let Some(window) = context.window_that_touched(history.client_of(first.process), from_ns, until_ns) else {
        return history.because(got, &[first.got]);
    };
    let number = if window.number > 0 {
        format!(" {}", window.number)
    } else {
        String::new()
    };
    let acted_ns = window.acted_ns();
    let when = if acted_ns < from_ns { "Since" } else { "At" };
    let text = format!(
        "{got} {when} {} it was {} by {}{number}.",
        time(acted_ns),
        verb(window),
        window.fault
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

fn last_sentence(
    context: &Context<'_>,
    conflict: &Conflict,
    (a, b): (&str, &str),
    time: &dyn Fn(u64) -> String,
) -> Because {
    let (history, overlap) = (context.history, &conflict.opening);
    let first = conflict.count > 1 || overlap.first.to <= overlap.second.to;
    let (hold, name) = if first {
        (&overlap.first, a)
    } else {
        (&overlap.second, b)
    };
    let until = time(history.ns(hold.to));
    let text = match hold.ended {
        Ended::Open => format!("{name} had not given it back when the history ended at {until}."),
        Ended::Released => format!("{name} went on until its release call at {until}."),
        Ended::Lost => format!("{name} went on until it was told of the loss at {until}."),
        Ended::Died => format!("{name} went on until it died at {until}."),
        Ended::Changed => format!("{name} went on in that mode until {until}."),
    };
    history.because(text, &[hold.end])
}
