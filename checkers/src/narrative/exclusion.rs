//! HL001 in words: the class of an overlap, and the events that led to it.

use super::overlap_cause::{likely, likely_of};
use super::{at, finding, in_brackets, length, many, thousands, violated};
use crate::context::Context;
use crate::exclusion::cause;
use crate::exclusion::{DoubleGrant, Exclusion, OverlapClass, before_change, beyond_permits, ended_before, given_up};
use crate::extensions;
use crate::finding::{Because, Finding, Property, Verdict, Violation};
use crate::grants::ServerGrant;
use crate::history::names::NONE;
use crate::history::{History, Window};
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::overlaps::{Conflict, Overlap};
use crate::standstill;

pub(crate) fn tell(context: &Context<'_>, decided: &Exclusion<'_>) -> Finding {
    let (count, overlaps) = (context.holds.count() as u64, &context.overlaps);
    let holds = many(count, "hold", "holds");
    let said = |evidence: String| finding(Property::Hl001, decided.verdict, evidence);
    let mut told = match decided.verdict {
        Verdict::NotApplicable => return said("a register has no holders".to_owned()),
        Verdict::Inconclusive if !context.excused.is_empty() => {
            let overlaps = many(context.excused.len() as u64, "overlap", "overlaps");
            return said(format!("{overlaps} of {holds} not judged: {}", standstill::REASON));
        }
        Verdict::Inconclusive if count > 0 => return said(format!("{holds}, and none lasted")),
        Verdict::Inconclusive => return said("no client acquired the lock".to_owned()),
        Verdict::Holds if context.model.capacity() > 1 => said(format!("{holds}, never more than the permits")),
        Verdict::Holds => said(format!("{holds}, no two overlap")),
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

/// Describes a grant that the server gave while another one existed, by its own lines.
fn granted_twice(context: &Context<'_>, double: &DoubleGrant<'_>) -> Violation {
    let (history, DoubleGrant { first, second, .. }) = (context.history, double);
    let (class, lock) = (OverlapClass::GrantedTwice, first.lock(history));
    let (given_ns, until_ns) = (double.granted_ns, history.ns(first.to));
    let mut violation = context.violation(class.name(), lock, &[first.process, second.process], given_ns);
    violation.overlap_ns = Some((given_ns, until_ns));
    let (a, b) = history.both(first.process, second.process);
    let lock = &violation.lock;
    violation.summary = format!("the server's own record shows a grant of `{lock}` to {b} while {a} had it");
    if let Some(role) = ending(history, first) {
        violation.show(history, first.end, role);
    }
    let text = format!("{a} got the lock at {}.", at(history.ns(first.from)));
    violation.step(history, first.got, "got the lock", text);
    let (given, until) = (at(given_ns), at(until_ns));
    let text = format!("The server made {b} the owner by {given}, and {a} held the lock until {until}.");
    violation.step(
        history,
        double.grant.granted,
        "the server made another client the owner",
        text,
    );
    let when = at(history.ns(second.from));
    let text = format!("{b} got its reply at {when}, so the two holds did not overlap.");
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
    if let Some(role) = ending(history, first) {
        violation.show(history, first.end, role);
    }
    violation.because = story(context, conflict, class);
    violation.likely = Some(likely(context, class, overlap));
    violation.figure("overlap_ms", conflict.shared_ns as f64 / 1e6);
    violation.figure("overlaps", conflict.count as f64);
    super::stands_up_to(context, &mut violation, conflict.longest_ns);
    violation
}

fn ending(history: &History, hold: &LockHold) -> Option<&'static str> {
    match hold.ended {
        Ended::Open => None,
        Ended::Released => Some("release call"),
        Ended::Lost if history.is_renewed => Some("call of its last renewal"),
        Ended::Lost => Some("told that it lost the lock"),
        Ended::Died => Some("died"),
        Ended::Changed => Some("changed its mode"),
    }
}

/// Returns at most four sentences, in the order of time: the acquire of the first holder and the faults on it, the server's lines, the
/// acquire of the second, and the end of the overlap.
fn story(context: &Context<'_>, conflict: &Conflict, class: OverlapClass) -> Vec<Because> {
    let (history, overlap) = (context.history, &conflict.opening);
    let (first, second) = (&overlap.first, &overlap.second);
    let (a, b) = history.both(first.process, second.process);
    let token = |hold: &LockHold| in_brackets(hold.token(history).map(|token| format!("token {token}")));
    let grant = cause::shown_last(context, first, history.ns(overlap.from()));
    let by_the_server = [
        OverlapClass::ToldWithoutGrant,
        OverlapClass::ToldTwice,
        OverlapClass::GrantedTwice,
        OverlapClass::TooManyPermits,
    ];
    let before = overwritten_before_it_was_told(context, overlap, class);
    let is_by_the_server = by_the_server.contains(&class);
    let extended = extensions::began_again(history, second);
    let ends_first = |own: &&ServerGrant| {
        let second = context.grants.of_hold(history, second);
        !own.is_out_of_sight(history) && ended_before(context, overlap, own, second)
    };
    let taken = grant.filter(ends_first);
    let taken = taken.filter(|_| !is_by_the_server && before.is_none() && !extended);
    let taken_ns = taken.and_then(|grant| grant.revoked_ns(history));
    let (first_ns, second_ns) = (history.ns(first.from), history.ns(second.from));
    let mut how = how_it_got_it(context, overlap, (&a, &token(first)), taken_ns);
    how.text += &no_grant_then(context, class, first);
    let mut told = vec![(first_ns, how)];
    told.extend(before);
    if let (Some(grant), Some(ns)) = (taken, taken_ns) {
        let by_release = class == OverlapClass::ForeignRelease;
        let release = by_release.then(|| context.release_that_removed(first, ns));
        let release = release.flatten();
        let when = at(ns);
        let text = match release {
            Some(call) => {
                let beside = history.beside_release(call, ns);
                format!("The lock of {a} was removed at {when}, {beside}, and {a} went on.")
            }
            None => {
                let cause = in_brackets(grant.cause(history));
                if ns < first_ns {
                    format!("The server took it from {a} at {when}{cause}, before {a} got its answer.")
                } else {
                    format!("The server took it from {a} at {when}{cause}, and {a} went on.")
                }
            }
        };
        told.push((ns, history.because(text, &[grant.revoked, release.unwrap_or(NONE)])));
    }
    let mut got = format!("{b} {} at {}{}.", got(history, second), at(second_ns), token(second));
    got += &no_grant_then(context, class, second);
    told.push((second_ns, history.because(got, &[second.got])));
    told.sort_by_key(|(ns, _)| *ns);
    let mut chain: Vec<Because> = told.into_iter().map(|(_, because)| because).collect();
    chain.push(last_sentence(context, conflict, (&a, &b)));
    chain
}

/// Returns a sentence about a hold whose grant came later or never, if only the other of the two had one; empty for that one.
fn no_grant_then(context: &Context<'_>, class: OverlapClass, hold: &LockHold) -> String {
    let history = context.history;
    if class != OverlapClass::ToldWithoutGrant {
        return String::new();
    }
    let Some(grant) = context.grants.of_hold(history, hold) else {
        return " The server shows no grant to it.".to_owned();
    };
    let latest_ns = history.ns(hold.from) + limits::OBSERVER_LAG_NS;
    let late = grant.granted_ns(history).filter(|ns| *ns > latest_ns);
    late.map(|ns| format!(" The server gave it the lock only at {}.", at(ns)))
        .unwrap_or_default()
}

/// Returns the time at which the second's entry was overwritten by the first's, if the second's acquire was still pending.
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

/// Returns the words for the beginning of a hold.
fn got(history: &History, hold: &LockHold) -> &'static str {
    match extensions::began_again(history, hold) {
        true => "lost the lock, asked to extend it, and had it again",
        false => "got the lock",
    }
}

/// Describes the acquire of the first holder, and the fault on it before the server ended the grant or the second holder got the lock.
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
    let mut got = format!(
        "{a} {} at {}{token}{}.",
        got(history, first),
        at(from_ns),
        kept.unwrap_or_default()
    );
    if let Some(answer) = context.last_extension(first, until_ns) {
        let last = at(answer.time);
        got += &format!(" It extended its lease, the last time by {last}.");
    }
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

/// Returns the verb for the effect of a fault on its client: the fault's own, or, for an older history, one by its name.
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
        Ended::Lost if history.is_renewed => {
            format!("{name} certainly had it until {until}, the call of its last renewal that was answered ok.")
        }
        Ended::Lost => format!("{name} went on until it was told of the loss at {until}."),
        Ended::Died => format!("{name} went on until it died at {until}."),
        Ended::Changed => format!("{name} went on in that mode until {until}."),
    };
    history.because(text, &[hold.end])
}
