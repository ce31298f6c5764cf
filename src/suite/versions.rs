//! Versions of servers as tables: one for each backend, with a line for each lock and fault, and a column for each version.

use std::fmt::Write;

use harness_checkers::Verdict;
use maud::{Markup, html};

use super::record::{Record, RowRecord};
use crate::report::html;
use crate::report::html::text::address;
use crate::report::markdown::plain;

/// The rows of one backend that name a version of its servers.
struct VersionTable<'a> {
    backend: &'a str,
    /// The versions in the order of the suite.
    versions: Vec<&'a str>,
    lines: Vec<VersionLine<'a>>,
}

/// Rows that differ only in the version.
struct VersionLine<'a> {
    /// All other options.
    options: Vec<&'a str>,
    rows: Vec<(&'a str, &'a RowRecord)>,
}

/// Returns the value of an option in the words of a row.
fn value<'a>(row: &'a RowRecord, option: &str) -> Option<&'a str> {
    let mut values = row
        .words
        .iter()
        .filter_map(|word| word.strip_prefix("--")?.strip_prefix(option)?.strip_prefix('='));
    values.next()
}

fn tables(record: &Record) -> Vec<VersionTable<'_>> {
    let mut tables: Vec<VersionTable<'_>> = Vec::new();
    for row in &record.rows {
        let (Some(backend), Some(version)) = (value(row, "backend"), value(row, "server-version")) else {
            continue;
        };
        let place = tables.iter().position(|table| table.backend == backend);
        let place = place.unwrap_or_else(|| {
            tables.push(VersionTable {
                backend,
                versions: Vec::new(),
                lines: Vec::new(),
            });
            tables.len() - 1
        });
        tables[place].add(version, row);
    }
    tables
}

impl<'a> VersionTable<'a> {
    fn add(&mut self, version: &'a str, row: &'a RowRecord) {
        if !self.versions.contains(&version) {
            self.versions.push(version);
        }
        let words = row.words.iter().map(String::as_str);
        let options: Vec<&str> = words.filter(|word| !word.starts_with("--server-version=")).collect();
        match self.lines.iter_mut().find(|line| line.options == options) {
            Some(line) => line.rows.push((version, row)),
            None => self.lines.push(VersionLine {
                options,
                rows: vec![(version, row)],
            }),
        }
    }
}

impl<'a> VersionLine<'a> {
    /// `redis-set-px-lua`, `partition=holder`
    fn lock_and_fault(&self) -> (&'a str, &'a str) {
        let (_, row) = self.rows[0];
        let lock = value(row, "recipe").or_else(|| value(row, "client"));
        (lock.unwrap_or("default recipe"), value(row, "fault").unwrap_or("none"))
    }

    fn of(&self, version: &str) -> Option<&'a RowRecord> {
        let mut rows = self.rows.iter().filter(|(of, _)| *of == version);
        rows.next().map(|(_, row)| *row)
    }
}

/// Returns `PASS`, `FAIL HL001`, or the reason for which there is no outcome.
fn outcome(row: &RowRecord) -> String {
    let Some((last, outcome)) = row.last().and_then(|last| Some((last, last.outcome?))) else {
        return row.judged.word().to_owned();
    };
    let broken = last
        .verdicts
        .iter()
        .filter(|(_, verdict)| **verdict == Verdict::Violated);
    broken.fold(outcome.word().to_owned(), |text, (property, _)| {
        format!("{text} {}", property.id())
    })
}

/// Returns a section for each backend; empty if no row has a version.
pub(super) fn sections(record: &Record) -> Markup {
    let cell = |row: Option<&RowRecord>| {
        let Some(row) = row else { return html! { td {} } };
        let class = row.judged.shown_as().word().to_lowercase();
        html! { td.(class) { (linked(row, &outcome(row))) } }
    };
    let rows = |table: &VersionTable<'_>| {
        html! {
            @for line in &table.lines {
                tr {
                    td.head { (line.lock_and_fault().0) }
                    td { (line.lock_and_fault().1) }
                    @for version in &table.versions { (cell(line.of(version))) }
                }
            }
        }
    };
    html! {
        @for table in tables(record) {
            @let heads = [&["lock", "fault"][..], &table.versions[..]].concat();
            section { h2 { "By version: " (table.backend) } (html::table(&heads, &rows(&table))) }
        }
    }
}

/// Returns a text about a row with a link to the report of its last run, if there is one.
pub(super) fn linked(row: &RowRecord, text: &str) -> Markup {
    let run = row.last().and_then(|attempt| attempt.run.as_deref());
    html! {
        @match run {
            Some(run) => { a href={ (address(run)) "/report.html" } { (text) } }
            None => { (text) }
        }
    }
}

/// Returns the tables in Markdown.
pub(super) fn markdown(record: &Record) -> String {
    let mut text = String::new();
    for table in tables(record) {
        let _ = write!(text, "\n| {} | fault |", table.backend);
        for version in &table.versions {
            let _ = write!(text, " {version} |");
        }
        let _ = write!(text, "\n|{}\n", "---|".repeat(2 + table.versions.len()));
        for line in &table.lines {
            let (lock, fault) = line.lock_and_fault();
            let _ = write!(text, "| {} | {} |", plain(lock), plain(fault));
            for version in &table.versions {
                let _ = write!(text, " {} |", line.of(version).map(outcome).unwrap_or_default());
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_text::assert_has;
    use crate::suite::RowOutcome;
    use crate::suite::record::tests::record;

    /// Returns a record with two locks on two versions, of which one row is missing, and a row without a version.
    fn mixed() -> Record {
        const OK: &[RowOutcome] = &[RowOutcome::AsExpected];
        const BAD: &[RowOutcome] = &[RowOutcome::Unexpected];
        let mut record = record(None, &[], &[("a", OK), ("b", BAD), ("c", OK), ("d", &[])]);
        let words = [
            "--backend=redis --recipe=lua --server-version=6.2 --fault=kill",
            "--backend=redis --recipe=lua --server-version=7.0 --fault=kill",
            "--backend=redis --client=redis-py --server-version=7.0",
            "--backend=redis --recipe=lua",
        ];
        for (row, words) in record.rows.iter_mut().zip(words) {
            row.words = words.split(' ').map(str::to_owned).collect();
        }
        record
    }

    #[test]
    fn rows_that_differ_in_the_version_alone_share_a_line() {
        let text = markdown(&mixed());
        let expected = "\n| redis | fault | 6.2 | 7.0 |\n|---|---|---|---|\n| lua | kill | PASS | FAIL HL001 |\n| redis-py | none |  | PASS |\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_page_has_the_table_with_links_and_none_where_no_row_names_a_version() {
        let page = sections(&mixed()).into_string();
        let parts = [
            "<h2>By version: redis</h2>",
            "<th>6.2</th><th>7.0</th>",
            r#"<td class="fail"><a href="runs/20261121-0645-zk-none-5eed/report.html">FAIL HL001</a></td>"#,
        ];
        assert_has(&page, &parts);
        let plain = record(None, &[], &[("a", &[RowOutcome::AsExpected])]);
        assert_eq!(sections(&plain).into_string() + &markdown(&plain), "");
    }
}
