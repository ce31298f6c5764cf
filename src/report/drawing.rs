//! The drawing of a violation as data: a few lanes with bars over a stretch of time. Terminal and page draw the same.

use std::collections::{BTreeMap, BTreeSet};

use harness_checkers::history::event::Process;
use harness_checkers::{CertainHold, Ended, History, Property, Violation};
use serde::{Deserialize, Serialize};

use super::effect::WindowEffect;
use super::owned::OwnedBar;
use super::timeline::{AcquireTurn, Timeline};
use super::words::{common_digits, stretch};

/// Lanes of one drawing, without those of faults.
const MAX_LANES: usize = 5;
/// Bars of one lane.
const MAX_BARS: usize = 200;
/// The lanes of faults.
const FAULT: &str = "fault";
/// The lane of the server's grants.
const SERVER: &str = "server";
/// The class of violations of a semaphore.
const TOO_MANY: &str = "too-many-permits";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drawing {
    pub from_ns: u64,
    pub to_ns: u64,
    pub lanes: Vec<DrawingLane>,
    /// The stretches with more than one holder, by beginning.
    pub overlaps_ns: Vec<(u64, u64)>,
}

impl Drawing {
    /// Returns the position of a moment in the width of the drawing, from 0 to 1.
    pub fn place(&self, ns: u64) -> f64 {
        let (from, to) = (self.from_ns as f64, self.to_ns as f64);
        ((ns as f64 - from) / (to - from).max(1.0)).clamp(0.0, 1.0)
    }

    /// Returns the first and last moment with more than one holder, and a sentence; `None` if there is none.
    pub fn both_hold(&self) -> Option<(u64, u64, String)> {
        let first = self.overlaps_ns.first()?.0;
        let last = self.overlaps_ns.iter().map(|overlap| overlap.1).max()?;
        let times = match self.overlaps_ns.len() {
            1 => String::new(),
            count => format!(", {count} times"),
        };
        // a holder that went on may overlap with several others, of which each holds alone beside it
        let holds = |bar: &&Bar, ns: u64| bar.kind == BarKind::Hold && (bar.from_ns..bar.to_ns).contains(&ns);
        let all = || self.lanes.iter().flat_map(|lane| &lane.bars);
        let more = all().any(|begun| all().filter(|bar| holds(bar, begun.from_ns)).count() > 2);
        let who = if more { "too many" } else { "both" };
        Some((first, last, format!("{who} hold: {}{times}", stretch(first, last))))
    }

    /// Returns the tokens of its holds by time: the beginning of the hold, the token, and the label of the lane.
    pub fn tokens(&self) -> Vec<(u64, u64, &str)> {
        let mut tokens: Vec<(u64, u64, &str)> = Vec::new();
        for lane in &self.lanes {
            let with_token = lane.bars.iter().filter_map(|bar| Some((bar.from_ns, bar.token?)));
            tokens.extend(with_token.map(|(from_ns, token)| (from_ns, token, lane.label.as_str())));
        }
        tokens.sort_unstable();
        tokens
    }

    /// Returns the digits with which all of its tokens begin, if they are long.
    pub fn common_digits(&self) -> String {
        let tokens: Vec<u64> = self.tokens().iter().map(|(_, token, _)| *token).collect();
        common_digits(&tokens)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrawingLane {
    pub label: String,
    pub bars: Vec<Bar>,
    /// The events that the sentences of the violation refer to, by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

impl DrawingLane {
    /// Returns a lane without marks.
    fn of(label: &str, bars: Vec<Bar>) -> Self {
        Self {
            label: label.to_owned(),
            bars,
            marks: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    pub kind: BarKind,
    pub from_ns: u64,
    pub to_ns: u64,
    pub text: String,
    /// The part of `text` that is shown if the bar is too narrow for more.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub brief: String,
    /// The fencing token of a hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

impl Bar {
    /// Returns a bar without a token.
    fn of(kind: BarKind, (from_ns, to_ns): (u64, u64), text: impl Into<String>, brief: impl Into<String>) -> Self {
        Self {
            kind,
            from_ns,
            to_ns,
            text: text.into(),
            brief: brief.into(),
            token: None,
        }
    }

    /// Returns the text in at most `room` characters: words are omitted at the end, with a mark, but not the brief part. Returns an
    /// empty text if even that is too long.
    pub fn fitted(&self, room: usize) -> String {
        let length = |text: &str| text.chars().count();
        if length(&self.text) <= room {
            return self.text.clone();
        }
        let essential = self.text.find(&self.brief).map_or(0, |at| at + self.brief.len());
        let mut ends = self.text.match_indices(' ').map(|(at, _)| &self.text[..at]);
        let kept = ends.rfind(|kept| kept.len() >= essential && length(kept) < room);
        match kept {
            Some(kept) if !kept.is_empty() => format!("{}…", kept.trim_end_matches([',', ':'])),
            _ if length(&self.brief) <= room => self.brief.clone(),
            _ => String::new(),
        }
    }
}

impl OwnedBar {
    pub fn bar(&self) -> Bar {
        let (text, brief) = match self.client {
            Some(client) => (format!("owner: c{client}"), format!("c{client}")),
            None => ("an owner".to_owned(), "an owner".to_owned()),
        };
        Bar::of(BarKind::Owner, (self.from_ns, self.to_ns), text, brief)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BarKind {
    Fault,
    Hold,
    /// An acquire that was called and not answered yet.
    Wait,
    /// The owner of the lock on the server.
    Owner,
}

/// The moment of an event, and the number of the sentence that refers to it, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub sentence: u32,
    pub at_ns: u64,
}

/// The input of drawings: holds, waits, grants, faults, and the events that sentences refer to.
pub struct DrawingContext<'a> {
    holds: Vec<CertainHold<'a>>,
    timeline: Timeline,
    windows: &'a [WindowEffect],
    end_ns: u64,
    /// Time and lane of the events that sentences refer to, by index.
    events: BTreeMap<u64, (u64, String)>,
}

impl<'a> DrawingContext<'a> {
    pub fn of<'v>(
        history: &'a History,
        windows: &'a [WindowEffect],
        violations: impl Iterator<Item = &'v Violation>,
    ) -> Self {
        let mut wanted: Vec<u64> = violations.flat_map(cited).collect();
        wanted.sort_unstable();
        let named = history
            .entries()
            .filter(|entry| wanted.binary_search(&entry.index).is_ok());
        let events = named.map(|entry| {
            let lane = match entry.process {
                Process::Client(process) => format!("c{}", entry.client.unwrap_or(process)),
                Process::Server => SERVER.to_owned(),
                Process::Nemesis => FAULT.to_owned(),
            };
            (entry.index, (entry.time_ns, lane))
        });
        Self {
            events: events.collect(),
            holds: history.certain_holds(),
            timeline: Timeline::of(history),
            windows,
            end_ns: history.end_ns(),
        }
    }

    /// Draws a violation, if the drawing shows more than its sentences.
    pub fn draw(&self, violation: &Violation) -> Option<Drawing> {
        let mut drawing = match violation.overlap_ns {
            Some(worst) => self.overlap(violation, worst)?,
            None if violation.id.starts_with(Property::Hl004.id()) => return None,
            None => self.scene(violation)?,
        };
        let (from_ns, to_ns) = (drawing.from_ns, drawing.to_ns);
        let is_of_lock = |owned: &&OwnedBar| self.timeline.lanes[owned.lane].0 == violation.lock;
        let owned = self.timeline.grants.iter().filter(is_of_lock);
        let seen = owned.filter(|owned| owned.from_ns < to_ns && owned.to_ns > from_ns);
        let bars = longest(seen.map(OwnedBar::bar).collect());
        if !bars.is_empty() {
            drawing.lanes.push(DrawingLane::of(SERVER, bars));
        }
        for (sentence, because) in (1..).zip(&violation.because) {
            let events = because.events.iter().filter_map(|index| self.events.get(index));
            for (at_ns, label) in events.filter(|(at, _)| (drawing.from_ns..=drawing.to_ns).contains(at)) {
                let mark = Mark {
                    sentence,
                    at_ns: *at_ns,
                };
                let is_at = |lane: &DrawingLane| {
                    let mut bars = lane.bars.iter();
                    label != FAULT || bars.any(|bar| bar.from_ns == *at_ns || bar.to_ns == *at_ns)
                };
                match drawing
                    .lanes
                    .iter_mut()
                    .find(|lane| lane.label == *label && is_at(lane))
                {
                    Some(lane) => lane.marks.push(mark),
                    None if label == SERVER => drawing.lanes.push(DrawingLane {
                        label: label.clone(),
                        bars: Vec::new(),
                        marks: vec![mark],
                    }),
                    None => {}
                }
            }
        }
        Some(drawing)
    }

    /// Draws the active faults, the hold that continued, and the holds of others meanwhile. Returns `None` if no hold continued.
    fn overlap(&self, violation: &Violation, worst: (u64, u64)) -> Option<Drawing> {
        let of_lock = || self.holds.iter().filter(|hold| hold.lock == violation.lock);
        let went_on = |hold: &&CertainHold<'_>| {
            violation.processes.first() == Some(&hold.process) && hold.from_ns < worst.1 && hold.to_ns > worst.0
        };
        let first = of_lock().find(went_on)?;
        let meanwhile = |hold: &&CertainHold<'_>| {
            hold.got_index != first.got_index && hold.from_ns < first.to_ns && hold.to_ns > first.from_ns
        };
        let others: Vec<&CertainHold<'_>> = of_lock().filter(meanwhile).collect();
        let shared = |hold: &&CertainHold<'_>| (hold.from_ns.max(first.from_ns), hold.to_ns.min(first.to_ns));
        // readers share a lock, and so do holders of permits until there are too many
        let excluded = others.iter().filter(|hold| !(hold.mode_read && first.mode_read));
        let mut overlaps_ns: Vec<(u64, u64)> = match violation.class.as_str() {
            TOO_MANY => vec![worst],
            _ => excluded.map(shared).collect(),
        };
        overlaps_ns.sort_unstable();
        let last = others.iter().map(|hold| hold.to_ns).chain([first.to_ns]);
        let named = || self.moments(violation);
        let from = named().chain([first.from_ns]).min()?;
        let (from_ns, to_ns) = with_margin(from, last.chain(named()).max()?);
        let mut lanes = self.faults(from_ns, to_ns);
        lanes.push(lane(first.client, vec![hold_bar(first)]));
        lanes.extend(lanes_of(&others));
        Some(Drawing {
            from_ns,
            to_ns,
            lanes,
            overlaps_ns,
        })
    }

    /// Draws the holds of the clients of a violation around the events of its sentences.
    fn scene(&self, violation: &Violation) -> Option<Drawing> {
        let cited: BTreeSet<u64> = cited(violation).collect();
        let waits = self.waits().filter(|(turn, _)| cited.contains(&turn.asked.index));
        let times = self.moments(violation).chain(waits.map(|(_, to_ns)| to_ns));
        let times: BTreeSet<u64> = times.collect();
        let (first, last) = (*times.first()?, *times.last()?);
        if first == last {
            return None;
        }
        let (from_ns, to_ns) = with_margin(first, last);
        let mut clients = violation.clients.clone();
        clients.extend(
            self.named(violation)
                .filter_map(|(_, label)| label.strip_prefix('c')?.parse::<u32>().ok()),
        );
        let mut seen = BTreeSet::new();
        clients.retain(|client| seen.insert(*client));
        let mut lanes = self.faults(from_ns, to_ns);
        lanes.extend(clients.into_iter().take(MAX_LANES).map(|client| {
            let own = self.holds.iter().filter(|hold| {
                hold.client == client && hold.lock == violation.lock && hold.from_ns < to_ns && hold.to_ns > from_ns
            });
            let waits = self.waits_of(client, &violation.lock, (from_ns, to_ns));
            lane(client, longest(own.map(hold_bar).chain(waits).collect()))
        }));
        Some(Drawing {
            from_ns,
            to_ns,
            lanes,
            overlaps_ns: Vec::new(),
        })
    }

    fn faults(&self, from_ns: u64, to_ns: u64) -> Vec<DrawingLane> {
        let on = |window: &&WindowEffect| window.start_ns < to_ns && window.heal_ns.is_none_or(|heal| heal > from_ns);
        let mut lanes: Vec<DrawingLane> = Vec::new();
        for bar in self.windows.iter().filter(on).map(|window| fault_bar(window, to_ns)) {
            // windows that follow each other share a lane
            let is_free = |lane: &&mut DrawingLane| lane.bars.last().is_none_or(|last| last.to_ns <= bar.from_ns);
            match lanes.iter_mut().find(is_free) {
                Some(lane) => lane.bars.push(bar),
                None => lanes.push(DrawingLane::of(FAULT, vec![bar])),
            }
        }
        lanes
    }

    /// Returns the moments of a violation's sentences, from their events and their texts.
    fn moments(&self, violation: &Violation) -> impl Iterator<Item = u64> {
        let texts = violation.because.iter().map(|because| because.text.as_str());
        let by_name = texts.flat_map(moments_in).filter(|at_ns| *at_ns <= self.end_ns);
        self.named(violation).map(|(at_ns, _)| *at_ns).chain(by_name)
    }

    /// Returns time and lane of the events that the sentences of a violation refer to.
    fn named(&self, violation: &Violation) -> impl Iterator<Item = &(u64, String)> {
        cited(violation).filter_map(|index| self.events.get(&index))
    }

    /// Returns the waits of a client that are long enough to be visible.
    fn waits_of(&self, client: u32, lock: &str, (from_ns, to_ns): (u64, u64)) -> impl Iterator<Item = Bar> {
        let least = (to_ns - from_ns) / 100;
        let own = self.waits().filter(move |(turn, _)| {
            let (of_lock, of_client) = &self.timeline.lanes[turn.lane];
            *of_client == client && of_lock == lock
        });
        let spans = own.map(|(turn, answered_ns)| (turn.asked.ns, answered_ns));
        let seen = spans.filter(move |(from, to)| *from < to_ns && *to > from_ns && to - from > least);
        seen.map(|span| Bar::of(BarKind::Wait, span, "waits", "waits"))
    }

    /// Returns each acquire with the time of its reply, or of the end of the history.
    fn waits(&self) -> impl Iterator<Item = (&AcquireTurn, u64)> {
        let turns = self.timeline.turns.iter();
        turns.map(|turn| (turn, turn.answered.map_or(self.end_ns, |at| at.ns)))
    }
}

/// Returns the indices of the events that the sentences of a violation refer to.
fn cited(violation: &Violation) -> impl Iterator<Item = u64> {
    let sentences = violation.because.iter();
    sentences.flat_map(|because| because.events.iter().copied())
}

/// Returns the longest bars by time, as many as a lane has at most.
fn longest(mut bars: Vec<Bar>) -> Vec<Bar> {
    bars.sort_by_key(|bar| std::cmp::Reverse(bar.to_ns - bar.from_ns));
    bars.truncate(MAX_BARS);
    bars.sort_by_key(|bar| bar.from_ns);
    bars
}

fn with_margin(from_ns: u64, to_ns: u64) -> (u64, u64) {
    let margin = (to_ns - from_ns) / 12 + 1;
    (from_ns.saturating_sub(margin), to_ns + margin)
}

/// Returns a lane for each client, those that held longest first, as many as a drawing has.
fn lanes_of(holds: &[&CertainHold<'_>]) -> Vec<DrawingLane> {
    let mut by_client: BTreeMap<u32, (u64, Vec<Bar>)> = BTreeMap::new();
    for hold in holds {
        let (held, bars) = by_client.entry(hold.client).or_default();
        *held += hold.to_ns - hold.from_ns;
        bars.push(hold_bar(hold));
    }
    let mut lanes: Vec<_> = by_client.into_iter().collect();
    lanes.sort_by_key(|(client, (held, _))| (std::cmp::Reverse(*held), *client));
    let shown = lanes.into_iter().take(MAX_LANES - 1);
    shown.map(|(client, (_, bars))| lane(client, longest(bars))).collect()
}

fn lane(client: u32, bars: Vec<Bar>) -> DrawingLane {
    DrawingLane::of(&format!("c{client}"), bars)
}

fn fault_bar(window: &WindowEffect, to_ns: u64) -> Bar {
    let name = format!("{} {}", window.fault, window.number);
    let text = match window.title.as_str() {
        "" => name.clone(),
        title => format!("{name}: {title}"),
    };
    let healed_ns = window.heal_ns.unwrap_or(to_ns);
    Bar::of(BarKind::Fault, (window.start_ns, healed_ns), text, name)
}

/// Returns the moments in a sentence, such as `13.880s`. Lengths have at most two digits after the point.
fn moments_in(sentence: &str) -> impl Iterator<Item = u64> {
    let words = sentence.split_whitespace();
    words.filter_map(|word| {
        let number = word
            .trim_end_matches(|letter: char| !letter.is_alphanumeric())
            .strip_suffix('s')?;
        let (whole, part) = number.split_once('.')?;
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_moment = part.len() == 3 && is_number(whole) && is_number(part);
        let ms: u64 = format!("{whole}{part}").parse().ok().filter(|_| is_moment)?;
        ms.checked_mul(1_000_000)
    })
}

fn hold_bar(hold: &CertainHold<'_>) -> Bar {
    let end = match hold.ended {
        Ended::Lost => ", then notified of its loss",
        Ended::Died => ", then died",
        _ => "",
    };
    let (text, brief) = match hold.token {
        Some(token) => (format!("holds, token {token}{end}"), format!("token {token}")),
        None => (format!("holds{end}"), "holds".to_owned()),
    };
    Bar {
        token: hold.token,
        ..Bar::of(BarKind::Hold, (hold.from_ns, hold.to_ns), text, brief)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_history::history_of;

    #[test]
    fn readers_beside_each_other_and_holders_within_the_permits_do_not_overlap() {
        let event = |client: u32, kind: &str, f: &str, mode: &str| {
            format!(r#""process":{client},"type":"{kind}","f":"{f}","lock":"l0","mode":"{mode}""#)
        };
        let history = history_of([
            (10, event(0, "invoke", "acquire", "read")),
            (20, event(0, "ok", "acquire", "read")),
            (30, event(1, "invoke", "acquire", "read")),
            (40, event(1, "ok", "acquire", "read")),
            (60, event(2, "invoke", "acquire", "write")),
            (70, event(2, "ok", "acquire", "write")),
            (100, event(1, "invoke", "release", "read")),
            (120, event(2, "invoke", "release", "write")),
            (200, event(0, "invoke", "release", "read")),
        ]);
        let overlaps = |class: &str| {
            let violation = serde_json::from_value(serde_json::json!({
                "id": "HL001-1", "class": class, "lock": "l0", "processes": [0, 2], "clients": [0, 2], "at_ns": 70,
                "overlap_ns": [70, 90], "summary": "", "events": [],
            }));
            let violation: Violation = violation.expect("a violation");
            let context = DrawingContext::of(&history, &[], [&violation].into_iter());
            let drawing = context.draw(&violation).expect("a drawing");
            let (.., told) = drawing.both_hold().expect("an overlap");
            assert!(told.starts_with("too many hold: "), "{told}");
            drawing.overlaps_ns
        };
        assert_eq!(overlaps("told-twice"), [(70, 120)]);
        assert_eq!(overlaps(TOO_MANY), [(70, 90)]);
    }

    #[test]
    fn what_a_bar_says_ends_with_a_whole_word_and_has_the_whole_token() {
        let text = "holds, token 4294967543, then died";
        let bar = Bar::of(BarKind::Hold, (0, 1), text, "token 4294967543");
        assert_eq!(bar.fitted(34), bar.text);
        assert_eq!(bar.fitted(33), "holds, token 4294967543, then…");
        assert_eq!(bar.fitted(29), "holds, token 4294967543…");
        assert_eq!(bar.fitted(23), "token 4294967543");
        assert_eq!(bar.fitted(15), "", "a part of a number is another number");
    }

    #[test]
    fn of_too_many_bars_the_longest_are_kept_in_their_order() {
        let bar = |from_ns: u64, long: u64| Bar::of(BarKind::Owner, (from_ns, from_ns + long), "", "");
        let short = (0..MAX_BARS as u64 + 50).map(|number| bar(number * 10, 1));
        let kept = longest(short.chain([bar(90_000, 5), bar(9_000, 50_000)]).collect());
        let last: Vec<u64> = kept.iter().rev().take(2).map(|bar| bar.from_ns).collect();
        assert_eq!((kept.len(), last), (MAX_BARS, vec![90_000, 9_000]));
    }

    #[test]
    fn the_moments_of_a_sentence_are_found_and_its_lengths_are_not() {
        let of = |sentence: &str| moments_in(sentence).collect::<Vec<_>>();
        let sentence = "c2 asked for the lock at 2.000s, and no client had got it by 38.200s, for 1.84s (limit 480ms).";
        assert_eq!(of(sentence), [2_000_000_000, 38_200_000_000]);
        assert_eq!(
            of("version 1.2.345s, .123s, 1.s, 99999999999999999.000s"),
            Vec::<u64>::new()
        );
    }
}
