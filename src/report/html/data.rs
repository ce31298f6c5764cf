//! The timeline as packed data for the page's scripts. `page/data.js` unpacks it: the two are one format.
//!
//! Times are microseconds. A lane's turns are one flat list of numbers, see [`turn`].

use std::collections::BTreeSet;
use std::fmt::Write;

use harness_checkers::Ended;
use maud::Markup;
use serde_json::{Value, json};

use super::text::json as escaped;
use crate::report::Report;
use crate::report::downsample::{Downsampled, downsample, shown_windows};
use crate::report::drawing::Drawing;
use crate::report::roles::Band;
use crate::report::summary;
use crate::report::timeline::{AcquireAnswer, AcquireTurn, Timeline, TimelineGrant};
use crate::report::words::common_digits;

/// Bytes of one turn and its grant, from which the number of turns that fit is estimated.
const TURN_BYTES: usize = 80;
/// Stretches of equal length for which the overview shows the average number of holders.
const COLUMNS: u64 = 600;
/// Maximum number of characters of a cause or a title.
const LONGEST: usize = 200;

/// Returns the data in about `room` bytes, and a sentence about the omitted parts.
pub fn data(report: &Report<'_>, room: usize) -> (Markup, Option<String>) {
    let mut turns = room / TURN_BYTES;
    loop {
        let shown = downsample(report.timeline, report.diagnosis, turns);
        let data = escaped(&pack(report, &shown));
        if data.0.len() <= room || turns == 0 {
            return (data, shown.omitted);
        }
        turns = turns * room / data.0.len() * 9 / 10;
    }
}

fn pack(report: &Report<'_>, shown: &Downsampled) -> String {
    let timeline = report.timeline;
    let base = tokens(timeline);
    let all: Vec<u64> = timeline.turns.iter().filter_map(|turn| turn.token).collect();
    let places = places(timeline, shown);
    let mut lanes: Vec<Vec<&AcquireTurn>> = vec![Vec::new(); timeline.lanes.len()];
    for place in &shown.turns {
        let turn = &timeline.turns[*place];
        lanes[turn.lane].push(turn);
    }
    let mut packed = String::new();
    let named = lanes.iter().zip(&timeline.lanes).zip(&places);
    for ((turns, (lock, client)), _) in named.filter(|(_, place)| place.is_some()) {
        if !packed.is_empty() {
            packed.push(',');
        }
        let lock = json!(clipped(lock));
        let _ = write!(packed, r#"{{"lock":{lock},"client":{client},"turns":["#);
        let mut before = (0, 0);
        for (place, one) in turns.iter().enumerate() {
            if place > 0 {
                packed.push(',');
            }
            turn(one, &mut before, base, &mut packed);
        }
        packed.push_str("]}");
    }
    let head = json!({
        "end": timeline.end_ns / 1000,
        "held": held(timeline),
        "numbered": timeline.numbered,
        "base": base.map(|base| base.to_string()),
        "common": common_digits(&all),
        "windows": windows(report),
        "phases": report.diagnosis.phases.iter().map(|phase| json!([phase.name, phase.start_ns / 1000])).collect::<Vec<_>>(),
        "violations": violations(report),
        "signals": signals(timeline, shown, &places),
        "grants": grants(timeline, shown, &places),
        "nodes": timeline.nodes.iter().map(|node| clipped(node)).collect::<Vec<_>>(),
        "servers": servers(shown),
        "again": summary::again(report.diagnosis).map(|words| words.join(" ")),
    });
    let mut head = head.to_string();
    head.pop();
    format!(r#"{head},"lanes":[{packed}]}}"#)
}

/// Returns the number of each lane among those of which something is shown: there can be a lane for each lock and client.
fn places(timeline: &Timeline, shown: &Downsampled) -> Vec<Option<usize>> {
    let turns = shown.turns.iter().map(|place| timeline.turns[*place].lane);
    let signals = shown.signals.iter().map(|place| timeline.signals[*place].lane);
    let grants = shown.grants.iter().map(|place| timeline.grants[*place].lane);
    let used: BTreeSet<usize> = turns.chain(signals).chain(grants).collect();
    let mut places = vec![None; timeline.lanes.len()];
    for (place, lane) in used.into_iter().enumerate() {
        places[lane] = Some(place);
    }
    places
}

/// Packs a turn: time since the previous call, time to the reply, reply, length and end of the hold, token, process; line of
/// the call since the previous one, of the reply and of the end since the call; server, from 1. 0 is "none" for tokens,
/// lines, ends and servers, -1 for times.
fn turn(turn: &AcquireTurn, before: &mut (u64, u64), base: Option<u64>, packed: &mut String) {
    let asked = turn.asked.ns / 1000;
    let answered = turn.answered.map(|at| at.ns / 1000);
    let wait = answered.map_or(-1, |at| at.saturating_sub(asked) as i64);
    let answer = match turn.answer {
        AcquireAnswer::Ok => 0,
        AcquireAnswer::No => 1,
        AcquireAnswer::Unknown => 2,
        AcquireAnswer::None => 3,
    };
    let (hold, ended, end_index) = turn.held.map_or((-1, 0, 0), |(end, ended)| {
        let ended = match ended {
            Ended::Open => 0,
            Ended::Released => 1,
            Ended::Lost => 2,
            Ended::Died => 3,
            Ended::Changed => 4,
        };
        let since = end.ns / 1000;
        (since.saturating_sub(answered.unwrap_or(asked)) as i64, ended, end.index)
    });
    let token = match (turn.token, base) {
        (None, _) => "0".to_owned(),
        (Some(token), Some(base)) => (token - base + 1).to_string(),
        (Some(token), None) => format!("\"{token}\""),
    };
    let line = turn.asked.index;
    let since = |index: u64| index.saturating_sub(line);
    let _ = write!(
        packed,
        "{},{wait},{answer},{hold},{ended},{token},{},{},{},{},{}",
        asked.saturating_sub(before.0),
        turn.process,
        line.saturating_sub(before.1),
        turn.answered.map_or(0, |at| since(at.index)),
        since(end_index),
        turn.node.map_or(0, |node| node + 1),
    );
    *before = (asked, line);
}

/// Returns the smallest token, from which all are counted; `None` if they are too far apart for numbers of JavaScript.
fn tokens(timeline: &Timeline) -> Option<u64> {
    let tokens = || timeline.turns.iter().filter_map(|turn| turn.token);
    let (least, most) = (tokens().min().unwrap_or(0), tokens().max().unwrap_or(0));
    (most - least < 1 << 52).then_some(least)
}

fn windows(report: &Report<'_>) -> Vec<Value> {
    let windows = shown_windows(report.diagnosis).into_iter();
    let window = |window: &crate::report::effect::WindowEffect| {
        json!({
            "number": window.number, "fault": window.fault, "title": clipped(&window.title), "from": window.start_ns / 1000,
            "to": window.heal_ns.unwrap_or(report.timeline.end_ns) / 1000,
            "bit": window.had_effect || report.diagnosis.phases.is_empty(),
        })
    };
    windows.map(window).collect()
}

fn violations(report: &Report<'_>) -> Vec<Value> {
    let violation = |violation: &harness_checkers::Violation| {
        let drawing = report.diagnosis.drawings.get(&violation.id);
        let times = violation.events.iter().map(|step| step.time_ns);
        let (from, to) = match drawing {
            Some(drawing) => (drawing.from_ns, drawing.to_ns),
            None => (
                times.clone().min().unwrap_or(violation.at_ns),
                times.max().unwrap_or(violation.at_ns),
            ),
        };
        json!({
            "id": violation.id, "lock": clipped(&violation.lock), "clients": violation.clients, "at": violation.at_ns / 1000,
            "from": from / 1000, "to": to / 1000, "root": violation.follows.is_none(), "drawn": drawing.is_some(),
            "overlaps": overlaps(violation, drawing),
        })
    };
    report.diagnosis.violations().map(violation).collect()
}

/// Returns the stretches with more than one holder; adjacent ones are joined.
fn overlaps(violation: &harness_checkers::Violation, drawing: Option<&Drawing>) -> Vec<[u64; 2]> {
    let all = drawing.map(|drawing| drawing.overlaps_ns.clone()).unwrap_or_default();
    let mut all: Vec<(u64, u64)> = all.into_iter().chain(violation.overlap_ns).collect();
    all.sort_unstable();
    let mut joined: Vec<[u64; 2]> = Vec::new();
    for (from, to) in all.into_iter().map(|(from, to)| (from / 1000, to / 1000)) {
        match joined.last_mut() {
            Some(last) if from <= last[1] => last[1] = last[1].max(to),
            _ => joined.push([from, to]),
        }
    }
    joined
}

/// Returns the signals: lane, microseconds, kind, line, cause.
fn signals(timeline: &Timeline, shown: &Downsampled, places: &[Option<usize>]) -> Vec<Value> {
    let signals = shown.signals.iter().map(|place| &timeline.signals[*place]);
    let signal = |signal: &crate::report::timeline::TimelineSignal| {
        let (at, kind) = (signal.at, signal.kind.name());
        json!([
            places[signal.lane],
            at.ns / 1000,
            kind,
            at.index,
            clipped(&signal.cause)
        ])
    };
    signals.map(signal).collect()
}

/// Returns the grants: a lane of the lock, microseconds, length, client; -1 if the client is unknown.
fn grants(timeline: &Timeline, shown: &Downsampled, places: &[Option<usize>]) -> Vec<Value> {
    let grants = shown.grants.iter().map(|place| &timeline.grants[*place]);
    let grant = |grant: &TimelineGrant| {
        let (from, to) = (grant.from_ns / 1000, grant.to_ns / 1000);
        json!([places[grant.lane], from, to - from, grant.client.map_or(-1, i64::from)])
    };
    grants.map(grant).collect()
}

/// Returns the average number of holders in each of [`COLUMNS`] stretches of the run, in hundredths, including turns that are not
/// shown.
fn held(timeline: &Timeline) -> Vec<u64> {
    let width = (timeline.end_ns / COLUMNS).max(1);
    let mut held = vec![0; COLUMNS as usize];
    for turn in &timeline.turns {
        let (Some(got), Some((end, _))) = (turn.answered, turn.held) else {
            continue;
        };
        for column in got.ns / width..=(end.ns / width).min(COLUMNS - 1) {
            let (from, to) = (got.ns.max(column * width), end.ns.min((column + 1) * width));
            held[column as usize] += to.saturating_sub(from);
        }
    }
    held.into_iter().map(|ns: u64| (ns * 100).div_ceil(width)).collect()
}

/// Returns the servers with their roles: microseconds, role, line.
fn servers(shown: &Downsampled) -> Vec<Value> {
    let server = |band: &Band| {
        let spells = band.spells.iter();
        let spells = spells.map(|spell| json!([spell.from.ns / 1000, clipped(spell.role.name()), spell.from.index]));
        json!({ "name": clipped(&band.server), "spells": spells.collect::<Vec<_>>() })
    };
    shown.bands.iter().map(server).collect()
}

fn clipped(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_history::history_of;

    #[test]
    fn the_overview_shows_how_many_held_on_average() {
        // 600 s: c1 holds the first two columns, and c2 the second half of the second one; the last line ends the run
        let lines = [
            (0_u64, 1, "invoke", "acquire"),
            (0, 1, "ok", "acquire"),
            (1_400, 2, "invoke", "acquire"),
            (1_500, 2, "ok", "acquire"),
            (2_000, 1, "invoke", "release"),
            (2_000, 2, "invoke", "release"),
            (600_000, 1, "ok", "release"),
        ];
        let history = history_of(lines.map(|(ms, client, kind, f)| {
            let line = format!(r#""process":{client},"type":"{kind}","f":"{f}","lock":"l0""#);
            (ms * 1_000_000, line)
        }));
        let held = held(&Timeline::of(&history));
        assert_eq!((held.len() as u64, &held[..4]), (COLUMNS, &[100, 150, 0, 0][..]));
        assert_eq!(held.iter().sum::<u64>(), 250);
    }
}
