//! HL004 in words: releases that woke too many waiters, or the requests of waiters that poll.

use std::collections::BTreeMap;

use super::{at, finding, many, violated};
use crate::context::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::herd::{HandOver, HandOvers, Herd, HerdJudgement, PerHandOver, WakeSource};
use crate::limits;

pub(crate) fn tell(context: &Context<'_>, decided: &Herd) -> Finding {
    match &decided.judged {
        HerdJudgement::Nothing => nothing(context, decided),
        HerdJudgement::Polls => polls(context, decided),
        HerdJudgement::Wakes(judged) => {
            let mut told = wakes(context, decided, judged);
            told.figures = figures(&judged.all, decided.limit);
            add_wire(&mut told, decided, context.history.counts.woken);
            told
        }
    }
}

/// Returns the finding without evidence of wakes, and whether taps could have seen a notification.
fn nothing(context: &Context<'_>, decided: &Herd) -> Finding {
    let mut evidence = "no woken signals in this history".to_owned();
    if decided.lost > 0 {
        let lost = many(decided.lost, "connection", "connections");
        evidence += &format!(", and taps could not follow {lost}");
    } else if context.history.tap_totals().next().is_some() {
        evidence += ", and taps saw no notification";
    }
    finding(Property::Hl004, decided.verdict, evidence)
}

/// Returns the finding for waiters that poll: the cost of a hand-over.
fn polls(context: &Context<'_>, decided: &Herd) -> Finding {
    let said = |evidence: String| finding(Property::Hl004, decided.verdict, evidence);
    let Some(cost) = decided.per_hand_over else {
        return said("waiters poll, and none is woken".to_owned());
    };
    let costs = format!("{:.1} requests per hand-over", cost.requests);
    let limited = format!("{costs} (limit {})", context.bounds.requests.unwrap_or_default());
    let mut told = match decided.verdict {
        Verdict::NotApplicable => said(format!("waiters poll, and none is woken; {costs}")),
        Verdict::Violated => {
            let violation = too_busy(context, &limited);
            violated(Property::Hl004, format!("waiters poll: {limited}"), [violation], 1)
        }
        Verdict::Inconclusive => {
            let lost = many(decided.lost, "connection", "connections");
            said(format!("taps could not follow {lost}"))
        }
        Verdict::Holds => said(format!("waiters poll: {limited}")),
    };
    add_wire(&mut told, decided, 0);
    told
}

/// Adds the taps' counts: the number of messages, and whether it agrees with the `woken` signals.
fn add_wire(told: &mut Finding, decided: &Herd, woken: u64) {
    if decided.lost > 0 {
        told.evidence += &format!(
            "; the counts on the wire are not used: taps could not follow {}",
            many(decided.lost, "connection", "connections")
        );
    }
    if let Some(counts) = decided.counts {
        told.figure("notified", counts.wire as f64);
        if woken > 0 && counts.disagree() {
            told.evidence += &format!(
                "; signals and wire disagree: the clients reported {}, and the taps saw {} to waiters",
                many(counts.signals, "wake", "wakes"),
                many(counts.wire, "notification", "notifications")
            );
        }
    }
    for (name, figure) in decided.per_hand_over.into_iter().flat_map(PerHandOver::figures) {
        told.figure(name, figure);
        for violation in &mut told.violations {
            violation.figure(name, figure);
        }
    }
}

fn wakes(context: &Context<'_>, decided: &Herd, judged: &HandOvers) -> Finding {
    let limit = decided.limit;
    let contended = judged.contended();
    let max = judged.all.iter().map(|hand_over| hand_over.counted).max().unwrap_or(0);
    let wire = if judged.source == WakeSource::Wire {
        " on the wire"
    } else {
        ""
    };
    let said = |evidence: &str| finding(Property::Hl004, decided.verdict, evidence);
    match decided.verdict {
        Verdict::Violated => {
            let herds = judged.herds();
            let violations = herds.iter().map(|hand_over| describe(context, hand_over, limit));
            let of = many(contended, "contended release", "contended releases");
            let evidence = format!(
                "{} of {of} woke too many{wire}, one woke {max} (limit {limit})",
                herds.len()
            );
            violated(Property::Hl004, evidence, violations, herds.len() as u64)
        }
        Verdict::Inconclusive if contended == 0 => said("no release while a client waited"),
        Verdict::Inconclusive => said("waiters are notified, and no woken signal was recorded"),
        Verdict::NotApplicable => said(&format!(
            "no woken signals in this history, and taps saw notifications at {} of {contended} contended releases",
            judged.told()
        )),
        Verdict::Holds => {
            let most = many(max, "waiter", "waiters");
            said(&if max > limit {
                format!(
                    "{most} woken{wire} per release at most, not more than clients that left the queue (limit {limit})"
                )
            } else {
                format!("{most} woken{wire} per release at most (limit {limit})")
            })
        }
    }
}

fn figures(hand_overs: &[HandOver], limit: u64) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let mut table: BTreeMap<u64, u64> = BTreeMap::new();
    for hand_over in hand_overs {
        let most = table.entry(hand_over.waiters).or_default();
        *most = (*most).max(hand_over.counted);
    }
    let rows = table.iter().rev().filter(|(waiters, _)| **waiters > 0);
    for (waiters, woken) in rows.take(limits::HERD_ROWS) {
        figures.insert(format!("woken_at_{waiters:04}_waiters"), *woken as f64);
    }
    let woken = |hand_over: &HandOver| hand_over.counted as f64;
    figures.insert("limit".into(), limit as f64);
    figures.insert("hand_overs".into(), hand_overs.len() as f64);
    figures.insert("woken_max".into(), hand_overs.iter().map(woken).fold(0.0, f64::max));
    figures.insert("woken".into(), hand_overs.iter().map(woken).sum());
    let useful = hand_overs.iter().map(|hand_over| hand_over.useful as f64);
    figures.insert("useful".into(), useful.sum());
    let waiters = table.keys().next_back().copied().unwrap_or(0);
    figures.insert("waiters_max".into(), waiters as f64);
    figures
}

fn describe(context: &Context<'_>, hand_over: &HandOver, limit: u64) -> Violation {
    let history = context.history;
    let release = history.event(hand_over.release);
    let mut violation = context.violation("herd", hand_over.lock, &[release.process], release.time);
    let (woken, waiters) = (hand_over.counted, hand_over.waiters);
    violation.summary = format!(
        "one release woke {woken} of {} on `{}` (limit {limit})",
        many(waiters, "waiter", "waiters"),
        violation.lock
    );
    let proof = &hand_over.woken[..hand_over.woken.len().min(limit as usize + 1)];
    for position in proof {
        violation.show(history, *position, "woken");
    }
    let text = format!("{} released at {}.", history.who(release.process), at(release.time));
    violation.step(history, hand_over.release, "release call", text);
    let text = format!(
        "{} before the next release.",
        many(woken, "waiter was woken", "waiters were woken")
    );
    violation.say(history, text, &hand_over.woken);
    let text = format!("{} of them got the lock.", hand_over.useful);
    violation.say(history, text, &[]);
    let likely = if woken * 4 < waiters * 3 {
        "several waiters watch the same node or key, so one change wakes them; in a queue each watches only the one ahead"
    } else {
        "every waiter watches the same node or key, so one change wakes all; in a queue each watches only the one ahead"
    };
    violation.likely = Some(likely.into());
    violation.figure("woken", woken as f64);
    violation.figure("waiters", waiters as f64);
    violation.figure("useful", hand_over.useful as f64);
    violation
}

fn too_busy(context: &Context<'_>, costs: &str) -> Violation {
    let history = context.history;
    let ends = [history.wire.first(), history.wire.last()].map(|end| end.map_or(0, |(position, _)| *position));
    let last = history.event(ends[1]);
    let lock = history.lock_number(last).unwrap_or(0);
    let mut violation = history.violation("polling", lock, &[last.process], last.time);
    // the taps count the messages of all locks together
    let lock = match history.locks.len() {
        1 => format!("`{}`", violation.lock),
        _ => "a lock".to_owned(),
    };
    violation.summary = format!("waiting for {lock} costs {costs}");
    for end in ends {
        violation.show(history, end, "release call");
    }
    let text = format!("From the first release to the last, all clients together sent {costs} on average.");
    violation.say(history, text, &ends);
    violation.likely =
        Some("waiters ask again and again: use a longer interval, or a lock that notifies its waiters".into());
    violation
}
