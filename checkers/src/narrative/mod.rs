//! The narrative: findings in sentences, one file a property, and the words that all of them share.
//!
//! The modules of the properties decide and return typed results; these functions turn them into [`Finding`]s, with the events of a proof
//! and the sentences that explain it.

pub(crate) mod calls;
mod drawing;
pub(crate) mod early_loss;
pub(crate) mod exclusion;
pub(crate) mod fairness;
pub(crate) mod fencing;
pub(crate) mod herd;
pub(crate) mod linearizability;
pub(crate) mod lost_update;
mod overlap_cause;
pub(crate) mod phantom;
pub(crate) mod progress;
pub(crate) mod silent_loss;

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::context::Context;
use crate::finding::{Because, Finding, ProofEvent, Property, Verdict, Violation};
use crate::history::names::NONE;
use crate::history::{History, NEMESIS, SERVER};
use crate::limits;
use crate::tickets;
use crate::watched::NotWatched;

/// The likely cause of a release that freed a lock which its owner had acquired more than once.
pub(crate) const EARLY_RELEASE: &str =
    "the release does not count the acquires of its owner: free the lock only with the last release";

/// The likely cause of a hold whose grant belongs to an earlier name of its client.
pub(crate) const OF_AN_EARLIER_SESSION: &str = "the acquire takes the node or key of an earlier session of its client for its own: after a \
     wait, compare its owner with the present session, and begin again if they differ";

/// The likely cause of a value that was overwritten during a hold of its owner.
pub(crate) const OVERWRITTEN: &str = "an acquire wrote over the value of another owner: write it only where there is none (SET NX, a create, \
     a transaction that compares)";

/// The likely cause of a lock of a session that ended in a session that lives.
pub(crate) const RELEASED_BY_ITS_SESSION: &str = "the session that has the lock released it during the hold: look at a rollback, at a \
     pool that resets its connections, and at another release on the same connection";

/// The likely cause of a lock that a request removed without a release of another client: it may be a release that was lost or late.
pub(crate) const REMOVED_BY_A_REQUEST: &str = "a request removed the lock of another client: look at a release that came late, at an acquire \
     that gives up or takes over, and at a close; compare the owner and delete in one atomic step";

/// The likely cause of a lock that the extension of its own holder removed.
pub(crate) const REMOVED_BY_EXTENSION: &str = "an `extend` that is answered ok removed the lock: look at the time to live that it sets, which \
     must not be 0, and at its unit";

/// Returns a length of time in words: `1.84s`, `840ms`, `8.4ms`, `120µs`.
pub(crate) fn length(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{}µs", ns / 1_000),
        1_000_000..10_000_000 => format!("{:.1}ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{:.2}s", ns as f64 / 1e9),
    }
}

/// Returns a known value in brackets, with a space before them: ` (expired)`; empty without one.
pub(crate) fn in_brackets(known: Option<impl Display>) -> String {
    known.map(|known| format!(" ({known})")).unwrap_or_default()
}

/// Returns a time of the run in words: `11.620s`. Successive events of a narrative are often milliseconds apart.
pub(crate) fn at(ns: u64) -> String {
    format!("{:.3}s", ns as f64 / 1e9)
}

/// Returns a number with its noun: `1 hold`, `2 holds`, `11,042 holds`.
pub(crate) fn many(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", thousands(count), if count == 1 { one } else { more })
}

/// Returns a number with separators: `11,042`.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl History {
    /// Returns the name of the client of a dense process: `c3`.
    pub(crate) fn who(&self, process: u32) -> String {
        match process {
            SERVER => "the server".to_owned(),
            NEMESIS => "the nemesis".to_owned(),
            dense => format!("c{}", self.client_of(dense)),
        }
    }

    /// Returns the names of two processes, with their numbers if they have the same client.
    pub(crate) fn both(&self, first: u32, second: u32) -> (String, String) {
        let (a, b) = (self.who(first), self.who(second));
        if a != b {
            return (a, b);
        }
        let numbered = |name: String, process: u32| format!("{name} (process {})", self.processes[process as usize]);
        (numbered(a, first), numbered(b, second))
    }

    /// Returns words for a release beside the removal of a lock at a time: it was pending then, or had been answered shortly before.
    pub(crate) fn beside_release(&self, call: u32, removed_ns: u64) -> String {
        let release = self.event(call);
        let (by, called) = (self.who(release.process), at(release.time));
        match self.reply(release).filter(|reply| reply.time < removed_ns) {
            Some(reply) => {
                let answered = at(reply.time);
                format!("shortly after the release of {by}, called at {called}, was answered at {answered}")
            }
            None => format!("while the release of {by}, called at {called}, was under way"),
        }
    }

    /// Returns one sentence with its events; `NONE` positions are left out.
    pub(crate) fn because(&self, text: impl Into<String>, positions: &[u32]) -> Because {
        let events = positions.iter().filter(|position| **position != NONE);
        let events = events.map(|position| self.index(*position)).collect();
        Because {
            text: text.into(),
            events,
        }
    }

    /// Creates a violation without a proof and without sentences.
    pub(crate) fn violation(&self, class: &str, lock: usize, processes: &[u32], at_ns: u64) -> Violation {
        Violation {
            class: class.to_owned(),
            lock: self
                .locks
                .get(lock)
                .map(|_| self.lock_name(lock).to_owned())
                .unwrap_or_default(),
            processes: processes
                .iter()
                .map(|process| self.processes[*process as usize])
                .collect(),
            clients: processes.iter().map(|process| self.client_of(*process)).collect(),
            at_ns,
            ..Violation::default()
        }
    }
}

impl Context<'_> {
    /// Creates a violation that began at a time, with the number of the last fault window that had started by then.
    pub(crate) fn violation(&self, class: &str, lock: usize, processes: &[u32], at_ns: u64) -> Violation {
        Violation {
            window: self.window_before(at_ns).map(|window| window.number),
            ..self.history.violation(class, lock, processes, at_ns)
        }
    }
}

impl Violation {
    /// Adds an event of the history to the proof.
    pub(crate) fn show(&mut self, history: &History, position: u32, role: impl Into<String>) {
        let event = history.event(position);
        self.events.push(ProofEvent {
            index: history.index(position),
            time_ns: event.time,
            process: history.processes.get(event.process as usize).copied(),
            role: role.into(),
        });
    }

    /// Adds a sentence about events of the history.
    pub(crate) fn say(&mut self, history: &History, text: impl Into<String>, positions: &[u32]) {
        self.because.push(history.because(text, positions));
    }

    /// Adds an event of the history to the proof, and a sentence about it.
    pub(crate) fn step(&mut self, history: &History, position: u32, role: impl Into<String>, text: String) {
        self.show(history, position, role);
        self.say(history, text, &[position]);
    }

    /// Adds a number, by a name with the unit in it.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }
}

impl Finding {
    /// Adds a number, by a name with the unit in it.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }
}

/// Adds a sentence with the largest clock error for which a violation by two overlapping holds is certain, if there may be an error.
pub(crate) fn stands_up_to(context: &Context<'_>, violation: &mut Violation, overlap_ns: u64) {
    if context.clock_error_ns > 0 {
        let up_to_ns = overlap_ns.saturating_sub(1) / 2;
        violation.figure("clock_error_ms", up_to_ns as f64 / 1e6);
        let error = length(up_to_ns);
        let text = format!("The violation is certain while no timestamp is wrong by more than {error}.");
        violation.say(context.history, text, &[]);
    }
}

/// Returns the reason why the observer's lines cannot be compared, as the evidence of the properties that need them.
pub(crate) fn not_watched(context: &Context<'_>) -> &'static str {
    match context.not_watched {
        None | Some(NotWatched::NoObserver) => "no observer watched the server",
        Some(NotWatched::Elsewhere) => "not watched: the observer does not know where the lock is kept",
        Some(NotWatched::NothingSeen) => "not watched: the observer saw no grant of these locks",
        Some(NotWatched::NoNames) => "not watched: no acquire named its token or owner",
        Some(NotWatched::OwnNames) => "not watched: the clients' owners and tokens are the lock's own",
        Some(NotWatched::OtherNames) => "not watched: the clients' owners and tokens are not the server's",
    }
}

/// Returns words for an order of tokens that is the server's, if the clients saw another one; empty if they saw the same.
pub(crate) fn by_the_server(context: &Context<'_>) -> String {
    match tickets::answered_out_of_order(context) {
        0 => String::new(),
        count => format!(
            " on the server, and {} in another order",
            many(count, "answer came", "answers came")
        ),
    }
}

/// Sorts the events of a proof by the history, each once. A recorder may number the lines of each process alone.
fn in_order(events: &mut Vec<ProofEvent>) {
    events.sort_by_key(|step| (step.index, step.time_ns, step.process));
    events.dedup_by_key(|step| (step.index, step.time_ns, step.process));
}

/// Creates a finding without violations.
pub(crate) fn finding(property: Property, verdict: Verdict, evidence: impl Into<String>) -> Finding {
    Finding {
        property,
        verdict,
        evidence: evidence.into(),
        violations: Vec::new(),
        violation_count: 0,
        figures: BTreeMap::new(),
        check_us: 0,
    }
}

/// Creates a violated finding with its first violations; `count` is the number of all.
pub(crate) fn violated(
    property: Property,
    evidence: impl Into<String>,
    violations: impl IntoIterator<Item = Violation>,
    count: u64,
) -> Finding {
    let described = violations.into_iter().take(limits::MAX_VIOLATIONS).enumerate();
    let numbered = described.map(|(place, mut violation)| {
        violation.id = property.violation_id(place);
        in_order(&mut violation.events);
        violation
    });
    Finding {
        violations: numbered.collect(),
        violation_count: count,
        ..finding(property, Verdict::Violated, evidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_like_times() {
        assert_eq!(length(1_840_000_000), "1.84s");
        assert_eq!(length(840_900_000), "840ms");
        assert_eq!(length(8_440_000), "8.4ms");
        assert_eq!(length(120_999), "120µs");
        assert_eq!(at(11_620_400_000), "11.620s");
    }

    #[test]
    fn lines_of_equal_numbers_stay_in_a_proof() {
        let event = |process: u32, time_ns: u64| ProofEvent {
            index: 1,
            time_ns,
            process: Some(process),
            role: String::new(),
        };
        let mut events = vec![event(2, 9), event(1, 5), event(2, 9)];
        in_order(&mut events);
        assert_eq!(events, [event(1, 5), event(2, 9)]);
    }

    #[test]
    fn counts_read_like_counts() {
        assert_eq!(many(1, "hold", "holds"), "1 hold");
        assert_eq!(many(11_042, "hold", "holds"), "11,042 holds");
        assert_eq!(thousands(1_000_000), "1,000,000");
        assert_eq!(thousands(999), "999");
    }
}
