//! The effect of faults: the result of each window, and whether the effects are evidence for a pass.
//!
//! All facts are in the history, as the fault declared them. Histories from before such declarations are read by the name of
//! their fault (`of_old_runs`).

use std::collections::BTreeSet;

use harness_checkers::history::event::Kind;
use harness_checkers::history::{Acquires, EffectCounters, NemesisFact, PhaseFact, Requirement};
use harness_checkers::{F, Findings, History, Verdict, Window};
use serde::{Deserialize, Serialize};

use super::words::many;
use crate::evidence::{Evidence, EvidenceCounter};

/// The effect of one fault window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowEffect {
    pub number: u32,
    pub fault: String,
    pub title: String,
    pub start_ns: u64,
    /// `None` when the history ends before the heal.
    pub heal_ns: Option<u64>,
    pub targets: Vec<String>,
    pub evidence: Evidence,
    /// The evidence in the words of the fault.
    #[serde(default)]
    pub did: String,
    /// Signals while it was active that a client's lock is lost.
    pub locks_lost: u64,
    /// Acquires that succeeded while it was active.
    pub acquires: u64,
    /// Grants that the servers ended because a session, lease or key had expired.
    pub expired: u64,
    /// Whether it had an effect: a trace, and no reason in `missed`.
    #[serde(alias = "bit")]
    pub had_effect: bool,
    /// The property that no lock with a lease keeps under this fault: if it holds although the lease expires, the fault missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaks: Option<String>,
    /// Whether the fault violates it even in locks that never expire.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub breaks_without_lease: bool,
    /// The reason for which it had no target or too little effect, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// The fault's own hint for a run in which none of its windows had an effect, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the history has a count of acquires.
    #[serde(skip)]
    counted_acquires: bool,
    /// Whether clients could acquire while it was active. Older histories do not record it.
    #[serde(skip)]
    acquires_go_on: bool,
    /// Whether it acted on one message and ended at once, so that a lack of acquires meanwhile proves nothing.
    #[serde(skip)]
    act: bool,
    /// The names of the fault's counters.
    #[serde(skip)]
    counters: Vec<EvidenceCounter<String>>,
}

impl WindowEffect {
    /// Returns a sentence with the reason for which it had no target or too little effect.
    pub fn missed_in_words(&self) -> Option<String> {
        let how = if self.targets.is_empty() {
            "had no target"
        } else {
            "missed"
        };
        let missed = self.missed.as_ref()?;
        Some(format!("window {} {how}: {missed}", self.number))
    }
}

/// The effects of all windows of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunEffect {
    pub windows: Vec<WindowEffect>,
    /// The evidence in one line.
    pub evidence: String,
    /// The reason for which a pass would mean nothing; `None` if it has a meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_little: Option<String>,
    /// The sentence of a run in which no acquire succeeded in any window, although clients tried and the faults allowed acquires:
    /// without a violation, it proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_vain: Option<String>,
    /// A hint for the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Reads the effects of the windows from a history.
pub fn effect_of(history: &History, planned_windows: u32) -> RunEffect {
    let windows = history.windows();
    let expired = if windows.is_empty() {
        Vec::new()
    } else {
        expired(history)
    };
    let windows: Vec<WindowEffect> = windows.iter().map(|window| window_effect(window, &expired)).collect();
    let harness_run = !history.phases().is_empty();
    let counted = many(windows.len() as u64, "fault window");
    let mut effect = RunEffect {
        evidence: match windows.is_empty() {
            _ if harness_run => in_words(&windows, planned_windows),
            true => "no fault was asked for".to_owned(),
            false => format!("{counted} of another recorder, which counts no effects"),
        },
        windows,
        too_little: None,
        in_vain: None,
        hint: None,
    };
    // another recorder writes the acts of its nemesis, and counts no effects
    if !harness_run {
        return effect;
    }
    let counts = history.counts();
    if counts.acquires_ok < history.clients().len() as u64 {
        let clients = many(history.clients().len() as u64, "client");
        effect.too_little = Some(format!("only {} by {clients}", many(counts.acquires_ok, "acquire")));
        effect.hint = Some("give them more time (--time), or shorter holds (--hold)".to_owned());
    } else if is_any(history) {
        effect.too_little = mostly_without_effect(&effect.windows);
        effect.hint = effect.too_little.is_some().then(|| hint_for("any", &effect.windows));
    } else if let [first, ..] = without_effect(&effect.windows)[..] {
        let of_it = effect.windows.iter().filter(|window| window.fault == first).count() as u64;
        effect.too_little = Some(format!("0 of {} of {first} had an effect", many(of_it, "window")));
        effect.hint = Some(hint_for(first, &effect.windows));
    } else if let Some(tried) = tried_in_vain(history, &effect.windows) {
        let failed = many(tried, "attempt");
        effect.in_vain = Some(format!("0 acquires in {counted}, and {failed} failed"));
        effect.hint = Some(
            "give the lock time to recover while the fault is active (--window), or choose a narrower fault".to_owned(),
        );
    } else if planned_windows > 0 && effect.windows.is_empty() {
        effect.too_little = Some("no fault window was opened".to_owned());
        effect.hint = Some("let it run to its end".to_owned());
    }
    effect
}

/// Returns the number of acquires that failed under faults that allow acquires, if none succeeded in any window. A lock that never
/// expires is not judged: it stays with the holder that a fault cut off.
fn tried_in_vain(history: &History, windows: &[WindowEffect]) -> Option<u64> {
    let counted = |window: &WindowEffect| window.counted_acquires && window.acquires == 0;
    if history.header().promises.lease == Some(false) || !windows.iter().all(counted) {
        return None;
    }
    let end = |window: &WindowEffect| window.heal_ns.unwrap_or(u64::MAX);
    let beside = |one: &WindowEffect, other: &WindowEffect| one.start_ns <= end(other) && other.start_ns <= end(one);
    let possible = |window: &&WindowEffect| {
        if window.act {
            return false;
        }
        let mut stopping = windows.iter().filter(|other| !other.acquires_go_on);
        !stopping.any(|other| beside(window, other))
    };
    let possible: Vec<&WindowEffect> = windows.iter().filter(possible).collect();
    let failed = history.entries_of(F::Acquire).filter(|entry| {
        let ended = matches!(entry.kind, Kind::Fail | Kind::Info);
        let within = |window: &&WindowEffect| (window.start_ns..=end(window)).contains(&entry.time_ns);
        ended && possible.iter().any(within)
    });
    Some(failed.count() as u64).filter(|failed| *failed > 0)
}

/// Returns the hint for a fault without effect: its own if it was injected, otherwise the general one.
fn hint_for(fault: &str, windows: &[WindowEffect]) -> String {
    let injected = |window: &&WindowEffect| window.fault == fault && !window.targets.is_empty();
    let own = windows.iter().filter(injected).find_map(|window| window.hint.clone());
    own.unwrap_or_else(|| "raise contention: --clients 12 --locks 1; or lengthen the windows: --window 10s".to_owned())
}

/// Returns the reason for which a fault that breaks every lock of a kind must have missed: the property holds. A lock that never
/// expires survives an absence longer than a lease, but not a server that loses its data.
pub fn unbroken(effect: &RunEffect, findings: &Findings, history: &History) -> Option<String> {
    let runs_out = history.header().promises.lease != Some(false);
    let breaks_it = |window: &&WindowEffect| runs_out || window.breaks_without_lease;
    let holds = |id: &str| {
        let mut found = findings.findings.iter().filter(|finding| finding.property.id() == id);
        found.any(|finding| finding.verdict == Verdict::Holds)
    };
    let window = effect
        .windows
        .iter()
        .filter(breaks_it)
        .find(|window| window.breaks.as_deref().is_some_and(holds))?;
    let property = window.breaks.as_deref().unwrap_or_default();
    if window.breaks_without_lease {
        return Some(format!(
            "{} breaks {property} in any lock on one server, and {property} holds: the fault missed",
            window.fault
        ));
    }
    Some(format!(
        "{} breaks {property} in any lock with a lease, and {property} holds: the fault missed, or the lock never expires",
        window.fault
    ))
}

/// Returns a sentence if a window did not meet its requirement.
fn short_of(requirement: &Requirement, evidence: &Evidence) -> Option<String> {
    let wanted = requirement.stopped_ms?;
    let stopped = evidence.get("stopped_ms");
    (stopped < wanted).then(|| format!("its target was stopped for {stopped} ms, and the lease is {wanted} ms"))
}

/// `expired`: the times at which servers ended expired grants.
fn window_effect(window: &Window, expired: &[u64]) -> WindowEffect {
    let healed = window.healed.clone().unwrap_or_default();
    let counted = &healed.evidence;
    let evidence = Evidence::from_counters(counted.iter().filter(|(key, _)| !SEEN_BY_CLIENTS.contains(key)));
    let requirement = healed.requirement.unwrap_or_default();
    let missed = healed.missed.or_else(|| short_of(&requirement, &evidence));
    let left_trace = healed
        .left_trace
        .unwrap_or_else(|| of_old_runs::left_trace(&window.fault, &evidence));
    let counters = healed.counters;
    WindowEffect {
        number: window.number,
        fault: window.fault.clone(),
        title: window.started.title.clone(),
        start_ns: window.start_ns,
        heal_ns: window.heal_ns,
        targets: window.started.targets.clone(),
        locks_lost: counted.get(EffectCounters::LOCKS_LOST),
        acquires: counted.get(EffectCounters::ACQUIRES),
        counted_acquires: counted.iter().any(|(name, _)| name == EffectCounters::ACQUIRES),
        expired: during(window, expired),
        had_effect: missed.is_none() && left_trace,
        breaks: requirement.breaks,
        breaks_without_lease: requirement.even_without_lease || of_old_runs::breaks_without_lease(&evidence),
        did: healed.effect.unwrap_or_else(|| evidence.in_words(&counters)),
        evidence,
        missed,
        hint: healed.no_effect_hint,
        acquires_go_on: healed.acquires_meanwhile == Some(Acquires::GoOn),
        act: healed.matched.is_some(),
        counters,
    }
}

/// Counters of the clients' view while a fault was active, next to those of the fault.
const SEEN_BY_CLIENTS: [&str; 3] = [
    EffectCounters::LOCKS_LOST,
    EffectCounters::ACQUIRES,
    EffectCounters::UNKNOWN,
];

/// Histories from before faults declared these facts.
mod of_old_runs {
    use super::Evidence;

    /// Whether a fault left a trace that is its own: overlapping windows share the counters of their links.
    pub fn left_trace(fault: &str, evidence: &Evidence) -> bool {
        let any = |keys: &[&str]| keys.iter().any(|key| evidence.get(key) > 0);
        match fault {
            "partition" => any(&["dropped_packets", "held_bytes", "held_connects"]),
            "latency" | "slow" => any(&["delayed_bytes"]),
            "reset" | "flaky" => any(&["resets"]),
            "drop-request" | "drop-reply" => any(&["messages_dropped"]),
            "delay-request" | "delay-reply" => any(&["messages_delayed"]),
            "failover" => any(&["servers_promoted"]),
            "pause" | "pause-holder" | "pause-waiter" => any(&["stopped_ms"]) && any(&["clients_stopped"]),
            "server-pause" => any(&["stopped_ms"]) && any(&["servers_paused"]),
            "clock" => any(&["clock_readings"]),
            _ => {
                let killed = any(&["clients_killed", "servers_killed"]);
                let links = ["held_bytes", "delayed_bytes", "held_connects", "refused", "resets"];
                killed || any(&links)
            }
        }
    }

    /// A failover also loses a lock that never expires.
    pub fn breaks_without_lease(evidence: &Evidence) -> bool {
        evidence.get("servers_promoted") > 0
    }
}

/// Returns the faults of which no window had an effect.
fn without_effect(windows: &[WindowEffect]) -> Vec<&str> {
    let mut faults: Vec<&str> = windows.iter().map(|window| window.fault.as_str()).collect();
    faults.sort_unstable();
    faults.dedup();
    faults.retain(|fault| !windows.iter().any(|window| window.fault == *fault && window.had_effect));
    faults
}

/// Whether the run had `--fault any`.
fn is_any(history: &History) -> bool {
    let mut facts = history.nemesis().iter();
    facts.any(|line| matches!(line.fact, NemesisFact::Phase(PhaseFact::Faults { any: true, .. })))
}

/// Returns a reason if most of the faults of `--fault any` had no effect. Single ones may not apply to this lock.
fn mostly_without_effect(windows: &[WindowEffect]) -> Option<String> {
    let faults: BTreeSet<&str> = windows.iter().map(|window| window.fault.as_str()).collect();
    let without = without_effect(windows).len();
    let (all, with) = (faults.len() as u64, faults.len().saturating_sub(without) as u64);
    (all > 0 && with * 2 < all).then(|| format!("{with} of {} had an effect", many(all, "fault")))
}

/// Returns the times at which servers ended expired grants. Computed once, and not for each window: parsing an event is expensive.
fn expired(history: &History) -> Vec<u64> {
    let revoked = history.entries_of(F::Revoked);
    let revoked = revoked.filter(|entry| entry.cause == Some("expired"));
    revoked.map(|entry| entry.time_ns).collect()
}

fn during(window: &Window, times: &[u64]) -> u64 {
    let end = window.heal_ns.unwrap_or(u64::MAX);
    let within = times.iter().filter(|time| (window.start_ns..=end).contains(*time));
    within.count() as u64
}

fn in_words(windows: &[WindowEffect], planned: u32) -> String {
    if windows.is_empty() {
        let none = if planned > 0 {
            "no fault window was opened"
        } else {
            "no fault was asked for"
        };
        return none.to_owned();
    }
    let bit = windows.iter().filter(|window| window.had_effect).count();
    let mut all = Evidence::default();
    let mut counters: Vec<EvidenceCounter<String>> = Vec::new();
    for window in windows {
        all = all.plus(&window.evidence);
        for counter in &window.counters {
            if !counters.contains(counter) {
                counters.push(counter.clone());
            }
        }
    }
    // overlapping windows act on the same links: neither links nor times add up
    all.links = 0;
    all.counters.retain(|key, _| !key.ends_with("_ms"));
    let sum = |of: fn(&WindowEffect) -> u64| windows.iter().map(of).sum::<u64>();
    let seen = [
        (sum(|window| window.expired), "grant", " expired on the servers"),
        (sum(|window| window.locks_lost), "holder", " told of a loss"),
        (sum(|window| window.acquires), "acquire", " while a fault was active"),
    ];
    let mut words = vec![all.in_words(&counters)];
    // a count of zero acquires is worth mentioning
    let counted = windows.iter().any(|window| window.counted_acquires);
    let seen = seen
        .iter()
        .filter(|(count, what, _)| *count > 0 || (counted && *what == "acquire"));
    words.extend(seen.map(|(count, what, how)| format!("{}{how}", many(*count, what))));
    words.retain(|word| !word.is_empty());
    let bit = format!("{bit} of {}", many(windows.len() as u64, "fault window"));
    if words.is_empty() {
        return bit;
    }
    format!("{bit}: {}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use harness_checkers::ReadOptions;

    use super::*;
    use crate::report::test_history::{history_of, history_with};

    fn history(windows: &[(&str, &str)]) -> History {
        let mut lines = vec![r#""f":"phase","phase":"faults","windows":2"#.to_owned()];
        for (number, (fault, evidence)) in windows.iter().enumerate() {
            let window = format!(r#""f":"{fault}","window":{number}"#);
            lines.push(format!(r#"{window},"phase":"start","targets":["c0"]"#));
            lines.push(format!(r#"{window},"phase":"heal","evidence":{{{evidence}}}"#));
        }
        history_of((1_u64..).zip(lines))
    }

    #[test]
    fn a_fault_that_never_bit_is_too_little_whatever_another_did() {
        let delayed = r#""links":3,"bytes":9,"held_bytes":0,"delayed_bytes":9,"connections":0,"held_connects":0,"refused":0,"resets":0"#;
        let both = effect_of(&history(&[("partition", delayed), ("latency", delayed)]), 2);
        assert!(both.too_little.is_some_and(|why| why.contains("partition")));
        assert!(effect_of(&history(&[("latency", delayed)]), 1).too_little.is_none());
    }

    fn paused_holder(promises: &str) -> History {
        let pause = r#""f":"pause-holder","window":1"#;
        let lines = [
            r#""process":0,"type":"invoke","f":"acquire","lock":"l0""#.to_owned(),
            r#""process":0,"type":"ok","f":"acquire","lock":"l0""#.to_owned(),
            format!(r#"{pause},"phase":"start","targets":["c0"]"#),
            format!(
                r#"{pause},"phase":"heal","requirement":{{"stopped_ms":1,"breaks":"HL001"}},"evidence":{{"clients_stopped":1,"stopped_ms":9}}"#
            ),
        ];
        history_with(promises, (1_u64..).zip(lines))
    }

    #[test]
    fn a_pause_that_breaks_nothing_missed_unless_the_lock_never_runs_out() {
        let missed = |promises| {
            let history = paused_holder(promises);
            let findings = harness_checkers::check(&history, &harness_checkers::Options::default());
            unbroken(&effect_of(&history, 1), &findings, &history)
        };
        assert!(missed(r#""lease":true"#).is_some_and(|why| why.contains("HL001")));
        assert!(missed("").is_some(), "nobody said that it has no lease");
        assert_eq!(missed(r#""lease":false"#), None);
    }

    #[test]
    fn windows_without_an_acquire_are_said_to_have_none() {
        let held = r#""held_bytes":9,"acquires":0"#;
        let evidence = effect_of(&history(&[("partition", held)]), 1).evidence;
        assert!(evidence.ends_with("0 acquires while a fault was active"), "{evidence}");
    }

    /// Returns the effect of one window in which an acquire fails, with an acquire before and after it.
    fn tried(promises: &str, heal: &str) -> RunEffect {
        let acquire =
            |process: u32, kind: &str| format!(r#""process":{process},"type":"{kind}","f":"acquire","lock":"l0""#);
        let partition = |fact: &str| format!(r#""f":"partition","window":1,{fact}"#);
        let lines = [
            r#""f":"phase","phase":"faults","windows":1"#.to_owned(),
            acquire(0, "invoke"),
            acquire(0, "ok"),
            partition(r#""phase":"start","targets":["n1"]"#),
            acquire(1, "invoke"),
            acquire(1, "fail") + r#","error":"timeout""#,
            partition(&format!(r#""phase":"heal","left_trace":true,{heal}"#)),
            acquire(1, "invoke"),
            acquire(1, "ok"),
        ];
        effect_of(&history_with(promises, (1_u64..).zip(lines)), 1)
    }

    #[test]
    fn a_fault_under_which_every_acquire_failed_is_too_little_unless_it_must_be_so() {
        let none = r#""acquires_meanwhile":"go-on","evidence":{"held_bytes":9,"acquires":0}"#;
        let why = "0 acquires in 1 fault window, and 1 attempt failed";
        assert_eq!(tried("", none).in_vain.as_deref(), Some(why));
        for heal in [
            r#""acquires_meanwhile":"stop","evidence":{"held_bytes":9,"acquires":0}"#,
            r#""acquires_meanwhile":"go-on","evidence":{"held_bytes":9,"acquires":1}"#,
            // the recorder counted no acquires, or did not say whether to expect them
            r#""acquires_meanwhile":"go-on","evidence":{"held_bytes":9}"#,
            r#""evidence":{"held_bytes":9,"acquires":0}"#,
        ] {
            assert_eq!(tried("", heal).in_vain, None, "{heal}");
        }
        // a lock without a lease stays with the holder that was cut off
        assert_eq!(tried(r#""lease":false"#, none).in_vain, None);
    }

    #[test]
    fn windows_of_another_recorder_are_not_judged() {
        let lines = r#"{"type":"info","f":"start-partition","value":"majority","process":"nemesis","time":3,"index":0}
{"type":"invoke","f":"acquire","value":null,"process":0,"time":5,"index":1}
{"type":"ok","f":"acquire","value":null,"process":0,"time":6,"index":2}
{"type":"info","f":"stop-partition","value":null,"process":"nemesis","time":7,"index":3}"#;
        let history = History::read(lines.as_bytes(), &ReadOptions::default()).unwrap();
        let read = effect_of(&history, 0);
        assert!(!read.windows.is_empty() && read.too_little.is_none());
        let said = "of another recorder, which counts no effects";
        assert!(read.evidence.ends_with(said), "{}", read.evidence);
    }

    #[test]
    fn a_heal_without_evidence_had_no_effect() {
        let none = effect_of(&history(&[("reset", "")]), 1);
        assert!(!none.windows[0].had_effect);
        assert!(none.too_little.is_some());
    }
}
