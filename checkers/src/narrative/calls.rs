//! HL011 in words: calls that were answered late, and answers that are not true.

use super::{at, finding, in_brackets, length, many, violated};
use crate::calls::{AnsweredRelease, CallsInTime, GivenUpCall, LateCall, UnansweredCall};
use crate::context::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::names::NONE;
use crate::history::{F, History, PackedEvent};

pub(crate) fn tell(context: &Context<'_>, decided: &CallsInTime<'_>) -> Finding {
    let said = |evidence: String| finding(Property::Hl011, decided.verdict, evidence);
    let limit = format!("limit {}", length(decided.bound_ns));
    let judged = many(decided.judged, "call", "calls");
    match decided.verdict {
        Verdict::NotApplicable if !context.model.is_lock() => said("a register has no waiters".to_owned()),
        Verdict::NotApplicable | Verdict::Inconclusive => said("no call without a fault has a known wait".to_owned()),
        Verdict::Holds => said(format!(
            "{judged} without a fault, none answered late ({limit} after its wait)"
        )),
        Verdict::Violated => {
            let violations = decided.late.iter().map(|late| describe(context, late));
            let count = decided.late.len() as u64;
            let evidence = format!("{count} of {judged} answered late or wrongly ({limit})");
            violated(Property::Hl011, evidence, violations, count)
        }
    }
}

fn describe(context: &Context<'_>, late: &LateCall<'_>) -> Violation {
    let mut violation = match *late {
        LateCall::Unanswered(call) => unanswered(context, call),
        LateCall::GivenUp(call) => given_up(context, call),
        LateCall::GrantStays(release, stays_ns) => grant_stays(context, release, stays_ns),
        LateCall::Denied(release) => denied(context, release),
    };
    if !matches!(late, LateCall::Denied(_) | LateCall::GivenUp(_)) {
        violation.figure("late_ms", late.late_ns() as f64 / 1e6);
    }
    violation
}

fn unanswered(context: &Context<'_>, late: UnansweredCall) -> Violation {
    let (history, call, reply) = (context.history, late.call, late.reply);
    let event = history.event(call);
    let (who, what) = (history.who(event.process), event.f.name());
    let mut violation = history.violation("late-answer", late.lock, &[event.process], event.time);
    let by = length(late.late_ns);
    let wait = match (event.f, history.wait_ms(event)) {
        (F::Acquire, wait_ms) if wait_ms != NONE => format!(", with a wait of {wait_ms} ms"),
        _ => String::new(),
    };
    let (ended, answered, likely) = match reply.map(|reply| history.event(reply)) {
        Some(answer) => (
            "was answered",
            format!("The answer came at {}{}.", at(answer.time), reason(history, answer)),
            "the library does not keep its own time limit while it waits for an event, for an answer, or for another call of its process",
        ),
        None => (
            "had no answer",
            "No answer came before the history ended or the process died.".to_owned(),
            "the library waits for an event that does not come, and does not keep its own time limit",
        ),
    };
    let lock = &violation.lock;
    violation.summary = format!("the {what} of `{lock}` by {who} {ended} {by} after it was due");
    let text = format!("{who} called {what} at {}{wait}.", at(event.time));
    violation.step(history, call, format!("call of the {what}"), text);
    let (due, limit) = (at(late.due_ns), length(late.bound_ns));
    let text = format!("No fault excuses the delay after {due}; the limit is {limit}.");
    violation.say(history, text, &[]);
    if let Some(reply) = reply {
        violation.show(history, reply, "its answer");
    }
    violation.say(history, answered, reply.as_slice());
    violation.likely = Some(likely.into());
    violation
}

/// Returns the error of an answer, after a colon; empty without one.
fn reason(history: &History, answer: PackedEvent) -> String {
    let error = history.error(answer);
    error.map(|error| format!(": `{error}`")).unwrap_or_default()
}

fn given_up(context: &Context<'_>, given_up: GivenUpCall) -> Violation {
    let history = context.history;
    let (call, reply) = (history.event(given_up.call), history.event(given_up.reply));
    let who = history.who(call.process);
    let mut violation = history.violation("gave-up-early", given_up.lock, &[call.process], reply.time);
    let said = history.error(reply).unwrap_or_default();
    let (waited, left) = (length(given_up.waited_ns), given_up.wait_ns - given_up.waited_ns);
    violation.summary = format!(
        "the acquire of `{}` by {who} gave up after {waited}, {} before its wait was over",
        violation.lock,
        length(left)
    );
    let (called, wait) = (at(call.time), length(given_up.wait_ns));
    let text = format!("{who} called acquire at {called}, with a wait of {wait}.");
    violation.step(history, given_up.call, "call of the acquire", text);
    let text = format!("The answer came at {}: `{said}`. No fault was active.", at(reply.time));
    violation.step(history, given_up.reply, "its answer", text);
    violation.likely = Some(
        "the acquire does not wait, or ends its wait too early: measure the wait with a monotonic clock from the call, and ask again \
         until it is over"
            .into(),
    );
    violation.figure("left_ms", left as f64 / 1e6);
    violation
}

fn grant_stays(context: &Context<'_>, release: AnsweredRelease<'_>, stays_ns: u64) -> Violation {
    let (history, hold, grant) = (context.history, release.hold, release.grant);
    let who = history.who(hold.process);
    let (reply, replied_ns) = (release.end.mate, release.reply.time);
    let mut violation = history.violation("grant-stays", hold.lock(history), &[hold.process], replied_ns);
    let stays = length(stays_ns);
    let lock = &violation.lock;
    violation.summary = format!("the release of `{lock}` by {who} was answered ok, and its grant stayed for {stays}");
    violation.show(history, hold.end, "release call");
    violation.show(history, reply, "answered ok");
    let text = format!("The release of {who} was answered ok at {}.", at(replied_ns));
    violation.say(history, text, &[hold.end, reply]);
    let text = match grant.revoked_ns(history) {
        Some(ended_ns) => {
            violation.show(history, grant.revoked, "the server ended the grant");
            let cause = in_brackets(grant.cause(history));
            format!("The server showed it as the owner until {}{cause}.", at(ended_ns))
        }
        None => "The server still showed it as the owner when the history ended.".to_owned(),
    };
    violation.say(history, text, &[grant.revoked]);
    violation.likely =
        Some("the release does not remove the key or node, or does not wait for the store's answer".into());
    violation
}

fn denied(context: &Context<'_>, release: AnsweredRelease<'_>) -> Violation {
    let (history, hold, grant) = (context.history, release.hold, release.grant);
    let who = history.who(hold.process);
    let (reply, answer) = (release.end.mate, release.reply);
    let mut violation = history.violation("denied-release", hold.lock(history), &[hold.process], answer.time);
    let lock = &violation.lock;
    violation.summary = format!("the release of `{lock}` by {who} was answered `fail`, although it had freed the lock");
    violation.show(history, hold.end, "release call");
    violation.show(history, reply, "answered `fail`");
    let error = reason(history, answer);
    let (called, answered) = (at(history.event(hold.end).time), at(answer.time));
    let text = format!("The release of {who}, called at {called}, was answered `fail` at {answered}{error}.");
    violation.say(history, text, &[hold.end, reply]);
    let removed_ns = grant.revoked_ns(history).unwrap_or(answer.time);
    let has_lease = history.header.lease_ms.is_some() && history.header.promises.lease != Some(false);
    let runs = has_lease && !context.may_be_over(removed_ns.saturating_sub(hold.asked_ns(history)));
    let before = if runs { ", before its lease was over" } else { "" };
    let when = at(removed_ns);
    let text = format!("A request removed its grant at {when}{before}, and no fault was active.");
    violation.step(history, grant.revoked, "the server removed the grant", text);
    violation.likely = Some("the library takes the store's answer to the release for a refusal".into());
    violation
}
