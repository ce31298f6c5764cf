//! Summary: the sentences that all renderings share, about the run, its violations, their damage and the next commands.

use harness_checkers::{Finding, Property, Verdict, Violation};

use super::diagnosis::{Diagnosis, Outcome};
use super::effect::{RunEffect, WindowEffect};
use super::words::{many, quoted, quoted_words, span, thousands};
use crate::store::RunInfo;

/// Maximum number of violations in full if room is short; the others are counted.
const SHOWN: usize = 3;
/// Maximum number of compared tokens.
const TOKENS: usize = 4;

/// `zk / zk-predecessor-watch naive / partition`, or the path of a history that came from elsewhere.
pub fn title(diagnosis: &Diagnosis) -> String {
    match &diagnosis.run {
        Some(run) => format!("{} / {} / {}", run.backend, lock(diagnosis), run.fault),
        None => diagnosis.path.clone(),
    }
}

/// `zk-predecessor-watch naive`
pub fn lock(diagnosis: &Diagnosis) -> String {
    let run = diagnosis.run.as_ref();
    let recipe = run.map(|run| run.recipe.as_str());
    let words = recipe.into_iter().chain(run.and_then(|run| run.attitude.as_deref()));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the result in one sentence.
pub fn sentence(diagnosis: &Diagnosis) -> String {
    let error = diagnosis.run.as_ref().and_then(|run| run.error.as_deref());
    let error = error.and_then(|error| error.lines().next());
    let (root, unsure) = (roots(&diagnosis.findings).next(), diagnosis.unsure.first());
    let sentence = match diagnosis.outcome {
        Outcome::Fail => root.map_or("a property is violated", |(_, violation)| violation.summary.as_str()),
        Outcome::Pass if diagnosis.effect.windows.iter().any(|window| window.had_effect) => {
            "every property that applies holds, and the faults had an effect"
        }
        // without faults, or with those of another recorder, which counts no effects
        Outcome::Pass => "every property that applies holds",
        Outcome::Unsure => unsure.map_or("nothing is violated, and nothing is proved", String::as_str),
        Outcome::Error => error.unwrap_or("the run failed"),
    };
    sentence.to_owned()
}

/// Returns the reasons for which windows had no target or missed; for some of the windows if there are many.
pub fn missed(effect: &RunEffect) -> Vec<String> {
    let missed = effect.windows.iter().filter_map(WindowEffect::missed_in_words);
    let all: Vec<String> = missed.collect();
    let more = all.len().saturating_sub(SHOWN);
    let mut missed: Vec<String> = all.into_iter().take(SHOWN).collect();
    if more > 0 {
        missed.push(format!("and {} that missed", many(more as u64, "other window")));
    }
    missed
}

/// Returns the violations that follow from no other, the first of each property, the gravest property first.
pub fn roots(findings: &[Finding]) -> impl Iterator<Item = (&Finding, &Violation)> {
    findings.iter().filter_map(|finding| {
        let mut violations = finding.violations.iter();
        Some((finding, violations.find(|violation| violation.follows.is_none())?))
    })
}

/// Returns the [`roots`] that are shown in full.
pub fn shown(diagnosis: &Diagnosis) -> Vec<(&Finding, &Violation)> {
    roots(&diagnosis.findings).take(SHOWN).collect()
}

/// Remarks on a violation, by label.
pub fn remarks(diagnosis: &Diagnosis, finding: &Finding, violation: &Violation) -> Vec<(&'static str, String)> {
    let mut remarks = Vec::new();
    let damage = damage(diagnosis, violation);
    if !damage.is_empty() {
        remarks.push(("damage", damage));
    }
    remarks.extend(tokens(diagnosis, violation).map(|tokens| ("tokens", tokens)));
    if let Some(likely) = &violation.likely {
        let id = finding.property.id();
        remarks.push(("likely", format!("{likely}   (a guess; `harness explain {id}`)")));
    }
    let exclusion = diagnosis.finding(Property::Hl001);
    let is_safe = exclusion.is_some_and(|exclusion| exclusion.verdict == Verdict::Holds);
    if finding.property == Property::Hl004 && is_safe {
        let safe = "yes: mutual exclusion holds. This is a load defect.";
        remarks.push(("safe?", safe.to_owned()));
    }
    remarks
}

/// Returns the tokens of a drawing's holds, if they are long and hard to compare: `c3 4294967543, c7 4294967675 (+132)`.
fn tokens(diagnosis: &Diagnosis, violation: &Violation) -> Option<String> {
    let drawing = diagnosis.drawings.get(&violation.id)?;
    if drawing.common_digits().is_empty() {
        return None;
    }
    let holds = drawing.tokens();
    let (_, first, _) = *holds.first()?;
    let tell = |(_, token, client): &(u64, u64, &str)| match i128::from(*token) - i128::from(first) {
        0 => format!("{client} {token}"),
        more => format!("{client} {token} ({more:+})"),
    };
    let told = holds.iter().take(TOKENS).map(tell);
    Some(told.collect::<Vec<_>>().join(", "))
}

/// Returns the damage of a violation of HL001, as the evidence of HL008 and HL003. Where it may be that of other violations or locks, it
/// begins with words for that.
fn damage(diagnosis: &Diagnosis, violation: &Violation) -> String {
    if !violation.id.starts_with(Property::Hl001.id()) {
        return String::new();
    }
    let mut parts = Vec::new();
    for property in [Property::Hl008, Property::Hl003] {
        let Some(finding) = diagnosis.finding(property) else {
            continue;
        };
        let worth_telling = match property {
            Property::Hl008 => finding.verdict == Verdict::Violated,
            _ => ["stale_writes_refused", "late_writes"]
                .iter()
                .any(|figure| finding.figures.get(*figure).is_some_and(|writes| *writes > 0.0)),
        };
        if worth_telling {
            parts.push(finding.evidence.clone());
        }
    }
    let exclusion = diagnosis.finding(Property::Hl001);
    let is_single = exclusion.is_some_and(|exclusion| exclusion.violation_count == 1) && diagnosis.locks.len() == 1;
    match parts.join("; ") {
        damage if is_single || damage.is_empty() => damage,
        damage => format!("in the whole run: {damage}"),
    }
}

/// Returns a property's evidence, with the violation from which all of its violations follow, if there is one.
pub fn evidence(finding: &Finding) -> String {
    let mut evidence = finding.evidence.clone();
    if finding.verdict == Verdict::Violated && finding.violations.iter().all(|v| v.follows.is_some()) {
        let root = finding.violations.first().and_then(|v| v.follows.as_deref());
        evidence += &format!("   (follows {})", root.unwrap_or_default());
    }
    evidence
}

pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Violated => "violated",
        Verdict::Inconclusive => "inconclusive",
        Verdict::NotApplicable => "n/a",
    }
}

/// `acquire p50 3.0ms  p99 44ms  max 10.2s (window 2)`; `None` when there was no acquire.
pub fn latency(diagnosis: &Diagnosis) -> Option<String> {
    let latency = diagnosis.latency;
    let slowest = latency.max_window.map(|window| format!(" (window {window})"));
    let slowest = slowest.unwrap_or_default();
    let late = match latency.late {
        0 => String::new(),
        late => format!(
            "; {} of {} acquires were due before a client was free: their time counts from then",
            thousands(late),
            thousands(latency.calls)
        ),
    };
    let [p50, p99, max] = [latency.p50_ns, latency.p99_ns, latency.max_ns].map(span);
    (latency.max_ns > 0).then(|| format!("acquire p50 {p50}  p99 {p99}  max {max}{slowest}{late}"))
}

/// Returns the size of the history.
pub fn amount(diagnosis: &Diagnosis) -> String {
    let operations = many(diagnosis.operations, "operation");
    let acquires = many(diagnosis.acquires, "acquire");
    let clients = many(diagnosis.clients, "client");
    let locks = many(diagnosis.locks.len() as u64, "lock");
    format!("{operations}, {acquires} by {clients} on {locks}")
}

/// Returns the reasons and a hint if the outcome is unsure. A violation is sure, even if other properties are not.
pub fn reasons(diagnosis: &Diagnosis) -> Vec<(&'static str, &str)> {
    let is_sure = matches!(diagnosis.outcome, Outcome::Fail | Outcome::Error);
    let error = diagnosis.run.as_ref().and_then(|run| run.error.as_deref());
    let error = error.filter(|error| is_sure || diagnosis.unsure.iter().all(|reason| reason != error));
    let mut reasons: Vec<(&str, &str)> = error.map(|error| ("error", error)).into_iter().collect();
    reasons.extend(diagnosis.ended_early.as_deref().map(|why| ("ended", why)));
    if !is_sure {
        reasons.extend(diagnosis.unsure.iter().map(|reason| ("unsure", reason.as_str())));
        reasons.extend(diagnosis.effect.hint.as_deref().map(|hint| ("hint", hint)));
    }
    reasons.extend(diagnosis.notes.iter().map(|note| ("note", note.as_str())));
    reasons
}

/// Returns the command that repeats the plan, each word quoted for a shell. In real time a failure may need several runs.
pub fn again(diagnosis: &Diagnosis) -> Option<Vec<String>> {
    let run = diagnosis.run.as_ref()?;
    let mut again = quoted_words(&run.again);
    if diagnosis.outcome == Outcome::Fail && !run.is_repeatable() {
        again.extend(["--repeat", "20", "--until", "fail"].map(str::to_owned));
    }
    Some(again)
}

/// Returns the part of the run that this command repeats: the whole run in virtual time, the plan in real time.
pub fn made_again(diagnosis: &Diagnosis) -> &'static str {
    match diagnosis.run.as_ref().is_some_and(RunInfo::is_repeatable) {
        true => "the same run, line by line",
        false if diagnosis.outcome == Outcome::Fail => {
            "the same plan, not the same timing, and then plans of other seeds"
        }
        false => "the same plan, not the same timing",
    }
}

/// Returns the command that checks the same history again.
pub fn exact(diagnosis: &Diagnosis) -> Option<String> {
    let check = || format!("harness check {}", quoted(&diagnosis.path));
    diagnosis.run.is_some().then(check)
}

/// Returns the address of the page at the first violation that is shown.
pub fn page(diagnosis: &Diagnosis) -> Option<String> {
    let page = diagnosis.page.as_ref()?;
    Some(match roots(&diagnosis.findings).next() {
        Some((_, violation)) => format!("{page}#{}", violation.id),
        None => page.clone(),
    })
}

/// Returns the number of violations that are not shown here, and where they are.
pub fn more(diagnosis: &Diagnosis) -> Option<String> {
    let all: u64 = diagnosis.findings.iter().map(|finding| finding.violation_count).sum();
    let hidden = all.saturating_sub(shown(diagnosis).len() as u64);
    let whereabouts = match diagnosis.page {
        Some(_) => "the report has them",
        None => "--json lists them",
    };
    let hidden = Some(hidden).filter(|hidden| *hidden > 0)?;
    Some(format!("{}: {whereabouts}", many(hidden, "more violation")))
}
