//! HL004, herd: one release wakes at most as many waiters as can use it.
//!
//! Wakes are attributed to the hand-over in which they fall, and everything else that may have woken somebody in the
//! meantime (a session that expired, a waiter that gave up) is allowed for. See [`departures`] for what that is.

mod departures;
mod polling;
mod wire;

use std::collections::BTreeMap;

use crate::check::Context;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::history::event::Wakes;
use crate::history::{F, Mode};
use crate::limits;
use crate::model::Model;
use crate::story::{at, finding, many, violated};
use departures::{Departures, Disturbed};
use wire::PerHandOver;

/// What happened on one lock, by time.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Release calls of certain holds: time and position.
    releases: Vec<(u64, u32)>,
    wakes: Vec<Wake>,
    /// When acquires were called and answered.
    asked: Vec<u64>,
    answered: Vec<u64>,
}

impl Traffic {
    /// The same hand-overs, and nobody woken yet.
    fn without_wakes(&self) -> Self {
        Self {
            releases: self.releases.clone(),
            wakes: Vec::new(),
            asked: self.asked.clone(),
            answered: self.answered.clone(),
        }
    }
}

/// One `woken` signal, or one notification on the wire.
#[derive(Debug, Clone, Copy)]
struct Wake {
    ns: u64,
    position: u32,
    client: u32,
    /// The process's next word on the lock was that it had acquired it.
    useful: bool,
    reader: bool,
}

/// One release and whom it woke.
#[derive(Debug, Clone)]
struct HandOver {
    lock: usize,
    release: u32,
    woken: Vec<u32>,
    counted: u64,
    useful: u64,
    waiters: u64,
}

/// What is judged: every hand-over, and those that woke too many, the worst first.
struct Judged {
    hand_overs: Vec<HandOver>,
    guilty: Vec<HandOver>,
    /// Whether it is what the clients said, or what passed the wire.
    by: Witness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Witness {
    Signals,
    Wire,
}

/// The finding of HL004.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    let history = context.history;
    let promise = history.header.promises.wakes;
    let per_hand_over = PerHandOver::of(context);
    if promise == Some(Wakes::Polls) {
        return polling::check(context, per_hand_over);
    }
    let (woken, notified) = (history.counts.woken, history.counts.notified);
    if promise.is_none() && woken + notified == 0 {
        return finding(
            Property::Hl004,
            Verdict::NotApplicable,
            "no woken signals in this history",
        );
    }
    let limit = u64::from(context.bounds.herd.unwrap_or(limits::HERD));
    let signals = traffic(context);
    let lost = wire::lost(context);
    let tapped = (notified > 0 && lost == 0).then(|| wire::notified(context, &signals));
    let said = judge_all(context, &signals, limit, Witness::Signals);
    let seen = tapped
        .as_ref()
        .map(|tapped| judge_all(context, tapped, limit, Witness::Wire));
    let counts = tapped
        .as_ref()
        .map(|tapped| (wire::wakes(&signals), wire::wakes(tapped)));
    let judged = match seen {
        // what every hand-over shows is a herd, whatever the clients say; a single one may be a watch of an earlier wait
        Some(seen) if woken == 0 || (said.guilty.is_empty() && seen.is_a_habit()) => seen,
        _ => said,
    };
    let mut answer = answer(context, &judged, limit);
    answer.figures = figures(&judged.hand_overs, limit);
    beside(&mut answer, (counts, lost), per_hand_over, woken);
    answer
}

impl Judged {
    /// Whether a good part of the contended hand-overs woke too many.
    fn is_a_habit(&self) -> bool {
        let contended = self.hand_overs.iter().filter(|hand_over| hand_over.waiters > 0).count();
        !self.guilty.is_empty() && self.guilty.len() * HABIT >= contended
    }
}

/// One in so many contended hand-overs makes a habit.
const HABIT: usize = 10;

/// What the wire says beside the verdict: how much passed, and whether it agrees with the signals.
fn beside(
    answer: &mut Finding,
    (counts, lost): (Option<(u64, u64)>, u64),
    per_hand_over: Option<PerHandOver>,
    woken: u64,
) {
    if lost > 0 {
        answer.evidence += &format!(
            "; the wire is no witness: taps lost their place on {}",
            many(lost, "connection", "connections")
        );
    }
    if let Some((said, seen)) = counts {
        answer.figures.insert("notified".into(), seen as f64);
        if woken > 0 && wire::disagree(said, seen) {
            answer.evidence += &format!(
                "; signals and wire disagree: the clients told of {}, and {} to waiters passed their links",
                many(said, "wake", "wakes"),
                many(seen, "notification", "notifications")
            );
        }
    }
    for (name, figure) in per_hand_over.into_iter().flat_map(PerHandOver::figures) {
        answer.figures.insert(name.into(), figure);
        for violation in &mut answer.violations {
            violation.figures.insert(name.into(), figure);
        }
    }
}

fn judge_all(context: &Context<'_>, traffic: &[Traffic], limit: u64, by: Witness) -> Judged {
    let (mut hand_overs, mut guilty) = (Vec::new(), Vec::new());
    let disturbed = Disturbed::of(context);
    for (lock, (traffic, departures)) in traffic.iter().zip(Departures::of(context)).enumerate() {
        for (hand_over, is_guilty) in judge(context, lock, traffic, limit, (&departures, &disturbed)) {
            if is_guilty {
                guilty.push(hand_over.clone());
            }
            hand_overs.push(hand_over);
        }
    }
    guilty.sort_by_key(|hand_over: &HandOver| std::cmp::Reverse(hand_over.counted));
    Judged { hand_overs, guilty, by }
}

fn answer(context: &Context<'_>, judged: &Judged, limit: u64) -> Finding {
    let Judged { hand_overs, guilty, by } = judged;
    let contended = hand_overs.iter().filter(|hand_over| hand_over.waiters > 0).count() as u64;
    let max = hand_overs.iter().map(|hand_over| hand_over.counted).max().unwrap_or(0);
    let unsure = |reason: &str| finding(Property::Hl004, Verdict::Inconclusive, reason);
    let wire = if *by == Witness::Wire { " on the wire" } else { "" };
    if !guilty.is_empty() {
        let described = guilty.iter().take(limits::MAX_VIOLATIONS);
        let violations = described.map(|hand_over| describe(context, hand_over, limit)).collect();
        let of = many(contended, "contended release", "contended releases");
        let evidence = format!(
            "{} of {of} woke too many{wire}, one woke {max} (limit {limit})",
            guilty.len()
        );
        return violated(Property::Hl004, evidence, violations, guilty.len() as u64);
    }
    if contended == 0 {
        return unsure("no release while somebody waited");
    }
    if context.history.counts.woken == 0 && *by == Witness::Signals {
        return unsure("waiters are notified, and no woken signal was recorded");
    }
    let most = many(max, "waiter", "waiters");
    let evidence = if max > limit {
        format!("{most} woken{wire} at most, no more than left the queue (limit {limit} per release)")
    } else {
        format!("{most} woken{wire} per release at most (limit {limit})")
    };
    finding(Property::Hl004, Verdict::Holds, evidence)
}

fn figures(hand_overs: &[HandOver], limit: u64) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let mut table: BTreeMap<u64, u64> = BTreeMap::new();
    for hand_over in hand_overs {
        let most = table.entry(hand_over.waiters).or_default();
        *most = (*most).max(hand_over.counted);
    }
    for (waiters, woken) in table
        .iter()
        .rev()
        .filter(|(waiters, _)| **waiters > 0)
        .take(limits::HERD_ROWS)
    {
        figures.insert(format!("woken_at_{waiters:04}_waiters"), *woken as f64);
    }
    let woken = |hand_over: &HandOver| hand_over.counted as f64;
    figures.insert("limit".into(), limit as f64);
    figures.insert("hand_overs".into(), hand_overs.len() as f64);
    figures.insert("woken_max".into(), hand_overs.iter().map(woken).fold(0.0, f64::max));
    figures.insert("woken".into(), hand_overs.iter().map(woken).sum());
    figures.insert(
        "useful".into(),
        hand_overs.iter().map(|hand_over| hand_over.useful as f64).sum(),
    );
    figures.insert(
        "waiters_max".into(),
        table.keys().next_back().copied().unwrap_or(0) as f64,
    );
    figures
}

fn traffic(context: &Context<'_>) -> Vec<Traffic> {
    let history = context.history;
    let mut all: Vec<Traffic> = (0..history.locks.len()).map(|_| Traffic::default()).collect();
    // The last wake of each process that nothing has followed yet: lock and place.
    let mut fresh: Vec<Option<(usize, usize)>> = vec![None; history.processes.len()];
    for (position, event) in history.events.iter().enumerate() {
        let Some(lock) = history.lock_number(event) else {
            continue;
        };
        let process = event.process as usize;
        if event.f == F::Woken {
            fresh[process] = Some((lock, all[lock].wakes.len()));
            let client = history.client_of(event.process);
            let (ns, position) = (event.time, position as u32);
            all[lock].wakes.push(Wake {
                ns,
                position,
                client,
                useful: false,
                reader: false,
            });
        } else if event.is_call(F::Acquire) {
            all[lock].asked.push(event.time);
        } else if event.f == F::Acquire {
            all[lock].answered.push(event.time);
            if let Some((_, place)) = fresh[process]
                .take()
                .filter(|(woken, _)| *woken == lock && event.is_ok(F::Acquire))
            {
                all[lock].wakes[place].useful = true;
                all[lock].wakes[place].reader = event.mode == Mode::Read;
            }
        }
    }
    for hold in context
        .holds
        .iter()
        .filter(|hold| hold.ended == crate::holds::Ended::Released)
    {
        all[hold.lock as usize]
            .releases
            .push((history.events[hold.end as usize].time, hold.end));
    }
    for traffic in &mut all {
        traffic.releases.sort_unstable();
        traffic.wakes.sort_by_key(|wake| wake.ns);
        traffic.asked.sort_unstable();
        traffic.answered.sort_unstable();
    }
    all
}

/// Every hand-over of one lock, and whether it woke more than can be explained.
fn judge(
    context: &Context<'_>,
    lock: usize,
    traffic: &Traffic,
    limit: u64,
    (departures, disturbed): (&Departures, &Disturbed),
) -> Vec<(HandOver, bool)> {
    let shared = context.model == Model::ReadWrite;
    let mut judged = Vec::with_capacity(traffic.releases.len());
    for (place, (from_ns, release)) in traffic.releases.iter().enumerate() {
        let to_ns = traffic.releases.get(place + 1).map_or(u64::MAX, |(next, _)| *next);
        let start = traffic.wakes.partition_point(|wake| wake.ns < *from_ns);
        let end = traffic.wakes.partition_point(|wake| wake.ns < to_ns);
        let hand_over = hand_over(
            lock,
            *release,
            &traffic.wakes[start.min(end)..end],
            traffic,
            *from_ns,
            (shared, context.history.header.per_process),
        );
        let others = departures.between(*from_ns, to_ns);
        // a wake that got the lock was a hand-over of its own, whoever made way for it
        let unexplained = hand_over.counted > limit.saturating_mul(hand_over.useful.max(1) + others);
        let guilty = unexplained && !explained_since_fault(traffic, departures, disturbed, (*from_ns, to_ns), limit);
        judged.push((hand_over, guilty));
    }
    judged
}

fn hand_over(
    lock: usize,
    release: u32,
    wakes: &[Wake],
    traffic: &Traffic,
    ns: u64,
    (shared, per_process): (bool, Option<u32>),
) -> HandOver {
    let mut clients = BTreeMap::new();
    for wake in wakes.iter().rev() {
        clients.insert(wake.client, wake);
    }
    let mut woken: Vec<u32> = clients.values().map(|wake| wake.position).collect();
    woken.sort_unstable();
    let adjacent = clients
        .values()
        .filter(|wake| shared && wake.useful && wake.reader)
        .count() as u64;
    let waiting = traffic.asked.partition_point(|asked| *asked <= ns);
    let served = traffic.answered.partition_point(|answered| *answered <= ns);
    HandOver {
        lock,
        release,
        counted: most_of_a_process(clients.keys(), per_process).saturating_sub(adjacent.saturating_sub(1)),
        useful: wakes.iter().filter(|wake| wake.useful).count() as u64,
        waiters: (waiting.saturating_sub(served) as u64).max(woken.len() as u64),
        woken,
    }
}

/// Where several clients share a process, that process may queue for them all: then each process counts by itself.
fn most_of_a_process<'a>(clients: impl Iterator<Item = &'a u32>, per_process: Option<u32>) -> u64 {
    let Some(per_process) = per_process.filter(|count| *count > 1) else {
        return clients.count() as u64;
    };
    let mut by_process: BTreeMap<u32, u64> = BTreeMap::new();
    for client in clients {
        *by_process.entry(client / per_process).or_default() += 1;
    }
    by_process.into_values().max().unwrap_or(0)
}

/// Under a fault, messages are held back and sessions end unseen: then wakes must exceed, from the fault's start on, all
/// that can have caused any.
fn explained_since_fault(
    traffic: &Traffic,
    departures: &Departures,
    disturbed: &Disturbed,
    (from_ns, to_ns): (u64, u64),
    limit: u64,
) -> bool {
    let Some(start) = disturbed.since(from_ns, to_ns) else {
        return false;
    };
    let count = |from: u64, to: u64| {
        let wakes =
            traffic.wakes.partition_point(|wake| wake.ns < to) - traffic.wakes.partition_point(|wake| wake.ns < from);
        let releases = traffic.releases.partition_point(|(ns, _)| *ns < to)
            - traffic.releases.partition_point(|(ns, _)| *ns < from);
        (wakes as u64, releases as u64)
    };
    let (wakes, releases) = count(start, to_ns);
    wakes <= limit.saturating_mul(releases + departures.between(start, to_ns))
}

fn describe(context: &Context<'_>, hand_over: &HandOver, limit: u64) -> Violation {
    let history = context.history;
    let release = &history.events[hand_over.release as usize];
    let mut violation = history.violation("herd", hand_over.lock, &[release.process], release.time);
    violation.window = context.window_before(release.time).map(|window| window.number);
    let (woken, waiters) = (hand_over.counted, hand_over.waiters);
    violation.summary = format!(
        "one release woke {woken} of {} on `{}` (limit {limit})",
        many(waiters, "waiter", "waiters"),
        violation.lock
    );
    violation.events.push(history.step(hand_over.release, "release call"));
    let proof = &hand_over.woken[..hand_over.woken.len().min(limit as usize + 1)];
    violation
        .events
        .extend(proof.iter().map(|position| history.step(*position, "woken")));
    let text = format!(
        "{} released at {}.",
        history.who(release.process),
        at(release.time, true)
    );
    violation.because.push(history.because(text, &[hand_over.release]));
    let text = format!(
        "{} before the next release.",
        many(woken, "waiter was woken", "waiters were woken")
    );
    violation.because.push(history.because(text, &hand_over.woken));
    let text = format!("{} of them got the lock.", hand_over.useful);
    violation.because.push(history.because(text, &[]));
    violation.likely = Some(
        "every waiter watches the same node or key, so one change wakes all; in a queue each watches only the one ahead"
            .into(),
    );
    violation.figures.insert("woken".into(), woken as f64);
    violation.figures.insert("waiters".into(), waiters as f64);
    violation.figures.insert("useful".into(), hand_over.useful as f64);
    violation
}
