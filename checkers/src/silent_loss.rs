//! HL009, silent loss: the server took the lock away, and the client library let its user go on believing.

use crate::check::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::grants::Grant;
use crate::holds::{Ended, Hold};
use crate::limits;
use crate::story::{at, finding, length, many, violated};

/// A hold that outlived its grant.
struct Silence<'a> {
    hold: &'a Hold,
    grant: &'a Grant,
    /// From when the client could have known: the removal, or the end of its pause.
    since_ns: u64,
    to_ns: u64,
}

/// The finding of HL009.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    if context.history.counts.granted + context.history.counts.revoked == 0 {
        return finding(Property::Hl009, Verdict::NotApplicable, "nobody watched the server");
    }
    if !context.has_acquires() {
        return finding(Property::Hl009, Verdict::Inconclusive, "nobody acquired the lock");
    }
    let bound_ns = context.bounds.silent_ms.map_or(context.lease_ns, limits::ns);
    let mut taken = 0;
    let mut longest = 0;
    let mut silences = Vec::new();
    for hold in context.holds.iter() {
        let Some(silence) = silence(context, hold) else {
            continue;
        };
        taken += 1;
        let silent = silence.to_ns - silence.since_ns;
        longest = longest.max(silent);
        if silent > bound_ns {
            silences.push(silence);
        }
    }
    let limit = format!("limit {}", length(bound_ns));
    let mut answer = if silences.is_empty() {
        let evidence = match taken {
            0 => "no lock was taken from a holder that went on".to_owned(),
            _ => format!(
                "{} ended within {} of the loss ({limit})",
                many(taken, "hold", "holds"),
                length(longest)
            ),
        };
        finding(Property::Hl009, Verdict::Holds, evidence)
    } else {
        silences.sort_by_key(|silence| std::cmp::Reverse(silence.to_ns - silence.since_ns));
        let described = silences.iter().take(limits::MAX_VIOLATIONS);
        let violations = described.map(|silence| describe(context, silence)).collect();
        let count = silences.len() as u64;
        let evidence = format!(
            "{} not told of the loss ({limit})",
            many(count, "holder was", "holders were")
        );
        violated(Property::Hl009, evidence, violations, count)
    };
    answer.figures.insert("taken_from_holders".into(), taken as f64);
    answer.figures.insert("longest_silence_ms".into(), longest as f64 / 1e6);
    answer
}

/// How long a hold went on after the server had removed its grant, if it did.
fn silence<'a>(context: &'a Context<'_>, hold: &'a Hold) -> Option<Silence<'a>> {
    let history = context.history;
    let grant = context.grants.of_hold(history, hold)?;
    let revoked = grant.revoked_ns(history).filter(|_| !grant.is_out_of_sight(history))?;
    let (from, to_ns) = (history.ns(hold.from), history.ns(hold.to));
    let mut since_ns = revoked.max(from);
    if to_ns <= since_ns || hold.is_empty() {
        return None;
    }
    let client = history.client_of(hold.process);
    // A process that is stopped can be told nothing: its time begins when it is resumed.
    for window in &context.windows {
        let stopped = window.fault.starts_with("pause") && window.names_client(client);
        if stopped && window.touches(from, to_ns) && window.heal_ns.is_none_or(|heal| heal > since_ns) {
            since_ns = window.heal_ns.unwrap_or(u64::MAX);
        }
    }
    (to_ns > since_ns).then_some(Silence {
        hold,
        grant,
        since_ns,
        to_ns,
    })
}

fn describe(context: &Context<'_>, silence: &Silence<'_>) -> Violation {
    let history = context.history;
    let (hold, grant) = (silence.hold, silence.grant);
    let who = history.who(hold.process);
    let mut violation = history.violation("silent-loss", hold.lock as usize, &[hold.process], silence.since_ns);
    violation.window = context.window_before(silence.since_ns).map(|window| window.number);
    let silent = length(silence.to_ns - silence.since_ns);
    violation.summary = format!(
        "{who} was not told for at least {silent} that it had lost `{}`",
        violation.lock
    );
    violation.events.push(history.step(hold.got, "got the lock"));
    violation
        .events
        .push(history.step(grant.revoked, "the server took it away"));
    let text = format!("{who} got the lock at {}.", at(history.ns(hold.from), false));
    violation.because.push(history.because(text, &[hold.got]));
    let cause = grant.cause(history);
    let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let revoked = grant.revoked_ns(history).unwrap_or(silence.since_ns);
    let text = format!("The server took it away at {}{cause}.", at(revoked, false));
    violation.because.push(history.because(text, &[grant.revoked]));
    let until = at(silence.to_ns, false);
    let text = match hold.ended {
        Ended::Lost => format!("{who} was told only at {until}."),
        Ended::Died => format!("{who} knew nothing of it when it died at {until}."),
        Ended::Open => format!("{who} had not been told when the history ended at {until}."),
        Ended::Released | Ended::Changed => format!("{who} went on until its own call at {until}."),
    };
    violation.because.push(history.because(text, &[hold.end]));
    if hold.ended != Ended::Open {
        violation.events.push(history.step(hold.end, "until then it believed"));
    }
    violation.likely = Some("the client library has no signal for a lost lock, or nobody listens to it".into());
    violation.follows = context.root_of(hold.got);
    violation
        .figures
        .insert("silent_ms".into(), (silence.to_ns - silence.since_ns) as f64 / 1e6);
    violation
}
