//! HL006 in words: grants out of ticket order, waiters that were passed over, clients that starved, and the likely cause of each.

use super::{at, by_the_server, finding, length, many, violated};
use crate::context::Context;
use crate::fairness::{Fairness, Passed};
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::F;
use crate::holds::LockHold;
use crate::starvation::{Starved, Starving};
use crate::tickets::TokenBreak;

pub(crate) fn tell(context: &Context<'_>, decided: &Fairness) -> Finding {
    let said = |evidence: String| finding(Property::Hl006, decided.verdict, evidence);
    if !context.model.is_lock() {
        return said("a register has no waiters".to_owned());
    }
    let statistic = format!(
        "passed over {} at most, Jain index {:.2}",
        many(decided.max, "time", "times"),
        decided.jain
    );
    let mut told = match decided.verdict {
        Verdict::Inconclusive => return said("no client acquired the lock".to_owned()),
        Verdict::NotApplicable => said(format!("no order is promised; {statistic}")),
        Verdict::Holds if decided.ordered => {
            let grants = many(decided.total, "grant", "grants");
            let server = by_the_server(context);
            said(format!("{grants} in ticket order{server}; {statistic}"))
        }
        Verdict::Holds => said(statistic),
        Verdict::Violated => {
            let bound = context.bounds.passed_over.unwrap_or_default();
            let breaks = decided.breaks.iter();
            let breaks = breaks.map(|(place, broken)| out_of_order(context, *place, broken));
            let over = decided.over.iter().map(|passed| passed_over(context, passed, bound));
            let starved = decided.starved.iter().map(|starved| starvation(context, starved));
            let violations = starved.chain(breaks).chain(over);
            let count = decided.count();
            let evidence = format!("{}; {statistic}", many(count, "break", "breaks"));
            violated(Property::Hl006, evidence, violations, count)
        }
    };
    told.figure("passed_over_max", decided.max as f64);
    told.figure("jain_index", decided.jain);
    told
}

/// The largest percentage of hand-overs back to the last holder where waiters are served in turn; and the smallest where the last holder is
/// always first.
const TO_THE_SAME: [usize; 2] = [5, 50];

/// Returns the likely cause of a starvation, by how often the last holder got the lock again.
fn served_instead(context: &Context<'_>, starved: &Starved) -> &'static str {
    let history = context.history;
    let within = |hold: &&LockHold| (starved.from_ns..=starved.to_ns).contains(&history.ns(hold.from));
    let holds: Vec<&LockHold> = context.holds.by_lock[starved.lock].iter().filter(within).collect();
    let client = |hold: &LockHold| history.client_of(hold.process);
    let same = holds
        .windows(2)
        .filter(|pair| client(pair[0]) == client(pair[1]))
        .count();
    let [few, most] = TO_THE_SAME;
    match same * 100 {
        // with one client, each hand-over is back to it
        same if holds.len() > 10 && same <= holds.len() * few => {
            "the others took turns, and this client got no turn: look for an action by which it loses its place in the queue, such as a \
             new call, or at how rarely it asks"
        }
        same if same >= holds.len() * most => {
            "the client that released last asks again before a waiter does: let waiters queue, or pause after a release"
        }
        _ => "waiters do not get the lock in the order in which they asked for it: let waiters queue",
    }
}

fn starvation(context: &Context<'_>, starved: &Starved) -> Violation {
    let history = context.history;
    let who = history.who(starved.process);
    let refused = starved.how == Starving::Refused;
    let class = if refused { "refused" } else { "starved" };
    let mut violation = history.violation(class, starved.lock, &[starved.process], starved.to_ns);
    let (lasted, others) = (
        length(starved.to_ns - starved.from_ns),
        many(starved.others, "time", "times"),
    );
    violation.summary = format!(
        "{who} asked for `{}` for {lasted} and did not get it, while others got it {others}",
        violation.lock
    );
    violation.show(history, starved.first, "asked for the lock");
    if starved.last != starved.first {
        violation.show(history, starved.last, "asked again");
    }
    let (from, to) = (at(starved.from_ns), at(starved.to_ns));
    let text = format!("{who} asked from {from} to {to}, without a pause of more than a second.");
    violation.say(history, text, &[starved.first, starved.last]);
    let text = match starved.how {
        Starving::Never => {
            let client = history.client_of(starved.process);
            let mut holds = context.holds.by_lock[starved.lock].iter();
            let own = holds.find(|hold| history.client_of(hold.process) == client);
            let end = match own.map(|hold| at(history.ns(hold.from))) {
                Some(got) => format!("{who} got it only at {got}, after the last grant to another client."),
                None => format!("{who} never got it in the whole run."),
            };
            format!("Others got the lock {others} in that time. {end}")
        }
        Starving::PastTheBound => format!("Others got the lock {others} in that time."),
        Starving::Refused => {
            let answer = history.reply(history.event(starved.last));
            let error = answer.and_then(|answer| history.error(answer));
            format!(
                "Each call was answered with an error, the last one with `{}`. No fault was active, and others got the lock {others}.",
                error.unwrap_or("unknown")
            )
        }
    };
    violation.say(history, text, &[]);
    let likely = match starved.how {
        Starving::Refused => {
            "each call of this client fails for a reason of its own: look at what it keeps after an error, such as a session, a lease or a \
             connection that is over"
        }
        _ => served_instead(context, starved),
    };
    violation.likely = Some(likely.into());
    violation.figure("starved_ms", (starved.to_ns - starved.from_ns) as f64 / 1e6);
    violation
}

fn out_of_order(context: &Context<'_>, place: usize, broken: &TokenBreak) -> Violation {
    let history = context.history;
    let holds = [broken.later.hold, broken.earlier.hold];
    let processes: Vec<u32> = holds.iter().flatten().map(|hold| hold.process).collect();
    let at_ns = history.event(broken.later.position).time;
    let mut violation = context.violation("out-of-ticket-order", broken.lock, &processes, at_ns);
    let (first, second) = (broken.earlier.token, broken.later.token);
    let lock = &violation.lock;
    violation.summary = format!("ticket {second} of `{lock}` was served after ticket {first}");
    let time = |position: u32| at(history.event(position).time);
    let when = time(broken.earlier.position);
    let text = format!("Ticket {first} was served no later than {when}.");
    violation.step(history, broken.earlier.position, format!("ticket {first} served"), text);
    let when = time(broken.later.position);
    let text = format!("Ticket {second}, which is older, was served at {when}.");
    violation.step(history, broken.later.position, format!("ticket {second} served"), text);
    // The same grants violate the order of the tokens themselves.
    violation.follows = Some(Property::Hl003.violation_id(place));
    violation
}

fn passed_over(context: &Context<'_>, passed: &Passed, bound: u32) -> Violation {
    let history = context.history;
    let asked_ns = history.event(passed.call).time;
    let got_ns = history.event(passed.reply).time;
    let who = history.who(passed.process);
    let mut violation = history.violation("passed-over", passed.lock, &[passed.process], got_ns);
    violation.window = context.window_before(asked_ns).map(|window| window.number);
    violation.summary = format!(
        "{who} was passed over {} (limit {bound})",
        many(passed.times, "time", "times")
    );
    violation.show(history, passed.call, "asked");
    let (from, to) = (passed.call as usize, passed.reply as usize);
    let between = history.events.iter().enumerate().take(to).skip(from);
    let later = between.filter(|(_, event)| {
        let is_later = event.is_ok(F::Acquire) && event.mate > passed.call;
        is_later && history.lock_number(*event) == Some(passed.lock)
    });
    let shown = later.take((bound as usize).saturating_add(1));
    let before: Vec<u32> = shown.map(|(position, _)| position as u32).collect();
    for position in &before {
        violation.show(history, *position, "asked later, served first");
    }
    violation.show(history, passed.reply, "got the lock at last");
    let text = format!("{who} asked at {} and got the lock at {}.", at(asked_ns), at(got_ns));
    violation.say(history, text, &[passed.call, passed.reply]);
    let text = format!(
        "In between, {} that asked later.",
        many(passed.times, "grant went to a client", "grants went to clients")
    );
    violation.say(history, text, &before);
    violation.figure("passed_over", passed.times as f64);
    violation
}
