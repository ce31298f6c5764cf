//! HL003 in words: tokens that decrease, stale writes that were accepted, holders that were refused.

use std::collections::BTreeMap;

use super::progress::OF_ONE_CLUSTER;
use super::{at, by_the_server, finding, many, violated};
use crate::calm;
use crate::context::Context;
use crate::fencing::{Fencing, TokenWrite, WrongWrite};
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::{NemesisFact, Role, Window};
use crate::tickets::TokenBreak;

pub(crate) fn tell(context: &Context<'_>, decided: &Fencing) -> Finding {
    let tokens = many(decided.tokens, "token", "tokens");
    let said = |evidence: &str| finding(Property::Hl003, decided.verdict, evidence);
    let mut told = match decided.verdict {
        Verdict::NotApplicable => return without_tokens(decided),
        Verdict::Inconclusive if context.has_acquires() => {
            return said("the contract promises tokens, and no grant had one");
        }
        Verdict::Inconclusive => return said("no client acquired the lock"),
        Verdict::Violated => {
            let breaks = decided.breaks.iter().map(|broken| token_break(context, broken));
            let writes = decided.writes.wrong.iter().map(|write| match *write {
                WrongWrite::StaleAccepted { lock, stale, newer } => stale_accepted(context, lock, stale, newer),
                WrongWrite::HolderRefused { lock, write } => holder_refused(context, lock, write),
            });
            let count = (decided.breaks.len() + decided.writes.wrong.len()) as u64;
            let evidence = format!("{} of {tokens}", many(count, "break", "breaks"));
            violated(Property::Hl003, evidence, breaks.chain(writes), count)
        }
        Verdict::Holds => {
            let mut evidence = format!("{tokens}, each larger than the last");
            evidence.push_str(&by_the_server(context));
            if decided.writes.refused_stale > 0 {
                let stale = many(decided.writes.refused_stale, "stale write was", "stale writes were");
                evidence.push_str(&format!("; {stale} refused: tokens would protect the data"));
            }
            said(&evidence)
        }
    };
    told.figure("tokens", decided.tokens as f64);
    told.figure("fenced_writes", decided.writes.count as f64);
    told.figure("stale_writes_refused", decided.writes.refused_stale as f64);
    told
}

/// Returns the finding of a lock without tokens: the writes that tokens would have stopped.
fn without_tokens(decided: &Fencing) -> Finding {
    let late = decided.late_writes;
    let none = if decided.unordered {
        "the lock makes its own tokens and promises no order of them"
    } else {
        "no fencing tokens"
    };
    let evidence = match late {
        0 => none.to_owned(),
        _ => format!(
            "{none}: a store that checks them would have refused {}",
            many(late, "late write", "late writes")
        ),
    };
    let mut told = finding(Property::Hl003, Verdict::NotApplicable, evidence);
    if late > 0 {
        told.figure("late_writes", late as f64);
    }
    told
}

fn token_break(context: &Context<'_>, broken: &TokenBreak) -> Violation {
    let history = context.history;
    let processes: Vec<u32> = [broken.earlier.hold, broken.later.hold]
        .iter()
        .flatten()
        .map(|hold| hold.process)
        .collect();
    let at_ns = history.event(broken.later.position).time;
    let again = broken.later.token == broken.earlier.token;
    let mut violation = context.violation(
        if again { "token-twice" } else { "token-goes-back" },
        broken.lock,
        &processes,
        at_ns,
    );
    let (lock, token, before) = (&violation.lock, broken.later.token, broken.earlier.token);
    violation.summary = match again {
        true => format!("token {token} of `{lock}` was given out twice"),
        false => format!("token {token} of `{lock}` came after token {before}"),
    };
    let roles = match again {
        true => ["got the token", "got the same token later"],
        false => ["got the larger token", "got the smaller token later"],
    };
    for (side, role) in [&broken.earlier, &broken.later].into_iter().zip(roles) {
        let who = side
            .hold
            .map_or("the server's owner".to_owned(), |hold| history.who(hold.process));
        let event = history.event(side.position);
        let text = format!("{who} got token {} no later than {}.", side.token, at(event.time));
        violation.step(history, side.position, role, text);
    }
    if let Some(hold) = broken.later.hold {
        violation.show(history, hold.call(history), "asked");
    }
    violation.likely = Some(cause_of_break(context, broken));
    violation.figure("token", broken.later.token as f64);
    violation.figure("token_before", broken.earlier.token as f64);
    violation
}

/// Returns the likely cause of a token that repeated or decreased: a restart of servers, two acquires at the same time, or neither.
fn cause_of_break(context: &Context<'_>, broken: &TokenBreak) -> String {
    let history = context.history;
    let time = |position: u32| history.event(position).time;
    let between = time(broken.earlier.position)..=time(broken.later.position);
    let store = history.header.backend.as_deref();
    let of_one_cluster = store.is_some_and(|store| OF_ONE_CLUSTER.contains(&store));
    let restarted = context.windows.iter().find(|window| {
        // a restarted server may have an older counter, unless the others have the last one
        let may_be_alone = !of_one_cluster && !is_of_replicas(context, window);
        let is_lost = window.restarts_servers() && (may_be_alone || calm::takes_all_servers(context, window));
        let may_go_back = is_lost || window.fault.starts_with("failover");
        may_go_back && between.contains(&window.start_ns)
    });
    // an atomic counter gives no token twice, whenever it is asked
    let again = broken.later.token == broken.earlier.token;
    let later = broken.later.hold.filter(|_| !again);
    let asked_at_once = later.is_some_and(|later| time(later.call(history)) < time(broken.earlier.position));
    if let Some(window) = restarted {
        return format!(
            "the counter of the tokens went back with its server under {}: store it durably, or take tokens from the store's own order",
            window.name()
        );
    }
    let come = if asked_at_once {
        "the lock draws the token before the grant or in a step of its own"
    } else {
        "tokens come from a counter that restarts, is not shared, or is raised in a step of its own"
    };
    format!("{come}: take tokens from the store's own order")
}

/// Returns whether all servers of a window were replicas, by their last roles before it: clients draw tokens from the master.
fn is_of_replicas(context: &Context<'_>, window: &Window) -> bool {
    let mut last: BTreeMap<&str, &Role> = BTreeMap::new();
    let lines = context.history.nemesis().iter();
    for line in lines.filter(|line| line.time_ns <= window.start_ns) {
        if let NemesisFact::Roles(roles) = &line.fact {
            last.extend(roles.iter().map(|(server, role)| (server.as_str(), role)));
        }
    }
    let targets = &window.started.targets;
    !targets.is_empty()
        && targets
            .iter()
            .all(|target| last.get(target.as_str()) == Some(&&Role::Replica))
}

fn stale_accepted(context: &Context<'_>, lock: usize, stale: TokenWrite, newer: TokenWrite) -> Violation {
    let history = context.history;
    let event = history.event(stale.position);
    let mut violation = context.violation("stale-write-accepted", lock, &[event.process], event.time);
    violation.summary = format!(
        "a write with token {} was accepted after one with token {}",
        stale.token, newer.token
    );
    let role = |write: TokenWrite| format!("write with token {} accepted", write.token);
    let accepted = at(history.event(newer.position).time);
    let text = format!("Token {} was accepted by {accepted}.", newer.token);
    violation.step(history, newer.position, role(newer), text);
    let (who, wrote) = (history.who(event.process), at(event.time));
    let text = format!("{who} wrote with token {} at {wrote}.", stale.token);
    violation.step(history, stale.position, role(stale), text);
    violation
}

fn holder_refused(context: &Context<'_>, lock: usize, write: TokenWrite) -> Violation {
    let TokenWrite { position, token } = write;
    let history = context.history;
    let event = history.event(position);
    let mut violation = context.violation("true-holder-refused", lock, &[event.process], event.time);
    violation.summary = format!("the only holder of `{}` was refused with token {token}", violation.lock);
    if let Some(hold) = context.holds.around(lock, event.process, history.instant(event.mate)) {
        violation.show(history, hold.got, "got the lock");
    }
    let (who, wrote) = (history.who(event.process), at(event.time));
    let text = format!("{who} alone held the lock at {wrote}, and its write was refused.");
    violation.step(history, position, "its write was refused", text);
    violation.likely =
        Some("an earlier grant had a larger token: the tokens are not in the order of the grants".into());
    violation
}
