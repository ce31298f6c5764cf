//! `results/index.html`: all runs on one page, newest first, with what is new since the time before. Offline as the page of
//! a run is; a filter needs scripts, the table does not.

use std::collections::BTreeMap;
use std::fmt::Write;

use harness_checkers::{Finding, Verdict, Violation};

use super::comparison::{Comparison, Gist, KindOf, compare};
use super::diagnosis::Outcome;
use super::html::text::{fill, prose, text};
use super::html::{policy, sign};
use super::words::{many, span, thousands};

pub(crate) const STYLE: &str = concat!(include_str!("page/page.css"), include_str!("page/index.css"));
pub(crate) const SCRIPT: &str = concat!("\"use strict\";(() => {\n", include_str!("page/index.js"), "})();\n");

/// By this the page is known as ours.
pub const TITLE: &str = "<title>harness: all runs</title>";

/// One run as the index lists it.
pub struct Listed {
    /// The name of its folder.
    pub name: String,
    pub gist: Option<Gist>,
    /// How far it came, where there is no verdict.
    pub status: String,
    /// Whether it has a page of its own.
    pub page: bool,
}

/// One suite as the index lists it.
pub struct ListedSuite {
    /// The name of its folder, which has a page of its own.
    pub name: String,
    pub outcome: Outcome,
    /// How many of its rows came out as expected, and which did not.
    pub sentence: String,
}

/// Suites that are named.
const SUITES: usize = 20;

/// The page; `left_out` older runs are not listed.
pub fn render(runs: &[Listed], left_out: usize, suites: &[ListedSuite]) -> String {
    let since = since_last_time(runs);
    let count = |outcome: Outcome| {
        runs.iter()
            .filter(|run| run.gist.as_ref().is_some_and(|gist| gist.outcome == outcome))
            .count()
    };
    let outcomes = [Outcome::Fail, Outcome::Error, Outcome::Unsure, Outcome::Pass];
    let boxes: String = outcomes
        .into_iter()
        .map(|outcome| {
            let word = outcome.word();
            format!(
                r#"<label><input type="checkbox" name="outcome" value="{word}" checked> {} {word} {}</label>"#,
                sign(outcome),
                count(outcome)
            )
        })
        .collect();
    let rows: String = runs
        .iter()
        .rev()
        .map(|run| row(run, since.get(run.name.as_str())))
        .collect();
    let left_out = match left_out {
        0 => String::new(),
        more => format!(
            r#"<p class="left-out">{} older runs are not listed.</p>"#,
            thousands(more as u64)
        ),
    };
    let news = news(runs, &since);
    let policy = policy(SCRIPT);
    let (none, count) = match (runs, suites) {
        ([], [_, ..]) => ("hidden", "The runs of a suite are on its own page.".to_owned()),
        _ => (
            "",
            format!(
                "{}, newest first. A name leads to the run's own report.",
                many(runs.len() as u64, "run")
            ),
        ),
    };
    fill(
        include_str!("page/index.html"),
        &[
            ("title", TITLE),
            ("policy", &policy),
            ("style", STYLE),
            ("count", &count),
            ("none", none),
            ("suites", &nights(suites)),
            ("news", &news),
            ("boxes", &boxes),
            ("rows", &rows),
            ("left-out", &left_out),
            ("script", SCRIPT),
        ],
    )
}

/// The newest suites, each with its outcome and a link to its page.
fn nights(suites: &[ListedSuite]) -> String {
    if suites.is_empty() {
        return String::new();
    }
    let item = |suite: &ListedSuite| {
        let (word, name) = (suite.outcome.word(), text(&suite.name));
        format!(
            r#"<li><b class="{}">{} {word}</b> <a href="{name}/index.html">{name}</a>: {}</li>"#,
            word.to_lowercase(),
            sign(suite.outcome),
            text(&suite.sentence)
        )
    };
    let items: String = suites.iter().rev().take(SUITES).map(item).collect();
    format!("<section><h2>Suites</h2><ul>{items}</ul></section>")
}

/// Each run beside the one before it of the same row. The first of a row has nothing beside it.
fn since_last_time(runs: &[Listed]) -> BTreeMap<&str, Comparison> {
    let mut last: BTreeMap<[&str; 4], &Gist> = BTreeMap::new();
    let mut since = BTreeMap::new();
    for run in runs {
        let Some(gist) = &run.gist else { continue };
        // a run that could not be made says nothing about what is gone
        let Some(row) = gist.row().filter(|_| gist.outcome != Outcome::Error) else {
            continue;
        };
        if let Some(before) = last.insert(row, gist) {
            since.insert(run.name.as_str(), compare(before, gist));
        }
    }
    since
}

/// What is new in the newest run of each row.
fn news(runs: &[Listed], since: &BTreeMap<&str, Comparison>) -> String {
    let mut newest: BTreeMap<[&str; 4], &Listed> = BTreeMap::new();
    for run in runs {
        if let Some(row) = run.gist.as_ref().and_then(Gist::row) {
            newest.insert(row, run);
        }
    }
    let mut items = String::new();
    for run in newest.values() {
        let Some(comparison) = since.get(run.name.as_str()) else {
            continue;
        };
        for kind in &comparison.new {
            let _ = write!(
                items,
                r#"<li><b class="fail">new</b> {}: {} in {}</li>"#,
                text(&kind.name()),
                prose(&kind.summary),
                link(run, &run.name)
            );
        }
        for kind in &comparison.gone {
            let _ = write!(
                items,
                r#"<li><b class="pass">gone</b> {} in {}</li>"#,
                text(&kind.name()),
                link(run, &run.name)
            );
        }
    }
    if items.is_empty() {
        r#"<p class="quiet">No kind of violation is new, and none is gone, since the run before of the same lock and fault.</p>"#.to_owned()
    } else {
        format!("<ul>{items}</ul>")
    }
}

fn link(run: &Listed, label: &str) -> String {
    if run.page {
        format!(r#"<a href="{}/report.html">{}</a>"#, text(&run.name), text(label))
    } else {
        text(label)
    }
}

fn row(run: &Listed, since: Option<&Comparison>) -> String {
    let outcome = run.gist.as_ref().map_or("NONE", |gist| gist.outcome.word());
    let class = outcome.to_lowercase();
    let badge = match &run.gist {
        Some(gist) => format!("{} {outcome}", sign(gist.outcome)),
        None => text(&run.status),
    };
    let info = run.gist.as_ref().and_then(|gist| gist.run.as_ref());
    let lock = info.map(|info| {
        let attitude = info.attitude.as_deref().unwrap_or_default();
        format!("{} {attitude}", info.recipe)
    });
    let length = run.gist.as_ref().map(|gist| span(gist.length_ns));
    format!(
        r#"<tr data-outcome="{outcome}"><td class="head {class}">{badge}</td><td class="head">{}</td><td class="head">{}</td><td class="head">{}</td><td class="head">{}</td><td>{}</td><td>{}</td><td class="number">{}</td></tr>"#,
        link(run, &run.name),
        text(info.map_or("", |info| &info.backend)),
        text(lock.unwrap_or_default().trim()),
        text(info.map_or("", |info| &info.fault)),
        broken(run),
        changes(since),
        length.unwrap_or_default(),
    )
}

/// What is violated, or why it is not sure.
fn broken(run: &Listed) -> String {
    let Some(gist) = &run.gist else { return String::new() };
    let told =
        |(finding, root): (&Finding, &Violation)| format!("<b>{}</b> {}", finding.property.id(), prose(&root.summary));
    let roots: Vec<String> = gist.broken().map(told).collect();
    if !roots.is_empty() {
        return roots.join("<br>");
    }
    let error = gist.run.as_ref().and_then(|run| run.error.as_deref());
    match (gist.outcome, error, gist.unsure.first()) {
        (Outcome::Error, Some(error), _) => text(error.lines().next().unwrap_or_default()),
        (Outcome::Unsure, _, Some(reason)) => prose(reason),
        _ => {
            let holds = gist.findings.iter().filter(|finding| finding.verdict == Verdict::Holds);
            format!("nothing: {} properties hold", holds.count())
        }
    }
}

fn changes(since: Option<&Comparison>) -> String {
    let Some(comparison) = since else {
        return r#"<span class="quiet">first of its row</span>"#.to_owned();
    };
    let names = |kinds: &[KindOf]| {
        kinds
            .iter()
            .map(|kind| text(&kind.name()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut parts = Vec::new();
    for (word, class, kinds) in [
        ("new", "fail", &comparison.new),
        ("still", "unsure", &comparison.still),
        ("gone", "pass", &comparison.gone),
    ] {
        if !kinds.is_empty() {
            parts.push(format!(r#"<b class="{class}">{word}</b> {}"#, names(kinds)));
        }
    }
    parts.join("<br>")
}
