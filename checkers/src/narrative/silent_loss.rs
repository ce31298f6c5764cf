//! HL009 in words: silent losses, their lengths, and their effects.

use super::{at, finding, in_brackets, length, many, not_watched, violated};
use crate::context::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::holds::Ended;
use crate::silent_loss::{Silence, SilentLosses};

pub(crate) fn tell(context: &Context<'_>, decided: &SilentLosses<'_>) -> Finding {
    let limit = format!("limit {}", length(decided.bound_ns));
    let said = |evidence: String| finding(Property::Hl009, decided.verdict, evidence);
    let mut told = match decided.verdict {
        Verdict::NotApplicable => return said(not_watched(context).to_owned()),
        Verdict::Inconclusive => return said("no client acquired the lock".to_owned()),
        Verdict::Holds if decided.taken == 0 => said("no lock was taken from a holder that went on".to_owned()),
        Verdict::Holds => said(format!(
            "{} ended within {} of the loss ({limit})",
            many(decided.taken, "hold", "holds"),
            length(decided.longest_ns)
        )),
        Verdict::Violated => {
            let violations = decided.silences.iter().map(|silence| describe(context, silence));
            let count = decided.silences.len() as u64;
            let evidence = format!(
                "{} not told of the loss ({limit})",
                many(count, "holder was", "holders were")
            );
            violated(Property::Hl009, evidence, violations, count)
        }
    };
    told.figure("taken_from_holders", decided.taken as f64);
    told.figure("longest_silence_ms", decided.longest_ns as f64 / 1e6);
    told
}

fn describe(context: &Context<'_>, silence: &Silence<'_>) -> Violation {
    let history = context.history;
    let (hold, grant) = (silence.hold, silence.grant);
    let who = history.who(hold.process);
    let mut violation = context.violation("silent-loss", hold.lock(history), &[hold.process], silence.since_ns);
    let silent = length(silence.length_ns());
    let lock = &violation.lock;
    violation.summary = format!("{who} lost `{lock}`, and was not told for at least {silent}");
    let text = format!("{who} got the lock at {}.", at(history.ns(hold.from)));
    violation.step(history, hold.got, "got the lock", text);
    let cause = in_brackets(grant.cause(history));
    let revoked = grant.revoked_ns(history).unwrap_or(silence.since_ns);
    let text = format!("The server took it away at {}{cause}.", at(revoked));
    violation.step(history, grant.revoked, "the server took it away", text);
    let until = at(silence.to_ns);
    let text = match hold.ended {
        Ended::Lost => format!("{who} was told only at {until}."),
        Ended::Died => format!("{who} had not been told when it died at {until}."),
        Ended::Open => format!("{who} had not been told when the history ended at {until}."),
        Ended::Released | Ended::Changed => format!("{who} went on until its own call at {until}."),
    };
    violation.say(history, text, &[hold.end]);
    if hold.ended != Ended::Open {
        violation.show(history, hold.end, "end of its hold");
    }
    violation.likely = Some(likely(context, hold.ended).into());
    violation.follows = context.root_of(hold.got);
    violation.figure("silent_ms", silence.length_ns() as f64 / 1e6);
    violation
}

/// Returns the likely cause of a silent loss, by the signals of the history.
fn likely(context: &Context<'_>, ended: Ended) -> &'static str {
    match ended {
        Ended::Lost => {
            "the client library notices a loss too late: measure the lease with a timer of its own, from before the request that took or \
             renewed it"
        }
        _ if context.history.counts.lost > 0 => {
            "the client library tells of other losses, and not of this one, or the client does not listen to it"
        }
        _ => "the client library has no signal for a lost lock, or the client does not listen to it",
    }
}
