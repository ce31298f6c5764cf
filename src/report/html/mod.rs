//! `report.html`: one file that needs nothing else. The answer, its proof and the tables are in the HTML itself; scripts add
//! the timeline, and the file's own policy forbids them everything but drawing.
//!
//! The parts of the page as a browser knows them are in `../page/`.

mod charts;
mod data;
mod drawing;
mod sections;
mod tables;
pub(crate) mod text;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::diagnosis::Outcome;
use super::{Report, account};
pub(crate) use sections::date;
use text::{fill, prose, text};

/// Bytes of a page: more is slow to open and to send around.
const MAX_PAGE: usize = 2 << 20;
/// Bytes kept free for what is written after the data is measured.
const SPARE: usize = 4 << 10;

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

/// The whole page.
pub fn render(report: &Report<'_>) -> String {
    let diagnosis = report.diagnosis;
    let timeline = if report.timeline.turns.is_empty() {
        String::new()
    } else {
        include_str!("../page/timeline.html").to_owned()
    };
    let parts = [
        (
            "title",
            text(&format!("{} {}", diagnosis.outcome.word(), account::title(diagnosis))),
        ),
        ("policy", policy(SCRIPT)),
        ("style", STYLE.to_owned()),
        ("outcome", diagnosis.outcome.word().to_lowercase()),
        (
            "badge",
            format!("{} {}", sign(diagnosis.outcome), diagnosis.outcome.word()),
        ),
        ("sentence", prose(&account::sentence(diagnosis))),
        ("what", sections::what(diagnosis)),
        ("again", sections::again(diagnosis)),
        ("reasons", sections::reasons(diagnosis)),
        ("violations", sections::violations(report)),
        ("properties", tables::properties(diagnosis)),
        ("bite", tables::bite(report)),
        ("timeline", timeline),
        ("latency", charts::latency(diagnosis, report.timeline)),
        ("herd", charts::herd(diagnosis)),
        ("queue", charts::queue(diagnosis, report.timeline)),
        ("reproduce", tables::reproduce(report)),
        ("script", SCRIPT.to_owned()),
    ];
    let taken: usize = parts.iter().map(|(_, part)| part.len()).sum();
    let page = include_str!("../page/page.html");
    let room = MAX_PAGE.saturating_sub(taken + page.len() + SPARE);
    let (data, left_out) = data::data(report, room);
    let left_out = left_out.map(|said| format!(r#"<p class="left-out">{}</p>"#, text(&said)));
    let left_out = left_out.unwrap_or_default();
    let mut values: Vec<(&str, &str)> = parts.iter().map(|(place, part)| (*place, part.as_str())).collect();
    values.extend([("data", data.as_str()), ("left-out", left_out.as_str())]);
    fill(page, &values)
}

/// What a page may do: show its own styles and run its own script, and nothing else.
pub(crate) fn policy(script: &str) -> String {
    let hash = BASE64_STANDARD.encode(Sha256::digest(script));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'"
    )
}

/// A sign beside the word, for eyes that do not tell colours apart.
pub(crate) fn sign(outcome: Outcome) -> char {
    match outcome {
        Outcome::Pass => '✓',
        Outcome::Fail => '✕',
        Outcome::Unsure => '?',
        Outcome::Error => '!',
    }
}
