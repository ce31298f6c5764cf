//! A suite's record as one offline page, `index.html` in its folder: the rows that are not as expected with their
//! reasons and links to their runs' reports, the changes since the previous run of the suite, and every row.

use maud::{Markup, html};

use super::judge::RowOutcome;
use super::record::{Record, RowLeftOut, RowRecord};
use super::render::{again, outcome, sum, verdicts};
use super::since::Since;
use super::versions::{self, linked};
use crate::report::diagnosis::Outcome;
use crate::report::html::text::{address, prose};
use crate::report::html::{self, spans};
use crate::report::index::{SCRIPT, STYLE, filter_box, filters};
use crate::report::words::{clock, date};

/// Maximum number of rows in the title.
const NAMED: usize = 2;

/// Returns the page. `before` are the suite's previous records, newest first, each with the name of its folder next to this one.
pub fn page(record: &Record, before: &[(String, Record)]) -> String {
    let outcome = outcome(record);
    let body = html! {
        (html::head("suite", outcome, &html! { (sentence(record)) }, &what(record)))
        main {
            @for row in record.rows.iter().filter(is_wrong) { (wrong(row)) }
            @if let Some((name, _)) = before.first() { (since(name, &Since::of(before, record))) }
            (versions::sections(record))
            section {
                h2 { "All rows" }
                (filters("zk, pause, HL001, canary", &boxes(record)))
                div.scroll {
                    table #runs {
                        thead {
                            tr {
                                th { "outcome" } th { "row" } th { "verdicts" } th { "effect of the faults" }
                                th { "runs" } th { "time" }
                            }
                        }
                        tbody { @for row in &record.rows { (self::row(row)) } }
                    }
                }
            }
            @if !record.left_out.is_empty() { (left_out(&record.left_out)) }
        }
        footer {
            "A name links to the report of the row's last run. A canary is a lock that is known to be broken: the suite fails \
             unless the canary fails. harness may repeat a run that proves nothing, and never a run with a verdict."
        }
    };
    let title = format!("{} suite {}", outcome.word(), record.suite);
    html::page(&title, STYLE, SCRIPT, &body)
}

fn is_wrong(row: &&RowRecord) -> bool {
    row.judged != RowOutcome::AsExpected
}

/// `2 of 12 rows are not as expected: a; b`
pub fn sentence(record: &Record) -> String {
    let wrong: Vec<&str> = record
        .rows
        .iter()
        .filter(is_wrong)
        .map(|row| row.name.as_str())
        .collect();
    let rows = record.rows.len();
    let more = match wrong.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named = wrong[..wrong.len().min(NAMED)].join("; ");
    match (wrong.len(), rows) {
        (0, 0) => "this shard has no rows".to_owned(),
        (0, 1) => "the only row is as expected".to_owned(),
        (0, _) => format!("all {rows} rows are as expected"),
        (1, 1) => format!("the only row is not as expected: {named}"),
        (1, _) => format!("1 of {rows} rows is not as expected: {named}"),
        (count, _) => format!("{count} of {rows} rows are not as expected: {named}{more}"),
    }
}

fn what(record: &Record) -> Markup {
    let shard = record.shard.map(|shard| format!(" shard {shard}")).unwrap_or_default();
    spans(&[
        format!("suite {}{shard}", record.suite),
        format!("begun {}", date(&record.started)),
        format!("harness {}", record.harness),
        sum(record),
    ])
}

/// Returns a row that is not as expected: the reasons of each run, and the command that repeats its plan.
fn wrong(row: &RowRecord) -> Markup {
    let again = row.last().map(again).filter(|again| !again.is_empty());
    html! {
        section.violation {
            h2 { span.judged { (row.judged.word()) } " " (linked(row, &row.name)) }
            ul.why {
                @for (number, attempt) in (1..).zip(&row.attempts) {
                    @for why in &attempt.why {
                        li {
                            @if row.attempts.len() > 1 { span.quiet { "run " (number) } " " }
                            (prose(why))
                        }
                    }
                }
                @if row.attempts.is_empty() {
                    li { "no machine has run this row: its shard is missing, or the suite was stopped" }
                }
            }
            @if let Some(again) = again { div.again { code { (again) } } }
        }
    }
}

fn since(name: &str, since: &Since) -> Markup {
    let changes = [
        ("new", "fail", &since.new),
        ("still", "unsure", &since.still),
        ("mended", "pass", &since.mended),
    ];
    html! {
        section {
            h2 { "Since " a href={ "../" (address(name)) "/index.html" } { (name) } }
            @if changes.iter().all(|(.., names)| names.is_empty()) {
                p.quiet { "Each row that ran then and now was as expected both times." }
            } @else {
                p.quiet { "A row that did not run then is compared with its run before that." }
                ul {
                    @for (word, class, names) in changes {
                        @for name in names { li { b.(class) { (word) } " " (name) } }
                    }
                }
            }
        }
    }
}

/// Returns a box for each outcome of a row in this suite.
fn boxes(record: &Record) -> Markup {
    let mut ways: Vec<RowOutcome> = record.rows.iter().map(|row| row.judged).collect();
    ways.sort_unstable();
    ways.dedup();
    let count = |judged: RowOutcome| record.count(|other| other == judged);
    html! {
        @for (place, judged) in ways.into_iter().enumerate() {
            @if place > 0 { " " }
            (filter_box(judged.word(), &format!("{} {}", judged.word(), count(judged))))
        }
    }
}

fn row(row: &RowRecord) -> Markup {
    let (shown, word) = (row.judged.shown_as(), row.judged.word());
    let class = shown.word().to_lowercase();
    // an expected violation is no alarm
    let wanted =
        row.judged == RowOutcome::AsExpected && row.last().is_some_and(|last| last.outcome == Some(Outcome::Fail));
    html! {
        tr data-outcome=(word) {
            td.head.(class) { (shown.signs().0) " " (word) }
            td.head { (linked(row, &row.name)) }
            td data-label="verdicts" { (verdicts(row).trim()) @if wanted { ", as expected" } }
            td { (row.last().map_or("", |attempt| &attempt.effect)) }
            td.number data-label="runs" { (row.runs()) }
            td.number { (clock(row.took_ms())) }
        }
    }
}

fn left_out(rows: &[RowLeftOut]) -> Markup {
    let rows = html! { @for row in rows { tr { td.head { (row.name) } td { (row.why) } } } };
    html! { section { h2 { "Left out" } (html::table(&["row", "why"], &rows)) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_text::assert_has;
    use crate::suite::record::tests::record;

    const OK: &[RowOutcome] = &[RowOutcome::AsExpected];

    #[test]
    fn a_reader_sees_first_how_many_rows_and_which_are_not_as_expected() {
        let of = |rows: &[(&str, &[RowOutcome])]| sentence(&record(None, &[], rows));
        const BAD: &[RowOutcome] = &[RowOutcome::Unexpected];
        assert_eq!(of(&[]), "this shard has no rows");
        assert_eq!(of(&[("a", OK)]), "the only row is as expected");
        assert_eq!(of(&[("a", OK), ("b", OK)]), "all 2 rows are as expected");
        assert_eq!(of(&[("a", OK), ("b", BAD)]), "1 of 2 rows is not as expected: b");
        let many = of(&[("a", BAD), ("b", BAD), ("c", BAD), ("d", &[])]);
        assert_eq!(many, "4 of 4 rows are not as expected: a; b; and 2 more");
    }

    #[test]
    fn what_is_wrong_comes_first_with_its_reason_its_report_and_what_to_type() {
        let wrong: &[RowOutcome] = &[RowOutcome::Unsure, RowOutcome::Unexpected];
        let now = record(None, &[], &[("a <b>", wrong), ("c", OK), ("d", &[])]);
        let page = page(&now, &[]);
        let (above, table) = page.split_once("All rows").unwrap();
        let parts = [
            r#"<a href="runs/20261121-0645-zk-none-5eed/report.html">a &lt;b&gt;</a>"#,
            "run 2</span> a reason &lt;VIOLATED&gt;",
            "--client 'python3 my lock.py'",
            "no machine has run this row",
        ];
        assert_has(above, &parts);
        assert_eq!(table.matches("<tr data-outcome=").count(), 3);
        assert!(!page.contains("<h2>Since") && !page.contains("<h2>Left out"));
    }

    #[test]
    fn rows_that_were_left_out_have_a_table_below() {
        let mut now = record(None, &[], &[("a", OK)]);
        now.left_out = vec![RowLeftOut {
            name: "b <c>".into(),
            why: "no model".into(),
        }];
        let page = page(&now, &[]);
        let (_, below) = page.split_once("<h2>Left out</h2>").unwrap();
        assert_has(below, &[r#"<td class="head">b &lt;c&gt;</td><td>no model</td>"#]);
    }

    #[test]
    fn the_time_before_is_named_and_led_to() {
        let before = record(None, &[], &[("a", OK)]);
        let now = record(None, &[], &[("a", &[RowOutcome::Missing])]);
        let page = page(&now, &[("20261120-0645-suite-nightly".to_owned(), before)]);
        let link = r#"<a href="../20261120-0645-suite-nightly/index.html">"#;
        assert_has(&page, &[link, r#"<li><b class="fail">new</b> a</li>"#]);
    }

    #[test]
    fn a_path_is_an_address_whatever_is_in_it() {
        assert_eq!(
            address("../runs/a b/partition=holder#1%"),
            "../runs/a%20b/partition=holder%231%25"
        );
    }
}
