//! HL004, herd: one release wakes at most as many waiters as can use it.
//!
//! Wakes are attributed to the hand-over in which they fall, except those that another event may have caused: a session that expired, a
//! waiter that gave up. [`departures`] has these events.
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
    /// The woken waiters that count: of several clients in one process the most of a process, of adjacent readers one.
    pub counted: u64,
    /// The woken waiters whose next event was their acquire.
    pub useful: u64,
    /// Clients that waited.
    pub waiters: u64,
    /// The waiters that it may wake, with all known departures.
    pub allowed: u64,
    /// Whether it woke more than can be explained.
    pub is_herd: bool,
}

/// Every hand-over, by the wakes of one source.
#[derive(Debug)]
pub(crate) struct HandOvers {
    pub all: Vec<HandOver>,
    pub source: WakeSource,
}

/// The source of the wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeSource {
    /// The clients' `woken` signals.
    Signals,
    /// Notifications that passed the links.
    Wire,
}

/// The decision on HL004.
#[derive(Debug)]
pub(crate) struct Herd {
    pub verdict: Verdict,
    /// The number of waiters that one release may wake.
    pub limit: u64,
    pub judged: HerdJudgement,
    /// Messages on the links for each hand-over, if taps counted them.
    pub per_hand_over: Option<PerHandOver>,
    /// Connections on which a tap lost its place.
    pub lost: u64,
    /// Wakes by both sources, if both can be counted.
    pub counts: Option<WakeCounts>,
}

/// The evidence by which HL004 was judged.
#[derive(Debug)]
pub(crate) enum HerdJudgement {
    /// Waiters poll and none is woken: judged by requests, if they have a limit.
    Polls,
    /// There is no evidence of wakes.
    Nothing,
    /// Waiters are notified.
    Wakes(HandOvers),
}

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
        // a herd at most hand-overs is one, whatever the clients signal; a single one may be a watch of an earlier wait
        Some(by_wire) if woken == 0 || (by_signals.herds().is_empty() && by_wire.is_frequent()) => by_wire,
        _ => by_signals,
    };
    let (contended, told) = (judged.contended(), judged.told());
    decided.verdict = if !judged.herds().is_empty() {
        Verdict::Violated
    } else if promise.is_none() && judged.source == WakeSource::Wire && told * 2 < contended {
        // the contract does not promise notifications, and most releases show none
        Verdict::NotApplicable
    } else if contended == 0 || (woken == 0 && told == 0) {
        Verdict::Inconclusive
    } else {
        Verdict::Holds
    };
    decided.judged = HerdJudgement::Wakes(judged);
    decided
}

/// Returns the verdict for waiters that poll: none is woken, and a hand-over costs requests, which may have a limit.
fn polls(context: &Context<'_>, decided: &Herd) -> Verdict {
    match (&decided.per_hand_over, context.bounds.requests) {
        (None, _) | (_, None) => Verdict::NotApplicable,
        (Some(cost), Some(limit)) if cost.requests > f64::from(limit) => Verdict::Violated,
        _ if decided.lost > 0 => Verdict::Inconclusive,
        _ => Verdict::Holds,
    }
}

impl HandOvers {
    /// Returns the hand-overs that woke too many waiters, the worst first.
    pub(crate) fn herds(&self) -> Vec<&HandOver> {
        let mut herds: Vec<&HandOver> = self.all.iter().filter(|hand_over| hand_over.is_herd).collect();
        herds.sort_by_key(|hand_over| std::cmp::Reverse(hand_over.counted));
        herds
    }

    /// Returns the number of hand-overs with waiters.
    pub(crate) fn contended(&self) -> u64 {
        self.all.iter().filter(|hand_over| hand_over.waiters > 0).count() as u64
    }

    /// Returns the number of hand-overs that woke a waiter.
    pub(crate) fn told(&self) -> u64 {
        self.all.iter().filter(|hand_over| !hand_over.woken.is_empty()).count() as u64
    }

    /// Returns whether a large part of the contended hand-overs woke too many waiters.
    fn is_frequent(&self) -> bool {
        let herds = self.herds().len() as u64;
        herds > 0 && herds * FREQUENT >= self.contended()
    }
}

/// The share of contended hand-overs that is large: one in this number.
const FREQUENT: u64 = 10;

/// The facts by which hand-overs are judged: the traffic of each lock, and other events that may have woken waiters.
struct Judge<'a> {
    context: &'a Context<'a>,
    traffic: Vec<LockTraffic>,
    departures: Vec<Departures>,
    disturbed: Disturbed,
    limit: u64,
}

impl Judge<'_> {
    /// Returns every hand-over, by the wakes of one source for each lock.
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
            // a fault delays the end of a watch as well: a waiter with another watch is notified by both until the heal
            if source == WakeSource::Wire && self.disturbed.since(release.ns, to_ns).is_some() {
                continue;
            }
            let start = wakes.partition_point(|wake| wake.ns < release.ns);
            let end = wakes.partition_point(|wake| wake.ns < to_ns);
            let mut hand_over = self.hand_over(lock, *release, &wakes[start.min(end)..end]);
            let others = self.others(lock, (release.ns, to_ns));
            let history = self.context.history;
            let permits = u64::from(history.permits(history.event(release.position)));
            // a wake that got the lock was a separate hand-over, whatever its cause; and each permit may allow one more
            let allowed = self.limit.saturating_mul(hand_over.useful.max(permits).max(1) + others);
            hand_over.allowed = allowed;
            let is_explained = || self.is_explained_since_fault(lock, wakes, (release.ns, to_ns));
            hand_over.is_herd = hand_over.counted > allowed && !is_explained() && !is_late_wake(&judged, &hand_over);
            judged.push(hand_over);
        }
        judged
    }

    /// Returns the number of events other than a release that may have woken a waiter until the next one: departures, and with inexact
    /// clocks the releases about it.
    fn others(&self, lock: usize, (from_ns, to_ns): (u64, u64)) -> u64 {
        let apart_ns = self.context.apart_ns();
        let (since_ns, until_ns) = (from_ns.saturating_sub(apart_ns), to_ns.saturating_add(apart_ns));
        let releases = &self.traffic[lock].releases;
        let until = |ns: u64| releases.partition_point(|release| release.ns < ns) as u64;
        let releases = match apart_ns {
            0 => 1,
            _ => until(until_ns) - until(since_ns),
        };
        self.departures[lock].between(since_ns, until_ns) + releases - 1
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
            is_herd: false,
        }
    }

    /// Returns whether the wakes since the beginning of a fault are no more than their possible causes: under a fault, messages are delayed
    /// and sessions end unseen.
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

/// Releases before one to which a late wake may belong: on an overloaded machine, a client may signal a wake after the next release.
const LATE: usize = 3;

/// Returns whether the excess wakes are missing at the releases just before, which had waiters and woke fewer than they may.
fn is_late_wake(before: &[HandOver], hand_over: &HandOver) -> bool {
    let (mut counted, mut allowed) = (hand_over.counted, hand_over.allowed);
    before.iter().rev().take(LATE).any(|before| {
        counted += before.counted;
        allowed = allowed.saturating_add(if before.waiters > 0 { before.allowed } else { 0 });
        counted <= allowed
    })
}

/// Counts clients: where several share a process, which may queue for them all, it is the largest number of one process.
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
