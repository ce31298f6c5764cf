//! HL004, herd: one release wakes at most as many waiters as can use it.
//!
//! Wakes are attributed to the hand-over in which they fall, and everything else that may have woken a waiter in the
//! meantime (a session that expired, a waiter that gave up) is allowed for. See [`departures`] for what that is.
//!
//! The herd effect and the lock without it: Apache ZooKeeper, "ZooKeeper Recipes and Solutions",
//! <https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks>.

mod departures;
mod traffic;
mod wire;

use std::collections::BTreeMap;

use crate::context::Context;
use crate::finding::Verdict;
use crate::history::event::Wakes;
use crate::limits;
use crate::model::Model;
use departures::{Departures, Disturbed};
use traffic::{LockTraffic, Release, Wake, traffic};
pub(crate) use wire::{PerHandOver, WakeCounts};

/// One release and the waiters that it woke.
#[derive(Debug, Clone)]
pub(crate) struct HandOver {
    /// Dense.
    pub lock: usize,
    /// The position of the release call.
    pub release: u32,
    /// The positions of the wakes, one a client.
    pub woken: Vec<u32>,
    /// Waiters that count: of several clients in one process the most of a process, of adjacent readers one.
    pub counted: u64,
    /// Those whose next word was that they had the lock.
    pub useful: u64,
    /// Clients that waited.
    pub waiters: u64,
    /// Waiters that it may wake, of what is known.
    pub allowed: u64,
    /// Whether it woke more than can be explained.
    pub guilty: bool,
}

/// What is judged: every hand-over, by what one source told.
#[derive(Debug)]
pub(crate) struct HandOvers {
    pub all: Vec<HandOver>,
    pub source: WakeSource,
}

/// How it is known that a waiter was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeSource {
    /// By the clients' `woken` signals.
    Signals,
    /// By notifications that passed the links.
    Wire,
}

/// What was decided about HL004.
#[derive(Debug)]
pub(crate) struct Herd {
    pub verdict: Verdict,
    /// Waiters that one release may wake.
    pub limit: u64,
    pub judged: HerdJudgement,
    /// What passed the links for each hand-over, where taps counted.
    pub per_hand_over: Option<PerHandOver>,
    /// Connections on which a tap lost its place.
    pub lost: u64,
    /// Wakes by both sources, where both can be counted.
    pub counts: Option<WakeCounts>,
}

/// What HL004 was judged by.
#[derive(Debug)]
pub(crate) enum HerdJudgement {
    /// Waiters poll and none is woken: judged by requests, where there is a limit for these.
    Polls,
    /// Nothing is known of wakes.
    Nothing,
    /// Waiters are notified.
    Wakes(HandOvers),
}

/// Decides HL004.
pub(crate) fn decide(context: &Context<'_>) -> Herd {
    let history = context.history;
    let promise = history.header.promises.wakes;
    let mut decided = Herd {
        verdict: Verdict::NotApplicable,
        limit: u64::from(context.bounds.herd.unwrap_or(limits::HERD)),
        judged: HerdJudgement::Nothing,
        per_hand_over: PerHandOver::of(context),
        lost: wire::lost(context),
        counts: None,
    };
    if promise == Some(Wakes::Polls) {
        decided.judged = HerdJudgement::Polls;
        decided.verdict = polls(context, &decided);
        return decided;
    }
    let (woken, notified) = (history.counts.woken, history.counts.notified);
    if promise.is_none() && woken + notified == 0 {
        return decided;
    }
    let (traffic, signals) = traffic(context);
    let tapped = (notified > 0 && decided.lost == 0).then(|| wire::notified(context));
    let judge = Judge {
        context,
        traffic,
        departures: Departures::of(context),
        disturbed: Disturbed::of(context),
        limit: decided.limit,
    };
    let by_signals = judge.hand_overs(&signals, WakeSource::Signals);
    let by_wire = tapped.as_ref().map(|tapped| judge.hand_overs(tapped, WakeSource::Wire));
    let count = |wakes: &[Vec<Wake>]| wakes.iter().map(Vec::len).sum::<usize>() as u64;
    decided.counts = tapped.as_ref().map(|tapped| WakeCounts {
        signals: count(&signals),
        wire: count(tapped),
    });
    let judged = match by_wire {
        // what every hand-over shows is a herd, whatever the clients say; a single one may be a watch of an earlier wait
        Some(by_wire) if woken == 0 || (by_signals.guilty().is_empty() && by_wire.is_a_habit()) => by_wire,
        _ => by_signals,
    };
    let (contended, told) = (judged.contended(), judged.told());
    decided.verdict = if !judged.guilty().is_empty() {
        Verdict::Violated
    } else if promise.is_none() && judged.source == WakeSource::Wire && told * 2 < contended {
        // nobody promised that waiters are notified, and how they learn of most releases is not seen
        Verdict::NotApplicable
    } else if contended == 0 || (woken == 0 && told == 0) {
        Verdict::Inconclusive
    } else {
        Verdict::Holds
    };
    decided.judged = HerdJudgement::Wakes(judged);
    decided
}

/// Where waiters poll none is woken, and a hand-over costs requests: judged where there is a limit.
fn polls(context: &Context<'_>, decided: &Herd) -> Verdict {
    match (&decided.per_hand_over, context.bounds.requests) {
        (None, _) | (_, None) => Verdict::NotApplicable,
        (Some(cost), Some(limit)) if cost.requests > f64::from(limit) => Verdict::Violated,
        _ if decided.lost > 0 => Verdict::Inconclusive,
        _ => Verdict::Holds,
    }
}

impl HandOvers {
    /// Those that woke too many, the worst first.
    pub(crate) fn guilty(&self) -> Vec<&HandOver> {
        let mut guilty: Vec<&HandOver> = self.all.iter().filter(|hand_over| hand_over.guilty).collect();
        guilty.sort_by_key(|hand_over| std::cmp::Reverse(hand_over.counted));
        guilty
    }

    /// How many had waiters.
    pub(crate) fn contended(&self) -> u64 {
        self.all.iter().filter(|hand_over| hand_over.waiters > 0).count() as u64
    }

    /// How many woke a waiter.
    pub(crate) fn told(&self) -> u64 {
        self.all.iter().filter(|hand_over| !hand_over.woken.is_empty()).count() as u64
    }

    /// Whether a good part of the contended hand-overs woke too many.
    fn is_a_habit(&self) -> bool {
        let guilty = self.guilty().len() as u64;
        guilty > 0 && guilty * HABIT >= self.contended()
    }
}

/// One in this number of contended hand-overs makes a habit.
const HABIT: u64 = 10;

/// What hand-overs are judged by: the traffic of each lock, and what besides a release may have woken waiters of it, or of all.
struct Judge<'a> {
    context: &'a Context<'a>,
    traffic: Vec<LockTraffic>,
    departures: Vec<Departures>,
    disturbed: Disturbed,
    limit: u64,
}

impl Judge<'_> {
    /// Every hand-over that a source tells of, by its wakes of each lock.
    fn hand_overs(&self, wakes: &[Vec<Wake>], source: WakeSource) -> HandOvers {
        let locks = wakes.iter().enumerate();
        let all = locks.flat_map(|(lock, wakes)| self.of_lock(lock, wakes, source));
        HandOvers {
            all: all.collect(),
            source,
        }
    }

    fn of_lock(&self, lock: usize, wakes: &[Wake], source: WakeSource) -> Vec<HandOver> {
        let releases = &self.traffic[lock].releases;
        let mut judged = Vec::with_capacity(releases.len());
        for (place, release) in releases.iter().enumerate() {
            let to_ns = releases.get(place + 1).map_or(u64::MAX, |next| next.ns);
            // a fault holds back the end of a watch as well: a waiter that has another one is notified by both until it heals
            if source == WakeSource::Wire && self.disturbed.since(release.ns, to_ns).is_some() {
                continue;
            }
            let start = wakes.partition_point(|wake| wake.ns < release.ns);
            let end = wakes.partition_point(|wake| wake.ns < to_ns);
            let mut hand_over = self.hand_over(lock, *release, &wakes[start.min(end)..end]);
            let others = self.departures[lock].between(release.ns, to_ns);
            let history = self.context.history;
            let permits = u64::from(history.permits(history.event(release.position)));
            // a wake that got the lock was a separate hand-over, whatever made way for it; and each permit may be one more's
            let allowed = self.limit.saturating_mul(hand_over.useful.max(permits).max(1) + others);
            hand_over.allowed = allowed;
            let is_explained = || self.is_explained_since_fault(lock, wakes, (release.ns, to_ns));
            hand_over.guilty = hand_over.counted > allowed && !is_explained() && !is_late_wake(&judged, &hand_over);
            judged.push(hand_over);
        }
        judged
    }

    fn hand_over(&self, lock: usize, release: Release, wakes: &[Wake]) -> HandOver {
        let (shared, header) = (self.context.model == Model::ReadWrite, &self.context.history.header);
        let mut clients = BTreeMap::new();
        for wake in wakes.iter().rev().filter(|wake| wake.useful || !wake.leftover) {
            clients.insert(wake.client, wake);
        }
        let mut woken: Vec<u32> = clients.values().map(|wake| wake.position).collect();
        woken.sort_unstable();
        let adjacent = clients
            .values()
            .filter(|wake| shared && wake.useful && wake.reader)
            .count() as u64;
        let traffic = &self.traffic[lock];
        let waiting = traffic.asked.partition_point(|asked| *asked <= release.ns);
        let served = traffic.answered.partition_point(|answered| *answered <= release.ns);
        HandOver {
            lock,
            release: release.position,
            counted: most_of_a_process(clients.keys(), header.per_process).saturating_sub(adjacent.saturating_sub(1)),
            useful: wakes.iter().filter(|wake| wake.useful).count() as u64,
            waiters: (waiting.saturating_sub(served) as u64).max(woken.len() as u64),
            woken,
            allowed: 0,
            guilty: false,
        }
    }

    /// Under a fault, messages are held back and sessions end unseen: then wakes must exceed, from the fault's start on, all
    /// that can have caused any.
    fn is_explained_since_fault(&self, lock: usize, wakes: &[Wake], (from_ns, to_ns): (u64, u64)) -> bool {
        let Some(start) = self.disturbed.since(from_ns, to_ns) else {
            return false;
        };
        let traffic = &self.traffic[lock];
        let wakes_until = |ns: u64| wakes.partition_point(|wake| wake.ns < ns) as u64;
        let releases_until = |ns: u64| traffic.releases.partition_point(|release| release.ns < ns) as u64;
        let releases = releases_until(to_ns) - releases_until(start);
        let causes = releases + self.departures[lock].between(start, to_ns);
        wakes_until(to_ns) - wakes_until(start) <= self.limit.saturating_mul(causes)
    }
}

/// Releases before one of which a wake may have been told late: a client on a machine with too much to do says that it was
/// woken when the next has released already.
const LATE: usize = 3;

/// Whether the wakes that are too many are missing at the releases just before, which had waiters and woke fewer than they may.
fn is_late_wake(before: &[HandOver], hand_over: &HandOver) -> bool {
    let (mut counted, mut allowed) = (hand_over.counted, hand_over.allowed);
    before.iter().rev().take(LATE).any(|before| {
        counted += before.counted;
        allowed = allowed.saturating_add(if before.waiters > 0 { before.allowed } else { 0 });
        counted <= allowed
    })
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
