//! HL004 where waiters poll: nobody is woken, and the price is paid in requests.

use super::beside;
use super::wire::{self, PerHandOver};
use crate::check::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::story::{finding, many, violated};

/// Where waiters poll nobody is woken: what a hand-over costs is shown, and judged where there is a limit.
pub(super) fn check(context: &Context<'_>, per_hand_over: Option<PerHandOver>) -> Finding {
    let unlimited = |text: String| finding(Property::Hl004, Verdict::NotApplicable, text);
    let Some(cost) = per_hand_over else {
        return unlimited("waiters poll, nobody is woken".into());
    };
    let lost = wire::lost(context);
    let costs = format!("{:.1} requests per hand-over", cost.requests);
    let mut answer = match context.bounds.requests {
        None => unlimited(format!("waiters poll, nobody is woken; {costs}")),
        Some(limit) if cost.requests > f64::from(limit) => {
            let violation = too_busy(context, &format!("{costs} (limit {limit})"));
            violated(
                Property::Hl004,
                format!("waiters poll: {costs} (limit {limit})"),
                vec![violation],
                1,
            )
        }
        Some(_) if lost > 0 => {
            let text = format!("taps lost their place on {}", many(lost, "connection", "connections"));
            finding(Property::Hl004, Verdict::Inconclusive, text)
        }
        Some(limit) => {
            let text = format!("waiters poll: {costs} (limit {limit})");
            finding(Property::Hl004, Verdict::Holds, text)
        }
    };
    beside(&mut answer, (None, lost), Some(cost), 0);
    answer
}

fn too_busy(context: &Context<'_>, costs: &str) -> Violation {
    let history = context.history;
    let ends = [history.wire.first(), history.wire.last()].map(|end| end.map_or(0, |(position, _)| *position));
    let last = &history.events[ends[1] as usize];
    let lock = history.lock_number(last).unwrap_or(0);
    let mut violation = history.violation("polling", lock, &[last.process], last.time);
    violation.summary = format!("waiting for `{}` costs {costs}", violation.lock);
    violation
        .events
        .extend(ends.iter().map(|end| history.step(*end, "release call")));
    let text = format!("From the first release to the last, every hand-over cost {costs}, of all clients together.");
    violation.because.push(history.because(text, &ends));
    violation.likely =
        Some("waiters ask again and again: a longer interval, or a lock whose waiters are notified".into());
    violation
}
