//! `report.html`: one file that needs nothing else. The verdict, its proof and the tables are in the HTML itself; scripts add
//! the timeline, and the file's content security policy forbids them everything but drawing.
//!
//! Styles, scripts and fixed parts of pages are in `../page/`.

mod charts;
#[cfg(test)]
mod colours;
mod data;
mod drawing;
mod sections;
mod tables;
pub(crate) mod text;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::diagnosis::Outcome;
use super::{Report, summary};
pub(crate) use sections::spans;
use text::{prose, whole};

/// Maximum size of a page in bytes: larger ones are slow to open and to send.
const MAX_PAGE: usize = 2 << 20;
/// Bytes reserved for the other parts of the page: its head, the verdict and the footer.
const SPARE: usize = 16 << 10;

const STYLE: &str = include_str!("../page/page.css");
const SCRIPT: &str = concat!(
    "\"use strict\";(() => {\n",
    include_str!("../page/data.js"),
    include_str!("../page/view.js"),
    include_str!("../page/paint.js"),
    include_str!("../page/hover.js"),
    include_str!("../page/page.js"),
    "})();\n",
);

/// Returns the whole page.
pub fn render(report: &Report<'_>) -> String {
    let diagnosis = report.diagnosis;
    let timeline = report.timeline;
    let before = html! {
        (sections::violations(report))
        (sections::reasons(diagnosis))
        section #properties { h2 { "Properties" } div.scroll { (tables::properties(diagnosis)) } }
        section #effect {
            h2 { "Effect of the faults" }
            div.scroll { (tables::effect(report)) (tables::coverage(diagnosis)) }
        }
        @if !timeline.turns.is_empty() { (PreEscaped(include_str!("../page/timeline.html"))) }
    };
    let after = html! {
        section #charts {
            p #stretch .quiet hidden {}
            (charts::latency(diagnosis, timeline)) (charts::herd(diagnosis)) (charts::queue(diagnosis, timeline))
        }
        // a history of another recorder has no command that makes it again
        @let title = summary::again(diagnosis).map_or("Recorded", |_| "Reproduce");
        section #reproduce { h2 { (title) } (tables::reproduce(report)) }
    };
    let style = format!("{STYLE}{}", drawing::rules());
    let taken = before.0.len() + after.0.len() + style.len() + SCRIPT.len() + SPARE;
    let (data, left_out) = data::data(report, MAX_PAGE.saturating_sub(taken));
    let word = diagnosis.outcome.word();
    let body = html! {
        (PreEscaped(include_str!("../page/patterns.html")))
        (head("", diagnosis.outcome, &prose(&summary::sentence(diagnosis)), &sections::what(diagnosis)))
        main {
            (before)
            @if let Some(said) = left_out { p.left-out { (said) } }
            (after)
        }
        (PreEscaped(include_str!("../page/footer.html")))
        script #data type="application/json" { (data) }
    };
    page(&format!("{word} {}", summary::title(diagnosis)), &style, SCRIPT, &body)
}

/// Returns the verdict at the top of a page, with facts in a line under it; `kind` is a class of such pages.
pub(crate) fn head(kind: &str, outcome: Outcome, sentence: &Markup, facts: &Markup) -> Markup {
    let classes = format!("{kind} {}", outcome.word().to_lowercase());
    html! {
        header class=(classes.trim_start()) {
            p.badge { (badge(outcome)) }
            h1 { (sentence) }
            p.what { (facts) }
        }
    }
}

/// `✓ PASS`
pub(crate) fn badge(outcome: Outcome) -> String {
    format!("{} {}", outcome.signs().0, outcome.word())
}

/// Returns a table that scrolls if it is wide.
pub(crate) fn table(heads: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll { table { thead { tr { @for head in heads { th { (head) } } } } tbody { (rows) } } }
    }
}

/// Returns a document with one style and one script, and a policy that allows no others.
pub(crate) fn page(title: &str, style: &str, script: &str, body: &Markup) -> String {
    whole(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(script));
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body {
                (body)
                script { (PreEscaped(script)) }
            }
        }
    })
}

/// Returns the content security policy: the page may show its own styles and run its own script, and nothing else.
fn policy(script: &str) -> String {
    let hash = BASE64_STANDARD.encode(Sha256::digest(script));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'"
    )
}
