//! An overlap in words: what it is, by what the server said and by what was done to the first holder; how it came to
//! that; and the likely cause.

use super::{Clash, Overlap, after_lease};
use crate::check::Context;
use crate::finding::{Because, Violation};
use crate::history::names::NONE;
use crate::history::{RevokeCause, Window};
use crate::holds::{Ended, Hold};
use crate::limits;
use crate::phantom;
use crate::story::{at, length, thousands};

/// What an overlap is, by what the server said and by what was done to the first holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    GrantedTwice,
    StaleHolder,
    ForeignRelease,
    Crowd,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::GrantedTwice => "granted-twice",
            Self::StaleHolder => "stale-holder",
            Self::ForeignRelease => "foreign-release",
            Self::Crowd => "too-many-permits",
        }
    }

    fn likely(self) -> &'static str {
        match self {
            Self::GrantedTwice => {
                "the service gave the lock to a second owner while the first still had it: look at failover, at a lost \
                 key, or at an acquire that is answered without having won"
            }
            Self::StaleHolder => {
                "the holder went on after its lease had run out: stop work when the connection is suspended, or let \
                 the store refuse tokens that go back"
            }
            Self::ForeignRelease => {
                "somebody released a lock that was not theirs: compare the owner and delete in one atomic step"
            }
            Self::Crowd => "more permits were given out than there are: look at releases that are counted twice",
        }
    }
}

/// A holder that stood still cannot have noticed that its time was over, and one whose lock the servers forgot has none to
/// notice.
fn likely(context: &Context<'_>, class: Class, first: &Hold, from_ns: u64) -> &'static str {
    let history = context.history;
    let struck = context.window_of_client(history.client_of(first.process), history.ns(first.from), from_ns);
    let grant = context.grants.of_hold(history, first);
    match struck {
        _ if class == Class::StaleHolder
            && grant.is_some_and(|grant| grant.cause(history) == Some(RevokeCause::Failover)) =>
        {
            "the replica that took over did not have the lock: one that lives on a single master does not survive its \
             failover; ask a majority, or let the store refuse tokens that go back"
        }
        Some(window) if class == Class::StaleHolder && window.fault.starts_with("pause") => {
            "the holder stood still while its lease ran out, and no client can notice that in time: let the store \
             refuse tokens that go back"
        }
        _ => class.likely(),
    }
}

fn classify(context: &Context<'_>, overlap: &Overlap) -> Class {
    let history = context.history;
    if context.model.capacity() > 1 {
        return Class::Crowd;
    }
    let first = context.grants.of_hold(history, &overlap.first);
    let second = context.grants.of_hold(history, &overlap.second);
    if let Some(first) = first
        && first.revoked != NONE
    {
        let before = second.is_none_or(|second| first.revoked < second.first());
        if before && phantom::foreign(context, &overlap.first).is_some() {
            return Class::ForeignRelease;
        }
        if before {
            return Class::StaleHolder;
        }
    }
    if let (Some(first), Some(second)) = (first, second)
        && first.granted != NONE
        && second.granted != NONE
    {
        return Class::GrantedTwice;
    }
    let client = history.client_of(overlap.first.process);
    let from = history.ns(overlap.first.from);
    let touched = context
        .window_of_client(client, from, history.ns(overlap.from()))
        .is_some();
    if after_lease(context, overlap) && history.header.lease_ms.is_some() || touched {
        Class::StaleHolder
    } else {
        Class::GrantedTwice
    }
}

pub(super) fn describe(context: &Context<'_>, clash: &Clash) -> Violation {
    let history = context.history;
    let overlap = &clash.opening;
    let (first, second) = (&overlap.first, &overlap.second);
    let class = classify(context, overlap);
    let (from_ns, to_ns) = (history.ns(overlap.from()), history.ns(overlap.to()));
    let lock = second.lock as usize;
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
        Class::Crowd => format!("more clients held `{}` than it has permits", violation.lock),
        _ => format!(
            "{clients} held `{}` at the same time, for at least {}{}",
            violation.lock,
            length(clash.shared_ns),
            if clash.count > 1 {
                format!(" in {} overlaps", thousands(clash.count))
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
    let others: Vec<&Hold> = match class {
        Class::Crowd => there(context, overlap),
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
    violation.because = story(context, clash, class);
    violation.likely = Some(likely(context, class, first, from_ns).to_owned());
    violation
        .figures
        .insert("overlap_ms".into(), clash.shared_ns as f64 / 1e6);
    violation.figures.insert("overlaps".into(), clash.count as f64);
    violation
}

/// The hold that went on as this one, in another mode.
fn before_change<'a>(context: &'a Context<'_>, hold: &Hold) -> Option<&'a Hold> {
    let mut own = context.holds.by_lock[hold.lock as usize].iter();
    own.find(|other| other.process == hold.process && other.ended == Ended::Changed && other.end == hold.got)
}

/// Where permits or the write mode were given up of what one acquire got, and this hold is what went on.
fn given_up(context: &Context<'_>, hold: &Hold) -> impl Iterator<Item = u32> {
    let (got, from) = (hold.got, hold.from);
    let own = context.holds.by_lock[hold.lock as usize].iter();
    own.filter(move |other| other.got == got && other.to <= from && !other.is_empty())
        .map(|other| other.end)
}

/// Besides the two of an overlap, the fewest holds of that instant that make it too many.
fn there<'a>(context: &'a Context<'_>, overlap: &Overlap) -> Vec<&'a Hold> {
    let (first, second) = (overlap.first, overlap.second);
    let mut holds: Vec<&Hold> = context.holds.by_lock[second.lock as usize]
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

fn ending(hold: &Hold) -> Option<&'static str> {
    match hold.ended {
        Ended::Open => None,
        Ended::Released => Some("release call"),
        Ended::Lost => Some("told that it lost the lock"),
        Ended::Died => Some("died"),
        Ended::Changed => Some("changed its mode"),
    }
}

/// At most four sentences: how the first got it and was cut off, what the server did, how the second got it.
fn story(context: &Context<'_>, clash: &Clash, class: Class) -> Vec<Because> {
    let (history, overlap) = (context.history, &clash.opening);
    let (first, second) = (&overlap.first, &overlap.second);
    let (a, b) = history.both(first.process, second.process);
    let fine = history.ns(overlap.to()) - history.ns(overlap.from()) < 100 * limits::MS;
    let time = |ns: u64| at(ns, fine);
    let token = |hold: &Hold| {
        hold.token()
            .map(|token| format!(" (token {token})"))
            .unwrap_or_default()
    };
    let mut chain = Vec::new();
    let got = format!("{a} got the lock at {}{}.", time(history.ns(first.from)), token(first));
    let client = history.client_of(first.process);
    let cut = context.window_of_client(client, history.ns(first.from), history.ns(overlap.from()));
    let text = match cut {
        Some(window) => {
            let number = if window.number > 0 {
                format!(" {}", window.number)
            } else {
                String::new()
            };
            format!(
                "{got} At {} it was {} by {}{number}.",
                time(window.start_ns),
                verb(window),
                window.fault
            )
        }
        None => got,
    };
    chain.push(history.because(text, &[first.got]));
    if let Some(window) = cut {
        chain[0].events.push(window.start_index);
    }
    if let Some(grant) = context
        .grants
        .of_hold(history, first)
        .filter(|_| class != Class::GrantedTwice)
        && let Some(ns) = grant.revoked_ns(history)
    {
        let cause = grant.cause(history);
        let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
        let text = format!("The server took it from {a} at {}{cause}, and {a} went on.", time(ns));
        chain.push(history.because(text, &[grant.revoked]));
    }
    let text = format!(
        "{b} got the lock at {}{}.",
        time(history.ns(second.from)),
        token(second)
    );
    chain.push(history.because(text, &[second.got]));
    chain.push(last_sentence(context, clash, (&a, &b), &time));
    chain
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

fn last_sentence(context: &Context<'_>, clash: &Clash, (a, b): (&str, &str), time: &dyn Fn(u64) -> String) -> Because {
    let (history, overlap) = (context.history, &clash.opening);
    let first = clash.count > 1 || overlap.first.to <= overlap.second.to;
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
