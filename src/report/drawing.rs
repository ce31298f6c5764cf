//! The drawing of a violation as data: a few lanes with bars over a stretch of time. Terminal and page draw the same.

use std::collections::BTreeMap;

use harness_checkers::{CertainHold, Ended, Violation};
use serde::{Deserialize, Serialize};

use super::bite::Bitten;

/// Lanes of one drawing, the faults' own aside.
const MAX_LANES: usize = 5;
/// Bars of one lane.
const MAX_BARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drawing {
    pub from_ns: u64,
    pub to_ns: u64,
    pub lanes: Vec<Lane>,
    /// The stretches in which more than one held, by beginning.
    pub overlaps_ns: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    pub label: String,
    pub bars: Vec<Bar>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    pub kind: BarKind,
    pub from_ns: u64,
    pub to_ns: u64,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BarKind {
    Fault,
    Hold,
}

/// Draws an overlap: the faults that were on, the hold that went on, and what others held meanwhile. `None` when nobody's
/// hold went on.
pub fn draw(violation: &Violation, holds: &[CertainHold<'_>], windows: &[Bitten]) -> Option<Drawing> {
    let worst = violation.overlap_ns?;
    let of_lock = || holds.iter().filter(|hold| hold.lock == violation.lock);
    let went_on = |hold: &&CertainHold<'_>| {
        violation.processes.first() == Some(&hold.process) && hold.from_ns < worst.1 && hold.to_ns > worst.0
    };
    let first = of_lock().find(went_on)?;
    let meanwhile = |hold: &&CertainHold<'_>| {
        hold.got_index != first.got_index && hold.from_ns < first.to_ns && hold.to_ns > first.from_ns
    };
    let others: Vec<&CertainHold<'_>> = of_lock().filter(meanwhile).collect();
    let shared = |hold: &&CertainHold<'_>| (hold.from_ns.max(first.from_ns), hold.to_ns.min(first.to_ns));
    let mut overlaps_ns: Vec<(u64, u64)> = others.iter().map(shared).collect();
    overlaps_ns.sort_unstable();
    let last = others.iter().map(|hold| hold.to_ns).chain([first.to_ns]).max()?;
    let margin = (last - first.from_ns) / 12 + 1;
    let (from_ns, to_ns) = (first.from_ns.saturating_sub(margin), last + margin);
    let on = |window: &&Bitten| window.start_ns < to_ns && window.heal_ns.is_none_or(|heal| heal > from_ns);
    let mut lanes: Vec<Lane> = windows
        .iter()
        .filter(on)
        .map(|window| fault_lane(window, to_ns))
        .collect();
    lanes.push(Lane {
        label: format!("c{}", first.client),
        bars: vec![hold_bar(first)],
    });
    lanes.extend(lanes_of(&others));
    Some(Drawing {
        from_ns,
        to_ns,
        lanes,
        overlaps_ns,
    })
}

/// A lane for each client, those that held longest first, as many as a drawing shows.
fn lanes_of(holds: &[&CertainHold<'_>]) -> Vec<Lane> {
    let mut by_client: BTreeMap<u32, (u64, Vec<Bar>)> = BTreeMap::new();
    for hold in holds {
        let (held, bars) = by_client.entry(hold.client).or_default();
        *held += hold.to_ns - hold.from_ns;
        if bars.len() < MAX_BARS {
            bars.push(hold_bar(hold));
        }
    }
    let mut lanes: Vec<_> = by_client.into_iter().collect();
    lanes.sort_by_key(|(client, (held, _))| (std::cmp::Reverse(*held), *client));
    let shown = lanes.into_iter().take(MAX_LANES - 1);
    shown
        .map(|(client, (_, bars))| Lane {
            label: format!("c{client}"),
            bars,
        })
        .collect()
}

fn fault_lane(window: &Bitten, to_ns: u64) -> Lane {
    let text = format!("{} {}: {}", window.fault, window.number, window.title);
    let to = window.heal_ns.unwrap_or(to_ns);
    Lane {
        label: "fault".into(),
        bars: vec![Bar {
            kind: BarKind::Fault,
            from_ns: window.start_ns,
            to_ns: to,
            text,
        }],
    }
}

fn hold_bar(hold: &CertainHold<'_>) -> Bar {
    let token = hold.token.map(|token| format!(", token {token}")).unwrap_or_default();
    let end = match hold.ended {
        Ended::Lost => ", then told it is lost",
        Ended::Died => ", then died",
        _ => "",
    };
    Bar {
        kind: BarKind::Hold,
        from_ns: hold.from_ns,
        to_ns: hold.to_ns,
        text: format!("holds{token}{end}"),
    }
}
