//! Coverage: the points of a lock's life that the faults of a run struck.
//!
//! A point is a message in one state of the client that sends it, the state of a client, or the role of a server. All numbers are
//! from the history: strikes from its windows, possible points from the counts of the taps, the states of clients from
//! their operations.

use std::collections::{BTreeMap, BTreeSet};

use harness_checkers::history::event::Kind;
use harness_checkers::history::{NemesisFact, PhaseFact, RequestCount, Role};
use harness_checkers::{F, History, Window};
use serde::{Deserialize, Serialize};

use super::roles::{Band, bands};
use super::words::many;
use crate::client_role::{LABELS, filter_of};

/// The points that the faults of a run struck.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    pub messages: CoverageMatrix,
    pub clients: CoverageMatrix,
    pub servers: CoverageMatrix,
    /// Windows of faults on messages that no message matched.
    pub in_vain: u64,
}

/// Points by faults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoverageMatrix {
    pub faults: Vec<String>,
    pub points: Vec<CoveredPoint>,
}

/// A point, and the number of strikes by each fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredPoint {
    /// `create` of a waiter, `the holder`, `leader`.
    pub point: String,
    /// The point as an argument of a fault on messages, if it is one: `create:waiter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// Number of such messages that passed, if it is a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<u64>,
    /// Strikes by fault; a fault without strikes is missing.
    pub strikes: BTreeMap<String, Strikes>,
}

/// Strikes of one fault on one point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strikes {
    pub times: u64,
    /// Strikes that a client noticed: by an operation of unknown outcome, or by a signal that its lock is lost.
    pub noticed: u64,
}

impl Coverage {
    /// Returns `None` for a history without fault windows, or of another recorder.
    pub fn of(history: &History) -> Option<Self> {
        let windows = history.windows();
        if windows.is_empty() || history.phases().is_empty() {
            return None;
        }
        let mut coverage = Self::default();
        for request in sent(history) {
            coverage.messages.message(&request.message, &request.role).passed = Some(request.count);
        }
        let states = ClientStates::of(history);
        let bands = bands(history);
        for window in &windows {
            coverage.add(window, &states, &bands);
        }
        Some(coverage)
    }

    fn add(&mut self, window: &Window, states: &ClientStates, bands: &[Band]) {
        let Some(healed) = &window.healed else { return };
        let strike = Strikes {
            times: 1,
            noticed: u64::from(healed.evidence.sum(["unknown", "locks_lost"]) > 0),
        };
        if window.is_on_message() {
            self.messages.fault(&window.fault);
            match &healed.matched {
                Some(found) => {
                    self.messages.message(&found.message, &found.role);
                    self.messages
                        .strike(&message_point(&found.message, &found.role), &window.fault, strike);
                }
                None => self.in_vain += 1,
            }
        }
        if window.is_on_message() || healed.missed.is_some() || healed.left_trace == Some(false) {
            return;
        }
        let mut clients = BTreeSet::new();
        for target in &window.started.targets {
            if let Some(number) = target.strip_prefix('c').and_then(|number| number.parse().ok()) {
                clients.insert(states.at(number, window.start_ns));
            } else if let Some(role) = role_at(bands, target, window.start_ns) {
                self.servers.strike(role.name(), &window.fault, strike);
            }
        }
        // a fault on many clients strikes each state once
        for state in clients {
            self.clients.strike(state, &window.fault, strike);
        }
    }

    /// Returns the struck points in one line, or `None` if no fault struck a point.
    pub fn in_words(&self) -> Option<String> {
        let mut words = Vec::new();
        let CoverageMatrix { faults, points } = &self.messages;
        if !faults.is_empty() && !points.is_empty() {
            let struck = points.iter().filter(|point| !point.strikes.is_empty()).count();
            let (all, faults) = (many(points.len() as u64, "point"), many(faults.len() as u64, "fault"));
            words.push(format!("messages at {struck} of {all}, by {faults}"));
        }
        for (matrix, of) in [(&self.clients, "clients"), (&self.servers, "servers")] {
            let names: Vec<&str> = matrix.points.iter().map(|point| point.point.as_str()).collect();
            if !names.is_empty() {
                words.push(format!("{of} that were {}", names.join(", ")));
            }
        }
        (!words.is_empty()).then(|| words.join("; "))
    }
}

impl CoverageMatrix {
    /// Returns the point of a message in one state of its sender.
    fn message(&mut self, message: &str, role: &str) -> &mut CoveredPoint {
        let point = self.point(&message_point(message, role));
        let label = LABELS.labels.iter().find(|label| label.words() == role);
        point.argument = label.map(|label| format!("{message}:{}", filter_of(*label).name()));
        point
    }

    fn point(&mut self, name: &str) -> &mut CoveredPoint {
        let known = self.points.iter().position(|point| point.point == name);
        let place = known.unwrap_or_else(|| {
            self.points.push(CoveredPoint {
                point: name.to_owned(),
                ..CoveredPoint::default()
            });
            self.points.len() - 1
        });
        &mut self.points[place]
    }

    fn fault(&mut self, fault: &str) {
        if !self.faults.iter().any(|known| known == fault) {
            self.faults.push(fault.to_owned());
        }
    }

    fn strike(&mut self, point: &str, fault: &str, strike: Strikes) {
        self.fault(fault);
        let strikes = self.point(point).strikes.entry(fault.to_owned()).or_default();
        strikes.times += strike.times;
        strikes.noticed += strike.noticed;
    }
}

fn message_point(message: &str, role: &str) -> String {
    let of = if role == "idle" { "an idle client" } else { role };
    format!("{message} of {of}")
}

/// Returns the requests that clients sent, as the taps counted them.
fn sent(history: &History) -> Vec<RequestCount> {
    let ends = history.nemesis().iter().rev().find_map(|line| match &line.fact {
        NemesisFact::Phase(PhaseFact::End { wire, .. }) => wire.as_ref(),
        _ => None,
    });
    ends.map(|wire| wire.requests.clone()).unwrap_or_default()
}

/// Returns the last known role of a server at a time.
fn role_at<'a>(bands: &'a [Band], server: &str, ns: u64) -> Option<&'a Role> {
    let band = bands.iter().find(|band| band.server == server)?;
    let before = band.spells.iter().rev().find(|spell| spell.from.ns <= ns);
    before.map(|spell| &spell.role)
}

/// The states of each client, by time.
struct ClientStates(BTreeMap<u32, Vec<(u64, &'static str)>>);

const IDLE: &str = "idle";

impl ClientStates {
    fn of(history: &History) -> Self {
        let mut changes: BTreeMap<u32, Vec<(u64, &'static str)>> = BTreeMap::new();
        for entry in history.entries() {
            let state = match (entry.f, entry.kind) {
                (F::Acquire, Kind::Invoke) => "waiting",
                (F::Acquire, Kind::Ok) => "holding",
                (F::Release, Kind::Invoke) => "releasing",
                (F::Acquire | F::Release, _) | (F::Died, _) => IDLE,
                _ => continue,
            };
            if let Some(client) = entry.client {
                changes.entry(client).or_default().push((entry.time_ns, state));
            }
        }
        Self(changes)
    }

    fn at(&self, client: u32, ns: u64) -> &'static str {
        let changes = self.0.get(&client).map_or(&[][..], Vec::as_slice);
        let before = changes.partition_point(|(time_ns, _)| *time_ns <= ns);
        before.checked_sub(1).map_or(IDLE, |last| changes[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_history::history_of;

    #[test]
    fn a_message_that_was_struck_is_a_point_and_so_is_one_that_could_have_been() {
        let matched = r#""left_trace":true,"matched":{"message":"SET","client":"c1","link":"c1->n1","role":"a waiter","done":true,"time":2}"#;
        let lines = [
            r#""f":"phase","phase":"faults","windows":3"#,
            r#""f":"drop-reply","window":1,"phase":"start","targets":[]"#,
            r#""f":"drop-reply","window":1,"phase":"heal","evidence":{"messages_dropped":1,"unknown":1},MATCHED"#,
            r#""f":"drop-reply","window":2,"phase":"start","targets":[]"#,
            r#""f":"drop-reply","window":2,"phase":"heal","evidence":{},"left_trace":false,"missed":"none came""#,
            r#""f":"drop-request","window":3,"phase":"start","targets":[]"#,
            r#""f":"drop-request","window":3,"phase":"heal","evidence":{},MATCHED"#,
            r#""f":"phase","phase":"end","unfinished":[],"wire":{"clients":{},"lost":0,"why":null,"requests":[{"message":"SET","role":"a waiter","count":9},{"message":"DEL","role":"the holder, releasing","count":8}]}"#,
        ];
        let lines = lines.map(|line| line.replace("MATCHED", matched));
        let coverage = Coverage::of(&history_of((1_u64..).zip(&lines))).unwrap();
        assert_eq!(coverage.in_vain, 1);
        let set = &coverage.messages.points[0];
        assert_eq!((set.point.as_str(), set.passed), ("SET of a waiter", Some(9)));
        assert_eq!(set.strikes["drop-reply"], Strikes { times: 1, noticed: 1 });
        assert!(coverage.messages.points[1].strikes.is_empty());
        assert_eq!(coverage.in_words().unwrap(), "messages at 1 of 2 points, by 2 faults");
    }

    #[test]
    fn a_client_is_struck_in_the_state_that_its_operations_show() {
        let lines = [
            r#""process":0,"type":"invoke","f":"acquire","lock":"l0""#,
            r#""process":0,"type":"ok","f":"acquire","lock":"l0""#,
            r#""process":1,"type":"invoke","f":"acquire","lock":"l0""#,
            r#""f":"phase","phase":"faults","windows":1"#,
            r#""f":"kill","window":1,"phase":"start","targets":["c0"]"#,
            r#""f":"kill","window":1,"phase":"heal","evidence":{"clients_killed":1},"left_trace":true"#,
            r#""f":"pause","window":2,"phase":"start","targets":["c1","c9"]"#,
            r#""f":"pause","window":2,"phase":"heal","evidence":{"stopped_ms":9},"left_trace":true"#,
        ];
        let coverage = Coverage::of(&history_of((1_u64..).zip(&lines))).unwrap();
        let points = coverage.clients.points.iter().map(|point| point.point.as_str());
        assert_eq!(points.collect::<Vec<_>>(), ["holding", "idle", "waiting"]);
        assert_eq!(coverage.clients.faults, ["kill", "pause"]);
    }

    #[test]
    fn a_history_without_windows_or_of_another_recorder_covers_nothing() {
        let none = [r#""process":0,"type":"invoke","f":"acquire","lock":"l0""#];
        assert_eq!(Coverage::of(&history_of((1_u64..).zip(&none))), None);
        let foreign = [r#""process":"nemesis","type":"info","f":"partition","phase":"start","targets":["c0"]"#];
        assert_eq!(Coverage::of(&history_of((1_u64..).zip(&foreign))), None);
    }
}
