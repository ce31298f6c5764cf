//! A suite's record as JUnit XML by `quick-junit`: a test case a row. A row that is not as expected is a failure; one
//! that proves nothing, or was not run, is an error; one that was left out is skipped.

use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus};

use super::judge::RowOutcome;
use super::record::{Record, RowLeftOut, RowRecord};
use crate::report::junit::{campaign, line, lines, non_success, skipped};

pub fn junit(record: &Record) -> String {
    let rows = record.rows.iter().map(case);
    let cases = rows.chain(record.left_out.iter().map(left_out));
    campaign(&record.suite, cases, record.took_ms)
}

fn case(row: &RowRecord) -> TestCase {
    let last = row.last().map_or(&[][..], |attempt| attempt.why.as_slice());
    let mut case = TestCase::new(line(&row.name), status(row.judged, last));
    case.set_time(Duration::from_millis(row.took_ms()));
    let mut output = Vec::new();
    if row.retries() > 0 {
        let earlier = row.attempts[..row.retries()]
            .iter()
            .map(|attempt| attempt.why.join("; "));
        let earlier: Vec<String> = earlier.collect();
        output.push(format!(
            "{} runs; the earlier ones proved nothing: {}",
            row.attempts.len(),
            earlier.join("; ")
        ));
    }
    let run = row.last().and_then(|attempt| attempt.run.as_deref());
    output.extend(run.map(|run| format!("[[ATTACHMENT|{run}/report.html]]")));
    if row.judged != RowOutcome::AsExpected || row.retries() > 0 {
        case.set_system_out(lines(&output.join("\n")));
    }
    case
}

fn left_out(row: &RowLeftOut) -> TestCase {
    TestCase::new(line(&row.name), skipped(&row.why))
}

fn status(judged: RowOutcome, reasons: &[String]) -> TestCaseStatus {
    let kind = match judged {
        RowOutcome::AsExpected => return TestCaseStatus::success(),
        RowOutcome::Unexpected | RowOutcome::Missing | RowOutcome::Silent => NonSuccessKind::Failure,
        _ => NonSuccessKind::Error,
    };
    let message = reasons.last().map_or(judged.word(), String::as_str);
    let mut status = non_success(kind, judged.word(), message);
    status.set_description(lines(&reasons.join("\n")));
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_text::assert_has;
    use crate::suite::record::tests::record;

    #[test]
    fn a_row_is_a_case_and_says_failure_or_error_as_it_is() {
        let rows: &[(&str, &[RowOutcome])] = &[
            ("a", &[RowOutcome::AsExpected]),
            ("b \"&\u{1}", &[RowOutcome::Unexpected]),
            ("c", &[RowOutcome::Unsure, RowOutcome::Unsure]),
            ("d", &[]),
        ];
        let text = junit(&record(None, &[], rows));
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let suite = document.root_element().first_element_child().unwrap();
        for (attribute, count) in [("tests", "4"), ("failures", "1"), ("errors", "2"), ("skipped", "0")] {
            assert_eq!(suite.attribute(attribute), Some(count), "{attribute}: {text}");
        }
        let cases: Vec<_> = suite.children().filter(|node| node.has_tag_name("testcase")).collect();
        assert_eq!(cases[0].attribute("time"), Some("11.400"), "{text}");
        assert!(!cases[0].has_children(), "{text}");
        assert_eq!(cases[1].attribute("name"), Some("b \"&\\u{1}"));
        let failure = cases[1].first_element_child().unwrap();
        assert_eq!(failure.tag_name().name(), "failure");
        assert_eq!(failure.attribute("type"), Some("VIOLATED"));
        assert_eq!(failure.attribute("message"), Some("a reason <VIOLATED>"));
        let error = |case: &roxmltree::Node<'_, '_>| case.children().any(|child| child.has_tag_name("error"));
        assert_eq!(cases.iter().filter(|case| error(case)).count(), 2, "{text}");
    }

    #[test]
    fn a_row_that_was_left_out_is_skipped() {
        let mut record = record(None, &[], &[("a", &[RowOutcome::AsExpected])]);
        record.left_out = vec![RowLeftOut {
            name: "b".into(),
            why: "no model of it".into(),
        }];
        let skipped = r#"<skipped message="no model of it"/>"#;
        assert_has(&junit(&record), &[r#"tests="2" skipped="1""#, skipped]);
    }

    #[test]
    fn a_case_that_needed_two_runs_says_so_also_where_it_passed() {
        let rows: &[(&str, &[RowOutcome])] = &[("a", &[RowOutcome::Unsure, RowOutcome::AsExpected])];
        let text = junit(&record(None, &[], rows));
        assert_has(&text, &["2 runs", "errors=\"0\" failures=\"0\""]);
        let rows: &[(&str, &[RowOutcome])] = &[("a", &[RowOutcome::Unsure, RowOutcome::Unexpected])];
        let earlier = "the earlier ones proved nothing: a reason &lt;UNSURE&gt;\n";
        assert_has(&junit(&record(None, &[], rows)), &[earlier]);
    }
}
