//! The screen of a suite: a line for each finished row, one table at the end, and the same as Markdown.

use std::fmt::Write;

use harness_checkers::{Property, Verdict};

use super::judge::RowOutcome;
use super::record::{Record, RowAttempt, RowRecord};
use super::versions;
use super::{Expectation, Expected};
use crate::report::diagnosis::Outcome;
use crate::report::escape::no_commands;
use crate::report::markdown::{fenced, plain};
use crate::report::screen::{Look, ScreenText};
use crate::report::summary::verdict_word;
use crate::report::words::{clock, many, on_run, quoted_words, run_path};

/// Columns of a row's name from which on it is not wrapped.
const NAME: usize = 52;

/// The progress of a suite, next to a row.
pub struct SuiteProgress {
    /// Number of finished rows with this one, and of all rows.
    pub done: usize,
    pub of: usize,
    /// Estimated time for the other rows, by the time of those before.
    pub left_ms: u64,
}

/// Returns the line of a finished row.
pub fn progress(row: &RowRecord, place: &SuiteProgress, look: Look) -> String {
    let width = place.of.to_string().len();
    let left = if place.done == place.of {
        String::new()
    } else {
        format!("   {} left", clock(place.left_ms))
    };
    let place = format!("[{:>width$}/{}] ", place.done, place.of);
    let took = row.took_ms() as f64 / 1000.0;
    let rest = format!("  {:<NAME$} {took:>6.1}s{}{left}", row.name, retried(row));
    let mut lines = vec![ScreenText::from(place) + judged(row, look) + &rest];
    if row.judged != RowOutcome::AsExpected {
        for why in row.last().into_iter().flat_map(|attempt| &attempt.why) {
            lines.extend(indented(8, why));
        }
    }
    ScreenText::join_in_columns(lines, look.columns) + "\n"
}

fn indented(columns: usize, text: &str) -> impl Iterator<Item = ScreenText> {
    text.lines()
        .map(move |line| ScreenText::from(" ".repeat(columns)) + line)
}

/// The word in tables for a row that was left out.
pub(super) const LEFT_OUT: &str = "left out";

/// Returns the table, and a line with its sums.
pub fn table(record: &Record, folder: &str, look: Look) -> String {
    let names = record.rows.iter().map(|row| &row.name);
    let names = names.chain(record.left_out.iter().map(|row| &row.name));
    let widths = names.map(|name| name.chars().count());
    let width = widths.max().unwrap_or(0);
    let empty = ScreenText::default;
    let mut lines = vec![headline(record, look), empty()];
    for row in &record.rows {
        let rest = format!("  {:<width$}  {}{}", row.name, verdicts(row), retried(row));
        lines.push(ScreenText::from("  ") + judged(row, look) + &rest);
    }
    for row in &record.left_out {
        lines.push(format!("  {LEFT_OUT:<9}  {:<width$}  {}", row.name, row.why).into());
    }
    for row in record.rows.iter().filter(|row| row.judged != RowOutcome::AsExpected) {
        lines.extend([empty(), look.bold("x") + " " + look.bold(&row.name)]);
        lines.extend(details(row, folder).iter().flat_map(|detail| on_screen(detail, look)));
    }
    lines.extend([empty(), sum(record).into(), format!("  results  {folder}").into()]);
    ScreenText::join_in_columns(lines, look.columns) + "\n"
}

/// Maximum size of `summary.md`, which is appended to the summary of a job: GitHub drops the summary of a step above 1 MiB entirely, and
/// one step may run two suites.
const SUMMARY_BYTES: usize = 512 << 10;
/// Maximum size with the table of the rows, and with the tables of versions; the rest is for the reasons.
const TABLE_BYTES: usize = SUMMARY_BYTES / 2;
const VERSIONS_BYTES: usize = SUMMARY_BYTES / 4 * 3;

/// Returns the job summary. If it is too long, the last rows of its table, the tables of versions and the reasons of the last rows are
/// omitted, and it says so.
pub fn markdown(record: &Record) -> String {
    let headline = headline(record, Look::PLAIN).to_string();
    let mut text = format!("## {}\n\n{}\n\n", plain(&headline), sum(record));
    text.push_str("| | row | verdicts | runs | time |\n|---|---|---|---|---|\n");
    let left_out = record.left_out.iter();
    let left_out = left_out.map(|row| format!("| {LEFT_OUT} | {} | {} | | |\n", plain(&row.name), plain(&row.why)));
    let rows = record.rows.iter().map(line_in_markdown).chain(left_out);
    let unlisted = add_what_fits(&mut text, rows, TABLE_BYTES);
    if unlisted > 0 {
        let rows = many(unlisted, "row");
        let _ = writeln!(text, "\nThe table lacks {rows}: `suite.json` has all.");
    }
    let by_version = versions::markdown(record);
    if add_what_fits(&mut text, [by_version], VERSIONS_BYTES) > 0 {
        text.push_str("\nThe tables by version are in `index.html`.\n");
    }
    let others = record.rows.iter().filter(|row| row.judged != RowOutcome::AsExpected);
    let reasons = others.map(|row| {
        let details = details(row, "");
        let why = details.iter().map(|(text, words)| format!("{text}{}", words.join(" ")));
        let why = fenced(&why.collect::<Vec<_>>().join("\n"));
        format!("\n**{}**\n\n```\n{why}\n```\n", plain(&row.name))
    });
    let untold = add_what_fits(&mut text, reasons, SUMMARY_BYTES);
    if untold > 0 {
        let rows = many(untold, "more row");
        let _ = writeln!(text, "\nThe reasons of {rows} are in `suite.json`.");
    }
    no_commands(&text)
}

/// Adds the parts with which a text has at most this size. Returns the number of the others.
fn add_what_fits(text: &mut String, parts: impl IntoIterator<Item = String>, most: usize) -> u64 {
    let mut others = 0;
    for part in parts {
        if text.len() + part.len() > most {
            others += 1;
        } else {
            text.push_str(&part);
        }
    }
    others
}

/// Returns the line of a row in the table of the job summary.
fn line_in_markdown(row: &RowRecord) -> String {
    format!(
        "| {} | {} | {} | {} | {:.0}s |\n",
        row.judged.word(),
        plain(&row.name),
        plain(&verdicts(row)),
        row.runs(),
        row.took_ms() as f64 / 1000.0
    )
}

/// Returns the suite's exit code as an outcome.
pub fn outcome(record: &Record) -> Outcome {
    Outcome::of(record.exit())
}

fn headline(record: &Record, look: Look) -> ScreenText {
    let shard = record.shard.map(|shard| format!(" shard {shard}")).unwrap_or_default();
    // exit code 0 of a shard without rows proves nothing about a lock
    let empty = if record.rows.is_empty() {
        "   this shard has no rows"
    } else {
        ""
    };
    look.outcome(outcome(record)) + "  suite " + look.bold(&record.suite) + &shard + empty
}

pub(super) fn sum(record: &Record) -> String {
    let of = |judged: RowOutcome| record.count(|other| other == judged);
    // the words for one, and for several if they differ
    let counts = [
        (of(RowOutcome::AsExpected), "as expected", None),
        (of(RowOutcome::Unexpected), "with an unexpected violation", None),
        (of(RowOutcome::Missing), "with an unexpected verdict", None),
        (of(RowOutcome::Silent), "silent canary", Some("silent canaries")),
        (of(RowOutcome::Unsure), "unsure", None),
        (
            of(RowOutcome::Environment),
            "error of the environment",
            Some("errors of the environment"),
        ),
        (of(RowOutcome::Bug), "bug in harness", Some("bugs in harness")),
        (of(RowOutcome::Interrupted), "interrupted", None),
        (of(RowOutcome::NotRun), "not run", None),
        (record.left_out.len(), LEFT_OUT, None),
    ];
    // a shard may have no row
    let rows = (record.rows.len(), "row", Some("rows"));
    let some = counts.iter().filter(|(count, ..)| *count > 0);
    let shown = some.chain([&rows]).map(|(count, one, many)| {
        let words = many.filter(|_| *count != 1).unwrap_or(one);
        format!("{count} {words}")
    });
    let retries = match record.retries() {
        0 => "no retry".to_owned(),
        1 => "1 retry".to_owned(),
        many => format!("{many} retries"),
    };
    format!(
        "{}, {retries}, {}",
        shown.collect::<Vec<_>>().join(", "),
        clock(record.took_ms)
    )
}

fn judged(row: &RowRecord, look: Look) -> ScreenText {
    let code = match row.judged.shown_as() {
        Outcome::Pass => "32",
        Outcome::Unsure => "33",
        Outcome::Fail | Outcome::Error => "1;31",
    };
    look.paint(code, &format!("{:<9}", row.judged.word()))
}

fn retried(row: &RowRecord) -> String {
    match row.attempts.len() {
        _ if row.seeds.is_some() => format!("   ({})", row.runs()),
        0 | 1 => String::new(),
        _ => format!("   ({} runs)", row.runs()),
    }
}

/// Returns the verdicts, with the expected ones if they differ: `HL001 violated, HL003 holds`.
pub(super) fn verdicts(row: &RowRecord) -> String {
    let Some(attempt) = row.last() else {
        return String::new();
    };
    let Some(outcome) = attempt.outcome else {
        return "no verdict".into();
    };
    let named = Property::ALL.into_iter().filter_map(|property| {
        let verdict = *attempt.verdicts.get(&property)?;
        let shown = row.expect.verdicts.contains_key(&property) || verdict == Verdict::Violated;
        shown.then(|| {
            format!(
                "{} {}{}",
                property.id(),
                verdict_word(verdict),
                otherwise(&row.expect, property, verdict)
            )
        })
    });
    let named: Vec<String> = named.collect();
    let canary = if row.canary { "canary: " } else { "" };
    format!("{canary}{:<6}  {}", outcome.word(), named.join(", "))
}

fn otherwise(expect: &Expectation, property: Property, verdict: Verdict) -> String {
    match expect.verdicts.get(&property) {
        Some(expected) if *expected != Expected::Any && !expected.is(verdict) => format!(" (not {})", expected.word()),
        _ => String::new(),
    }
}

/// A detail of a row that is not as expected: a reason without words, or the label and the quoted words of a command.
type RowDetail = (String, Vec<String>);

fn on_screen((text, words): &RowDetail, look: Look) -> Vec<ScreenText> {
    match words.as_slice() {
        [] => indented(4, text).collect(),
        words => ScreenText::command(&format!("    {text}"), words, look.columns),
    }
}

/// Returns the reasons for which a row is not as expected, and the commands that show more; paths of runs are relative to `folder`.
fn details(row: &RowRecord, folder: &str) -> Vec<RowDetail> {
    let mut lines = Vec::new();
    for (number, attempt) in row.attempts.iter().enumerate() {
        let which = if row.attempts.len() > 1 {
            format!("run {}: ", number + 1)
        } else {
            String::new()
        };
        let reasons = attempt.why.iter().map(|why| (format!("{which}{why}"), Vec::new()));
        lines.extend(reasons);
        let run = attempt.run.as_ref();
        let check = run.map(|run| on_run("check", &run_path(folder, run)));
        lines.extend(check.map(|words| (which, words)));
    }
    let again = row.last().map(|attempt| quoted_words(&attempt.again));
    let again = again.filter(|again| !again.is_empty());
    lines.extend(again.map(|words| (String::new(), words)));
    lines
}

/// Returns the command that repeats the plan, for a shell.
pub(super) fn again(attempt: &RowAttempt) -> String {
    quoted_words(&attempt.again).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_text::assert_has;
    use crate::suite::RowLeftOut;
    use crate::suite::record::tests::record;

    const LOOK: Look = Look::PLAIN;

    fn mixed() -> Record {
        let names = [
            "zk-polling / none",
            "redis-setnx / kill",
            "canary",
            "etcd-mutex / none",
            "gone",
        ];
        record(
            Some("1/2"),
            &names,
            &[
                ("zk-polling / none", &[RowOutcome::Unsure, RowOutcome::AsExpected]),
                ("redis-setnx / kill", &[RowOutcome::Unexpected]),
                ("canary", &[RowOutcome::Silent]),
                ("gone", &[]),
            ],
        )
    }

    #[test]
    fn the_table_has_a_line_a_row_its_reasons_and_one_sum() {
        let text = table(&mixed(), "results/suite", LOOK);
        assert!(text.starts_with("FAIL  suite nightly shard 1/2\n"), "{text}");
        let parts = [
            "  ok         zk-polling / none   PASS    HL001 holds   (2 runs)\n",
            "HL001 violated (not holds)",
            "x redis-setnx / kill\n    a reason <VIOLATED>\n",
            "harness check results/suite/runs/2026",
            "--client 'python3 my lock.py'",
            "1 as expected, 1 with an unexpected violation, 1 silent canary, 1 not run, 4 rows, 1 retry, 1m 01s",
        ];
        assert_has(&text, &parts);
    }

    #[test]
    fn a_row_that_was_left_out_is_named_with_its_reason_and_counted() {
        let mut left = mixed();
        left.left_out = vec![RowLeftOut {
            name: "zk-curator / none | a long name".into(),
            why: "it makes its own connections".into(),
        }];
        let line = "  left out   zk-curator / none | a long name  it makes its own connections\n";
        let text = table(&left, "results/suite", LOOK);
        assert_has(&text, &[line, "1 not run, 1 left out, 4 rows"]);
        let line = "| left out | zk-curator / none \\| a long name | it makes its own connections | | |\n";
        assert_has(&markdown(&left), &[line]);
    }

    #[test]
    fn a_shard_without_a_row_says_so() {
        let of = |names: &[&str], rows| table(&record(Some("2/4"), names, rows), "results/suite", LOOK);
        let text = of(&["a"], &[]);
        let title = "PASS  suite nightly shard 2/4   this shard has no rows\n";
        assert!(text.starts_with(title), "{text}");
        assert_has(&text, &["\n0 rows, no retry"]);
        let text = of(&["a"], &[("a", &[RowOutcome::AsExpected])]);
        assert!(text.starts_with("PASS  suite nightly shard 2/4\n"), "{text}");
    }

    #[test]
    fn progress_has_the_place_the_time_and_what_is_left() {
        let place = SuiteProgress {
            done: 2,
            of: 12,
            left_ms: 75_000,
        };
        let line = progress(&mixed().rows[0], &place, LOOK);
        assert!(line.starts_with("[ 2/12] ok "), "{line}");
        assert!(line.ends_with("22.8s   (2 runs)   1m 15s left\n"), "{line}");
        let place = SuiteProgress {
            done: 12,
            of: 12,
            left_ms: 0,
        };
        let last = progress(&mixed().rows[1], &place, LOOK);
        assert!(last.contains("a reason") && !last.contains("left"), "{last}");
    }

    #[test]
    fn a_summary_stays_in_its_bound_and_says_what_it_leaves_out() {
        let mut mixed = mixed();
        mixed.rows[1].attempts[0].why = vec!["a reason ".repeat(SUMMARY_BYTES / 9)];
        let text = markdown(&mixed);
        assert!(text.len() <= SUMMARY_BYTES, "{}", text.len());
        assert_has(&text, &["reasons of 1 more row are"]);
        // a table that is too long by itself leaves room for the reasons
        mixed.rows[1].attempts[0].why = vec!["a short reason".to_owned()];
        let long = RowRecord {
            name: "a".repeat(TABLE_BYTES / 4),
            ..mixed.rows[0].clone()
        };
        mixed.rows.extend(vec![long; 9]);
        let text = markdown(&mixed);
        assert!(text.len() <= SUMMARY_BYTES, "{}", text.len());
        assert_has(&text, &["\nThe table lacks 6 rows: ", "a short reason"]);
    }

    #[test]
    fn markdown_escapes_what_would_break_its_table() {
        let mut mixed = mixed();
        mixed.rows[0].name = "a | b <i>".into();
        assert_has(&markdown(&mixed), &["| ok | a \\| b &lt;i&gt; |"]);
    }
}
