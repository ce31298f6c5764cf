//! `junit.xml` by `quick-junit`: a run is a test suite, a property a test case. Not applicable is skipped, inconclusive is an
//! error: a run that proves nothing must not look green.

use std::fmt::Write;
use std::time::Duration;

use harness_checkers::{Finding, Verdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite, XmlString};

use super::diagnosis::{Diagnosis, Outcome};
use super::escape;
use super::summary;
use super::words::rfc3339;

/// The test case next to the properties: whether the run as a whole proves anything.
const CONCLUSIVE: &str = "the run proves something";

pub fn render(diagnosis: &Diagnosis) -> String {
    let title = summary::title(diagnosis);
    let class = format!("harness.{}", title.replace(" / ", ".").replace(' ', "-"));
    let mut suite = TestSuite::new(line(&title));
    if let Some(run) = &diagnosis.run {
        suite.timestamp = rfc3339(&run.started).and_then(|started| started.parse().ok());
        let version = run.version.as_deref().unwrap_or_default();
        let facts: [(&str, &str); 6] = [
            ("run", &run.run),
            ("seed", &run.seed),
            ("product", &run.product),
            ("version", version),
            ("runtime", run.servers_were()),
            ("harness", &run.harness),
        ];
        suite.add_properties(facts.map(|(name, value)| (line(name), line(value))));
    }
    suite.add_test_cases(diagnosis.findings.iter().map(|finding| case(diagnosis, finding)));
    suite.add_test_case(whole(diagnosis));
    suite.set_system_out(lines(&output(diagnosis)));
    let length = Duration::from_nanos(diagnosis.length_ns);
    document(Report::unnamed(), suite, &class, length)
}

/// Returns the document of a hunt or a suite, whose name is the class of its cases.
pub fn campaign(name: &str, cases: impl IntoIterator<Item = TestCase>, took_ms: u64) -> String {
    let mut suite = TestSuite::new(line(name));
    suite.add_test_cases(cases);
    document(Report::new("harness"), suite, name, Duration::from_millis(took_ms))
}

/// Returns the document of one test suite, with the class of its cases.
fn document(mut report: Report, mut suite: TestSuite, class: &str, time: Duration) -> String {
    suite.set_time(time);
    for case in &mut suite.test_cases {
        case.set_classname(line(class));
    }
    report.set_time(time);
    report.add_test_suite(suite);
    report.to_string().expect("a document in memory can be written")
}

/// Returns the status of a case that was not run, with the reason.
pub fn skipped(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(line(why));
    status
}

/// Returns the status of a failure or an error, with its type and reason.
pub fn non_success(kind: NonSuccessKind, of_type: &str, why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(line(of_type)).set_message(line(why));
    status
}

/// Returns text on one line.
pub fn line(raw: &str) -> XmlString {
    XmlString::new(escape::no_command(&escape::line(raw)))
}

/// Returns text of several lines.
pub fn lines(raw: &str) -> XmlString {
    XmlString::new(escape::no_commands(&escape::lines(raw)))
}

fn output(diagnosis: &Diagnosis) -> String {
    let mut output = String::new();
    if let Some(page) = &diagnosis.page {
        let _ = writeln!(output, "[[ATTACHMENT|{page}]]");
    }
    if let Some(again) = summary::again(diagnosis) {
        let _ = writeln!(output, "again: {}", again.join(" "));
    }
    let _ = write!(output, "effect of the faults: {}", diagnosis.effect.evidence);
    output
}

fn case(diagnosis: &Diagnosis, finding: &Finding) -> TestCase {
    let status = match finding.verdict {
        Verdict::Holds => TestCaseStatus::success(),
        Verdict::NotApplicable => skipped(&finding.evidence),
        Verdict::Inconclusive => non_success(NonSuccessKind::Error, "inconclusive", &finding.evidence),
        Verdict::Violated => failure(diagnosis, finding),
    };
    let mut case = TestCase::new(format!("{} {}", finding.property.id(), finding.property.name()), status);
    case.set_time(Duration::from_micros(finding.check_us));
    case
}

fn failure(diagnosis: &Diagnosis, finding: &Finding) -> TestCaseStatus {
    let Some(first) = finding.violations.first() else {
        return non_success(NonSuccessKind::Failure, "violated", &finding.evidence);
    };
    let mut text = summary::evidence(finding);
    for (number, because) in (1..).zip(&first.because) {
        let _ = write!(text, "\n{number}. {}", because.text);
    }
    for (label, remark) in summary::remarks(diagnosis, finding, first) {
        let _ = write!(text, "\n{label}: {remark}");
    }
    let message = format!("{}  {}", first.id, first.summary);
    let mut failure = non_success(NonSuccessKind::Failure, &first.class, &message);
    failure.set_description(lines(&text));
    failure
}

/// Returns the case that fails if no property is violated and the run is no pass either.
fn whole(diagnosis: &Diagnosis) -> TestCase {
    let status = match diagnosis.outcome {
        Outcome::Pass | Outcome::Fail => TestCaseStatus::success(),
        Outcome::Unsure | Outcome::Error => {
            let reasons = summary::reasons(diagnosis);
            let text: Vec<String> = reasons
                .iter()
                .map(|(label, reason)| format!("{label}: {reason}"))
                .collect();
            let of_type = diagnosis.outcome.word().to_lowercase();
            let mut error = non_success(NonSuccessKind::Error, &of_type, &summary::sentence(diagnosis));
            error.set_description(lines(&text.join("\n")));
            error
        }
    };
    let mut case = TestCase::new(CONCLUSIVE, status);
    case.set_time(Duration::from_nanos(diagnosis.length_ns));
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup_and_nothing_is_forbidden() {
        let mut suite = TestSuite::new(line("<a b=\"&\">\u{0}\u{1b}[2J\n"));
        suite.set_system_out(lines("a\u{ffff}\nb"));
        let text = document(Report::unnamed(), suite, "", Duration::ZERO);
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let suite = document.root_element().first_element_child().unwrap();
        assert_eq!(suite.attribute("name"), Some("<a b=\"&\">\\0\\u{1b}[2J\\n"));
        assert_eq!(suite.first_element_child().unwrap().text(), Some("a\\u{ffff}\nb"));
    }
}
