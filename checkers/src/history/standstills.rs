//! Standstills: times in which the harness or a server did nothing, outside of the windows of the plan.
//!
//! The reason is an overloaded machine, a laptop that sleeps, or a server that is stopped by hand. The behaviour of a lock in that time is
//! not the lock's fault.

use std::collections::BTreeMap;

use super::answers::Role;
use super::nemesis::NemesisFact;
use super::{History, Window};

/// The longest time until the silence of a server is seen, and the longest one that may be a late answer: a server is asked for its role
/// once a second, and has another second to answer.
const ROLE_LAG_NS: u64 = 2_000_000_000;
/// The longest time that servers need after a heal to serve again.
const SERVING_NS: u64 = 10_000_000_000;

/// A standstill of the harness or of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standstill {
    /// The time of its beginning; of a server, the time at which it was seen.
    pub from_ns: u64,
    /// The time of its end, or of the end of the history.
    pub to_ns: u64,
    /// Whether it ended before the history did.
    pub is_over: bool,
    /// The server; `None` for the harness.
    pub server: Option<String>,
}

impl Standstill {
    /// Returns a sentence.
    pub fn in_words(&self) -> String {
        let from = self.from_ns as f64 / 1e9;
        let lasted = if self.is_over {
            format!("for {:.1}s", self.seen_ns() as f64 / 1e9)
        } else {
            "to the end".to_owned()
        };
        match &self.server {
            None => {
                format!("harness did not run {lasted} from {from:.1}s: the machine was overloaded, or stopped it")
            }
            Some(server) => {
                format!("{server} did not serve {lasted} from {from:.1}s, and no fault of the plan explains it")
            }
        }
    }

    /// Returns the earliest time of its beginning.
    pub fn earliest_ns(&self) -> u64 {
        match self.server {
            None => self.from_ns,
            Some(_) => self.from_ns.saturating_sub(ROLE_LAG_NS),
        }
    }

    /// Returns whether an instant of it may lie between two times.
    pub fn touches(&self, from_ns: u64, to_ns: u64) -> bool {
        self.earliest_ns() <= to_ns && self.to_ns >= from_ns
    }

    /// Returns the longest part of it that may lie between two times, in nanoseconds.
    pub fn within_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.to_ns.min(to_ns).saturating_sub(self.earliest_ns().max(from_ns))
    }

    /// Returns whether it was certainly longer than this.
    pub fn is_longer_than(&self, ns: u64) -> bool {
        match self.server {
            None => self.seen_ns() > ns,
            Some(_) => self.seen_ns() > ns.saturating_add(ROLE_LAG_NS),
        }
    }

    /// Returns the time for which it was seen: 0 if the line of its end has an earlier time than that of its beginning.
    fn seen_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

impl History {
    /// Returns all standstills, by their end.
    pub fn standstills(&self) -> Vec<Standstill> {
        let windows = &self.windows;
        let mut silent: BTreeMap<String, u64> = BTreeMap::new();
        let mut found = Vec::new();
        for line in self.nemesis() {
            match &line.fact {
                NemesisFact::Stall { lasted_ms } => found.push(Standstill {
                    from_ns: line.time_ns.saturating_sub(lasted_ms.saturating_mul(1_000_000)),
                    to_ns: line.time_ns,
                    is_over: true,
                    server: None,
                }),
                NemesisFact::Roles(roles) => {
                    let planned = windows.iter().any(|window| explains(window, line.time_ns));
                    for (server, role) in roles {
                        if *role != Role::NotServing {
                            let over = |from_ns| Standstill {
                                from_ns,
                                to_ns: line.time_ns,
                                is_over: true,
                                server: Some(server.clone()),
                            };
                            found.extend(silent.remove(server).map(over));
                        } else if !planned {
                            silent.entry(server.clone()).or_insert(line.time_ns);
                        }
                    }
                }
                _ => {}
            }
        }
        found.extend(silent.into_iter().map(|(server, from_ns)| Standstill {
            from_ns,
            to_ns: self.end_ns(),
            is_over: false,
            server: Some(server),
        }));
        found
    }
}

/// The age that a request to a server may have when the injection of a fault begins.
const ASKED_NS: u64 = 500_000_000;

/// Returns whether a window may be why a server is silent at a time.
fn explains(window: &Window, ns: u64) -> bool {
    let from = window.began_ns().saturating_sub(ASKED_NS);
    let until = window.heal_ns.map_or(u64::MAX, |heal| heal.saturating_add(SERVING_NS));
    (from..=until).contains(&ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ReadOptions;

    fn standstills(lines: &[&str]) -> Vec<Standstill> {
        let header = r#"{"format":"harness-history","version":1,"locks":["l0"]}"#;
        let text = [&[header], lines].concat().join("\n");
        History::read(text.as_bytes(), &ReadOptions::default())
            .unwrap()
            .standstills()
    }

    #[test]
    fn a_stall_of_the_harness_is_known_by_its_end() {
        let found = standstills(&[
            r#"{"index":1,"time":12000000000,"process":"nemesis","type":"info","f":"stall","phase":"over","lasted_ms":10000}"#,
        ]);
        let wanted = Standstill {
            from_ns: 2_000_000_000,
            to_ns: 12_000_000_000,
            is_over: true,
            server: None,
        };
        assert_eq!(found, [wanted]);
        assert!(
            found[0]
                .in_words()
                .starts_with("harness did not run for 10.0s from 2.0s")
        );
    }

    const SILENT: &str = r#"{"index":2,"time":20000000000,"process":"nemesis","type":"info","f":"roles","phase":"seen","roles":{"n1":"not serving"}}"#;
    const SERVES: &str = r#"{"index":3,"time":25000000000,"process":"nemesis","type":"info","f":"roles","phase":"seen","roles":{"n1":"master"}}"#;

    #[test]
    fn a_server_that_does_not_serve_stands_still_unless_a_window_is_why() {
        let found = standstills(&[SILENT, SERVES]);
        assert_eq!(
            (found[0].earliest_ns(), found[0].to_ns),
            (18_000_000_000, 25_000_000_000)
        );
        assert!(found[0].is_longer_than(2_000_000_000) && !found[0].is_longer_than(3_000_000_000));
        assert_eq!(found[0].server.as_deref(), Some("n1"));
        let window = r#"{"index":1,"time":15000000000,"process":"nemesis","type":"info","f":"server-kill","phase":"start","window":1,"targets":["n1"]}"#;
        assert_eq!(standstills(&[window, SILENT, SERVES]), []);
        // the line of a window is written when its fault is active, which may take a while
        let cases = [("20400000000", "", 0), ("20600000000", "", 1)];
        let slow = [
            ("22400000000", r#","injected_in_ms":2000"#, 0),
            ("22600000000", r#","injected_in_ms":2000"#, 1),
        ];
        for (start, injected_in, silent) in cases.into_iter().chain(slow) {
            let window = window
                .replace("15000000000", start)
                .replace(r#","window":1"#, &format!(r#","window":1{injected_in}"#));
            assert_eq!(standstills(&[SILENT, &window, SERVES]).len(), silent);
        }
    }

    #[test]
    fn a_server_that_is_silent_to_the_end_says_so_and_was_so_no_longer_than_to_the_end() {
        let last = r#"{"index":3,"time":24000000000,"process":"nemesis","type":"info","f":"phase","phase":"end"}"#;
        let found = standstills(&[SILENT, last]);
        assert_eq!((found[0].to_ns, found[0].is_over), (24_000_000_000, false));
        assert!(found[0].in_words().contains("to the end"));
        assert!(found[0].is_longer_than(1_000_000_000) && !found[0].is_longer_than(2_000_000_000));
    }
}
