//! Downsampling: a page of bounded size shows all turns near violations and faults, and the rest evenly.

use std::collections::BTreeSet;

use super::diagnosis::Diagnosis;
use super::effect::WindowEffect;
use super::proven;
use super::roles::{Band, downsampled};
use super::timeline::Timeline;
use super::words::{span, thousands};

/// Distances from violations and fault edges within which everything is shown: the first that leaves room.
const NEAR_NS: [u64; 6] = [
    5_000_000_000,
    2_000_000_000,
    1_000_000_000,
    500_000_000,
    200_000_000,
    50_000_000,
];
/// The share of the room for turns far from all edges, so that no stretch is empty: one in ten.
const FAR_SHARE: usize = 10;

/// Maximum number of signals as a part of the turns: they are small, and a herd has very many.
const SIGNAL_SHARE: usize = 2;
/// Spells of a role that are shown of each server: more could not be distinguished.
const SPELLS: usize = 300;
/// Fault windows of a page, about: each has a row in a table, and a band in the timeline and in each chart.
pub const WINDOWS: usize = 500;

/// The shown places in [`Timeline::turns`], [`Timeline::signals`] and [`Timeline::grants`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Downsampled {
    pub turns: Vec<usize>,
    pub signals: Vec<usize>,
    pub grants: Vec<usize>,
    /// The roles of the servers.
    pub bands: Vec<Band>,
    /// A sentence about the omitted parts; `None` if there are none.
    pub omitted: Option<String>,
}

/// Chooses at most about `room` turns and as many signals.
pub fn downsample(timeline: &Timeline, diagnosis: &Diagnosis, room: usize) -> Downsampled {
    let edges = edges(diagnosis);
    let proofs: BTreeSet<u64> = proven(diagnosis).into_iter().collect();
    let candidate = |from_ns, to_ns, named| Candidate {
        distance: distance(&edges, from_ns, to_ns),
        named,
    };
    let turns = timeline.turns.iter().map(|turn| {
        let times = [Some(turn.asked), turn.answered, turn.held.map(|(end, _)| end)];
        let named = times.iter().flatten().any(|at| proofs.contains(&at.index));
        let last = times.iter().flatten().map(|at| at.ns).max().unwrap_or(turn.asked.ns);
        candidate(turn.asked.ns, last, named)
    });
    let turns: Vec<Candidate> = turns.collect();
    let signals = timeline.signals.iter().map(|signal| signal.at);
    let signals = signals.map(|at| candidate(at.ns, at.ns, proofs.contains(&at.index)));
    let signals: Vec<Candidate> = signals.collect();
    let grants = timeline.grants.iter();
    let grants = grants.map(|grant| candidate(grant.from_ns, grant.to_ns, false));
    let grants: Vec<Candidate> = grants.collect();
    let (shown_turns, near_ns) = choose(&turns, room);
    let (shown_signals, _) = choose(&signals, room / SIGNAL_SHARE);
    let (shown_grants, _) = choose(&grants, room);
    let counts = [
        (shown_turns.len(), turns.len(), "acquires"),
        (shown_signals.len(), signals.len(), "signals"),
        (shown_grants.len(), grants.len(), "grants"),
    ];
    let (bands, shortest_ns) = downsampled(&timeline.bands, timeline.end_ns, SPELLS);
    let of_roles = shortest_ns.map(|ns| {
        format!(
            "Spells of a server's role that are shorter than {} are left out.",
            span(ns)
        )
    });
    let sentences: Vec<String> = [omitted(&counts, near_ns), of_roles].into_iter().flatten().collect();
    Downsampled {
        omitted: Some(sentences.join(" ")).filter(|said| !said.is_empty()),
        bands,
        turns: shown_turns,
        signals: shown_signals,
        grants: shown_grants,
    }
}

/// Returns the fault windows that a page shows: of very many, those near violations and others evenly.
pub fn shown_windows(diagnosis: &Diagnosis) -> Vec<&WindowEffect> {
    let all = &diagnosis.effect.windows;
    let violated = violated(diagnosis);
    let candidates = all.iter().map(|window| Candidate {
        distance: distance(&violated, window.start_ns, window.heal_ns.unwrap_or(u64::MAX)),
        named: false,
    });
    let (shown, _) = choose(&candidates.collect::<Vec<_>>(), WINDOWS);
    shown.into_iter().map(|place| &all[place]).collect()
}

/// Returns a sentence about the omitted parts, or `None` if there are none.
fn omitted(counts: &[(usize, usize, &str)], near_ns: Option<u64>) -> Option<String> {
    let downsampled = counts.iter().filter(|(shown, all, _)| shown < all);
    let parts: Vec<String> = downsampled
        .map(|(shown, all, what)| format!("{} of {} {what}", thousands(*shown as u64), thousands(*all as u64)))
        .collect();
    let within = match near_ns {
        Some(ns) => format!(
            "all acquires within {} of violations and of the edges of faults, and ",
            span(ns)
        ),
        None => String::new(),
    };
    (!parts.is_empty()).then(|| {
        format!(
            "The timeline shows {}: {within}the rest downsampled evenly. history.jsonl has them all.",
            listed(&parts)
        )
    })
}

/// `a, b and c`
fn listed(parts: &[String]) -> String {
    match parts {
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        _ => parts.concat(),
    }
}

struct Candidate {
    /// Distance to the nearest violation or edge, in nanoseconds.
    distance: u64,
    /// Whether a proof contains it.
    named: bool,
}

fn choose(all: &[Candidate], room: usize) -> (Vec<usize>, Option<u64>) {
    if all.len() <= room {
        return ((0..all.len()).collect(), None);
    }
    let for_near = room - room / FAR_SHARE;
    let near = |within: u64| all.iter().filter(move |one| one.distance <= within).count();
    let radius = NEAR_NS.into_iter().find(|within| near(*within) <= for_near);
    let surely = |one: &Candidate| one.named || radius.is_some_and(|within| one.distance <= within);
    let sure = all.iter().filter(|one| surely(one)).count();
    let rest = all.len() - sure;
    let left = room.saturating_sub(sure).max(1);
    let mut passed = 0;
    let mut taken = 0;
    let chosen = (0..all.len()).filter(|place| {
        if surely(&all[*place]) {
            return true;
        }
        passed += 1;
        // the number of those passed in proportion to the room
        let due = passed * left / rest.max(1);
        let take = due > taken;
        taken += usize::from(take);
        take
    });
    (chosen.collect(), radius)
}

/// Returns the times of violations and of the starts and heals of windows, ascending.
fn edges(diagnosis: &Diagnosis) -> Vec<u64> {
    let windows = diagnosis.effect.windows.iter();
    let faults = windows.flat_map(|window| [Some(window.start_ns), window.heal_ns].into_iter().flatten());
    let mut edges: Vec<u64> = violated(diagnosis).into_iter().chain(faults).collect();
    edges.sort_unstable();
    edges
}

/// Returns the times of violations, ascending.
fn violated(diagnosis: &Diagnosis) -> Vec<u64> {
    let violated = diagnosis.violations().flat_map(|violation| {
        let overlap = violation.overlap_ns.map(|(from, to)| [from, to]);
        [violation.at_ns].into_iter().chain(overlap.into_iter().flatten())
    });
    let mut violated: Vec<u64> = violated.collect();
    violated.sort_unstable();
    violated
}

/// Returns the distance of a stretch of time from the nearest edge.
fn distance(edges: &[u64], from_ns: u64, to_ns: u64) -> u64 {
    let after = edges.partition_point(|edge| *edge < from_ns);
    let before = after.checked_sub(1).map(|place| from_ns - edges[place]);
    let next = edges.get(after).map(|edge| edge.saturating_sub(to_ns));
    before.into_iter().chain(next).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_diagnosis::diagnosis;

    #[test]
    fn of_very_many_windows_those_near_violations_are_shown_and_the_rest_evenly() {
        let finding = ("HL001", "violated", "stale-holder", None);
        let mut diagnosis = diagnosis("FAIL", &[finding], &[("partition", true); 3 * WINDOWS]);
        // a window every ten seconds, and a violation in the first one
        for (number, window) in (1..).zip(&mut diagnosis.effect.windows) {
            window.number = number;
            window.start_ns = u64::from(number - 1) * 10_000_000_000;
            window.heal_ns = Some(window.start_ns + 1_000_000_000);
        }
        let numbers: Vec<u32> = shown_windows(&diagnosis).iter().map(|window| window.number).collect();
        assert_eq!((numbers.len(), numbers[0]), (WINDOWS, 1));
        let gaps = numbers.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max() <= Some(4), "{numbers:?}");
    }

    fn far(count: usize) -> Vec<Candidate> {
        (0..count)
            .map(|_| Candidate {
                distance: u64::MAX,
                named: false,
            })
            .collect()
    }

    #[test]
    fn what_fits_is_shown_whole() {
        assert_eq!(choose(&far(10), 10), ((0..10).collect(), None));
    }

    #[test]
    fn the_far_is_thinned_evenly_and_the_near_and_the_named_stay() {
        let mut all = far(1000);
        for far in &mut all[500..550] {
            far.distance = 4_000_000_000;
        }
        all[7].named = true;
        let (shown, radius) = choose(&all, 100);
        assert_eq!(radius, Some(5_000_000_000));
        assert!((500..550).all(|place| shown.contains(&place)) && shown.contains(&7));
        assert!(shown.len() <= 101, "{}", shown.len());
        let gaps = shown.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max() <= Some(25), "no stretch is empty: {shown:?}");
    }

    #[test]
    fn where_everything_is_near_the_nearness_shrinks() {
        let mut all = far(1000);
        for (place, one) in all.iter_mut().enumerate() {
            one.distance = place as u64 * 4_000_000;
        }
        let (shown, radius) = choose(&all, 200);
        assert_eq!(radius, Some(500_000_000));
        assert!((0..=125).all(|place| shown.contains(&place)));
        assert!(shown.len() <= 201);
    }
}
