//! A fault in words: which events prove it, and the because-chain.

use super::fault::Fault;
use crate::check::Context;
use crate::finding::Violation;
use crate::history::names::NONE;
use crate::history::{Event, F, History};
use crate::story::{at, many};

/// Operations of one proof that are listed. More come together only where none of tens of thousands could be left out.
const MAX_SHOWN: usize = 500;

/// The violation of HL002 that a fault of one lock is.
pub(super) fn explain(context: &Context<'_>, lock: usize, fault: &Fault) -> Violation {
    let history = context.history;
    let positions: Vec<u32> = fault
        .positions()
        .into_iter()
        .filter(|position| *position != NONE)
        .collect();
    let last = positions.iter().copied().max().unwrap_or(0);
    let mut processes: Vec<u32> = Vec::new();
    for position in &positions {
        let process = history.events[*position as usize].process;
        if !processes.contains(&process) && (process as usize) < history.processes.len() {
            processes.push(process);
        }
    }
    processes.truncate(8);
    let at_ns = history.events[last as usize].time;
    let mut violation = history.violation(class(fault), lock, &processes, at_ns);
    violation.window = context.window_before(at_ns).map(|window| window.number);
    violation.summary = summary(fault, &violation.lock);
    for position in &positions[positions.len().saturating_sub(MAX_SHOWN)..] {
        let event = &history.events[*position as usize];
        violation.events.push(history.step(*position, role(event)));
        // The reply of a call is what makes it evidence, and the other way round.
        if event.mate != NONE {
            violation
                .events
                .push(history.step(event.mate, role(&history.events[event.mate as usize])));
        }
    }
    tell(history, fault, &positions, &mut violation);
    if let Fault::Overlap { first, second } = fault
        && let Some(end) = release_of(history, *first, *second)
    {
        violation.events.push(history.step(end, "release call"));
        let event = &history.events[end as usize];
        let text = format!(
            "{} called release only at {}.",
            history.who(event.process),
            at(event.time, true)
        );
        violation.because.push(history.because(text, &[end]));
    }
    violation.follows = positions.iter().find_map(|position| context.root_of(*position));
    violation
}

fn class(fault: &Fault) -> &'static str {
    match fault {
        Fault::Overlap { .. } => "two-holders",
        Fault::Crowd { .. } => "too-many-permits",
        Fault::AlreadyHeld { .. } => "acquired-twice",
        Fault::TooDeep { .. } => "over-the-limit",
        Fault::NotHolder { .. } => "released-by-another",
        Fault::FalseNotHeld { .. } => "denied-holder",
        Fault::TokenBack { .. } => "token-goes-back",
        Fault::TokenChanged { .. } => "token-changed",
        Fault::SpuriousBusy { .. } => "spurious-busy",
        Fault::NoOrder { .. } => "no-order",
    }
}

fn summary(fault: &Fault, lock: &str) -> String {
    match fault {
        Fault::Overlap { .. } => format!("two acquires of `{lock}` were answered with no release between"),
        Fault::Crowd { out, .. } => format!("{out} permits of `{lock}` were out at once"),
        Fault::AlreadyHeld { .. } => format!("`{lock}` was acquired again by its holder"),
        Fault::TooDeep { .. } => format!("`{lock}` was acquired more often than its limit"),
        Fault::NotHolder { .. } => format!("`{lock}` was released by a process that did not hold it, and that was ok"),
        Fault::FalseNotHeld { .. } => format!("the holder of `{lock}` was told that it did not hold it"),
        Fault::TokenBack { .. } => format!("a later grant of `{lock}` has no larger token"),
        Fault::TokenChanged { .. } => format!("a nested acquire of `{lock}` got another token"),
        Fault::SpuriousBusy { .. } => format!("`{lock}` was called busy while it was certainly free"),
        Fault::NoOrder { calls } => {
            format!(
                "no order of {} on `{lock}` is legal",
                many(calls.len() as u64, "operation", "operations")
            )
        }
    }
}

fn role(event: &Event) -> String {
    use crate::history::event::Kind;
    let what = match event.kind {
        Kind::Invoke => "call",
        Kind::Ok => "ok",
        Kind::Fail => "failed",
        Kind::Info => "unknown",
        Kind::Signal => "signal",
    };
    format!("{} {what}", event.f.name())
}

/// The first call after the overlap that released what the acquire of the first reply got, if there is one.
fn release_of(history: &History, got: u32, second: u32) -> Option<u32> {
    let acquired = &history.events[got as usize];
    let later = history.events.iter().enumerate().skip(second as usize);
    let mut same = later.filter(|(_, event)| event.process == acquired.process && event.lock == acquired.lock);
    same.find(|(_, event)| event.is_call(F::Release))
        .map(|(position, _)| position as u32)
}

fn tell(history: &History, fault: &Fault, positions: &[u32], violation: &mut Violation) {
    if let Fault::NoOrder { .. } = fault {
        if positions.len() > MAX_SHOWN {
            let text = format!("The {MAX_SHOWN} latest of them are shown.");
            violation.because.push(history.because(text, &[]));
        }
        let text = "Every order of these operations that respects their calls and replies has an impossible answer.";
        violation.because.push(history.because(text, positions));
        return;
    }
    for position in positions.iter().rev().take(3).rev() {
        let event = &history.events[*position as usize];
        let (who, time) = (history.who(event.process), at(event.time, true));
        let token = event
            .token()
            .map(|token| format!(" (token {token})"))
            .unwrap_or_default();
        let text = match (fault, event.f, event.kind) {
            (Fault::SpuriousBusy { freed_by, .. }, F::Release, _) if position == freed_by => {
                format!("{who} had released by {time}.")
            }
            (Fault::SpuriousBusy { busy, .. }, ..) if position == busy => format!("{who} was told busy at {time}."),
            (Fault::SpuriousBusy { .. }, ..) => format!("The next holder, {who}, asked only at {time}."),
            (_, F::Acquire, _) => format!("{who} got the lock at {time}{token}."),
            _ => format!("{who} called {} at {time}.", event.f.name()),
        };
        violation.because.push(history.because(text, &[*position]));
    }
}
