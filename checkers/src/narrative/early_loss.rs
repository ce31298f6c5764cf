//! HL010 in words: the hold that ended before its lease, and the origin of its end.

use super::{at, finding, length, many, violated};
use crate::context::Context;
use crate::early_loss::{EarlyLoss, EarlyLosses};
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::names::NONE;

pub(crate) fn tell(context: &Context<'_>, decided: &EarlyLosses<'_>) -> Finding {
    let said = |evidence: String| finding(Property::Hl010, decided.verdict, evidence);
    let undisturbed = many(decided.undisturbed, "hold", "holds");
    let mut told = match decided.verdict {
        Verdict::NotApplicable | Verdict::Inconclusive => {
            return said(match () {
                () if !context.has_acquires() => "no client acquired the lock".to_owned(),
                () if context.history.header.lease_ms.is_none() => "the lease is not known".to_owned(),
                () if context.history.header.promises.lease == Some(false) => "the lock has no lease".to_owned(),
                () if context.busy.counted_ns(0, context.history.end_ns) < context.history.end_ns => {
                    "no hold without a fault on a machine that had time for it".to_owned()
                }
                () => "no hold without a fault".to_owned(),
            });
        }
        Verdict::Holds if decided.given_up == 0 => said(format!(
            "{undisturbed} without a fault, none ended before its lease was over"
        )),
        Verdict::Holds => said(format!(
            "{} of {undisturbed} without a fault {} given up before the lease was over, perhaps in doubt",
            decided.given_up,
            if decided.given_up == 1 { "was" } else { "were" }
        )),
        Verdict::Violated => {
            let violations = decided.losses.iter().map(|loss| describe(context, loss));
            let count = decided.losses.len() as u64;
            let evidence = format!("{count} of {undisturbed} without a fault ended before the lease was over");
            violated(Property::Hl010, evidence, violations, count)
        }
    };
    told.figure("undisturbed_holds", decided.undisturbed as f64);
    told.figure("given_up_early", decided.given_up as f64);
    told
}

fn describe(context: &Context<'_>, loss: &EarlyLoss<'_>) -> Violation {
    let history = context.history;
    let hold = loss.hold;
    let who = history.who(hold.process);
    let (class, end, role) = match loss.grant {
        Some(grant) => ("ran-out-early", grant.revoked, "the server let it run out"),
        None => ("given-up-early", hold.end, "told that it lost the lock"),
    };
    let ended_ns = history.event(end).time;
    let mut violation = history.violation(class, hold.lock(history), &[hold.process], ended_ns);
    let (lasted, lease) = (length(loss.lasted_ns), length(context.lease_ns));
    let extends = loss.since != hold.call(history);
    let call = if extends { "call to extend it" } else { "acquire call" };
    let lock = &violation.lock;
    violation.summary = format!("{who} lost `{lock}` {lasted} after its {call}, with a lease of {lease}");
    violation.show(history, hold.call(history), "asked for the lock");
    let text = format!("{who} got the lock at {}.", at(history.ns(hold.from)));
    violation.step(history, hold.got, "got the lock", text);
    if extends {
        let answer = history.event(loss.since).mate;
        violation.show(history, loss.since, "asked to extend it");
        violation.show(history, answer, "extended the lock");
        let text = format!("{who} extended it, answered ok at {}.", at(history.event(answer).time));
        violation.say(history, text, &[loss.since, answer]);
    }
    let is_told = history.event(end).mate != NONE;
    let ended = at(ended_ns);
    let what = match loss.grant {
        Some(_) => format!("The server let it run out by {ended}"),
        None if is_told => format!("Its next call to extend it was answered `not held` at {ended}"),
        None => format!("Its library gave it up at {ended}"),
    };
    violation.step(history, end, role, format!("{what}, and no fault affected {who}."));
    violation.likely = Some(likely(context, loss, extends, is_told).to_owned());
    violation.follows = context.root_of(hold.got);
    violation.figure("lasted_ms", loss.lasted_ns as f64 / 1e6);
    violation
}

/// Returns the likely cause of an early loss. `extends`: the hold had been extended; `is_told`: its next extension was answered `not held`.
fn likely(context: &Context<'_>, loss: &EarlyLoss<'_>, extends: bool, is_told: bool) -> &'static str {
    match loss.grant {
        _ if extends => {
            "an extension that is answered ok does not lengthen the lease on the server, or by less than a lease: look at the time to live \
             that it sets, and at the answer that it reads"
        }
        Some(_) if !context.grants.is_single(context.history, loss.hold) => {
            "the client sets a time to live that differs from the requested lease, or in another unit than the store's, or renews too late \
             the session that its locks belong to"
        }
        Some(_) => {
            "the client sets a time to live that differs from the requested lease, or sets it in another unit than the store's"
        }
        None if is_told => {
            "the client sets a time to live that is shorter than the requested lease, or another client removed the lock"
        }
        None => {
            "the library reports a loss for another reason, such as an unknown message or a timer that is too short"
        }
    }
}
