//! HL006, fairness: who was passed over, and whether a promised order was kept.
//!
//! Where the recipe promises the order of asking, its tokens are its tickets, and a grant out of ticket order is a
//! violation. Where it promises nothing, this is a statistic, unless a bound is set.

use std::collections::BTreeMap;

use crate::check::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::F;
use crate::history::event::Kind;
use crate::limits;
use crate::story::{at, finding, many, violated};
use crate::tickets::{self, Break};

/// One acquire that was answered ok.
#[derive(Debug, Clone, Copy)]
struct Served {
    asked: u64,
    got: u64,
    call: u32,
    reply: u32,
    process: u32,
}

/// A waiter and how often others who asked later were served before it.
#[derive(Debug, Clone, Copy)]
struct Passed {
    lock: usize,
    served: Served,
    times: u64,
}

/// The finding of HL006.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    if !context.model.is_lock() {
        return finding(Property::Hl006, Verdict::NotApplicable, "a register is not waited for");
    }
    let served = served(context);
    let total: usize = served.iter().map(Vec::len).sum();
    if total == 0 {
        return finding(Property::Hl006, Verdict::Inconclusive, "nobody acquired the lock");
    }
    let mut passed: Vec<Passed> = served
        .iter()
        .enumerate()
        .flat_map(|(lock, served)| passed_over(lock, served))
        .collect();
    passed.sort_by_key(|passed| (std::cmp::Reverse(passed.times), passed.served.reply));
    let max = passed.first().map_or(0, |passed| passed.times);
    let jain = jain(context);
    let ordered = context.history.header.promises.fifo && context.holds.iter().any(|hold| hold.has_token);
    let (violations, count) = broken(context, ordered, &passed);
    let statistic = format!(
        "passed over {} at most, Jain index {jain:.2}",
        many(max, "time", "times")
    );
    let mut answer = if count > 0 {
        violated(
            Property::Hl006,
            format!("{}; {statistic}", many(count, "break", "breaks")),
            violations,
            count,
        )
    } else if ordered {
        let grants = many(total as u64, "grant", "grants");
        finding(
            Property::Hl006,
            Verdict::Holds,
            format!("{grants} in ticket order; {statistic}"),
        )
    } else if context.bounds.passed_over.is_some() {
        finding(Property::Hl006, Verdict::Holds, statistic)
    } else {
        finding(
            Property::Hl006,
            Verdict::NotApplicable,
            format!("no order is promised; {statistic}"),
        )
    };
    answer.figures.insert("passed_over_max".into(), max as f64);
    answer.figures.insert("jain_index".into(), jain);
    answer
}

/// What is out of ticket order, where that is promised, and who was passed over too often, where there is a bound.
fn broken(context: &Context<'_>, ordered: bool, passed: &[Passed]) -> (Vec<Violation>, u64) {
    let mut violations = Vec::new();
    let mut count = 0;
    for lock in (0..context.history.locks.len()).filter(|_| ordered) {
        let breaks = tickets::breaks(context, lock);
        count += breaks.len() as u64;
        let room = limits::MAX_VIOLATIONS - violations.len();
        violations.extend(
            breaks
                .iter()
                .take(room)
                .map(|broken| out_of_order(context, lock, broken)),
        );
    }
    if let Some(bound) = context.bounds.passed_over {
        let over = passed.iter().filter(|passed| passed.times > u64::from(bound));
        count += over.clone().count() as u64;
        let room = limits::MAX_VIOLATIONS - violations.len();
        violations.extend(over.take(room).map(|passed| describe(context, passed, bound)));
    }
    (violations, count)
}

fn served(context: &Context<'_>) -> Vec<Vec<Served>> {
    let history = context.history;
    let mut served = vec![Vec::new(); history.locks.len()];
    for (position, event) in history.events.iter().enumerate() {
        if let Some(lock) = history.lock_number(event).filter(|_| event.is_ok(F::Acquire)) {
            let (asked, got) = (history.instant(event.mate), history.instant(position as u32));
            served[lock].push(Served {
                asked,
                got,
                call: event.mate,
                reply: position as u32,
                process: event.process,
            });
        }
    }
    served
}

/// For each waiter that was passed over: how many asked after it and were served before it.
///
/// Counting from the latest call backwards, a Fenwick tree over the order of service has those who asked later.
fn passed_over(lock: usize, served: &[Served]) -> Vec<Passed> {
    let mut by_got: Vec<usize> = (0..served.len()).collect();
    by_got.sort_by_key(|place| served[*place].got);
    let mut rank = vec![0; served.len()];
    for (order, place) in by_got.iter().enumerate() {
        rank[*place] = order;
    }
    let mut by_call: Vec<usize> = (0..served.len()).collect();
    by_call.sort_by_key(|place| std::cmp::Reverse(served[*place].asked));
    let mut tree = vec![0u64; served.len() + 1];
    let mut passed = Vec::new();
    for place in by_call {
        let times = below(&tree, rank[place]);
        if times > 0 {
            passed.push(Passed {
                lock,
                served: served[place],
                times,
            });
        }
        let mut node = rank[place] + 1;
        while node < tree.len() {
            tree[node] += 1;
            node += node & node.wrapping_neg();
        }
    }
    passed
}

fn below(tree: &[u64], mut node: usize) -> u64 {
    let mut sum = 0;
    while node > 0 {
        sum += tree[node];
        node &= node - 1;
    }
    sum
}

/// Jain's index of acquires per client: 1 when all got the same, 1/n when one got all.
fn jain(context: &Context<'_>) -> f64 {
    let history = context.history;
    let mut acquired: BTreeMap<u32, f64> = BTreeMap::new();
    for event in history.events.iter().filter(|event| event.f == F::Acquire) {
        let count = acquired.entry(history.client_of(event.process)).or_default();
        *count += f64::from(u8::from(event.kind == Kind::Ok));
    }
    let sum: f64 = acquired.values().sum();
    let squares: f64 = acquired.values().map(|count| count * count).sum();
    if squares > 0.0 {
        sum * sum / (acquired.len() as f64 * squares)
    } else {
        1.0
    }
}

fn out_of_order(context: &Context<'_>, lock: usize, broken: &Break) -> Violation {
    let history = context.history;
    let holds = [broken.later.hold, broken.earlier.hold];
    let processes: Vec<u32> = holds.iter().flatten().map(|hold| hold.process).collect();
    let at_ns = history.events[broken.later.position as usize].time;
    let mut violation = history.violation("out-of-ticket-order", lock, &processes, at_ns);
    violation.window = context.window_before(at_ns).map(|window| window.number);
    let (first, second) = (broken.earlier.token, broken.later.token);
    violation.summary = format!(
        "ticket {second} of `{}` was served after ticket {first}",
        violation.lock
    );
    violation
        .events
        .push(history.step(broken.earlier.position, format!("ticket {first} served")));
    violation
        .events
        .push(history.step(broken.later.position, format!("ticket {second} served")));
    let time = |position: u32| at(history.events[position as usize].time, false);
    let text = format!("Ticket {first} was served by {}.", time(broken.earlier.position));
    violation
        .because
        .push(history.because(text, &[broken.earlier.position]));
    let text = format!(
        "Ticket {second}, which is older, was served at {}.",
        time(broken.later.position)
    );
    violation.because.push(history.because(text, &[broken.later.position]));
    // The same grants as a break of the tokens themselves.
    violation.follows = Some("HL003-1".to_owned());
    violation
}

fn describe(context: &Context<'_>, passed: &Passed, bound: u32) -> Violation {
    let history = context.history;
    let served = &passed.served;
    let asked_ns = history.events[served.call as usize].time;
    let got_ns = history.events[served.reply as usize].time;
    let who = history.who(served.process);
    let mut violation = history.violation("passed-over", passed.lock, &[served.process], got_ns);
    violation.window = context.window_before(asked_ns).map(|window| window.number);
    violation.summary = format!(
        "{who} was passed over {} (limit {bound})",
        many(passed.times, "time", "times")
    );
    violation.events.push(history.step(served.call, "asked"));
    let mut before: Vec<u32> = Vec::new();
    for (position, event) in history
        .events
        .iter()
        .enumerate()
        .take(served.reply as usize)
        .skip(served.call as usize)
    {
        let later = event.is_ok(F::Acquire) && event.mate > served.call;
        if later && history.lock_number(event) == Some(passed.lock) && before.len() <= bound as usize {
            before.push(position as u32);
        }
    }
    violation.events.extend(
        before
            .iter()
            .map(|position| history.step(*position, "asked later, served first")),
    );
    violation
        .events
        .push(history.step(served.reply, "got the lock at last"));
    let text = format!(
        "{who} asked at {} and got the lock at {}.",
        at(asked_ns, false),
        at(got_ns, false)
    );
    violation
        .because
        .push(history.because(text, &[served.call, served.reply]));
    let text = format!(
        "In between, {} who asked later.",
        many(passed.times, "grant went to one", "grants went to others")
    );
    violation.because.push(history.because(text, &before));
    violation.figures.insert("passed_over".into(), passed.times as f64);
    violation
}
