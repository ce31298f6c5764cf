//! HL002 in words: the finding, the events of a counterexample, and the conclusions from them.

use super::{at, finding, in_brackets, many, stands_up_to, violated};
use crate::context::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History, PackedEvent};
use crate::holds::{Ended, LockHold};
use crate::linearizability::{Counterexample, DeadEnd, Decision, Linearization, ReadBy, ReadingDifference, dead_end};

/// Operations of one proof that are listed. A proof has more only if none of tens of thousands could be left out.
const MAX_SHOWN: usize = 500;
/// Locks that are listed for which the two readings of a mutex differ.
const MAX_DIFFERENCES: usize = 3;

pub(crate) fn tell(context: &Context<'_>, of: &Linearization) -> Finding {
    if of.operations == 0 {
        return finding(Property::Hl002, Verdict::Inconclusive, "no operations to order");
    }
    let locks = many(of.decisions.len() as u64, "lock", "locks");
    let (mut counterexamples, mut undecided) = (Vec::new(), Vec::new());
    for (lock, decision) in of.decisions.iter().enumerate() {
        match decision {
            Decision::Legal => {}
            Decision::Illegal(counterexample) => counterexamples.push((lock, counterexample)),
            Decision::Unknown(reason) => undecided.push(*reason),
        }
    }
    let mut told = if !counterexamples.is_empty() {
        let each = counterexamples.iter();
        let violations = each.map(|(lock, counterexample)| explain(context, *lock, counterexample));
        let evidence = format!("{} of {locks} without a legal order", counterexamples.len());
        violated(Property::Hl002, evidence, violations, counterexamples.len() as u64)
    } else if let Some(reason) = undecided.first() {
        let evidence = format!("{reason}, on {} of {locks}", undecided.len());
        finding(Property::Hl002, Verdict::Inconclusive, evidence)
    } else {
        let evidence = format!("{} on {locks}", many(of.operations, "operation", "operations"));
        finding(Property::Hl002, Verdict::Holds, evidence)
    };
    told.figure("operations", of.operations as f64);
    told
}

/// Returns the notes on the verdict: the locks for which the two readings of a mutex differ, and the missing certificates.
pub(crate) fn notes(history: &History, of: &Linearization) -> Vec<String> {
    let told = of.differences.iter().take(MAX_DIFFERENCES);
    let mut notes: Vec<String> = told.map(|lock| difference(history, lock)).collect();
    if let Some(more) = of
        .differences
        .len()
        .checked_sub(MAX_DIFFERENCES)
        .filter(|more| *more > 0)
    {
        let locks = many(more as u64, "more lock", "more locks");
        notes.push(format!("the two readings differ on {locks}"));
    }
    if let Some(certificates) = &of.certificates
        && certificates.len() < of.decisions.len()
    {
        let missing = many((of.decisions.len() - certificates.len()) as u64, "lock", "locks");
        notes.push(format!(
            "no certificate for {missing}: the search for it ran out of budget"
        ));
    }
    notes
}

fn difference(history: &History, of: &ReadingDifference) -> String {
    let indices: Vec<String> = of.events.iter().map(u64::to_string).collect();
    let (name, indices) = (history.lock_name(of.lock), indices.join(", "));
    if of.by == ReadBy::Answers {
        return format!(
            "two readings of `{name}` differ. It is linearizable if failed operations, reads of nothing and the initial value \
             prove nothing. With `--model exact-cas-register` it is not: a failed compare-and-set found another value, a read of \
             nothing found none, and the register has no value at the start (operations: events {indices})"
        );
    }
    let (ours, theirs) = if of.ours {
        ("linearizable", "is not")
    } else {
        ("not linearizable", "is")
    };
    let what = if of.by == ReadBy::FailedReleases {
        "failed releases"
    } else {
        "operations"
    };
    format!(
        "two readings of `{name}` differ. By default it is {ours}: the call of a release ends its owner's hold, whatever the answer. \
         With Jepsen's reading of a mutex (`harness check --model mutex`) it {theirs}: a failed release did not happen \
         ({what}: events {indices})"
    )
}

/// Describes a counterexample of one lock as a violation of HL002.
pub(crate) fn explain(context: &Context<'_>, lock: usize, counterexample: &Counterexample) -> Violation {
    let history = context.history;
    let positions: Vec<u32> = counterexample
        .positions()
        .into_iter()
        .filter(|position| *position != NONE)
        .collect();
    let last = positions.iter().copied().max().unwrap_or(0);
    let mut processes: Vec<u32> = Vec::new();
    for position in &positions {
        let process = history.event(*position).process;
        if !processes.contains(&process) && (process as usize) < history.processes.len() {
            processes.push(process);
        }
    }
    processes.truncate(8);
    let at_ns = history.event(last).time;
    let mut violation = context.violation(class(counterexample), lock, &processes, at_ns);
    violation.summary = summary(counterexample, &violation.lock);
    for position in &positions[positions.len().saturating_sub(MAX_SHOWN)..] {
        let event = history.event(*position);
        violation.show(history, *position, role(event));
        // A call without its reply is no evidence, and neither is a reply without its call.
        if event.mate != NONE {
            violation.show(history, event.mate, role(history.event(event.mate)));
        }
    }
    sentences(context, lock, (counterexample, &positions), &mut violation);
    if let Counterexample::Overlap { first, second } = counterexample {
        let holds = &context.holds.by_lock[lock];
        let released = |hold: &&LockHold| hold.got == *first && hold.ended == Ended::Released;
        if let Some(end) = holds.iter().rev().find(released).map(|hold| hold.end) {
            let event = history.event(end);
            let (who, time) = (history.who(event.process), at(event.time));
            let text = format!("{who} called release only at {time}.");
            violation.step(history, end, "release call", text);
        }
        let of = |got: u32| holds.iter().find(|hold| hold.got == got);
        if let (Some(first), Some(second)) = (of(*first), of(*second)) {
            let until = history.ns(first.to.min(second.to));
            stands_up_to(context, &mut violation, until.saturating_sub(history.ns(second.from)));
        }
    }
    violation.follows = positions.iter().find_map(|position| context.root_of(*position));
    violation
}

fn class(counterexample: &Counterexample) -> &'static str {
    match counterexample {
        Counterexample::Overlap { .. } => "two-holders",
        Counterexample::Crowd { .. } => "too-many-permits",
        Counterexample::AlreadyHeld { .. } => "acquired-twice",
        Counterexample::TooDeep { .. } => "over-the-limit",
        Counterexample::NotHolder { .. } => "released-by-another",
        Counterexample::FalseNotHeld { .. } => "denied-holder",
        Counterexample::TokenBack { .. } => "token-goes-back",
        Counterexample::TokenChanged { .. } => "token-changed",
        Counterexample::SpuriousBusy { .. } => "spurious-busy",
        Counterexample::NoOrder { .. } => "no-order",
    }
}

fn summary(counterexample: &Counterexample, lock: &str) -> String {
    match counterexample {
        Counterexample::Overlap { .. } => {
            format!("two acquires of `{lock}` were answered ok, with no release between them")
        }
        Counterexample::Crowd { out, .. } => format!("{out} permits of `{lock}` were held at once"),
        Counterexample::AlreadyHeld { .. } => format!("`{lock}` was acquired again by its holder"),
        Counterexample::TooDeep { .. } => format!("`{lock}` was acquired more often than its limit"),
        Counterexample::NotHolder { .. } => {
            format!("`{lock}` was released by a process that did not hold it, and the answer was ok")
        }
        Counterexample::FalseNotHeld { .. } => format!("the holder of `{lock}` was told that it did not hold it"),
        Counterexample::TokenBack { .. } => format!("a later grant of `{lock}` has no larger token"),
        Counterexample::TokenChanged { .. } => format!("a nested acquire of `{lock}` got another token"),
        Counterexample::SpuriousBusy { .. } => {
            format!("an acquire of `{lock}` was answered busy while the lock was certainly free")
        }
        Counterexample::NoOrder { calls } => {
            format!(
                "no order of {} on `{lock}` is legal",
                many(calls.len() as u64, "operation", "operations")
            )
        }
    }
}

fn role(event: PackedEvent) -> String {
    let what = match event.kind {
        Kind::Invoke => "call",
        Kind::Ok => "ok",
        Kind::Fail => "failed",
        Kind::Info => "unknown",
        Kind::Signal => "signal",
    };
    format!("{} {what}", event.f.name())
}

/// Returns the words of an operation: its call and its answer.
fn deed(history: &History, call: u32) -> String {
    let event = history.event(call);
    let reply = history.reply(event);
    let value = |value: Option<u64>| value.map_or_else(|| "nothing".to_owned(), |value| history.value_text(value));
    let asked = history.rare(event);
    let answered = reply.map(|reply| history.rare(reply)).unwrap_or_default();
    let failed = reply.is_some_and(|reply| reply.kind == Kind::Fail);
    let what = match event.f {
        F::Write => format!("wrote {}", value(asked.value)),
        F::Read => format!("read {}", value(answered.value)),
        F::Cas if failed => format!("found a value other than {}", value(asked.expected)),
        F::Cas => format!("replaced {} by {}", value(asked.expected), value(asked.value)),
        F::Acquire => "got the lock".to_owned(),
        F::Release => "released the lock".to_owned(),
        _ => "lost the lock".to_owned(),
    };
    format!("{} {what}", history.who(event.process))
}

/// Operations of a prefix that are described one by one.
const MAX_TOLD: usize = 6;

/// Describes the longest prefix that has an order, the states after it, and the answer that is impossible in them.
fn apart(history: &History, end: &DeadEnd, violation: &mut Violation) {
    let told = &end.order[end.order.len().saturating_sub(MAX_TOLD)..];
    let deeds: Vec<String> = told.iter().map(|call| deed(history, *call)).collect();
    let states = end.states.join(" or ");
    let text = if deeds.is_empty() {
        format!("At first `{}` is {states}.", violation.lock)
    } else {
        let order = deeds.join(", ");
        format!(
            "A legal order exists up to this point: {order}. After it `{}` is {states}.",
            violation.lock
        )
    };
    violation.say(history, text, told);
    let event = history.event(end.call);
    let reply = history.reply(event).unwrap_or(event);
    let time = at(reply.time);
    let text = format!(
        "The answer at {time} says that {}, which is impossible then.",
        deed(history, end.call)
    );
    violation.say(history, text, &[end.call, event.mate]);
}

fn sentences(
    context: &Context<'_>,
    lock: usize,
    (counterexample, positions): (&Counterexample, &[u32]),
    violation: &mut Violation,
) {
    let history = context.history;
    if let Counterexample::NoOrder { .. } = counterexample {
        if positions.len() > MAX_SHOWN {
            let text = format!("The {MAX_SHOWN} latest of them are shown.");
            violation.say(history, text, &[]);
        }
        match dead_end(history, &context.model, lock, positions) {
            Some(end) => apart(history, &end, violation),
            None => {
                let text =
                    "Every order of these operations that respects their calls and replies has an impossible answer.";
                violation.say(history, text, positions);
            }
        }
        return;
    }
    for position in positions.iter().rev().take(3).rev() {
        let event = history.event(*position);
        let (who, time) = (history.who(event.process), at(event.time));
        let token = in_brackets(history.token(event).map(|token| format!("token {token}")));
        let text = match (counterexample, event.f, event.kind) {
            (Counterexample::SpuriousBusy { freed_by, .. }, F::Release, _) if position == freed_by => {
                format!("{who} had released by {time}.")
            }
            (Counterexample::SpuriousBusy { busy, .. }, ..) if position == busy => {
                format!("{who} was told busy at {time}.")
            }
            (Counterexample::SpuriousBusy { .. }, ..) => format!("The next holder, {who}, asked only at {time}."),
            (_, F::Acquire, _) => format!("{who} got the lock at {time}{token}."),
            (_, F::Lost | F::Died, _) => format!("{who} lost the lock at {time}."),
            _ => format!("{who} called {} at {time}.", event.f.name()),
        };
        violation.say(history, text, &[*position]);
    }
}
