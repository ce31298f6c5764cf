//! HL005, progress: after the last heal, a lock that somebody waits for is acquired within the bound.
//!
//! Three classes: `free`, nobody holds and nobody gets it; `ghost`, the server shows a live process as owner that
//! neither holds nor asks; `dead-holder`, the owner died or was told of its loss and nobody takes its place.

mod owners;
mod waits;

use crate::check::Context;
use crate::finding::{Because, Finding, Property, Verdict, Violation};
use crate::history::Window;
use crate::history::names::NONE;
use crate::limits;
use crate::story::{at, finding, length, many, violated};
use owners::{Owner, Owners};
use waits::{Stall, Waits};

/// A lock that did not move for longer than it may.
struct Stuck {
    lock: usize,
    class: &'static str,
    from_ns: u64,
    to_ns: u64,
    waiter: Option<(u32, u32)>,
    owner: Owner,
}

/// The finding of HL005.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    let history = context.history;
    if !context.model.is_lock() || history.counts.operations == 0 {
        return finding(Property::Hl005, Verdict::Inconclusive, "nobody asked for the lock");
    }
    let Some(calm_ns) = calm(context) else {
        return finding(Property::Hl005, Verdict::Inconclusive, "the last fault was not healed");
    };
    let waits = Waits::of(context, calm_ns);
    let bound_ns = limits::ns(context.bounds.progress_ms.unwrap_or(limits::PROGRESS_MS));
    let mut stuck = Vec::new();
    let owners = Owners::of(context);
    for lock in 0..history.locks.len() {
        stuck.extend(
            waits
                .stalls(context, lock, bound_ns)
                .iter()
                .filter_map(|stall| blame(context, (&owners, &waits), lock, stall, bound_ns)),
        );
        let known = stuck.iter().any(|stuck| stuck.lock == lock);
        if !known {
            stuck.extend(owners.ghost(context, lock, calm_ns, bound_ns));
        }
    }
    answer(context, &waits, &stuck, bound_ns)
}

/// The time of the last heal; the calm phase stands for one that was not written. `None` when a fault is on to the end.
fn calm(context: &Context<'_>) -> Option<u64> {
    let phases = context.history.phases();
    let calm = phases
        .iter()
        .rev()
        .find(|phase| phase.is_recovery())
        .map(|phase| phase.start_ns);
    let heal = |window: &Window| window.heal_ns.or(calm.filter(|calm| *calm >= window.start_ns));
    context
        .windows
        .iter()
        .map(heal)
        .try_fold(0, |latest: u64, heal| Some(latest.max(heal?)))
}

fn answer(context: &Context<'_>, waits: &Waits, stuck: &[Stuck], bound_ns: u64) -> Finding {
    let since = if context.windows.is_empty() {
        ""
    } else {
        " after the heal"
    };
    let (longest, free) = (waits.longest_ns(), waits.longest_free_ns(context));
    let mut answer = if !stuck.is_empty() {
        let described = stuck.iter().take(limits::MAX_VIOLATIONS);
        let violations = described.map(|stuck| describe(context, stuck, bound_ns)).collect();
        let evidence = format!(
            "{} stuck{since} (limit {})",
            many(stuck.len() as u64, "lock was", "locks were"),
            length(bound_ns)
        );
        violated(Property::Hl005, evidence, violations, stuck.len() as u64)
    } else if waits.acquired > 0 {
        let limit = length(bound_ns);
        let evidence = format!("longest wait for a free lock{since} {} (limit {limit})", length(free));
        finding(Property::Hl005, Verdict::Holds, evidence)
    } else if waits.asked == 0 {
        finding(
            Property::Hl005,
            Verdict::Inconclusive,
            format!("nobody asked for the lock{since}"),
        )
    } else {
        let left = length(context.history.end_ns.saturating_sub(waits.calm_ns));
        let evidence = format!(
            "nobody acquired{since}, and the history ends {left} later (limit {})",
            length(bound_ns)
        );
        finding(Property::Hl005, Verdict::Inconclusive, evidence)
    };
    answer.figures.insert("longest_wait_ms".into(), longest as f64 / 1e6);
    answer.figures.insert("longest_free_ms".into(), free as f64 / 1e6);
    answer.figures.insert("limit_ms".into(), bound_ns as f64 / 1e6);
    answer
        .figures
        .insert("acquired_after_heal".into(), waits.acquired as f64);
    answer
}

/// What kind of stall it is; `None` when the owner's lease may still explain it.
fn blame(
    context: &Context<'_>,
    (owners, waits): (&Owners, &Waits),
    lock: usize,
    stall: &Stall,
    bound_ns: u64,
) -> Option<Stuck> {
    let owner = owners.during(context, lock, stall);
    let class = match &owner {
        Owner::Dead { .. } | Owner::Unsure { .. } => "dead-holder",
        Owner::Ghost { .. } => "ghost",
        Owner::Nobody | Owner::Waiting { .. } => "free",
    };
    let lease = if class == "dead-holder" { context.lease_ns } else { 0 };
    let (from_ns, to_ns) = (stall.from_ns, stall.to_ns);
    let other = owner
        .process()
        .and_then(|process| waits.besides(context, lock, stall, context.history.client_of(process)));
    let waiter = other.or(Some((stall.waiter, stall.call)));
    (to_ns - from_ns > bound_ns + lease).then_some(Stuck {
        lock,
        class,
        from_ns,
        to_ns,
        waiter,
        owner,
    })
}

fn describe(context: &Context<'_>, stuck: &Stuck, bound_ns: u64) -> Violation {
    let history = context.history;
    let mut processes: Vec<u32> = stuck.owner.process().into_iter().collect();
    processes.extend(
        stuck
            .waiter
            .map(|(process, _)| process)
            .filter(|process| !processes.contains(process)),
    );
    let mut violation = history.violation(stuck.class, stuck.lock, &processes, stuck.from_ns + bound_ns);
    violation.window = context.window_before(stuck.from_ns).map(|window| window.number);
    let waited = length(stuck.to_ns - stuck.from_ns);
    violation.summary = summary(stuck.class, &violation.lock, &waited);
    violation.because.extend(healed(context));
    let (text, positions) = stuck.owner.tell(context);
    violation.events.extend(
        positions
            .iter()
            .filter(|at| **at != NONE)
            .map(|at| history.step(*at, stuck.owner.role())),
    );
    violation.because.push(history.because(text, &positions));
    if let Some((process, call)) = stuck.waiter {
        let asked = at(history.events[call as usize].time, false);
        let text = format!(
            "{} asked for it at {asked}, and until {} nobody got it.",
            history.who(process),
            at(stuck.to_ns, false)
        );
        violation.events.push(history.step(call, "asked for the lock"));
        violation.because.push(history.because(text, &[call]));
    }
    violation.likely = Some(likely(stuck).to_owned());
    violation
        .figures
        .insert("stuck_ms".into(), (stuck.to_ns - stuck.from_ns) as f64 / 1e6);
    violation
}

fn summary(class: &str, lock: &str, waited: &str) -> String {
    match class {
        "free" => format!("nobody got `{lock}` for {waited}, though it was free and wanted"),
        "ghost" => format!("the server shows an owner of `{lock}` that does not hold it, for {waited}"),
        _ => format!("nobody took the place of the dead holder of `{lock}` for {waited}"),
    }
}

fn healed(context: &Context<'_>) -> Option<Because> {
    let heal = context
        .windows
        .iter()
        .filter(|window| window.heal_ns.is_some())
        .max_by_key(|window| window.heal_ns)?;
    let (fault, number, when) = (&heal.fault, heal.number, at(heal.heal_ns?, false));
    let text = format!("The last fault, {fault} {number}, was healed at {when}.");
    Some(Because {
        text,
        events: vec![heal.heal_index?],
    })
}

fn likely(stuck: &Stuck) -> &'static str {
    match (stuck.class, &stuck.owner) {
        ("ghost", _) => {
            "an acquire whose reply was lost left its node or key behind: find it again by a GUID, or delete it on failure"
        }
        ("free", Owner::Waiting { .. }) => "the wake-up was lost: look again after setting the watch",
        ("free", _) => "the release was not noticed: the wake-up was lost, or the waiters wait for the wrong node",
        _ => "the lock has no expiry, or its expiry is set in a second step that did not happen",
    }
}
