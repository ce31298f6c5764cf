//! The index of all runs, `results/index.html`: newest first, with the differences from the previous run of the row. Works
//! offline, as the page of a run does; the filter needs scripts, the table does not.

use std::collections::BTreeMap;

use harness_checkers::Verdict;
use maud::{Markup, html};

use super::comparison::{Comparison, RunSummary, ViolationClass, compare};
use super::diagnosis::Outcome;
use super::html::text::{address, prose};
use super::html::{badge, page};
use super::listed::{Listed, ListedFind, ListedRecord};
use super::trend::over_time;
use super::words::{date, many, span, thousands};

pub(crate) const STYLE: &str = concat!(include_str!("page/page.css"), include_str!("page/index.css"));
pub(crate) const SCRIPT: &str = concat!("\"use strict\";(() => {\n", include_str!("page/index.js"), "})();\n");

const NAME: &str = "harness: all runs";
/// Identifies a page as an index that harness wrote.
pub const TITLE: &str = "<title>harness: all runs</title>";

/// The outcome of a run without a verdict, for the filter.
const NO_VERDICT: &str = "NONE";
/// Maximum number of listed suites, and of hunts.
const NEWEST: usize = 20;

/// Returns the page; `left_out` older runs are not listed.
pub fn render(runs: &[Listed], left_out: usize, suites: &[ListedRecord], hunts: &[ListedRecord]) -> String {
    let since = since_last_time(runs);
    let outcome_of = |run: &Listed| run.summary.as_ref().map(|summary| summary.outcome);
    let count = |outcome: Outcome| runs.iter().filter(|run| outcome_of(run) == Some(outcome)).count();
    let elsewhere = runs.is_empty() && !(suites.is_empty() && hunts.is_empty());
    let boxes = [Outcome::Fail, Outcome::Error, Outcome::Unsure, Outcome::Pass];
    let boxes = boxes.map(|outcome| filter_box(outcome.word(), &format!("{} {}", badge(outcome), count(outcome))));
    let without = runs.iter().filter(|run| run.summary.is_none()).count();
    let without = (without > 0).then(|| filter_box(NO_VERDICT, &format!("– no verdict {without}")));
    let body = html! {
        header.index {
            h1 { "All runs" }
            p.what {
                @if elsewhere {
                    "Each suite and each hunt has a page of its own."
                } @else {
                    (many(runs.len() as u64, "run")) ", newest first. A name links to the report of the run."
                }
            }
        }
        main {
            (newest("Suites", suites))
            (newest("Hunts", hunts))
            (over_time(runs, suites))
            div hidden[elsewhere] {
                section { h2 { "Since the previous runs" } (news(runs, &since)) }
                @if left_out > 0 {
                    p.left-out { (many(left_out as u64, "older run")) " left out." }
                }
                (filters("zk, partition, HL001, new", &html! { @for one in boxes.iter().chain(&without) { (one) } }))
                div.scroll {
                    table #runs.all.sortable {
                        thead {
                            tr {
                                th { "outcome" } th { "time (UTC)" } th { "run" } th { "backend" } th { "lock" } th { "fault" }
                                th { "violations" } th { "since the previous run" } th { "seed" } th { "length" }
                            }
                        }
                        tbody { @for run in runs.iter().rev() { (row(run, since.get(run.name.as_str()))) } }
                    }
                }
            }
        }
        footer {
            "Two violations are the same when property and class are. " code { "harness compare" }
            " compares two runs."
        }
    };
    page(NAME, STYLE, SCRIPT, &body)
}

/// Returns the form that filters the rows of a table, by words and by boxes for the outcomes.
pub(crate) fn filters(example: &str, boxes: &Markup) -> Markup {
    html! {
        form #filters hidden {
            label { "find " input #query type="search" placeholder=(example) autocomplete="off"; }
            " " (boxes) " "
            output #shown {}
        }
    }
}

pub(crate) fn filter_box(value: &str, label: &str) -> Markup {
    html! { label { input type="checkbox" name="outcome" value=(value) checked; " " (label) } }
}

/// Returns a list of the newest suites or hunts.
fn newest(title: &str, listed: &[ListedRecord]) -> Markup {
    html! {
        @if !listed.is_empty() {
            section {
                h2 { (title) }
                ul { @for one in listed.iter().rev().take(NEWEST) { li { (entry(one)) } } }
            }
        }
    }
}

/// Returns a suite or a hunt: its outcome, a link to its page, its sentence, and its finds.
fn entry(record: &ListedRecord) -> Markup {
    html! {
        b class=(record.outcome.word().to_lowercase()) { (badge(record.outcome)) } " "
        a href={ (address(&record.name)) "/index.html" } { (record.name) } ": " (record.sentence)
        @if !record.finds.is_empty() {
            ul { @for find in &record.finds { li { (found(find)) } } }
        }
    }
}

fn found(find: &ListedFind) -> Markup {
    html! {
        @match &find.page {
            Some(page) => a href=(address(page)) { (find.kind) },
            None => (find.kind),
        }
        " ×" (thousands(find.count)) ": " (prose(&find.summary))
    }
}

/// Compares each run with the previous one of the same row. The first of a row has none.
fn since_last_time(runs: &[Listed]) -> BTreeMap<&str, Comparison> {
    let mut last: BTreeMap<[&str; 4], &RunSummary> = BTreeMap::new();
    let mut since = BTreeMap::new();
    for run in runs {
        let Some(summary) = &run.summary else { continue };
        // a run that proves nothing does not show that a violation is gone
        let Some(row) = summary.row().filter(|_| summary.outcome.is_verdict()) else {
            continue;
        };
        if let Some(before) = last.insert(row, summary) {
            since.insert(run.name.as_str(), compare(before, summary));
        }
    }
    since
}

/// Returns the new violations of the newest run of each row.
fn news(runs: &[Listed], since: &BTreeMap<&str, Comparison>) -> Markup {
    let mut newest: BTreeMap<[&str; 4], &Listed> = BTreeMap::new();
    for run in runs {
        if let Some(row) = run.summary.as_ref().and_then(RunSummary::row) {
            newest.insert(row, run);
        }
    }
    let changed = newest
        .values()
        .filter_map(|run| Some((run, since.get(run.name.as_str())?)));
    let changed: Vec<_> = changed
        .filter(|(_, comparison)| !comparison.new.is_empty() || !comparison.gone.is_empty())
        .collect();
    html! {
        @if changed.is_empty() {
            p.quiet {
                "No class of violation is new or gone since the previous run of the same lock and fault."
            }
        } @else {
            ul {
                @for (run, comparison) in changed {
                    @for class in &comparison.new {
                        li { b.fail { "new" } " " (class.name()) ": " (prose(&class.summary)) " in " (link(run)) }
                    }
                    @for class in &comparison.gone { li { b.pass { "gone" } " " (class.name()) " in " (link(run)) } }
                }
            }
        }
    }
}

fn link(run: &Listed) -> Markup {
    html! {
        @if run.page { a href={ (address(&run.name)) "/report.html" } { (run.name) } } @else { (run.name) }
    }
}

/// Returns the start of a run: its name begins with it.
fn time(run: &Listed) -> String {
    let minute = run.name.get(.."20261121-0645".len()).unwrap_or_default();
    match date(minute) {
        other if other == minute => String::new(),
        time => time.trim_end_matches(" UTC").to_owned(),
    }
}

fn row(run: &Listed, since: Option<&Comparison>) -> Markup {
    let summary = run.summary.as_ref();
    let outcome = summary.map_or(NO_VERDICT, |summary| summary.outcome.word());
    let info = summary.and_then(|summary| summary.run.as_ref()).or(run.info.as_ref());
    let lock = info.map(|info| {
        let attitude = info.attitude.as_deref().unwrap_or_default();
        format!("{} {attitude}", info.recipe)
    });
    html! {
        tr data-outcome=(outcome) {
            td.head.(outcome.to_lowercase()) {
                @match summary {
                    Some(summary) => { (badge(summary.outcome)) }
                    None => { (run.status) }
                }
            }
            td.head { (time(run)) }
            td.head { (link(run)) }
            td.head { (info.map_or("", |info| &info.backend)) }
            td.head { (lock.unwrap_or_default().trim()) }
            td.head { (info.map_or("", |info| &info.fault)) }
            td { (broken(run)) }
            td { @if summary.is_some_and(|summary| summary.outcome.is_verdict()) { (changes(since)) } }
            td.head { (info.map_or("", |info| &info.seed)) }
            td.number data-sort=[summary.map(|summary| summary.length_ns)] {
                @if let Some(summary) = summary { (span(summary.length_ns)) }
            }
        }
    }
}

/// Returns the violations, or the reason for which the run is unsure.
fn broken(run: &Listed) -> Markup {
    let Some(summary) = &run.summary else { return html! {} };
    let roots: Vec<_> = summary.broken().collect();
    if !roots.is_empty() {
        return html! {
            @for (place, (finding, root)) in roots.iter().enumerate() {
                @if place > 0 { br; }
                b { (finding.property.id()) } " " (prose(&root.summary))
            }
        };
    }
    let error = summary.run.as_ref().and_then(|run| run.error.as_deref());
    match (summary.outcome, error, summary.unsure.first()) {
        (Outcome::Error, Some(error), _) => html! { (error.lines().next().unwrap_or_default()) },
        (Outcome::Unsure, _, Some(reason)) => prose(reason),
        _ => {
            let holds = summary
                .findings
                .iter()
                .filter(|finding| finding.verdict == Verdict::Holds);
            match holds.count() {
                1 => html! { "none: 1 property holds" },
                count => html! { "none: " (count) " properties hold" },
            }
        }
    }
}

fn changes(since: Option<&Comparison>) -> Markup {
    let Some(comparison) = since else {
        return html! { span.quiet { "first of its row" } };
    };
    let parts = [
        ("new", "fail", &comparison.new),
        ("still", "unsure", &comparison.still),
        ("gone", "pass", &comparison.gone),
    ];
    let names = |found: &[ViolationClass]| found.iter().map(ViolationClass::name).collect::<Vec<_>>().join(", ");
    let parts = parts.into_iter().filter(|(.., found)| !found.is_empty());
    html! {
        @for (place, (word, class, found)) in parts.enumerate() {
            @if place > 0 { br; }
            b.(class) { (word) } " " (names(found))
        }
    }
}
