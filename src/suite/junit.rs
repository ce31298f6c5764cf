//! A suite's record as JUnit XML: a case a row, so that whatever reads test results reads a night's.
//!
//! A row that is not as expected is a failure; one that proved nothing, or was not run, is an error.

use std::fmt::Write;

use super::judge::Judged;
use super::record::{Record, RowRecord};

pub fn junit(record: &Record) -> String {
    let is_failure = |judged: Judged| matches!(judged, Judged::Unexpected | Judged::Missing | Judged::Silent);
    let failures = record.count(is_failure);
    let errors = record.count(|judged| !is_failure(judged) && judged != Judged::AsExpected);
    let name = escape(&record.suite);
    let counts = format!(
        "tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\"",
        record.rows.len()
    );
    let time = seconds(record.took_ms);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites name=\"harness\" {counts} time=\"{time}\">\n  \
         <testsuite name=\"{name}\" {counts} skipped=\"0\" time=\"{time}\">\n"
    );
    for row in &record.rows {
        case(&mut text, &name, row, is_failure(row.judged));
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn case(text: &mut String, suite: &str, row: &RowRecord, is_failure: bool) {
    let (name, time) = (escape(&row.name), seconds(row.took_ms()));
    let _ = write!(
        text,
        "    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{time}\""
    );
    let why: Vec<&str> = row
        .attempts
        .iter()
        .flat_map(|attempt| &attempt.why)
        .map(String::as_str)
        .collect();
    let attachment = row
        .last()
        .and_then(|attempt| attempt.run.as_deref())
        .map(|run| format!("[[ATTACHMENT|{run}]]"));
    if row.judged == Judged::AsExpected && row.attempts.len() < 2 {
        text.push_str("/>\n");
        return;
    }
    text.push_str(">\n");
    if row.judged != Judged::AsExpected {
        let kind = if is_failure { "failure" } else { "error" };
        let word = row.judged.word();
        let message = escape(why.last().copied().unwrap_or(word));
        let _ = writeln!(
            text,
            "      <{kind} type=\"{word}\" message=\"{message}\">{}</{kind}>",
            escape(&why.join("\n"))
        );
    }
    let mut out: Vec<String> = attachment.into_iter().collect();
    if row.attempts.len() > 1 {
        out.insert(
            0,
            format!(
                "{} runs: those before the last proved nothing: {}",
                row.attempts.len(),
                why.join("; ")
            ),
        );
    }
    let _ = writeln!(
        text,
        "      <system-out>{}</system-out>\n    </testcase>",
        escape(&out.join("\n"))
    );
}

fn seconds(ms: u64) -> String {
    format!("{:.3}", ms as f64 / 1000.0)
}

/// Text as XML 1.0 can carry it: control characters have no place in it at all.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push(letter),
            control if control.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::record::tests::record;

    #[test]
    fn a_row_is_a_case_and_says_failure_or_error_as_it_is() {
        let record = record(
            None,
            &[],
            &[
                ("a", &[Judged::AsExpected]),
                ("b \"&\u{1}", &[Judged::Unexpected]),
                ("c", &[Judged::Unsure, Judged::Unsure]),
                ("d", &[]),
            ],
        );
        let xml = junit(&record);
        assert!(xml.contains("tests=\"4\" failures=\"1\" errors=\"2\""), "{xml}");
        assert!(xml.contains("name=\"a\" time=\"11.400\"/>"), "{xml}");
        assert!(xml.contains("name=\"b &quot;&amp;\u{fffd}\""), "{xml}");
        assert!(
            xml.contains("<failure type=\"VIOLATED\" message=\"a reason &lt;VIOLATED&gt;\">"),
            "{xml}"
        );
        assert_eq!(xml.matches("<error ").count(), 2, "{xml}");
    }

    #[test]
    fn a_case_that_needed_two_runs_says_so_also_where_it_passed() {
        let xml = junit(&record(None, &[], &[("a", &[Judged::Unsure, Judged::AsExpected])]));
        assert!(xml.contains("2 runs"), "{xml}");
        assert!(xml.contains("failures=\"0\" errors=\"0\""), "{xml}");
    }
}
