//! The tables of a run's page: the properties, the effects of the faults, and the run's repetition.

use maud::{Markup, html};
use serde_json::Value;

use super::sections::again;
use super::text::prose;
use crate::report::coverage::CoverageMatrix;
use crate::report::diagnosis::{Diagnosis, Outcome};
use crate::report::downsample::{WINDOWS, shown_windows};
use crate::report::effect::WindowEffect;
use crate::report::words::{many, moment, quoted, span, thousands};
use crate::report::{Report, summary};

/// Number of windows from which on their table is folded.
const MANY: usize = 20;

/// Returns a table with a row for each property.
pub fn properties(diagnosis: &Diagnosis) -> Markup {
    html! {
        table {
            thead { tr { th {} th { "property" } th { "verdict" } th { "evidence" } th { "time to check" } } }
            tbody {
                @for finding in &diagnosis.findings {
                    @let like = Outcome::like(finding.verdict);
                    @let class = like.map_or("quiet", Outcome::word).to_lowercase();
                    @let sign = like.map_or('–', |outcome| outcome.signs().0);
                    @let id = finding.property.id();
                    tr {
                        td.head {
                            @match finding.violations.first() {
                                Some(first) => { a href={ "#" (first.id) } { (id) } }
                                None => { (id) }
                            }
                        }
                        td.head { (finding.property.name()) }
                        td.head.(class) { (sign) " " (summary::verdict_word(finding.verdict)) }
                        td { (prose(&summary::evidence(finding))) }
                        td.number data-label="checked in" { (span(finding.check_us * 1000)) }
                    }
                }
            }
        }
    }
}

/// Returns a table with a row for each fault window: its planned and real times, its targets and its effect.
pub fn effect(report: &Report<'_>) -> Markup {
    let effect = &report.diagnosis.effect;
    let shown = shown_windows(report.diagnosis);
    html! {
        p { (effect.evidence) }
        @if shown.len() < effect.windows.len() {
            p.left-out {
                "This page shows " (thousands(shown.len() as u64)) " of " (many(effect.windows.len() as u64, "window"))
                ": those near violations, and the rest at even intervals. The JSON report has them all."
            }
        }
        @if shown.len() > MANY {
            details { summary { (shown.len()) " windows" } (windows(report, &shown)) }
        } @else if !shown.is_empty() {
            (windows(report, &shown))
        }
    }
}

fn windows(report: &Report<'_>, shown: &[&WindowEffect]) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th {} th { "fault" } th { "effect?" } th { "planned" } th { "real" } th { "touched" } th { "result" }
                }
            }
            tbody { @for window in shown { (row(report, window)) } }
        }
    }
}

/// Returns a table of points by faults, with the number of strikes.
pub fn coverage(diagnosis: &Diagnosis) -> Markup {
    let Some(coverage) = &diagnosis.coverage else {
        return html! {};
    };
    let matrices = [
        ("message", &coverage.messages),
        ("client", &coverage.clients),
        ("server", &coverage.servers),
    ];
    let words = coverage.in_words();
    html! {
        @if let Some(words) = &words {
            details {
                summary { "struck: " (words) }
                @for (kind, matrix) in matrices.iter().filter(|(_, matrix)| !matrix.faults.is_empty()) { (table_of(kind, matrix)) }
                @if coverage.in_vain > 0 {
                    p.quiet { (many(coverage.in_vain, "window")) " waited for a message that did not come." }
                }
            }
        }
    }
}

fn table_of(kind: &str, matrix: &CoverageMatrix) -> Markup {
    html! {
        table {
            thead { tr { th { (kind) } @for fault in &matrix.faults { th { (fault) } } } }
            tbody {
                @for point in &matrix.points {
                    tr {
                        td.head { (point.point) @if let Some(passed) = point.passed { " " span.quiet { "×" (passed) } } }
                        @for fault in &matrix.faults {
                            td.number data-label=(fault) {
                                @match point.strikes.get(fault) {
                                    Some(strikes) => { (strikes.times) }
                                    None => { "–" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn row(report: &Report<'_>, window: &WindowEffect) -> Markup {
    // another recorder writes no phases, and counts no effects
    let (class, effect) = match window.had_effect {
        true => ("pass", "✓ effect"),
        false if report.diagnosis.phases.is_empty() => ("quiet", "– not counted"),
        false => ("unsure", "✕ none"),
    };
    let healed = window.heal_ns.map_or_else(|| "the end".to_owned(), moment);
    html! {
        tr {
            td.head.number { (window.number) }
            td.head { b { (window.fault) } " " (window.title) }
            td.head.(class) { (effect) }
            td data-label="planned" { (planned(report, window).unwrap_or_else(|| "–".into())) }
            td data-label="real" { a href=(link(window)) { (moment(window.start_ns)) " to " (healed) } }
            td data-label="touched" { (window.targets.join(" ")) }
            td { (did(window).join(", ")) }
        }
    }
}

/// Returns the effect of a window in its parts.
fn did(window: &WindowEffect) -> Vec<String> {
    let counted = [
        (window.expired, "grant", " expired on the servers"),
        (window.locks_lost, "holder", " told of a loss"),
        (window.acquires, "acquire", " meanwhile"),
    ];
    let counted = counted.into_iter().filter(|(count, ..)| *count > 0);
    let mut did = vec![window.did.clone()];
    did.extend(counted.map(|(count, what, how)| many(count, what) + how));
    did.extend(window.missed_in_words());
    did.retain(|part| !part.is_empty());
    did
}

/// Returns the address of the timeline at this window.
fn link(window: &WindowEffect) -> String {
    let from = window.start_ns as f64 / 1e9;
    let to = window.heal_ns.map_or(from + 10.0, |heal| heal as f64 / 1e9);
    let margin = (to - from) * 0.1;
    format!("#t={:.2}-{:.2}", (from - margin).max(0.0), to + margin)
}

/// Returns the planned time of a window; plans count from the start of the faults phase.
fn planned(report: &Report<'_>, window: &WindowEffect) -> Option<String> {
    let phase = report.diagnosis.phases.iter().find(|phase| phase.name == "faults")?;
    let windows = report.plan?.get("windows")?.as_array()?;
    let planned = windows
        .iter()
        .find(|planned| planned["number"].as_u64() == Some(window.number.into()))?;
    let start = phase.start_ns + planned.get("start_ms")?.as_u64()? * 1_000_000;
    let heal = start + planned.get("length_ms")?.as_u64()? * 1_000_000;
    Some(format!("{} to {}", moment(start), moment(heal)))
}

/// Returns the commands for this run, its numbers, its configuration and its plan.
pub fn reproduce(report: &Report<'_>) -> Markup {
    let diagnosis = report.diagnosis;
    let mut commands = Vec::new();
    if let Some(exact) = summary::exact(diagnosis) {
        commands.push(("check the stored history again", exact));
    }
    if let Some(run) = &diagnosis.run {
        let compared = format!("harness compare EARLIER-RUN {}", quoted(&run.run));
        commands.push(("compare the violations with those of another run", compared));
    }
    let run = diagnosis.run.as_ref();
    let run = run.map(|run| serde_json::to_value(run).expect("it is plain data"));
    html! {
        (again(diagnosis))
        dl.commands { @for (what, command) in &commands { dt { (what) } dd { code { (command) } } } }
        @if let Some(latency) = summary::latency(diagnosis) { p { (latency) } }
        p { (summary::amount(diagnosis)) }
        @if let Some(run) = &run { (folded("the run (run.json)", run)) }
        @if let Some(plan) = report.plan { (folded("the plan", plan)) }
    }
}

/// Returns an object as a folded table, with nested objects as JSON.
fn folded(title: &str, value: &Value) -> Markup {
    let rows = value.as_object().into_iter().flatten();
    html! {
        details {
            summary { (title) }
            table.facts {
                @for (key, value) in rows.filter(|(_, value)| !value.is_null()) { tr { th { (key) } td { (fact(value)) } } }
            }
        }
    }
}

fn fact(value: &Value) -> Markup {
    match value {
        Value::String(plain) => html! { (plain) },
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            html! { (words.join(" ")) }
        }
        // the windows of a long run
        Value::Array(items) if items.len() > WINDOWS => {
            let (shown, more) = items.split_at(WINDOWS);
            html! {
                pre { (serde_json::to_string_pretty(shown).unwrap_or_default()) }
                p.quiet { (thousands(more.len() as u64)) " more in plan.json" }
            }
        }
        Value::Array(_) | Value::Object(_) => {
            html! { pre { (serde_json::to_string_pretty(value).unwrap_or_default()) } }
        }
        other => html! { (other) },
    }
}
