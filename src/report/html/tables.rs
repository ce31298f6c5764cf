//! The tables of the page: the properties, what the faults did, and what is needed to run it again.

use harness_checkers::Verdict;
use serde_json::Value;

use super::text::{prose, text};
use crate::report::bite::Bitten;
use crate::report::diagnosis::Diagnosis;
use crate::report::words::{many, moment, quoted, span};
use crate::report::{Report, account};

/// A sign beside the word, for eyes that do not tell colours apart.
fn sign(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Holds => ("pass", "✓"),
        Verdict::Violated => ("fail", "✕"),
        Verdict::Inconclusive => ("unsure", "?"),
        Verdict::NotApplicable => ("quiet", "–"),
    }
}

/// One row a property.
pub fn properties(diagnosis: &Diagnosis) -> String {
    let rows = diagnosis.findings.iter().map(|finding| {
        let (class, sign) = sign(finding.verdict);
        let id = finding.property.id();
        let id = match finding.violations.first() {
            Some(first) => format!(r##"<a href="#{}">{id}</a>"##, text(&first.id)),
            None => id.to_owned(),
        };
        format!(
            r#"<tr><td class="head">{id}</td><td class="head">{}</td><td class="head {class}">{sign} {}</td><td>{}</td><td class="number" data-label="checked in">{}</td></tr>"#,
            finding.property.name(),
            account::verdict_word(finding.verdict),
            prose(&account::evidence(finding)),
            span(finding.check_us * 1000),
        )
    });
    format!(
        "<table><thead><tr><th></th><th>property</th><th>verdict</th><th>evidence</th><th>time to check</th></tr></thead><tbody>{}</tbody></table>",
        rows.collect::<String>()
    )
}

/// One row a fault window: what was planned, what came, whom it touched, what it did.
pub fn bite(report: &Report<'_>) -> String {
    let bite = &report.diagnosis.bite;
    let sentence = format!("<p>{}</p>", text(&bite.evidence));
    if bite.windows.is_empty() {
        return sentence;
    }
    let rows = bite.windows.iter().map(|window| row(report, window));
    format!(
        r#"{sentence}<table><thead><tr><th></th><th>fault</th><th>bit?</th><th>planned</th><th>real</th><th>touched</th><th>what it did</th></tr></thead><tbody>{}</tbody></table>"#,
        rows.collect::<String>()
    )
}

fn row(report: &Report<'_>, window: &Bitten) -> String {
    let (class, bit) = if window.bit {
        ("pass", "✓ bit")
    } else {
        ("unsure", "✕ missed")
    };
    let healed = window.heal_ns.map_or_else(|| "the end".to_owned(), moment);
    let mut did = vec![window.did.clone()];
    let counted = [
        (
            window.expired,
            format!("{} expired on the servers", many(window.expired, "grant")),
        ),
        (
            window.locks_lost,
            format!("{} told of a loss", many(window.locks_lost, "holder")),
        ),
        (
            window.acquires,
            format!("{} meanwhile", many(window.acquires, "acquire")),
        ),
    ];
    did.extend(
        counted
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(_, said)| said),
    );
    did.extend(window.missed_in_words());
    did.retain(|part| !part.is_empty());
    format!(
        r#"<tr><td class="head number">{}</td><td class="head"><b>{}</b> {}</td><td class="head {class}">{bit}</td><td data-label="planned">{}</td><td data-label="real"><a href="{}">{} to {healed}</a></td><td data-label="touched">{}</td><td>{}</td></tr>"#,
        window.number,
        text(&window.fault),
        text(&window.title),
        planned(report, window).unwrap_or_else(|| "–".into()),
        link(window),
        moment(window.start_ns),
        text(&window.targets.join(" ")),
        text(&did.join(", ")),
    )
}

/// The timeline, at this window.
fn link(window: &Bitten) -> String {
    let from = window.start_ns as f64 / 1e9;
    let to = window.heal_ns.map_or(from + 10.0, |heal| heal as f64 / 1e9);
    let margin = (to - from) * 0.1;
    format!("#t={:.2}-{:.2}", (from - margin).max(0.0), to + margin)
}

/// When the plan wanted it: plans count from the start of the faults phase.
fn planned(report: &Report<'_>, window: &Bitten) -> Option<String> {
    let phase = report.diagnosis.phases.iter().find(|phase| phase.name == "faults")?;
    let windows = report.plan?.get("windows")?.as_array()?;
    let planned = windows
        .iter()
        .find(|planned| planned["number"].as_u64() == Some(window.number.into()))?;
    let start = phase.start_ns + planned.get("start_ms")?.as_u64()? * 1_000_000;
    let heal = start + planned.get("length_ms")?.as_u64()? * 1_000_000;
    Some(format!("{} to {}", moment(start), moment(heal)))
}

/// What to type, what it ran on, and the plan.
pub fn reproduce(report: &Report<'_>) -> String {
    let diagnosis = report.diagnosis;
    let mut commands = Vec::new();
    if let Some(again) = account::again(diagnosis) {
        commands.push(("the same plan, not the same timing", again.join(" ")));
    }
    if let Some(exact) = account::exact(diagnosis) {
        commands.push(("exactly this decision, from the stored history", exact));
    }
    if let Some(run) = &diagnosis.run {
        let beside = format!("harness compare EARLIER-RUN {}", quoted(&run.run));
        commands.push(("what is new, still there and gone beside another run", beside));
    }
    let commands = commands
        .iter()
        .map(|(what, command)| format!("<dt>{what}</dt><dd><code>{}</code></dd>", text(command)));
    let commands = format!(r#"<dl class="commands">{}</dl>"#, commands.collect::<String>());
    let facts = diagnosis
        .run
        .as_ref()
        .map(|run| serde_json::to_value(run).expect("it is plain data"));
    let facts = facts
        .as_ref()
        .map_or_else(String::new, |run| folded("the run, as run.json has it", run));
    let plan = report.plan.map_or_else(String::new, |plan| folded("the plan", plan));
    let told = [account::latency(diagnosis), Some(account::amount(diagnosis))];
    let told = told.iter().flatten().map(|line| format!("<p>{}</p>", text(line)));
    format!("{commands}{}{facts}{plan}", told.collect::<String>())
}

/// An object as a table, nested ones as JSON.
fn folded(title: &str, value: &Value) -> String {
    let rows = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null());
    let rows = rows.map(|(key, value)| {
        let shown = match value {
            Value::String(plain) => text(plain),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                text(&words.join(" "))
            }
            Value::Array(_) | Value::Object(_) => format!(
                "<pre>{}</pre>",
                text(&serde_json::to_string_pretty(value).unwrap_or_default())
            ),
            other => text(&other.to_string()),
        };
        format!("<tr><th>{}</th><td>{shown}</td></tr>", text(key))
    });
    format!(
        r#"<details><summary>{title}</summary><table class="facts">{}</table></details>"#,
        rows.collect::<String>()
    )
}
