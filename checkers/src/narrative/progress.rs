//! HL005 in words: which lock was stuck, since when, who owned it and who waited.

use super::{at, finding, length, many, violated};
use crate::context::Context;
use crate::finding::{Because, Finding, Property, Verdict, Violation};
use crate::history::names::NONE;
use crate::history::{F, MessageMatch, Window};
use crate::limits;
use crate::progress::{ProgressAfterHeal, ProgressOutcome, Stuck, StuckClass, StuckOwner, Waiter};

/// The finding of HL005.
pub(crate) fn tell(context: &Context<'_>, decided: &ProgressOutcome) -> Finding {
    match decided {
        ProgressOutcome::NoLock => finding(Property::Hl005, Verdict::NotApplicable, "a register is not waited for"),
        ProgressOutcome::HealsUnknown => {
            let evidence = "the recording does not say when its faults were healed";
            finding(Property::Hl005, Verdict::NotApplicable, evidence)
        }
        ProgressOutcome::NobodyAsked => finding(Property::Hl005, Verdict::Inconclusive, "nobody asked for the lock"),
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
        limit += &format!(", with the {again} after which TCP has sent again what was dropped");
    }
    let said = |evidence: String| finding(Property::Hl005, decided.verdict, evidence);
    let mut told = match decided.verdict {
        Verdict::Violated => {
            let described = decided.stuck.iter().take(limits::MAX_VIOLATIONS);
            let violations = described
                .map(|stuck| describe(context, stuck, decided.bound_ns))
                .collect();
            let count = decided.stuck.len() as u64;
            let later = decided.stuck.iter().all(|stuck| stuck.from_ns >= decided.healed_ns);
            let since = if later { since } else { "" };
            let evidence = format!("{} stuck{since} ({limit})", many(count, "lock was", "locks were"));
            violated(Property::Hl005, evidence, violations, count)
        }
        Verdict::Holds | Verdict::NotApplicable => {
            let free = length(decided.longest_free_ns);
            said(format!("longest wait for a free lock{since} {free} ({limit})"))
        }
        Verdict::Inconclusive => said(match decided.excused_ns {
            Some(stuck_ns) => {
                let stuck = length(stuck_ns);
                format!("a lock was stuck for {stuck} on a machine that had far too much to do ({limit})")
            }
            None if decided.asked == 0 => format!("nobody asked for the lock{since}"),
            None => {
                let left = length(context.history.end_ns.saturating_sub(decided.healed_ns));
                format!("nobody acquired{since}, and the history ends {left} later ({limit})")
            }
        }),
    };
    told.figures
        .insert("longest_wait_ms".into(), decided.longest_ns as f64 / 1e6);
    told.figures
        .insert("longest_free_ms".into(), decided.longest_free_ns as f64 / 1e6);
    told.figures.insert("limit_ms".into(), decided.bound_ns as f64 / 1e6);
    told.figures
        .insert("acquired_after_heal".into(), decided.acquired as f64);
    told
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
    let mut violation = history.violation(stuck.class.name(), stuck.lock, &processes, stuck.from_ns + bound_ns);
    violation.window = context.window_before(stuck.from_ns).map(|window| window.number);
    let waited = length(stuck.to_ns - stuck.from_ns);
    violation.summary = summary(stuck.class, &violation.lock, &waited);
    let dropped = dropped_message(context, stuck);
    violation
        .because
        .extend(dropped.as_ref().map(|dropped| dropped.because(context)));
    violation.because.extend(healed(context, stuck.from_ns));
    let (text, positions) = owner_sentence(context, &stuck.owner);
    violation.events.extend(
        positions
            .iter()
            .filter(|at| **at != NONE)
            .map(|at| history.step(*at, role(&stuck.owner))),
    );
    violation.because.push(history.because(text, &positions));
    if let Some(Waiter { process, call }) = stuck.waiter {
        let asked = at(history.event(call).time);
        let text = format!(
            "{} asked for it at {asked}, and until {} nobody got it.",
            history.who(process),
            at(stuck.to_ns)
        );
        violation.events.push(history.step(call, "asked for the lock"));
        violation.because.push(history.because(text, &[call]));
    }
    let of_message = || dropped.as_ref().and_then(DroppedMessage::likely);
    let likely = never_worked(context).or_else(of_message);
    violation.likely = Some(likely.unwrap_or_else(|| likely_of(stuck).to_owned()));
    violation
        .figures
        .insert("stuck_ms".into(), (stuck.to_ns - stuck.from_ns) as f64 / 1e6);
    violation
}

fn summary(class: StuckClass, lock: &str, waited: &str) -> String {
    match class {
        StuckClass::Free => format!("nobody got `{lock}` for {waited}, though it was free and wanted"),
        StuckClass::Ghost => format!("the server shows an owner of `{lock}` that does not hold it, for {waited}"),
        StuckClass::Deadlock => format!("two clients waited for each other for {waited}, one of them for `{lock}`"),
        StuckClass::DeadHolder => format!("nobody took the place of the dead holder of `{lock}` for {waited}"),
    }
}

fn role(owner: &StuckOwner) -> &'static str {
    match owner {
        StuckOwner::Nobody => "released",
        StuckOwner::Waiting { .. } | StuckOwner::Ghost { .. } => "the server made it the owner",
        StuckOwner::WaitsInTurn { .. } => "holds it, and waits for another lock",
        StuckOwner::Dead { .. } => "left the lock behind",
        StuckOwner::Unsure { .. } => "left without an answer",
    }
}

/// One sentence and the positions of its events.
fn owner_sentence(context: &Context<'_>, owner: &StuckOwner) -> (String, Vec<u32>) {
    let history = context.history;
    let time = |position: u32| history.events.get(position as usize).map_or(0, |event| event.time);
    match *owner {
        StuckOwner::Nobody => ("Nobody held the lock.".to_owned(), Vec::new()),
        StuckOwner::Waiting { process, granted } => {
            let (who, since) = (history.who(process), at(time(granted)));
            (
                format!("The server shows {who} as the owner since {since}, and {who} still waits."),
                vec![granted],
            )
        }
        StuckOwner::Ghost { process, granted } => {
            let since = at(time(granted));
            let text = match process.map(|process| history.who(process)) {
                Some(who) => format!("The server shows {who} as the owner since {since}, which does not hold it."),
                None => format!("The server shows an owner since {since} that is no client of this history."),
            };
            (text, vec![granted])
        }
        StuckOwner::WaitsInTurn { process, got, call } => {
            let (who, since, asked) = (history.who(process), at(time(got)), at(time(call)));
            let other = history
                .events
                .get(call as usize)
                .and_then(|call| history.name(call.lock));
            let other = other.unwrap_or_default();
            (
                format!("{who} held it since {since}, and asked at {asked} for `{other}`, which the other one held."),
                vec![got, call],
            )
        }
        StuckOwner::Dead { process, granted, end } => {
            let (who, gone) = (history.who(process), at(time(end)));
            let what = if history.events.get(end as usize).is_some_and(|event| event.f == F::Died) {
                "died"
            } else {
                "was told of its loss"
            };
            (
                format!("{who} {what} at {gone}, and the lock was not given on."),
                vec![granted, end],
            )
        }
        StuckOwner::Unsure { process, end } => {
            let (who, gone) = (history.who(process), at(time(end)));
            (
                format!("{who} was the last holder, and left at {gone} without an answer."),
                vec![end],
            )
        }
    }
}

/// The last fault that was healed by then, so that it is no excuse.
fn healed(context: &Context<'_>, from_ns: u64) -> Option<Because> {
    let healed = context
        .windows
        .iter()
        .filter(|window| window.heal_ns.is_some_and(|heal| heal <= from_ns));
    let heal = healed.max_by_key(|window| window.heal_ns)?;
    let (fault, number, when) = (&heal.fault, heal.number, at(heal.heal_ns?));
    let text = format!("The last fault before that, {fault} {number}, was healed at {when}.");
    Some(Because {
        text,
        events: vec![heal.heal_index?],
    })
}

/// What the last refusal said, of a lock that no client ever got.
fn never_worked(context: &Context<'_>) -> Option<String> {
    let history = context.history;
    let backwards = (0..history.len() as u32).rev().map(|position| history.event(position));
    let mut answers = backwards.filter(|event| event.f == F::Acquire);
    let last = answers.find_map(|event| history.name(history.rare(event).error));
    match last {
        _ if context.has_acquires() => None,
        Some(said) => Some(format!("no acquire was ever answered ok; the last answer was `{said}`")),
        None => Some("no acquire was ever answered".to_owned()),
    }
}

/// A message that a fault dropped while its client asked for the lock that is stuck, or released it.
struct DroppedMessage<'a> {
    window: &'a Window,
    message: &'a MessageMatch,
    /// The position of the client's call.
    call: u32,
    f: F,
}

impl DroppedMessage<'_> {
    fn because(&self, context: &Context<'_>) -> Because {
        let Window { fault, number, .. } = self.window;
        let MessageMatch { message, client, .. } = self.message;
        let what = if self.is_reply() { "the reply to " } else { "" };
        let doing = if self.f == F::Release { "released" } else { "asked for" };
        let when = at(self.message.time_ns);
        let text = format!(
            "{fault} {number} dropped {what}`{message}` of {client} at {when}, while {client} {doing} the lock."
        );
        context.history.because(text, &[self.call])
    }

    /// What is lost without a request; `None` for a reply, whose request did what it should.
    fn likely(&self) -> Option<String> {
        let MessageMatch { message, client, .. } = self.message;
        let advice = match self.f {
            _ if self.is_reply() => return None,
            F::Release => "send a release again until it is answered, and let the lock expire",
            _ => {
                "what was sent before it stayed: take the lock and set its expiry in one request, or undo what was done \
                 when a request fails"
            }
        };
        Some(format!("`{message}` of {client} never reached the server: {advice}"))
    }

    fn is_reply(&self) -> bool {
        self.window.fault.starts_with("drop-reply")
    }
}

/// The last one, if nobody acquired the lock after it, and what its client did then may be what left the owner: a waiter whose
/// message is dropped meanwhile has no part in it.
fn dropped_message<'a>(context: &'a Context<'_>, stuck: &Stuck) -> Option<DroppedMessage<'a>> {
    let history = context.history;
    let (owner, granted) = match stuck.owner {
        StuckOwner::Ghost { process, granted } => (process, Some(granted)),
        StuckOwner::Unsure { process, .. } => (Some(process), None),
        _ => return None,
    };
    let lock = history.locks[stuck.lock];
    let drops = context
        .windows
        .iter()
        .filter(|window| window.fault.starts_with("drop-"));
    let drops = drops.filter_map(|window| Some((window, window.healed.as_ref()?.matched.as_ref()?)));
    let before = drops.filter(|(_, message)| message.done && message.time_ns <= stuck.to_ns);
    let (window, message) = before.max_by_key(|(_, message)| message.time_ns)?;
    let client: u32 = message.client.strip_prefix('c')?.parse().ok()?;
    if owner.is_some_and(|process| history.client_of(process) != client) {
        return None;
    }
    let (mut call, mut acquired) = (None, false);
    history.events.each_of(
        |f, _| matches!(f, F::Acquire | F::Release),
        |position, event| {
            if event.lock != lock {
                return;
            }
            let later = event.time > message.time_ns;
            acquired |= later && event.time <= stuck.to_ns && event.is_ok(F::Acquire);
            let is_call = event.is_call(F::Acquire) || event.is_call(F::Release);
            if is_call && !later && history.client_of(event.process) == client {
                let answered = history.events.answer(event.mate).map_or(u64::MAX, |(_, at)| at);
                call = (answered > message.time_ns).then_some((position, event.f));
            }
        },
    );
    let (call, f) = call.filter(|_| !acquired)?;
    let left_the_owner = match f {
        F::Release => owner.is_some(),
        _ => granted.is_some_and(|granted| {
            let granted_ns = history.event(granted).time;
            let apart_ns = message.time_ns.abs_diff(granted_ns);
            let before = owner.is_some() && message.time_ns <= granted_ns;
            before || apart_ns <= limits::OBSERVER_LAG_NS
        }),
    };
    left_the_owner.then_some(DroppedMessage {
        window,
        message,
        call,
        f,
    })
}

fn likely_of(stuck: &Stuck) -> &'static str {
    match (stuck.class, &stuck.owner) {
        (StuckClass::Ghost, _) => {
            "an acquire whose reply was lost left its node or key behind: find it again by a GUID, or delete it on failure"
        }
        (StuckClass::Free, StuckOwner::Waiting { .. }) => "the wake-up was lost: look again after setting the watch",
        (StuckClass::Free, _) => {
            "the release was not noticed: the wake-up was lost, or the waiters wait for the wrong node"
        }
        (StuckClass::Deadlock, _) => {
            "the clients take the locks in different orders: take them in one order, or with a wait"
        }
        (StuckClass::DeadHolder, _) => {
            "the lock has no expiry, or its expiry is set in a second step that did not happen"
        }
    }
}
