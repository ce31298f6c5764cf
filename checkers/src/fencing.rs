//! HL003, fencing: tokens of successive grants strictly increase, and a register that checks them stops every stale
//! write and no other.

use crate::check::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::event::Fenced;
use crate::history::names::NONE;
use crate::history::{Event, F};
use crate::limits;
use crate::story::{at, finding, many, violated};
use crate::tickets::{self, Break};

/// What the token-checking register did.
#[derive(Debug, Default)]
struct Register {
    writes: u64,
    refused_stale: u64,
    violations: Vec<Violation>,
}

/// The finding of HL003.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    let tokens = context.holds.iter().filter(|hold| hold.has_token).count() as u64;
    let promised = context.history.header.promises.tokens;
    if tokens == 0 {
        return match (promised, context.has_acquires()) {
            (false, _) => without_tokens(context),
            (true, false) => finding(Property::Hl003, Verdict::Inconclusive, "nobody acquired the lock"),
            (true, true) => finding(
                Property::Hl003,
                Verdict::Inconclusive,
                "tokens are promised and none came",
            ),
        };
    }
    let mut violations = Vec::new();
    let mut count = 0;
    for lock in 0..context.history.locks.len() {
        let breaks = tickets::breaks(context, lock);
        count += breaks.len() as u64;
        let room = limits::MAX_VIOLATIONS - violations.len();
        violations.extend(breaks.iter().take(room).map(|broken| describe(context, lock, broken)));
    }
    let mut register = register(context);
    count += register.violations.len() as u64;
    violations.append(&mut register.violations);
    violations.truncate(limits::MAX_VIOLATIONS);
    let mut answer = answer(tokens, &register, violations, count);
    answer.figures.insert("tokens".into(), tokens as f64);
    answer.figures.insert("fenced_writes".into(), register.writes as f64);
    answer
        .figures
        .insert("stale_writes_refused".into(), register.refused_stale as f64);
    answer
}

fn answer(tokens: u64, register: &Register, violations: Vec<Violation>, count: u64) -> Finding {
    if count > 0 {
        let evidence = format!(
            "{} of {}",
            many(count, "break", "breaks"),
            many(tokens, "token", "tokens")
        );
        return violated(Property::Hl003, evidence, violations, count);
    }
    let mut evidence = format!("{}, each larger than the last", many(tokens, "token", "tokens"));
    if register.refused_stale > 0 {
        let stale = many(register.refused_stale, "stale write was", "stale writes were");
        evidence.push_str(&format!("; {stale} refused: tokens would save you"));
    }
    finding(Property::Hl003, Verdict::Holds, evidence)
}

fn describe(context: &Context<'_>, lock: usize, broken: &Break) -> Violation {
    let history = context.history;
    let processes: Vec<u32> = [broken.earlier.hold, broken.later.hold]
        .iter()
        .flatten()
        .map(|hold| hold.process)
        .collect();
    let at_ns = history.events[broken.later.position as usize].time;
    let again = broken.later.token == broken.earlier.token;
    let mut violation = history.violation(
        if again { "token-twice" } else { "token-goes-back" },
        lock,
        &processes,
        at_ns,
    );
    violation.window = context.window_before(at_ns).map(|window| window.number);
    violation.summary = if again {
        format!(
            "token {} of `{}` was given out twice",
            broken.later.token, violation.lock
        )
    } else {
        format!(
            "token {} of `{}` came after token {}",
            broken.later.token, violation.lock, broken.earlier.token
        )
    };
    for (side, role) in [
        (&broken.earlier, "got the larger token"),
        (&broken.later, "got the smaller token later"),
    ] {
        let who = side
            .hold
            .map_or("the server's owner".to_owned(), |hold| history.who(hold.process));
        let event = &history.events[side.position as usize];
        violation.events.push(history.step(side.position, role));
        let text = format!("{who} was granted token {} by {}.", side.token, at(event.time, false));
        violation.because.push(history.because(text, &[side.position]));
    }
    if let Some(hold) = broken.later.hold {
        violation.events.push(history.step(hold.call, "asked"));
    }
    violation.likely =
        Some("tokens come from a counter that restarts or is not shared: take them from the store's own order".into());
    violation.figures.insert("token".into(), broken.later.token as f64);
    violation
        .figures
        .insert("token_before".into(), broken.earlier.token as f64);
    violation
}

/// A lock that gives no tokens: nothing to judge, and the writes that they would have stopped.
fn without_tokens(context: &Context<'_>) -> Finding {
    let late = late_writes(context);
    let evidence = match late {
        0 => "no fencing tokens".to_owned(),
        _ => format!(
            "no fencing tokens: a store that checks them would have refused {}",
            many(late, "late write", "late writes")
        ),
    };
    let mut answer = finding(Property::Hl003, Verdict::NotApplicable, evidence);
    if late > 0 {
        answer.figures.insert("late_writes".into(), late as f64);
    }
    answer
}

/// Writes that were called after somebody who got the lock later had written already.
fn late_writes(context: &Context<'_>) -> u64 {
    let history = context.history;
    // by lock: the replies to writes, each with when the newest holder to have written until then had got the lock
    let mut newest: Vec<Vec<(u32, u64)>> = vec![Vec::new(); history.locks.len()];
    let mut late = 0;
    for (position, event) in history.events.iter().enumerate() {
        let Some(lock) = history.lock_number(event).filter(|_| event.is_ok(F::Write)) else {
            continue;
        };
        let Some(hold) = context.holds.around(lock, event.process, history.instant(event.mate)) else {
            continue;
        };
        let written = &mut newest[lock];
        let before = written.partition_point(|(at, _)| *at < event.mate);
        late += u64::from(before > 0 && written[before - 1].1 > hold.from);
        if written.last().is_none_or(|(_, newest)| *newest < hold.from) {
            written.push((position as u32, hold.from));
        }
    }
    late
}

/// Walks the writes that the token-checking register has looked at, lock by lock, in order.
fn register(context: &Context<'_>) -> Register {
    let history = context.history;
    let mut register = Register::default();
    let mut accepted: Vec<Vec<(u32, u64)>> = vec![Vec::new(); history.locks.len()];
    for (position, event) in history.events.iter().enumerate() {
        if !event.is_ok(F::Write) || event.rare == NONE {
            continue;
        }
        let (Some(lock), Some(fenced)) = (history.lock_number(event), history.rare(event).fenced) else {
            continue;
        };
        let Some(token) = token_of(context, event) else {
            continue;
        };
        register.writes += 1;
        let position = position as u32;
        // The highest token that was accepted before this write was called.
        let called = event.mate;
        let before = accepted[lock].partition_point(|(at, _)| *at < called);
        let highest = before.checked_sub(1).map(|place| accepted[lock][place]);
        match fenced {
            Fenced::Accepted => {
                if let Some((other, highest)) = highest.filter(|(_, highest)| token < *highest) {
                    register
                        .violations
                        .push(passed(context, lock, (position, token), (other, highest)));
                } else if accepted[lock].last().is_none_or(|(_, last)| *last < token) {
                    accepted[lock].push((position, token));
                }
            }
            Fenced::Refused if is_true_holder(context, lock, event) => {
                register.violations.push(kept_out(context, lock, position, token));
            }
            Fenced::Refused => register.refused_stale += 1,
        }
    }
    register
}

fn token_of(context: &Context<'_>, event: &Event) -> Option<u64> {
    event
        .token()
        .or_else(|| context.history.events.get(event.mate as usize)?.token())
}

/// Whether the writer held the lock for certain, alone, and in the server's eyes, too, from call to reply.
fn is_true_holder(context: &Context<'_>, lock: usize, reply: &Event) -> bool {
    let history = context.history;
    let (called, replied) = (history.instant(reply.mate), reply.time);
    let Some(hold) = context.holds.around(lock, reply.process, called) else {
        return false;
    };
    let alone = !context.overlapping.contains(&hold.got);
    let grant = context.grants.of_hold(history, hold);
    let granted = grant.is_some_and(|grant| grant.granted != NONE);
    let kept = grant.is_some_and(|grant| {
        grant
            .revoked_ns(history)
            .is_none_or(|ns| ns > replied + limits::OBSERVER_LAG_NS)
    });
    alone && granted && kept && hold.to > history.instant(history.events[reply.mate as usize].mate)
}

fn passed(context: &Context<'_>, lock: usize, stale: (u32, u64), other: (u32, u64)) -> Violation {
    let history = context.history;
    let event = &history.events[stale.0 as usize];
    let mut violation = history.violation("stale-write-accepted", lock, &[event.process], event.time);
    violation.summary = format!(
        "a write with token {} was accepted after one with token {}",
        stale.1, other.1
    );
    violation.window = context.window_before(event.time).map(|window| window.number);
    violation
        .events
        .push(history.step(other.0, format!("write with token {} accepted", other.1)));
    violation
        .events
        .push(history.step(stale.0, format!("write with token {} accepted", stale.1)));
    let text = format!(
        "Token {} was accepted by {}.",
        other.1,
        at(history.events[other.0 as usize].time, false)
    );
    violation.because.push(history.because(text, &[other.0]));
    let text = format!(
        "{} wrote with token {} at {}.",
        history.who(event.process),
        stale.1,
        at(event.time, false)
    );
    violation.because.push(history.because(text, &[stale.0]));
    violation
}

fn kept_out(context: &Context<'_>, lock: usize, position: u32, token: u64) -> Violation {
    let history = context.history;
    let event = &history.events[position as usize];
    let mut violation = history.violation("true-holder-refused", lock, &[event.process], event.time);
    violation.summary = format!("the only holder of `{}` was refused with token {token}", violation.lock);
    violation.window = context.window_before(event.time).map(|window| window.number);
    if let Some(hold) = context.holds.around(lock, event.process, history.instant(event.mate)) {
        violation.events.push(history.step(hold.got, "got the lock"));
    }
    violation.events.push(history.step(position, "its write was refused"));
    let text = format!(
        "{} alone held the lock at {} and was refused.",
        history.who(event.process),
        at(event.time, false)
    );
    violation.because.push(history.because(text, &[position]));
    violation.likely = Some("an earlier grant had a larger token: tokens do not follow the grants".into());
    violation
}
