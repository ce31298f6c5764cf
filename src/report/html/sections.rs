//! The first sections of a run's page: the facts of the run, how to repeat it, and each violation with its proof.

use harness_checkers::{Finding, Property, Violation};
use maud::{Markup, html};

use super::drawing::figure;
use super::text::{prose, prose_with_tokens};
use crate::report::diagnosis::Diagnosis;
use crate::report::drawing::Drawing;
use crate::report::words::{date, many, span};
use crate::report::{Report, summary};

/// Lines of the history that are shown with a violation.
const MAX_LINES: usize = 12;

/// Returns the line under the verdict: servers, lock, fault, seed, length, date, and a link to the command that repeats the run.
pub fn what(diagnosis: &Diagnosis) -> Markup {
    let Some(run) = &diagnosis.run else {
        return html! { (diagnosis.path) " · " (span(diagnosis.length_ns)) " run" };
    };
    let version = run.version.as_deref().unwrap_or_default();
    // a run that could not be made has no length
    let length = (diagnosis.length_ns > 0).then(|| span(diagnosis.length_ns));
    let facts = spans(&[
        format!("{} {version} ×{} {}", run.product, run.nodes, run.servers_were()),
        summary::lock(diagnosis),
        format!("fault {}", run.fault),
        format!("seed {}", run.seed),
        length.unwrap_or_default(),
        date(&run.started),
    ]);
    html! { (facts) " · " a href="#reproduce" { "run it again" } }
}

/// Returns the facts that are known, on one line.
pub fn spans(parts: &[String]) -> Markup {
    let known = parts.iter().filter(|part| !part.is_empty());
    html! {
        @for (place, part) in known.enumerate() {
            @if place > 0 { " · " }
            span { (part.trim()) }
        }
    }
}

/// Returns the command that repeats the run.
pub fn again(diagnosis: &Diagnosis) -> Markup {
    html! {
        @if let Some(again) = summary::again(diagnosis) {
            div.again { code #again { (again.join(" ")) } button #copy type="button" hidden { "copy" } }
            p.quiet { "It makes " (summary::made_again(diagnosis)) "." }
        }
    }
}

/// Returns the reasons for which the run is neither a pass nor a failure, and other remarks.
pub fn reasons(diagnosis: &Diagnosis) -> Markup {
    let mut reasons = summary::reasons(diagnosis);
    // the heading of the page is the first reason
    let sentence = summary::sentence(diagnosis);
    reasons.retain(|(_, reason)| *reason != sentence);
    html! {
        @if !reasons.is_empty() {
            dl.remarks { @for (label, reason) in &reasons { dt { (label) } dd { (prose(reason)) } } }
        }
    }
}

/// Returns the violations: the first of each property in full; similar ones and those that follow from it are folded below.
pub fn violations(report: &Report<'_>) -> Markup {
    let diagnosis = report.diagnosis;
    let roots: Vec<(&Finding, &Violation)> = summary::roots(&diagnosis.findings).collect();
    let sentence = summary::sentence(diagnosis);
    let rest: Vec<(&Finding, &Violation)> = diagnosis
        .findings
        .iter()
        .flat_map(|finding| finding.violations.iter().map(move |violation| (finding, violation)))
        .filter(|(_, violation)| roots.iter().all(|(_, root)| root.id != violation.id))
        .collect();
    html! {
        @for (finding, violation) in &roots {
            section.violation id=(violation.id) tabindex="-1" {
                h2 {
                    a href={ "#" (violation.id) } { (violation.id) } " " (finding.property.name()) " "
                    span.turn hidden {}
                }
                // the first one is the heading of the page
                @if violation.summary != sentence { p.lead { (prose(&violation.summary)) } }
                (body(report, finding, violation))
            }
        }
        @if !rest.is_empty() {
            details.rest {
                summary { (hidden(diagnosis, &rest)) }
                @for (finding, violation) in &rest {
                    details.violation id=(violation.id) tabindex="-1" {
                        summary {
                            b { (violation.id) } " " (prose(&violation.summary))
                            @if let Some(root) = &violation.follows { " " span.quiet { "follows " (root) } }
                        }
                        (body(report, finding, violation))
                    }
                }
            }
        }
    }
}

fn hidden(diagnosis: &Diagnosis, rest: &[(&Finding, &Violation)]) -> String {
    let all: u64 = diagnosis.findings.iter().map(|finding| finding.violation_count).sum();
    let described: usize = diagnosis.findings.iter().map(|finding| finding.violations.len()).sum();
    let undescribed = all.saturating_sub(described as u64);
    let rest = many(rest.len() as u64, "more violation");
    match undescribed {
        0 => format!("{rest}, like these or following from them"),
        more => format!(
            "{rest}, like these or following from them, and {} only counted",
            many(more, "other")
        ),
    }
}

fn body(report: &Report<'_>, finding: &Finding, violation: &Violation) -> Markup {
    let drawing = report.diagnosis.drawings.get(&violation.id);
    let common = drawing.map(Drawing::common_digits).unwrap_or_default();
    html! {
        @if let Some(drawing) = drawing { (figure(drawing, &violation.summary, &common)) }
        @if finding.property == Property::Hl004 { (herd(violation)) }
        ol { @for because in &violation.because { li { (prose_with_tokens(&because.text, &common)) } } }
        dl.remarks {
            @for (label, remark) in summary::remarks(report.diagnosis, finding, violation) {
                dt { (label) } dd { (prose_with_tokens(&remark, &common)) }
            }
        }
        (lines(report, violation))
    }
}

/// Returns the number of waiters that one release woke, of all waiters, and of those for which it was of use.
fn herd(violation: &Violation) -> Markup {
    let figure = |name: &str| violation.figures.get(name).copied().unwrap_or(0.0);
    let most = figure("woken").max(figure("waiters")).max(1.0);
    html! {
        table.herd {
            @for (name, class) in [("woken", "over"), ("useful", "within"), ("waiters", "plain")] {
                tr { th { (name) } td.wide { (meter(class, figure(name) / most)) b { (figure(name)) } } }
            }
        }
    }
}

/// Returns a bar for a share of the maximum.
pub fn meter(class: &str, share: f64) -> Markup {
    html! { span class={ "meter " (class) } style={ "width:" (format!("{:.1}", share * 90.0)) "%" } {} }
}

/// Returns the lines of the history that prove a violation.
fn lines(report: &Report<'_>, violation: &Violation) -> Markup {
    let own = violation.events.iter().filter_map(|step| {
        let line = report.lines.get(&step.index)?;
        let number = if report.timeline.numbered {
            format!("line {}", step.index + 1)
        } else {
            format!("index {}", step.index)
        };
        Some((number, &step.role, line))
    });
    let rows: Vec<_> = own.take(MAX_LINES).collect();
    html! {
        @if !rows.is_empty() {
            details.raw {
                summary { (many(rows.len() as u64, "line")) " of history.jsonl" }
                table { @for (number, role, line) in &rows { tr { th { (number) } td { (role) } td { code { (line) } } } } }
            }
        }
    }
}
