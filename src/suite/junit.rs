//! A suite's record as JUnit XML: a case a row, so that whatever reads test results reads a night's.
//!
//! A row that is not as expected is a failure; one that proved nothing, or was not run, is an error.

use std::fmt::Write;

use super::judge::Judged;
use super::record::{Record, RowRecord};
use crate::report::junit::xml;

pub fn junit(record: &Record) -> String {
    let is_failure = |judged: Judged| matches!(judged, Judged::Unexpected | Judged::Missing | Judged::Silent);
    let failures = record.count(is_failure);
    let errors = record.count(|judged| !is_failure(judged) && judged != Judged::AsExpected);
    let name = xml(&record.suite);
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
    let (name, time) = (xml(&row.name), seconds(row.took_ms()));
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
        .map(|run| format!("[[ATTACHMENT|{run}/report.html]]"));
    if row.judged == Judged::AsExpected && row.attempts.len() < 2 {
        text.push_str("/>\n");
        return;
    }
    text.push_str(">\n");
    if row.judged != Judged::AsExpected {
        let kind = if is_failure { "failure" } else { "error" };
        let word = row.judged.word();
        let message = xml(why.last().copied().unwrap_or(word));
        let _ = writeln!(
            text,
            "      <{kind} type=\"{word}\" message=\"{message}\">{}</{kind}>",
            xml(&why.join("\n"))
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
        xml(&out.join("\n"))
    );
}

fn seconds(ms: u64) -> String {
    format!("{:.3}", ms as f64 / 1000.0)
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
        let text = junit(&record);
        assert!(text.contains("tests=\"4\" failures=\"1\" errors=\"2\""), "{text}");
        assert!(text.contains("name=\"a\" time=\"11.400\"/>"), "{text}");
        assert!(text.contains("name=\"b &quot;&amp;\u{fffd}\""), "{text}");
        assert!(
            text.contains("<failure type=\"VIOLATED\" message=\"a reason &lt;VIOLATED&gt;\">"),
            "{text}"
        );
        assert_eq!(text.matches("<error ").count(), 2, "{text}");
    }

    #[test]
    fn a_case_that_needed_two_runs_says_so_also_where_it_passed() {
        let text = junit(&record(None, &[], &[("a", &[Judged::Unsure, Judged::AsExpected])]));
        assert!(text.contains("2 runs"), "{text}");
        assert!(text.contains("failures=\"0\" errors=\"0\""), "{text}");
    }
}
