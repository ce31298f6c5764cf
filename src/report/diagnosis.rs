//! The diagnosis: all findings, effects and numbers of a run, in the one form that all outputs render.

use std::collections::BTreeMap;

use harness_checkers::history::event::Kind;
use harness_checkers::history::{NemesisFact, PhaseFact, SeenViolation, Standstill};
use harness_checkers::{Counts, Finding, Findings, History, PhaseStart, Property, Verdict, Violation};
use serde::{Deserialize, Serialize};

use super::churn::Churn;
use super::coverage::Coverage;
use super::drawing::{Drawing, DrawingContext};
use super::effect::{RunEffect, effect_of, unbroken};
use super::manual_changes::manual_changes;
use super::words::moment;
use crate::exit::Exit;
use crate::store::{RunInfo, RunStatus};

pub const SCHEMA: &str = "harness-diagnosis/1";

/// The result of a run in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Outcome {
    Pass,
    Fail,
    Unsure,
    Error,
}

impl Outcome {
    /// Returns the outcome of an exit code.
    pub fn of(exit: Exit) -> Self {
        match exit {
            Exit::Violated => Self::Fail,
            Exit::Holds => Self::Pass,
            Exit::Inconclusive | Exit::Interrupted => Self::Unsure,
            Exit::Environment | Exit::Different | Exit::Usage | Exit::Bug => Self::Error,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Unsure => "UNSURE",
            Self::Error => "ERROR",
        }
    }

    /// Returns the signs next to the word, on a page and in Markdown, for readers with a colour vision deficiency.
    pub fn signs(self) -> (char, char) {
        match self {
            Self::Pass => ('✓', '✅'),
            Self::Fail => ('✕', '❌'),
            Self::Unsure => ('?', '❔'),
            Self::Error => ('!', '❗'),
        }
    }

    /// Returns the outcome that is shown like a verdict on a property; `None` for one that does not apply.
    pub fn like(verdict: Verdict) -> Option<Self> {
        match verdict {
            Verdict::Holds => Some(Self::Pass),
            Verdict::Violated => Some(Self::Fail),
            Verdict::Inconclusive => Some(Self::Unsure),
            Verdict::NotApplicable => None,
        }
    }

    /// Whether a run with this outcome proves anything.
    pub fn is_verdict(self) -> bool {
        matches!(self, Self::Pass | Self::Fail)
    }
}

/// Hints for a run that proves nothing, by its reason.
mod hint {
    pub const SERVER_ENDED: &str =
        "read its log, and run it again: the events after its end say nothing about the lock";
    pub const SERVER_DID_NOT_SERVE: &str =
        "read that server's log for that time, and run it again: harness does not judge that time";
    pub const STOOD_STILL: &str = "run it again on a machine with less load: harness does not judge that time";
    pub const ENDED_EARLY: &str = "run it again without --stop-on-violation";
    pub const PARTIAL: &str = "run it again to its end: the missing part may have a violation";
    pub const UNBROKEN: &str = "let a fault last longer than the lease of a holder while others wait: --clients 6 --locks 1, a longer --window, or another --seed";
    pub const UNDECIDED: &str =
        "run it longer (--time), or with fewer --clients and --locks: the evidence says why it is not decided";
    pub const UNFINISHED: &str = "give each client its turn: more --time, fewer --clients, or shorter holds (--hold)";
}

/// A violation ended the run, but the whole history has none.
const SEEN_BUT_NOT_FOUND: &str =
    "a violation ended the run, but the whole history has none: a line that was written late disproves it";

/// Latencies of the acquires that succeeded, in nanoseconds: from the call, or from the time when it was due at a rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireLatency {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// The window in which the slowest one was answered.
    pub max_window: Option<u32>,
    /// Acquires that were called, with any outcome.
    #[serde(default)]
    pub calls: u64,
    /// Of these, the ones that were due before a client was free to make them (`--rate`).
    #[serde(default)]
    pub late: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    pub schema: String,
    pub outcome: Outcome,
    pub exit: u8,
    /// The facts of the run; `None` for a history from elsewhere.
    pub run: Option<RunInfo>,
    /// The run's folder, or the history file.
    pub path: String,
    /// The path of the run's page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    pub model: String,
    pub findings: Vec<Finding>,
    /// Drawings of violations, by their id.
    pub drawings: BTreeMap<String, Drawing>,
    /// The phases of the run, by beginning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseStart>,
    #[serde(alias = "bite")]
    pub effect: RunEffect,
    /// The points that faults struck; `None` without faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
    /// The reasons for which the run is neither a pass nor a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsure: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// The violation that ended the run before its time, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// Clients that acquired less often than required: at each request, or once in the recovery phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    pub notes: Vec<String>,
    pub events: u64,
    pub operations: u64,
    pub acquires: u64,
    pub clients: u64,
    pub locks: Vec<String>,
    pub latency: AcquireLatency,
    pub length_ns: u64,
    pub check_ns: u64,
}

impl Diagnosis {
    pub fn finding(&self, property: Property) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.property == property)
    }

    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.findings.iter().flat_map(|finding| &finding.violations)
    }
}

/// Facts about a run beyond its history.
pub struct KnownRun {
    pub info: Option<RunInfo>,
    pub path: String,
    pub page: Option<String>,
    pub check_ns: u64,
    /// The number of fault windows in the plan.
    pub planned_windows: u32,
    /// Whether the parts that only a report shows are left out: drawings, coverage, latencies.
    pub brief: bool,
}

impl KnownRun {
    /// Returns the facts of a run that is not stored, with this number of fault windows in its plan.
    pub fn in_memory(planned_windows: u32) -> Self {
        Self {
            info: None,
            path: String::new(),
            page: None,
            check_ns: 0,
            planned_windows,
            brief: true,
        }
    }
}

/// Returns the hint of a run that is unsure for no reason with a hint of its own.
fn rest_hint(history: &History, findings: &Findings, effect: &RunEffect) -> &'static str {
    match () {
        () if history.partial().is_some() => hint::PARTIAL,
        () if unbroken(effect, findings, history).is_some() => hint::UNBROKEN,
        () => hint::UNDECIDED,
    }
}

/// Returns the standstills that are longer than a lease: a lock must withstand shorter ones.
fn long_standstills(history: &History) -> Vec<Standstill> {
    let lease_ns = history.header().lease_ms.unwrap_or_default() * 1_000_000;
    let standstills = history.standstills().into_iter();
    standstills.filter(|span| span.is_longer_than(lease_ns)).collect()
}

/// Returns the diagnosis of a history, its findings and the facts of its run.
pub fn diagnose(history: &History, findings: Findings, known: KnownRun) -> Diagnosis {
    let mut effect = effect_of(history, known.planned_windows);
    let server_ends = history.server_ends();
    let standstills = long_standstills(history);
    let unfinished = unfinished(history);
    let ended_early = seen_violation(history).map(ended_early);
    let hint = match () {
        () if !server_ends.is_empty() => Some(hint::SERVER_ENDED),
        () if standstills.iter().any(|span| span.server.is_some()) => Some(hint::SERVER_DID_NOT_SERVE),
        () if !standstills.is_empty() => Some(hint::STOOD_STILL),
        () if ended_early.is_some() => Some(hint::ENDED_EARLY),
        () => Some(hint::UNFINISHED).filter(|_| !unfinished.is_empty() && effect.hint.is_none()),
    };
    effect.hint = hint.map(str::to_owned).or(effect.hint);
    let churn = Churn::of(history);
    let mut unsure = unsure(history, &findings, &effect, churn, &unfinished);
    if effect.hint.is_none() && !unsure.is_empty() {
        effect.hint = Some(rest_hint(history, &findings, &effect).to_owned());
    }
    unsure.splice(0..0, standstills.iter().map(Standstill::in_words));
    unsure.splice(0..0, server_ends.iter().map(|(at_ns, end)| end.in_words(*at_ns)));
    // the end of a server in the history explains that status
    let status = known.info.as_ref().map(|info| info.status);
    let status = status.filter(|status| *status != RunStatus::Failed || server_ends.is_empty());
    let exit = exit(&findings, &unsure, status);
    // `partial` already has it
    let notes = findings
        .notes
        .into_iter()
        .filter(|note| !note.starts_with("the history is partial"));
    let of_the_run = known.info.as_ref().and_then(RunInfo::busy_machine);
    let notes = notes.chain(churn.map(Churn::in_words)).chain(manual_changes(history));
    let drawings = drawings(history, &findings.findings, &effect, known.brief);
    let Counts {
        events,
        operations,
        acquires_ok,
        ..
    } = history.counts();
    Diagnosis {
        schema: SCHEMA.to_owned(),
        outcome: Outcome::of(exit),
        exit: exit.code(),
        run: known.info,
        path: known.path,
        page: known.page,
        phases: history.phases(),
        latency: match known.brief {
            true => AcquireLatency::default(),
            false => latency(history, &effect),
        },
        coverage: if known.brief { None } else { Coverage::of(history) },
        drawings,
        partial: history.partial().map(str::to_owned),
        ended_early,
        unfinished,
        unsure,
        effect,
        events,
        operations,
        acquires: acquires_ok,
        clients: history.clients().len() as u64,
        locks: history.locks().map(str::to_owned).collect(),
        length_ns: history.end_ns(),
        check_ns: known.check_ns,
        model: findings.model,
        findings: findings.findings,
        notes: notes.chain(of_the_run).collect(),
    }
}

/// Returns the drawings of violations by their ids; none if the diagnosis is brief.
fn drawings(history: &History, findings: &[Finding], effect: &RunEffect, brief: bool) -> BTreeMap<String, Drawing> {
    let violations = || findings.iter().flat_map(|finding| &finding.violations);
    if brief || violations().next().is_none() {
        return BTreeMap::new();
    }
    let context = DrawingContext::of(history, &effect.windows, violations());
    let drawn = violations().filter_map(|violation| Some((violation.id.clone(), context.draw(violation)?)));
    drawn.collect()
}

fn exit(findings: &Findings, unsure: &[String], status: Option<RunStatus>) -> Exit {
    let mut exit = match findings.verdict() {
        Verdict::Violated => Exit::Violated,
        _ if unsure.is_empty() => Exit::Holds,
        _ => Exit::Inconclusive,
    };
    match status {
        Some(RunStatus::Interrupted) => exit = exit.and(Exit::Interrupted),
        Some(RunStatus::Failed) => exit = exit.and(Exit::Environment),
        _ => {}
    }
    exit
}

fn unsure(
    history: &History,
    findings: &Findings,
    effect: &RunEffect,
    churn: Option<Churn>,
    unfinished: &[String],
) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(partial) = history.partial() {
        reasons.push(format!("the history is partial: {partial}"));
    }
    if !unfinished.is_empty() {
        reasons.push(format!(
            "{} acquired less often than required while no fault was active: give them time with a larger --progress-bound or a \
             shorter --hold, or judge it with --starvation-bound",
            unfinished.join(" ")
        ));
    }
    if seen_violation(history).is_some() {
        // the run ended early: windows and turns that are missing need no effect
        let found = findings.verdict() == Verdict::Violated;
        reasons.extend((!found).then(|| SEEN_BUT_NOT_FOUND.to_owned()));
    } else {
        reasons.extend(effect.too_little.clone().or(effect.in_vain.clone()));
        reasons.extend(churn.and_then(Churn::too_little));
        reasons.extend(unbroken(effect, findings, history));
    }
    let open = findings
        .findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Inconclusive);
    reasons.extend(open.map(|finding| format!("{}: {}", finding.property.name(), finding.evidence)));
    reasons
}

/// Returns the violation that ended the run, if there was one.
fn seen_violation(history: &History) -> Option<&SeenViolation> {
    let mut facts = history.nemesis().iter().map(|line| &line.fact);
    facts.find_map(|fact| match fact {
        NemesisFact::Phase(PhaseFact::Violation(seen)) => Some(seen),
        _ => None,
    })
}

fn ended_early(seen: &SeenViolation) -> String {
    let SeenViolation {
        property,
        class,
        lock,
        at_ns,
        ..
    } = seen;
    format!(
        "the run ended early, at the first violation seen during the run: {property} {class} on {lock} at {}",
        moment(*at_ns)
    )
}

fn unfinished(history: &History) -> Vec<String> {
    let ends = history.nemesis().iter().filter_map(|line| match &line.fact {
        NemesisFact::Phase(PhaseFact::End { unfinished, .. }) => Some(unfinished),
        _ => None,
    });
    ends.flatten().cloned().collect()
}

fn latency(history: &History, effect: &RunEffect) -> AcquireLatency {
    let (mut calls, mut late) = (0, 0);
    let mut took: Vec<u64> = Vec::with_capacity(history.counts().acquires_ok as usize);
    let mut slowest = (0, 0);
    history.each_acquire(|acquire| {
        calls += 1;
        late += u64::from(acquire.late_us > 0);
        if let Some((Kind::Ok, answered_ns)) = acquire.answered {
            let late_ns = u64::from(acquire.late_us) * 1000;
            let ns = answered_ns.saturating_sub(acquire.called_ns.saturating_sub(late_ns));
            took.push(ns);
            slowest = slowest.max((ns, answered_ns));
        }
    });
    let Some(last) = took.len().checked_sub(1) else {
        return AcquireLatency::default();
    };
    let at = |share: f64| ((took.len() as f64 * share) as usize).min(last);
    let (median, high) = (at(0.5), at(0.99));
    // values above the high percentile need no order, and below it only the median has a place
    let p99_ns = *took.select_nth_unstable(high).1;
    let p50_ns = if median < high {
        *took[..high].select_nth_unstable(median).1
    } else {
        p99_ns
    };
    let (max_ns, answered) = slowest;
    let on = |window: &&super::effect::WindowEffect| {
        window.start_ns <= answered
            && window
                .heal_ns
                .is_none_or(|heal| answered.saturating_sub(max_ns) <= heal)
    };
    AcquireLatency {
        p50_ns,
        p99_ns,
        max_ns,
        max_window: effect.windows.iter().find(on).map(|window| window.number),
        calls,
        late,
    }
}

#[cfg(test)]
mod tests {
    use harness_checkers::{Options, check};

    use super::*;
    use crate::report::test_history::history_of;

    /// Returns the diagnosis of a run that a violation ended, with a release of the first grant and a second grant at these times.
    fn ended_at(release: u64, second: u64) -> Diagnosis {
        let mut lines = [
            (1, r#""process":0,"type":"invoke","f":"acquire","lock":"l0""#),
            (2, r#""process":0,"type":"ok","f":"acquire","lock":"l0""#),
            (2, r#""process":1,"type":"invoke","f":"acquire","lock":"l0""#),
            (release, r#""process":0,"type":"invoke","f":"release","lock":"l0""#),
            (release + 1, r#""process":0,"type":"ok","f":"release","lock":"l0""#),
            (second, r#""process":1,"type":"ok","f":"acquire","lock":"l0""#),
            (
                90,
                r#""f":"phase","phase":"violation","property":"HL002","class":"two-holders","lock":"l0","at_ns":5000000000,"summary":"""#,
            ),
            (91, r#""f":"phase","phase":"end","unfinished":[]"#),
        ];
        lines.sort_by_key(|(time, _)| *time);
        let history = history_of(lines);
        let findings = check(&history, &Options::default());
        diagnose(&history, findings, KnownRun::in_memory(0))
    }

    #[test]
    fn a_run_that_a_violation_ended_is_violated_or_unsure_and_never_a_pass() {
        let violated = ended_at(8, 5);
        assert_eq!((violated.outcome, violated.exit), (Outcome::Fail, 1));
        let why = "the run ended early, at the first violation seen during the run: HL002 two-holders on l0 at 5.00s";
        assert_eq!(violated.ended_early.as_deref(), Some(why));
        assert!(violated.unsure.is_empty(), "{:?}", violated.unsure);
        let other = ended_at(5, 8);
        assert_eq!((other.outcome, other.exit), (Outcome::Unsure, 3));
        assert_eq!(other.unsure, [SEEN_BUT_NOT_FOUND]);
        assert_eq!(other.effect.hint.as_deref(), Some(hint::ENDED_EARLY));
    }
}
