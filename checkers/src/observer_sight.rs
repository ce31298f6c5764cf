//! The sight of the observer: the spans in which it saw nothing, and its delay.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::grants::Grants;
use crate::history::{BusyTime, History, NemesisFact, ObserverFact, Standstill};
use crate::holds::{Ended, Holds};
use crate::limits;
use crate::range_max::RangeMax;

/// The delay of the observer for a grant or its end.
#[derive(PartialEq)]
struct Delay {
    at_ns: u64,
    by_ns: u64,
    is_end: bool,
}

impl Delay {
    fn of(at_ns: u64, seen_ns: u64, is_end: bool) -> Self {
        Self {
            at_ns,
            by_ns: seen_ns.saturating_sub(at_ns),
            is_end,
        }
    }
}

/// The delay of the observer, measured in the history: by the grants that it saw after their owners had the reply, and by the ends that it
/// saw after their owners had called a release. On an overloaded machine it may be a second late, and then it misses some grants.
pub(crate) struct ObserverSight {
    /// By time.
    delays: Vec<Delay>,
    by_ns: RangeMax,
    /// The spans in which it saw nothing of a server, by its own lines, in nanoseconds of the history.
    blind: Vec<(u64, u64)>,
    /// The times in which the machine was overloaded.
    busy: BusyTime,
}

impl ObserverSight {
    pub(crate) fn of(
        history: &History,
        (holds, grants): (&Holds, &Grants),
        standstills: &[Standstill],
        busy: &BusyTime,
    ) -> Self {
        let seen = holds
            .iter()
            .filter(|hold| grants.is_sure(history, hold))
            .filter_map(|hold| Some((hold, grants.of_hold(history, hold)?)))
            .flat_map(|(hold, grant)| {
                // an expired grant did not end with the release
                let ends = hold.ended == Ended::Released && !grant.has_expired(history);
                let ended_ns = grant.seen_end_ns(history).filter(|_| ends);
                let granted = grant.granted_ns(history);
                let granted = granted.map(|seen| Delay::of(history.ns(hold.from), seen, false));
                let ended = ended_ns.map(|seen| Delay::of(history.ns(hold.to), seen, true));
                [granted, ended].into_iter().flatten()
            });
        let mut delays: Vec<Delay> = seen.collect();
        delays.sort_unstable_by_key(|delay| delay.at_ns);
        Self {
            by_ns: RangeMax::of(delays.iter().map(|delay| delay.by_ns)),
            delays,
            blind: blind(history, standstills),
            busy: busy.clone(),
        }
    }

    /// Returns whether the observer saw everything between two times.
    pub(crate) fn is_whole(&self, from: u64, to: u64) -> bool {
        self.blind.iter().all(|(since, until)| *until < from || *since > to)
    }

    /// Returns the largest possible delay at a time: twice the delay that was measured near it, and at least the usual one, which is longer
    /// on an overloaded machine.
    pub(crate) fn lag_ns(&self, ns: u64) -> u64 {
        self.measured_ns(ns).unwrap_or(0).max(self.usual_ns(ns))
    }

    /// Returns the largest possible delay, by the measured ones only; `None` without one near that time.
    pub(crate) fn measured_ns(&self, ns: u64) -> Option<u64> {
        let near = self.near(ns);
        (!near.is_empty()).then(|| self.by_ns.within(near) * 2)
    }

    /// Returns the largest possible delay for the end of one hold, which was called at a time and seen at another, by all delays near it
    /// but its own; `None` where too few other holds ended.
    pub(crate) fn lag_beside_ns(&self, asked_ns: u64, seen_ns: u64) -> Option<u64> {
        let near = &self.delays[self.near(asked_ns)];
        let own = near
            .iter()
            .position(|delay| *delay == Delay::of(asked_ns, seen_ns, true));
        let others = || near.iter().enumerate().filter(move |(place, _)| Some(*place) != own);
        let ends = others().filter(|(_, delay)| delay.is_end).count() as u64;
        let latest_ns = others().map(|(_, delay)| delay.by_ns).max().unwrap_or(0);
        (ends >= limits::ENDS_BESIDE).then(|| self.usual_ns(asked_ns).max(latest_ns * 2))
    }

    fn usual_ns(&self, ns: u64) -> u64 {
        (limits::OBSERVER_LAG_NS as f64 * self.busy.times_about(ns)) as u64
    }

    /// Returns the places of the delays near a time.
    fn near(&self, ns: u64) -> Range<usize> {
        let (delays, gap_ns) = (&self.delays, limits::OBSERVER_GAP_NS);
        let from = delays.partition_point(|delay| delay.at_ns + gap_ns < ns);
        from..delays.partition_point(|delay| delay.at_ns < ns + gap_ns)
    }
}

/// Returns the spans in which this tool's observer was not connected to a server that it listens to.
fn blind(history: &History, standstills: &[Standstill]) -> Vec<(u64, u64)> {
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    let mut blind = Vec::new();
    for line in history.nemesis() {
        match &line.fact {
            NemesisFact::Observer(ObserverFact::Lost { watched, since_ns }) => {
                lost.entry(watched.clone()).or_insert(since_ns.unwrap_or(line.time_ns));
            }
            NemesisFact::Observer(ObserverFact::Back { watched }) => {
                blind.extend(lost.remove(watched).map(|from_ns| (from_ns, line.time_ns)));
            }
            _ => {}
        }
    }
    // after a standstill of the harness, the observer reads late messages
    let stalls = standstills.iter().filter(|span| span.server.is_none());
    blind.extend(stalls.map(|span| (span.from_ns, span.to_ns.saturating_add(limits::OBSERVER_GAP_NS))));
    blind.extend(lost.into_values().map(|from_ns| (from_ns, u64::MAX)));
    blind
}
