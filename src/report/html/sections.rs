//! What a reader sees first: what the run was, how to run it again, and each violation with its proof.

use std::fmt::Write;

use harness_checkers::{Finding, Property, Violation};

use super::drawing::figure;
use super::text::{prose, text};
use crate::report::diagnosis::Diagnosis;
use crate::report::words::{many, span};
use crate::report::{Report, account};

/// Lines of the history that are shown with a violation.
const MAX_LINES: usize = 12;

/// One line under the answer: servers, lock, fault, seed, length, date.
pub fn what(diagnosis: &Diagnosis) -> String {
    let Some(run) = &diagnosis.run else {
        return text(&format!("{} · {} run", diagnosis.path, span(diagnosis.length_ns)));
    };
    let version = run.version.as_deref().unwrap_or_default();
    // a run that could not be made has none
    let length = (diagnosis.length_ns > 0).then(|| span(diagnosis.length_ns));
    let length = length.unwrap_or_default();
    let parts = [
        format!("{} {version} ×{} {}", run.product, run.nodes, run.runtime),
        account::lock(diagnosis),
        format!("fault {}", run.fault),
        format!("seed {}", run.seed),
        length,
        date(&run.started),
    ];
    let parts = parts
        .iter()
        .filter(|part| !part.is_empty())
        .map(|part| format!("<span>{}</span>", text(part.trim())));
    parts.collect::<Vec<_>>().join(" · ")
}

/// `2026-11-21 13:02 UTC` of `20261121-1302`.
pub fn date(started: &str) -> String {
    let digits: String = started.chars().filter(char::is_ascii_digit).collect();
    match digits.get(..12) {
        Some(d) => format!("{}-{}-{} {}:{} UTC", &d[..4], &d[4..6], &d[6..8], &d[8..10], &d[10..12]),
        None => started.to_owned(),
    }
}

/// The line that runs it again.
pub fn again(diagnosis: &Diagnosis) -> String {
    let Some(again) = account::again(diagnosis) else {
        return String::new();
    };
    format!(
        r#"<div class="again"><code id="again">{}</code><button type="button" id="copy" hidden>copy</button></div><p class="quiet">The same plan, not the same timing.</p>"#,
        text(&again.join(" "))
    )
}

/// Why it is neither a pass nor a failure, and what else is to be known.
pub fn reasons(diagnosis: &Diagnosis) -> String {
    let reasons = account::reasons(diagnosis);
    if reasons.is_empty() {
        return String::new();
    }
    let rows = reasons
        .iter()
        .map(|(label, reason)| format!("<dt>{label}</dt><dd>{}</dd>", prose(reason)));
    format!(r#"<dl class="remarks">{}</dl>"#, rows.collect::<String>())
}

/// Violations: the first of each property in full, what is like it or follows from it folded below.
pub fn violations(report: &Report<'_>) -> String {
    let diagnosis = report.diagnosis;
    let roots = account::roots(diagnosis);
    let mut html = String::new();
    for (finding, violation) in &roots {
        let _ = write!(
            html,
            r##"<section class="violation" id="{id}" tabindex="-1"><h2><a href="#{id}">{id}</a> {} <span class="turn" hidden></span></h2>{}</section>"##,
            prose(&violation.summary),
            body(report, finding, violation),
            id = text(&violation.id),
        );
    }
    let rest: Vec<(&Finding, &Violation)> = diagnosis
        .findings
        .iter()
        .flat_map(|finding| finding.violations.iter().map(move |violation| (finding, violation)))
        .filter(|(_, violation)| roots.iter().all(|(_, root)| root.id != violation.id))
        .collect();
    if rest.is_empty() {
        return html;
    }
    let _ = write!(
        html,
        r#"<details class="rest"><summary>{}</summary>"#,
        text(&untold(diagnosis, &rest))
    );
    for (finding, violation) in rest {
        let follows = violation.follows.as_deref();
        let follows = follows.map(|root| format!(r#" <span class="quiet">follows {}</span>"#, text(root)));
        let _ = write!(
            html,
            r#"<details class="violation" id="{}" tabindex="-1"><summary><b>{}</b> {}{}</summary>{}</details>"#,
            text(&violation.id),
            text(&violation.id),
            prose(&violation.summary),
            follows.unwrap_or_default(),
            body(report, finding, violation),
        );
    }
    html + "</details>"
}

fn untold(diagnosis: &Diagnosis, rest: &[(&Finding, &Violation)]) -> String {
    let all: u64 = diagnosis.findings.iter().map(|finding| finding.violation_count).sum();
    let described: usize = diagnosis.findings.iter().map(|finding| finding.violations.len()).sum();
    let undescribed = all.saturating_sub(described as u64);
    let rest = many(rest.len() as u64, "more violation");
    match undescribed {
        0 => format!("{rest}, like these or following from them"),
        more => format!(
            "{rest}, like these or following from them, and {} that are only counted",
            many(more, "other")
        ),
    }
}

fn body(report: &Report<'_>, finding: &Finding, violation: &Violation) -> String {
    let mut html = String::new();
    if let Some(drawing) = report.diagnosis.drawings.get(&violation.id) {
        html += &figure(drawing, &violation.summary);
    }
    if finding.property == Property::Hl004 {
        html += &herd(violation);
    }
    let sentences = violation
        .because
        .iter()
        .map(|because| format!("<li>{}</li>", prose(&because.text)));
    let _ = write!(html, "<ol>{}</ol>", sentences.collect::<String>());
    let remarks = account::remarks(report.diagnosis, finding, violation);
    let remarks = remarks
        .iter()
        .map(|(label, remark)| format!("<dt>{label}</dt><dd>{}</dd>", prose(remark)));
    let _ = write!(html, r#"<dl class="remarks">{}</dl>"#, remarks.collect::<String>());
    html + &lines(report, violation)
}

/// How many one release woke, of how many that waited, and for how many it was of use.
fn herd(violation: &Violation) -> String {
    let figure = |name: &str| violation.figures.get(name).copied().unwrap_or(0.0);
    let most = figure("woken").max(figure("waiters")).max(1.0);
    let bars = [("woken", "over"), ("useful", "within"), ("waiters", "plain")].map(|(name, class)| {
        format!(
            r#"<tr><th>{name}</th><td class="wide"><span class="meter {class}" style="width:{:.1}%"></span><b>{}</b></td></tr>"#,
            figure(name) / most * 90.0,
            figure(name)
        )
    });
    format!(r#"<table class="herd">{}</table>"#, bars.concat())
}

/// The lines of the history that prove it.
fn lines(report: &Report<'_>, violation: &Violation) -> String {
    let own = violation.events.iter().filter_map(|step| {
        let line = report.lines.get(&step.index)?;
        let number = if report.timeline.numbered {
            format!("line {}", step.index + 1)
        } else {
            format!("index {}", step.index)
        };
        Some(format!(
            "<tr><th>{number}</th><td>{}</td><td><code>{}</code></td></tr>",
            text(&step.role),
            text(line)
        ))
    });
    let rows: Vec<String> = own.take(MAX_LINES).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        r#"<details class="raw"><summary>{} of history.jsonl</summary><table>{}</table></details>"#,
        many(rows.len() as u64, "line"),
        rows.concat()
    )
}
