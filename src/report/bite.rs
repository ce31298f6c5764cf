//! Did it bite? What each fault window really did, and whether that is enough for a pass to mean anything.

use harness_checkers::{Findings, History, Verdict, Window};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::words::many;
use crate::evidence::{Evidence, bytes_in_words};

/// What one fault window did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bitten {
    pub number: u32,
    pub fault: String,
    pub title: String,
    pub start_ns: u64,
    /// `None` when the history ends before the heal.
    pub heal_ns: Option<u64>,
    pub targets: Vec<String>,
    pub evidence: Evidence,
    /// Times that a client's library said, while it was on, that its lock was lost.
    pub locks_lost: u64,
    /// Acquires that were answered while it was on.
    pub acquires: u64,
    /// Grants that the servers took back because a session, lease or key had run out.
    pub expired: u64,
    /// Whether it left a trace.
    pub bit: bool,
    /// The property that no lock with a lease keeps under this fault: where it holds although the lock runs out, the
    /// fault missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaks: Option<String>,
    /// Why it struck nobody, or not hard enough, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

impl Bitten {
    /// Why it struck nobody, or not hard enough, in a sentence.
    pub fn missed_in_words(&self) -> Option<String> {
        let how = if self.targets.is_empty() {
            "struck nobody"
        } else {
            "missed"
        };
        let missed = self.missed.as_ref()?;
        Some(format!("window {} {how}: {missed}", self.number))
    }
}

/// All windows of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Bite {
    pub windows: Vec<Bitten>,
    /// One line for a person.
    pub evidence: String,
    /// Why a pass would mean nothing; `None` when it means something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_little: Option<String>,
    /// What a user can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Reads what the windows did from the history.
pub fn bite(history: &History, planned_windows: u32) -> Bite {
    let windows: Vec<Bitten> = history.windows().iter().map(|window| bitten(history, window)).collect();
    let mut bite = Bite {
        evidence: in_words(&windows, planned_windows),
        windows,
        too_little: None,
        hint: None,
    };
    let counts = history.counts();
    let harness_run = !history.phases().is_empty();
    if harness_run && counts.acquires_ok < history.clients().len() as u64 {
        bite.too_little = Some(format!(
            "only {} by {}",
            many(counts.acquires_ok, "acquire"),
            many(history.clients().len() as u64, "client")
        ));
        bite.hint = Some("give them more time (--time), or shorter holds (--hold)".to_owned());
    } else if let [first, ..] = toothless(&bite.windows)[..] {
        let of_it = bite.windows.iter().filter(|window| window.fault == first).count() as u64;
        bite.too_little = Some(format!("0 of {} of {first} touched anything", many(of_it, "window")));
        bite.hint = Some(hint_for(first, &bite.windows));
    } else if harness_run && planned_windows > 0 && bite.windows.is_empty() {
        bite.too_little = Some("no fault window was opened".to_owned());
        bite.hint = Some("let it run to its end".to_owned());
    }
    bite
}

/// What a user can do about a fault that struck nothing.
fn hint_for(fault: &str, windows: &[Bitten]) -> String {
    let mut of_it = windows.iter().filter(|window| window.fault == fault);
    if of_it.any(|window| window.evidence.clocks_stepped > 0) {
        return "the struck process read no wall clock, or not through a C library that it is linked to: this lock \
                is none for this fault"
            .to_owned();
    }
    "raise contention: --clients 12 --locks 1; or lengthen the windows: --window 10s".to_owned()
}

/// Why a fault that breaks what it hits must have missed: it struck as it should, and the property holds all the same.
/// A lock that never runs out is not broken by what outlasts a lease; a server that forgets it breaks that one, too.
pub fn unbroken(bite: &Bite, findings: &Findings, history: &History) -> Option<String> {
    let runs_out = history.header().promises.lease != Some(false);
    let breaks_it = |window: &&Bitten| runs_out || window.evidence.servers_promoted > 0;
    let holds = |id: &str| {
        let mut found = findings.findings.iter().filter(|finding| finding.property.id() == id);
        found.any(|finding| finding.verdict == Verdict::Holds)
    };
    let window = bite
        .windows
        .iter()
        .filter(breaks_it)
        .find(|window| window.breaks.as_deref().is_some_and(holds))?;
    let property = window.breaks.as_deref().unwrap_or_default();
    if window.evidence.servers_promoted > 0 {
        return Some(format!(
            "{} breaks {property} in any lock that is on one server, and {property} holds: it missed",
            window.fault
        ));
    }
    Some(format!(
        "{} breaks {property} in any lock with a lease, and {property} holds: it missed, or the lock never runs out",
        window.fault
    ))
}

/// What a window had to achieve and did not: written by the schedule as `demand`, in the words of the plan.
fn short_of_its_demand(demand: Option<&Value>, evidence: &Evidence) -> Option<String> {
    let wanted = demand?.get("stopped_ms")?.as_u64()?;
    (evidence.stopped_ms < wanted).then(|| {
        format!(
            "whoever it struck stood still for {} ms, and the lease is {wanted} ms",
            evidence.stopped_ms
        )
    })
}

fn bitten(history: &History, window: &Window) -> Bitten {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let facts = window.heal.get("evidence");
    let evidence: Evidence = facts
        .and_then(|facts| serde_json::from_value(facts.clone()).ok())
        .unwrap_or_default();
    let number = |name: &str| {
        facts
            .and_then(|facts| facts.get(name))
            .and_then(Value::as_u64)
            .unwrap_or(0)
    };
    let demand = window.heal.get("requirement").or_else(|| window.heal.get("demand"));
    let missed = text(window.heal.get("missed")).or_else(|| short_of_its_demand(demand, &evidence));
    let targets = window
        .start
        .get("targets")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    Bitten {
        number: window.number,
        fault: window.fault.clone(),
        title: text(window.start.get("title")).unwrap_or_default(),
        start_ns: window.start_ns,
        heal_ns: window.heal_ns,
        targets: targets.filter_map(|target| text(Some(target))).collect(),
        locks_lost: number("locks_lost"),
        acquires: number("acquires"),
        expired: expired(history, window),
        bit: missed.is_none() && left_its_trace(&window.fault, &evidence),
        breaks: demand.and_then(|demand| text(demand.get("breaks"))),
        evidence,
        missed,
    }
}

/// Whether a fault left the trace that only it leaves: windows that overlap share their links' counters.
fn left_its_trace(fault: &str, evidence: &Evidence) -> bool {
    let counts = &evidence.counts;
    match fault {
        "partition" => counts.held_bytes + counts.held_connects > 0,
        "latency" | "slow" => counts.delayed_bytes > 0,
        "reset" | "flaky" => counts.resets > 0,
        "drop-request" | "drop-reply" => evidence.messages_dropped > 0,
        "delay-request" | "delay-reply" => evidence.messages_delayed > 0,
        "failover" => evidence.servers_promoted > 0,
        _ => evidence.touched(),
    }
}

/// The faults that were tried and of which no window bit.
fn toothless(windows: &[Bitten]) -> Vec<&str> {
    let mut faults: Vec<&str> = windows.iter().map(|window| window.fault.as_str()).collect();
    faults.sort_unstable();
    faults.dedup();
    faults.retain(|fault| !windows.iter().any(|window| window.fault == *fault && window.bit));
    faults
}

fn expired(history: &History, window: &Window) -> u64 {
    let end = window.heal_ns.unwrap_or(u64::MAX);
    let expired = history.entries().filter(|entry| {
        entry.f == harness_checkers::F::Revoked
            && entry.cause == Some("expired")
            && (window.start_ns..=end).contains(&entry.time_ns)
    });
    expired.count() as u64
}

fn in_words(windows: &[Bitten], planned: u32) -> String {
    if windows.is_empty() {
        let none = if planned > 0 {
            "no fault window was opened"
        } else {
            "no fault was asked for"
        };
        return none.to_owned();
    }
    let sum = |of: fn(&Bitten) -> u64| windows.iter().map(of).sum::<u64>();
    let bit = windows.iter().filter(|window| window.bit).count();
    let bytes = sum(|window| window.evidence.counts.held_bytes);
    let delayed = sum(|window| window.evidence.counts.delayed_bytes);
    let counts = [
        (
            sum(|window| window.evidence.counts.held_connects),
            "connect",
            " unanswered",
        ),
        (sum(|window| window.evidence.counts.refused), "connect", " refused"),
        (sum(|window| window.evidence.counts.resets), "connection", " reset"),
        (sum(|window| window.evidence.messages_dropped), "message", " dropped"),
        (sum(|window| window.evidence.messages_delayed), "message", " delayed"),
        (sum(|window| window.evidence.clients_stopped), "client", " stopped"),
        (sum(|window| window.evidence.clients_killed), "client", " killed"),
        (sum(|window| window.evidence.servers_paused), "server", " paused"),
        (sum(|window| window.evidence.servers_killed), "server", " killed"),
        (sum(|window| window.evidence.servers_promoted), "replica", " promoted"),
        (
            sum(|window| window.evidence.clock_readings),
            "reading",
            " of a stepped clock",
        ),
        (sum(|window| window.expired), "grant", " expired on the servers"),
        (sum(|window| window.locks_lost), "holder", " told of a loss"),
        (sum(|window| window.acquires), "acquire", " while a fault was on"),
    ];
    let mut words = vec![format!("{bit} of {}", many(windows.len() as u64, "fault window"))];
    for (bytes, how) in [(bytes, "held back"), (delayed, "delayed")] {
        if bytes > 0 {
            words.push(format!("{} {how}", bytes_in_words(bytes)));
        }
    }
    let counted = counts.iter().filter(|(count, ..)| *count > 0);
    words.extend(counted.map(|(count, what, how)| format!("{}{how}", many(*count, what))));
    let all = words.join(", ");
    all.replacen(", ", ": ", 1)
}

#[cfg(test)]
mod tests {
    use harness_checkers::ReadOptions;

    use super::*;

    fn history(windows: &[(&str, &str)]) -> History {
        let mut lines = vec![r#"{"format":"harness-history","version":1,"locks":["l0"]}"#.to_owned()];
        let mut line = |text: String| {
            let index = lines.len();
            lines.push(format!(
                r#"{{"index":{index},"time":{index},"process":"nemesis","type":"info",{text}}}"#
            ));
        };
        for (number, (fault, evidence)) in windows.iter().enumerate() {
            line(format!(
                r#""f":"{fault}","window":{number},"phase":"start","targets":["c0"]"#
            ));
            line(format!(
                r#""f":"{fault}","window":{number},"phase":"heal","evidence":{{{evidence}}}"#
            ));
        }
        History::read(lines.join("\n").as_bytes(), &ReadOptions::default()).unwrap()
    }

    #[test]
    fn a_fault_that_never_bit_is_too_little_whatever_another_did() {
        let delayed = r#""links":3,"bytes":9,"held_bytes":0,"delayed_bytes":9,"connections":0,"held_connects":0,"refused":0,"resets":0"#;
        let both = bite(&history(&[("partition", delayed), ("latency", delayed)]), 2);
        assert!(both.too_little.is_some_and(|why| why.contains("partition")));
        assert!(bite(&history(&[("latency", delayed)]), 1).too_little.is_none());
    }

    fn paused_holder(promises: &str) -> History {
        let lines = [
            format!(r#"{{"format":"harness-history","version":1,"locks":["l0"],"promises":{{{promises}}}}}"#),
            r#"{"index":1,"time":1,"process":0,"type":"invoke","f":"acquire","lock":"l0"}"#.to_owned(),
            r#"{"index":2,"time":2,"process":0,"type":"ok","f":"acquire","lock":"l0"}"#.to_owned(),
            r#"{"index":3,"time":3,"process":"nemesis","type":"info","f":"pause-holder","window":1,"phase":"start","targets":["c0"]}"#.to_owned(),
            r#"{"index":4,"time":4,"process":"nemesis","type":"info","f":"pause-holder","window":1,"phase":"heal","demand":{"stopped_ms":1,"breaks":"HL001"},"evidence":{"clients_stopped":1,"stopped_ms":9}}"#.to_owned(),
        ];
        History::read(lines.join("\n").as_bytes(), &ReadOptions::default()).unwrap()
    }

    #[test]
    fn a_pause_that_breaks_nothing_missed_unless_the_lock_never_runs_out() {
        let missed = |promises| {
            let history = paused_holder(promises);
            let findings = harness_checkers::check(&history, &harness_checkers::Options::default());
            unbroken(&bite(&history, 1), &findings, &history)
        };
        assert!(missed(r#""lease":true"#).is_some_and(|why| why.contains("HL001")));
        assert!(missed("").is_some(), "nobody said that it has no lease");
        assert_eq!(missed(r#""lease":false"#), None);
    }

    #[test]
    fn a_heal_without_evidence_is_no_bite() {
        let none = bite(&history(&[("reset", "")]), 1);
        assert!(!none.windows[0].bit);
        assert!(none.too_little.is_some());
    }
}
