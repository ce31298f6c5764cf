//! The terms of a leader: the times in which candidates certainly led, by their log lines, as a history that the checkers decide.
//!
//! A line is about an event before it. So a term certainly began when its first line was read. Its end is certain only through a
//! line that was written after it: the one about the end of leading, or one about work that only a leader does. Such a line was
//! not in the log at some known moment, and is written within a delay of its event: at that moment, less the delay, the candidate
//! still led. A term without such a line proves nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::log_follower::FollowedLine;
use super::watching::LeaseRecord;

/// The meaning of a log line for its candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineSays {
    /// It does not lead yet.
    Campaigning,
    Leading,
    /// It does work that only a leader does.
    Working,
    Stopped,
}

/// A term of a leader, between a line about its begin and one about its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderTerm {
    pub candidate: usize,
    /// A reading of `CLOCK_MONOTONIC` at which it had begun, in nanoseconds.
    pub began: u64,
    /// A reading at which it had not ended: the candidate certainly led from `began` until then.
    pub led_until: u64,
    /// The lines that prove both.
    first: String,
    last: String,
}

impl LeaderTerm {
    pub fn is_certain(&self) -> bool {
        self.led_until > self.began
    }
}

/// Returns the terms of these lines, in the order in which they were read. `delay` is the longest time from an event to its line,
/// in nanoseconds; nothing before `start` is judged.
pub fn terms(lines: &[(LineSays, FollowedLine)], start: u64, delay: u64) -> Vec<LeaderTerm> {
    let mut terms: Vec<LeaderTerm> = Vec::new();
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    let mut heard = BTreeSet::new();
    for (says, line) in lines {
        let is_first = heard.insert(line.candidate);
        // a candidate whose first line is about a leader's work led before the log was read
        let begins = *says == LineSays::Leading || (*says == LineSays::Working && is_first);
        if begins || *says == LineSays::Campaigning {
            // its last term ended without a line, as that of a killed process
            open.remove(&line.candidate);
        }
        if begins {
            open.insert(line.candidate, terms.len());
            let began = line.by.max(start);
            terms.push(LeaderTerm {
                candidate: line.candidate,
                began,
                led_until: began,
                first: line.text.clone(),
                last: String::new(),
            });
        }
        let Some(&at) = open.get(&line.candidate) else { continue };
        let term = &mut terms[at];
        let led_until = line.not_before.saturating_sub(delay);
        if led_until > term.led_until {
            term.led_until = led_until;
            term.last = line.text.clone();
        }
        if *says == LineSays::Stopped {
            open.remove(&line.candidate);
        }
    }
    terms
}

/// The holder of the Lease from a moment on; `None` if it had none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenHolder {
    pub at: u64,
    pub lease: Option<LeaseRecord>,
}

/// Returns the lines of a history: an acquire and a release for each certain term, and the holders of the Lease. Times count from
/// `start`; `candidates` has the names of the candidates.
///
/// A term has only its certain part, so calls are answered in the same moment.
pub fn history(
    run: &str,
    lock: &str,
    candidates: &[&str],
    terms: &[LeaderTerm],
    holders: &[SeenHolder],
    start: u64,
) -> String {
    let mut lines: Vec<(u64, Value)> = Vec::new();
    for (process, term) in terms.iter().filter(|term| term.is_certain()).enumerate() {
        let mut add = |at: u64, f: &str, log: &str| {
            for kind in ["invoke", "ok"] {
                let line = json!({
                    "process": process, "client": term.candidate, "candidate": candidates[term.candidate],
                    "type": kind, "f": f, "lock": lock, "log": log,
                });
                lines.push((at, line));
            }
        };
        add(term.began, "acquire", &term.first);
        add(term.led_until, "release", &term.last);
    }
    let mut had: Option<(String, Option<u64>)> = None;
    for SeenHolder { at, lease } in holders {
        let has = lease
            .as_ref()
            .and_then(|lease| Some((lease.holder.clone()?, lease.transitions)));
        if has == had {
            continue;
        }
        let mut add = |f: &str, (owner, token): &(String, Option<u64>)| {
            let mut line = json!({ "process": "server", "type": "signal", "f": f, "lock": lock, "owner": owner });
            if let Some(token) = token {
                line["token"] = (*token).into();
            }
            lines.push((*at, line));
        };
        had.iter().for_each(|was| add("revoked", was));
        has.iter().for_each(|is| add("granted", is));
        had = has;
    }
    lines.sort_by_key(|(at, _)| *at);
    let header = json!({
        "format": "harness-history", "version": 1, "run": run, "model": "mutex", "locks": [lock], "backend": "kube-lease",
        // the names of candidates are not those in the Lease
        "promises": { "owner": "none", "token": "none", "watched": false },
    });
    let numbered = lines.into_iter().zip(1_u64..).map(|((at, mut line), index)| {
        line["index"] = index.into();
        line["time"] = at.saturating_sub(start).into();
        format!("{line}\n")
    });
    format!("{header}\n{}", numbered.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Parses lines of candidates with the second in which they are read: `0 leads 5, 0 stops 15`.
    fn lines(text: &str) -> Vec<(LineSays, FollowedLine)> {
        let line = |text: &str| {
            let [candidate, word, read_s] = text.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{text}")
            };
            let says = match word {
                "campaigns" => LineSays::Campaigning,
                "leads" => LineSays::Leading,
                "works" => LineSays::Working,
                "stops" => LineSays::Stopped,
                other => panic!("{other}"),
            };
            let by = (read_s.parse::<f64>().unwrap() * SECOND as f64) as u64;
            let line = FollowedLine {
                candidate: candidate.parse().unwrap(),
                text: text.to_owned(),
                not_before: by - SECOND / 50,
                by,
            };
            (says, line)
        };
        text.split(", ").map(line).collect()
    }

    fn overlap(lines: &[(LineSays, FollowedLine)]) -> bool {
        let mut terms = terms(lines, 0, SECOND);
        terms.retain(LeaderTerm::is_certain);
        let both = |one: &LeaderTerm, other: &LeaderTerm| {
            one.candidate != other.candidate && one.began.max(other.began) < one.led_until.min(other.led_until)
        };
        terms.iter().any(|one| terms.iter().any(|other| both(one, other)))
    }

    #[test]
    fn two_terms_overlap_only_where_lines_prove_that_both_led() {
        for (why, text, both) in [
            (
                "it says so late, and had stopped by 9.9 s",
                "0 leads 5, 1 leads 10, 0 stops 10.9, 1 stops 20",
                false,
            ),
            (
                "it stopped later than lines may be late",
                "0 leads 5, 1 leads 10, 0 stops 12, 1 stops 20",
                true,
            ),
            (
                "no line tells of the end of its first term",
                "0 leads 5, 1 leads 10, 1 stops 20, 0 leads 25",
                false,
            ),
            ("it works on", "0 leads 5, 1 leads 10, 0 works 15, 1 stops 20", true),
            (
                "it led before its log was read",
                "0 works 5, 1 leads 10, 0 works 15, 1 stops 20",
                true,
            ),
            (
                "the last work of a leader that has said its end is no term",
                "0 stops 5, 0 works 6, 1 leads 10, 0 works 15, 1 stops 20",
                false,
            ),
            (
                "it was killed, and the process after it ends as one of client-go that did not lead: with OnStoppedLeading",
                "0 campaigns 4, 0 leads 5, 0 campaigns 8, 1 leads 15, 0 stops 25, 1 stops 30",
                false,
            ),
        ] {
            assert_eq!(overlap(&lines(text)), both, "{why}: {text}");
        }
    }

    #[test]
    fn a_term_that_began_before_the_watch_begins_with_it_and_one_that_was_over_proves_nothing() {
        let lines = lines("0 leads 30, 1 leads 10, 1 stops 20, 0 stops 110");
        let terms = terms(&lines, 100 * SECOND, SECOND);
        let is_certain: Vec<bool> = terms.iter().map(LeaderTerm::is_certain).collect();
        assert_eq!((is_certain, terms[0].began), (vec![true, false], 100 * SECOND));
    }

    // a release that took its time would be judged by HL011
    #[test]
    fn a_history_has_the_certain_part_of_a_term_and_its_log_lines() {
        let terms = terms(&lines("0 leads 5, 0 works 15"), 0, SECOND);
        let text = history("r", "op", &["a"], &terms, &[], 0);
        let events = text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap());
        let events: Vec<Value> = events.collect();
        for (event, f, time, log) in [
            (0, "acquire", 5 * SECOND, "0 leads 5"),
            (2, "release", 14 * SECOND - SECOND / 50, "0 works 15"),
        ] {
            // the call, and its answer in the same moment
            for event in &events[event..event + 2] {
                let told = (&event["f"], &event["time"], &event["log"]);
                assert_eq!(told, (&json!(f), &json!(time), &json!(log)));
            }
        }
        assert_eq!(events[3]["candidate"], "a");
    }
}
