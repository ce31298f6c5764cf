//! HL005 in words: the stuck lock, its owner, its waiter, and the likely cause.

use super::{at, finding, in_brackets, length, many, violated};
use crate::calm::MinorityAway;
use crate::context::Context;
use crate::finding::{Because, Finding, Property, Verdict, Violation};
use crate::history::names::NONE;
use crate::history::{F, MessageMatch, Window};
use crate::holds::LockLoss;
use crate::progress::{
    self, DroppedMessage, LeftBehind, LeftBy, NotKnown, ProgressAfterHeal, ProgressOutcome, Stuck, StuckCause,
    StuckOwner, Suspects,
};
use crate::wait::Wait;

pub(crate) fn tell(context: &Context<'_>, decided: &ProgressOutcome) -> Finding {
    match decided {
        ProgressOutcome::NoLock => finding(Property::Hl005, Verdict::NotApplicable, "a register has no waiters"),
        ProgressOutcome::HealsUnknown => {
            let mut windows = context.windows.iter();
            let lasts = windows.find(|window| context.heal_ns(window).is_none());
            let fault = lasts.map_or_else(
                || "its faults were".to_owned(),
                |window| format!("`{}` (event {}) was", window.fault, window.start_index),
            );
            let evidence = format!("the history does not say when {fault} healed, so no wait is judged");
            finding(Property::Hl005, Verdict::NotApplicable, evidence)
        }
        ProgressOutcome::NobodyAsked => finding(Property::Hl005, Verdict::Inconclusive, "no client asked for the lock"),
        ProgressOutcome::NeverHealed => finding(
            Property::Hl005,
            Verdict::Inconclusive,
            "the last fault was not healed, or a server was gone",
        ),
        ProgressOutcome::Decided(after) => after_heal(context, after),
    }
}

fn after_heal(context: &Context<'_>, decided: &ProgressAfterHeal) -> Finding {
    let since = if context.windows.is_empty() {
        ""
    } else {
        " after the heal"
    };
    let mut limit = format!("limit {}", length(decided.bound_ns));
    if decided.retransmission_ns > 0 {
        let again = length(decided.retransmission_ns);
        limit += &format!(", of which {again} are for retransmissions by TCP");
    }
    let said = |evidence: String| finding(Property::Hl005, decided.verdict, evidence);
    let mut told = match decided.verdict {
        Verdict::Violated => {
            let stuck = decided.stuck.iter();
            let violations = stuck.map(|stuck| describe(context, stuck, decided.bound_ns));
            let count = decided.stuck.len() as u64;
            let later = decided.stuck.iter().all(|stuck| stuck.from_ns >= decided.healed_ns);
            let since = if later { since } else { "" };
            let evidence = format!("{} stuck{since} ({limit})", many(count, "lock was", "locks were"));
            violated(Property::Hl005, evidence, violations, count)
        }
        Verdict::Holds | Verdict::NotApplicable => {
            let free = length(decided.longest_free_ns);
            said(format!(
                "longest wait for a free lock{since} {free} ({limit}){}",
                kept(decided)
            ))
        }
        Verdict::Inconclusive => said(match decided.excused_ns {
            Some(stuck_ns) => {
                let stuck = length(stuck_ns);
                format!("a lock was stuck for {stuck} on an overloaded machine ({limit})")
            }
            None if decided.asked == 0 => format!("no client asked for the lock{since}"),
            None => {
                let left = length(context.history.end_ns.saturating_sub(decided.healed_ns));
                format!("no client acquired{since}, and the history ends {left} later ({limit})")
            }
        }),
    };
    told.figure("longest_wait_ms", decided.longest_ns as f64 / 1e6);
    told.figure("longest_free_ms", decided.longest_free_ns as f64 / 1e6);
    told.figure("limit_ms", decided.bound_ns as f64 / 1e6);
    told.figure("acquired_after_heal", decided.acquired as f64);
    told
}

/// Returns words for locks that stayed with dead clients, as their contract allows.
fn kept(decided: &ProgressAfterHeal) -> String {
    match decided.promised.len() as u64 {
        0 => String::new(),
        count => format!(
            "; {} with a client that died, as a lock without a lease promises",
            many(count, "lock stayed", "locks stayed")
        ),
    }
}

fn describe(context: &Context<'_>, stuck: &Stuck, bound_ns: u64) -> Violation {
    let history = context.history;
    let mut processes: Vec<u32> = stuck.owner.process().into_iter().collect();
    processes.extend(
        stuck
            .waiter
            .map(|waiter| waiter.process)
            .filter(|process| !processes.contains(process)),
    );
    let mut violation = history.violation(stuck.owner.class(), stuck.lock, &processes, stuck.from_ns + bound_ns);
    violation.window = context.window_before(stuck.from_ns).map(|window| window.number);
    let waited = length(stuck.to_ns - stuck.from_ns);
    violation.summary = summary(context, &stuck.owner, &violation.lock, &waited);
    let dropped = progress::dropped_message(context, stuck);
    violation
        .because
        .extend(dropped.map(|dropped| dropping(context, &dropped)));
    violation.because.extend(healed(context, stuck.from_ns));
    let (text, positions) = owner_sentence(context, &stuck.owner);
    for position in positions.iter().filter(|position| **position != NONE) {
        violation.show(history, *position, role(&stuck.owner));
    }
    violation.say(history, text, &positions);
    if let Some(Wait { process, call, .. }) = stuck.waiter {
        let (who, asked, last) = (history.who(process), at(history.event(call).time), at(stuck.to_ns));
        // others may have got it since, before the lock was stuck
        let text = format!("{who} asked for the lock at {asked}, and had not got it by {last}.");
        violation.step(history, call, "asked for the lock", text);
    }
    let cause = progress::cause(context, stuck);
    let never_ends = never_ends(context, stuck, &cause);
    violation.likely = Some(likely(context, stuck, cause) + &never_ends);
    violation.figure("stuck_ms", (stuck.to_ns - stuck.from_ns) as f64 / 1e6);
    violation
}

fn summary(context: &Context<'_>, owner: &StuckOwner, lock: &str, waited: &str) -> String {
    let has_died = |end: u32| context.history.event(end).f == F::Died;
    match owner {
        StuckOwner::Nobody => {
            format!("no client got `{lock}` for {waited}, although no client held it and clients asked for it")
        }
        StuckOwner::Waiting { .. } => {
            format!("no client got `{lock}` for {waited}, although the server shows one that asks for it as the owner")
        }
        StuckOwner::Ghost { .. } => {
            format!("the server shows an owner of `{lock}` that does not hold it, for {waited}")
        }
        StuckOwner::WaitsInTurn { .. } => {
            format!("two clients waited for each other for {waited}, one of them for `{lock}`")
        }
        StuckOwner::Dead { end, .. } if has_died(*end) => {
            format!("no client replaced the dead holder of `{lock}` for {waited}")
        }
        StuckOwner::Dead { end, .. } => {
            let what = loss(context, *end);
            format!("no client got `{lock}` for {waited} after its holder {what}")
        }
        StuckOwner::Unsure { .. } => {
            format!("no client got `{lock}` for {waited} after a release that was not answered ok")
        }
    }
}

fn role(owner: &StuckOwner) -> &'static str {
    match owner {
        StuckOwner::Nobody => "released",
        StuckOwner::Waiting { .. } | StuckOwner::Ghost { .. } => "the server made it the owner",
        StuckOwner::WaitsInTurn { .. } => "holds it, and waits for another lock",
        StuckOwner::Dead { .. } => "left the lock behind",
        StuckOwner::Unsure { .. } => "release call, not answered ok",
    }
}

/// Returns one sentence about the owner, and the positions of its events.
fn owner_sentence(context: &Context<'_>, owner: &StuckOwner) -> (String, Vec<u32>) {
    let history = context.history;
    let time = |position: u32| history.events.get(position as usize).map_or(0, |event| event.time);
    match *owner {
        StuckOwner::Nobody => ("Nobody held the lock.".to_owned(), Vec::new()),
        StuckOwner::Waiting { process, granted } => {
            let (who, since) = (history.who(process), at(time(granted)));
            let text = format!("The server shows {who} as the owner since {since}, and {who} still waits.");
            (text, vec![granted])
        }
        StuckOwner::Ghost { process, granted } => {
            let since = at(time(granted));
            let text = match process.map(|process| history.who(process)) {
                Some(who) => format!("The server shows {who} as the owner since {since}, and {who} does not hold it."),
                None => format!("The server shows an owner since {since}, and no answer shows which client it is."),
            };
            (text, vec![granted])
        }
        StuckOwner::WaitsInTurn { process, got, call } => {
            let (who, since, asked) = (history.who(process), at(time(got)), at(time(call)));
            let other = history.events.get(call as usize);
            let other = other.and_then(|call| history.name(call.lock)).unwrap_or_default();
            let text = format!(
                "{who} held it since {since}, and asked at {asked} for `{other}`, which the other client held."
            );
            (text, vec![got, call])
        }
        StuckOwner::Dead { process, granted, end } => {
            let (who, gone) = (history.who(process), at(time(end)));
            let what = match history.events.get(end as usize).map(|event| event.f) {
                Some(F::Died) => "died",
                _ => loss(context, end),
            };
            (format!("{who} {what} at {gone}."), vec![granted, end])
        }
        StuckOwner::Unsure { process, end } => {
            let (who, gone) = (history.who(process), at(time(end)));
            let text = format!("{who} was the last holder, and its release at {gone} was not answered ok.");
            (text, vec![end])
        }
    }
}

/// Returns a verb for the loss of a client at a position.
fn loss(context: &Context<'_>, end: u32) -> &'static str {
    match LockLoss::at(context.history, end) {
        LockLoss::Told => "was told of its loss",
        LockLoss::OutcomeUnknown => "gave it up after a call with an unknown outcome",
        LockLoss::NotRenewed => "certainly held it for the last time",
    }
}

/// Returns a sentence about the last fault that was healed by then, and so is no excuse.
fn healed(context: &Context<'_>, from_ns: u64) -> Option<Because> {
    let healed = context
        .windows
        .iter()
        .filter(|window| window.heal_ns.is_some_and(|heal| heal <= from_ns));
    let heal = healed.max_by_key(|window| window.heal_ns)?;
    let (fault, when) = (heal.name(), at(heal.heal_ns?));
    let text = format!("The last fault before the lock was stuck, {fault}, was healed at {when}.");
    Some(Because {
        text,
        events: vec![heal.heal_index?],
    })
}

/// Describes the dropped message that left a lock with its owner.
fn dropping(context: &Context<'_>, dropped: &DroppedMessage<'_>) -> Because {
    let Window { fault, number, .. } = dropped.window;
    let MessageMatch { message, client, .. } = dropped.message;
    let what = if dropped.is_reply() { "the reply to " } else { "" };
    let doing = if dropped.f == F::Release {
        "released"
    } else {
        "asked for"
    };
    let when = at(dropped.message.time_ns);
    let text =
        format!("{fault} {number} dropped {what}`{message}` of {client} at {when}, while {client} {doing} the lock.");
    context.history.because(text, &[dropped.call])
}

/// Returns words for a leftover that should have ended by itself, if the contract has a lease and the leftover is not renewed.
fn never_ends(context: &Context<'_>, stuck: &Stuck, cause: &StuckCause<'_>) -> String {
    let promises = &context.history.header.promises;
    let ends = promises.lease == Some(true) && promises.renews == Some(false);
    let is_over = stuck.to_ns - stuck.from_ns > 2 * context.lease_ns;
    match (cause, context.history.header.lease_ms) {
        // a leftover of a loss is renewed, as its cause says
        (StuckCause::Left(left), Some(lease_ms))
            if ends && is_over && stuck.is_shown && !matches!(left.by, LeftBy::Loss(_)) =>
        {
            format!(
                "; its lease of {lease_ms} ms did not end it either: look at the time to live that the client asks for"
            )
        }
        _ => String::new(),
    }
}

/// The taps' names of requests that only remove, in small letters.
const REMOVALS: [&str; 5] = ["del", "unl", "leaserevoke", "advisory_unlock", "release_lock"];
const END_NOT_NOTICED: &str = "the end of the last grant, which the observer did not see, was not noticed: the wake-up was lost, or the \
     waiters wait for the wrong node";
const NOT_ANSWERED: &str = "the server showed no owner, and no acquire was answered: a request without a time limit waits for an answer \
     that was lost, or the library checks something other than the lock";
const REFUSED_THOUGH_FREE: &str = "the server showed no owner, and new acquires were still refused: the library checks something other than \
     the lock, such as a place in a queue, its own memory, or the late reply to an earlier request";

/// Returns the likely cause, and its remedy.
fn likely(context: &Context<'_>, stuck: &Stuck, cause: StuckCause<'_>) -> String {
    match cause {
        StuckCause::NeverWorked(None) => "no acquire was ever answered ok".to_owned(),
        StuckCause::NeverWorked(Some(said)) => {
            format!("no acquire was ever answered ok; the last answer was `{said}`")
        }
        StuckCause::Order => {
            "the clients take the locks in different orders: take them in one order, or limit the wait of each acquire".to_owned()
        }
        StuckCause::Dropped(DroppedMessage { message, f, .. }) => {
            let MessageMatch { message, client, .. } = message;
            let removes = REMOVALS.iter().any(|name| message.to_lowercase().starts_with(name));
            let advice = if f == F::Release || removes {
                "send the removal again until it is answered, and let the lock expire"
            } else {
                "the earlier request stayed in effect: take the lock and set its expiry in one request, or undo the \
                 earlier request when a later one fails"
            };
            format!("`{message}` of {client} never reached the server: {advice}")
        }
        StuckCause::OnlyErrors(said) => format!(
            "every acquire was answered with an error, the last one with `{said}`: {}",
            error_advice(said)
        ),
        StuckCause::MinorityAway { away, said } => minority_away(context, &away, said),
        StuckCause::RefusedRenew(message) => format!(
            "refused acquires send `{message}`: if it is for the lock's own key, what a client left never expires while others ask; let only \
             the owner renew"
        ),
        StuckCause::IdleRenewal(message) => format!(
            "clients that neither hold the lock nor ask for it send `{message}`: if it is for the lock's own key, what a client left never \
             expires; end the renewal with its hold, and let it compare the owner"
        ),
        StuckCause::Left(leftover) => left(leftover),
        StuckCause::NoExpiry => {
            "the lock has no expiry, or one that is far longer than its lease, or its expiry is set in a second step that did not happen"
                .to_owned()
        }
        StuckCause::EndNotTold { ended_ns } => format!(
            "the last grant ran out at {}, and no waiter was notified: some stores do not notify of an expiry (Redis without \
             keyspace events, NATS buckets), so a waiter must look again after the time to live; with other stores the wake-up was \
             lost",
            at(ended_ns)
        ),
        StuckCause::WakeUpLost => "the wake-up was lost: check the lock again after setting the watch".to_owned(),
        StuckCause::OwnLeftover { client, is_sure } => own_leftover(client, is_sure),
        StuckCause::ReleaseNotNoticed => {
            "the release was not noticed: the wake-up was lost, or the waiters wait for the wrong node".to_owned()
        }
        StuckCause::EndNotNoticed => END_NOT_NOTICED.to_owned(),
        StuckCause::NotAnswered(None) => NOT_ANSWERED.to_owned(),
        StuckCause::NotAnswered(Some(said)) => format!(
            "the server showed no owner, and acquires were answered with errors, the last one with `{said}`, or not at all: {}",
            error_advice(said)
        ),
        StuckCause::RefusedThoughFree => REFUSED_THOUGH_FREE.to_owned(),
        StuckCause::NotKnown(between) => not_known(between, stuck.is_shown),
    }
}

/// Stores whose servers form one cluster, so that a client needs one of them.
pub(super) const OF_ONE_CLUSTER: [&str; 3] = ["zk", "etcd", "nats"];

/// Returns the likely cause for a lock that no client acquired while less than half of the servers were away.
fn minority_away(context: &Context<'_>, away: &MinorityAway<'_>, said: Option<&str>) -> String {
    let store = context.history.header.backend.as_deref();
    let advice = match store.is_some_and(|store| OF_ONE_CLUSTER.contains(&store)) {
        true => "limit the time of each request, and connect to another server when one does not answer",
        false => "wait for one server for much less than a lease, and count its error as one refusal",
    };
    format!(
        "{} kept a minority of the servers away ({}), and no client got the lock from the others{}: {advice}",
        away.window.name(),
        Vec::from_iter(away.servers.iter().copied()).join(" "),
        in_brackets(said.map(|said| format!("last answer: `{said}`")))
    )
}

/// Words of errors about the connection to the store, and about a limit of time, in small letters.
const OF_CONNECTIONS: [&str; 7] = ["connect", "broken", "socket", "session", "closed", "reset", "eof"];
const OF_LIMITS: [&str; 2] = ["timeout", "timed"];

/// Returns advice for acquires that were answered with nothing but errors; `said` is the last of them.
fn error_advice(said: &str) -> &'static str {
    let words = said.to_lowercase();
    let has_one = |of: &[&str]| of.iter().any(|word| words.contains(word));
    match () {
        () if has_one(&OF_CONNECTIONS) => {
            "by these words no request reached the lock, so look at how the clients reconnect"
        }
        // the limit may be that of the wait
        () if has_one(&OF_LIMITS) => {
            "if that is the limit of a request, look at how the clients reconnect; if it is the library's own for its wait, the lock may be \
             taken"
        }
        () => "none says that the lock is taken, so look at where that error comes from, the store or the client",
    }
}

/// Returns the likely cause for a client that waits although the server has it as the owner.
fn own_leftover(client: u32, is_sure: bool) -> String {
    let (or_what, limit) = match is_sure {
        true => ("", ""),
        false => (
            ", or for an answer that was lost",
            ", and limit the time of each request",
        ),
    };
    format!(
        "c{client} waits for its own node or key{or_what}: after a lost reply, compare the owner with the client's own name before the \
         wait{limit}"
    )
}

/// Returns words for the origin of a leftover.
fn left(LeftBehind { client, by, said }: LeftBehind<'_>) -> String {
    let whose = client.map_or("a client".to_owned(), |client| format!("c{client}"));
    let said = in_brackets(said.map(|said| format!("`{said}`")));
    match by {
        LeftBy::GaveUp => format!(
            "an acquire of {whose} that gave up{said} left its node or key behind: delete it before the answer `fail`, and repeat \
             the delete until the store confirms it"
        ),
        LeftBy::Unanswered => format!(
            "an acquire of {whose} whose reply was lost or late{said} left its node or key behind: find it again by a GUID, or delete \
             it on failure"
        ),
        LeftBy::Acquire => format!(
            "an acquire of {whose} that gave up, or whose reply was lost{said}, left its node or key behind: find it again by a GUID, \
             and repeat the delete until the store confirms it"
        ),
        LeftBy::OneOf(suspects) => one_of(suspects),
        LeftBy::ReleaseOk => format!(
            "the release of {whose} was answered ok, and did not remove its node or key: answer ok only after the store confirms \
             the removal"
        ),
        LeftBy::ReleaseFailed => format!(
            "the release of {whose} did not remove its node or key{said}: send it again until it is answered, and let the lock expire"
        ),
        LeftBy::Again => format!(
            "the node or key of {whose} had ended when it released the lock, and came back: a renewal that writes it anew, or a request \
             that came late or was sent twice; let a renewal only prolong what is there, and end it before the release"
        ),
        LeftBy::Loss(LockLoss::Told) => format!(
            "{whose} was told that it had lost the lock, and its node or key stays: remove it after a loss, and stop its renewal"
        ),
        LeftBy::Loss(LockLoss::OutcomeUnknown) => format!(
            "{whose} gave up the lock after a call with an unknown outcome, and its node or key stays: remove it also then, and stop its \
             renewal"
        ),
        LeftBy::Loss(LockLoss::NotRenewed) => {
            format!("no later renewal of {whose} was answered ok, and its node or key stays: let its lease end on the server")
        }
        LeftBy::NotKnown => {
            "not known from this history: the server shows an owner, and no acquire or release names it; answers with an `owner` \
             would name it"
                .to_owned()
        }
    }
}

/// Returns words for the possible origins of a node or key that no client names.
fn one_of(Suspects { ended, died, waits }: Suspects) -> String {
    let all = [
        // a pending acquire may have given up, as far as is known
        (
            ended || !died,
            "an acquire that gave up, or whose reply was lost, left it behind",
        ),
        (died, "a client that died in its acquire left it without an expiry"),
        (waits, "it is of an acquire that went on waiting and was not told"),
    ];
    let may_be = all.iter().filter(|(may_be, _)| *may_be).map(|(_, why)| *why);
    format!(
        "not known from this history: a node or key stays, and {}; an `owner` in each call would name it",
        Vec::from_iter(may_be).join(", or ")
    )
}

/// Returns words for causes between which the history does not decide. `is_shown`: the server's lines have the owners of the lock.
fn not_known(between: NotKnown, is_shown: bool) -> String {
    let why = match is_shown {
        true => "the observer had lost sight of the server",
        false => "the owner on the server is not recorded; with `keys` in the contract, the observer records it",
    };
    let either = match between {
        NotKnown::StaysOrRefusal => "acquires are refused because a node or key stays, or although the lock is free",
        NotKnown::StaysOrWakeUp => "a node or key stays, or the release woke no waiter",
        NotKnown::ExpiryOrWakeUp => {
            "the node or key of the last holder stays, or it expired and no waiter was notified"
        }
    };
    format!("not known from this history: {either}; {why}")
}
