//! `junit.xml`: a run is a suite, a property a case. Not applicable is skipped, inconclusive is an error: a run that proved
//! nothing must not look green.

use std::fmt::Write;

use harness_checkers::{Finding, Verdict};

use super::account;
use super::diagnosis::{Diagnosis, Outcome};

/// The case beside the properties: whether the run as a whole proves anything.
const CONCLUSIVE: &str = "the run proves something";

pub fn render(diagnosis: &Diagnosis) -> String {
    let class = xml(&format!(
        "harness.{}",
        account::title(diagnosis).replace(" / ", ".").replace(' ', "-")
    ));
    let mut cases: Vec<String> = diagnosis
        .findings
        .iter()
        .map(|finding| case(diagnosis, finding, &class))
        .collect();
    cases.push(whole(diagnosis, &class));
    let count = |part: &str| cases.iter().filter(|case| case.contains(part)).count();
    let counts = format!(
        r#"tests="{}" failures="{}" errors="{}" skipped="{}" time="{}""#,
        cases.len(),
        count("<failure "),
        count("<error "),
        count("<skipped "),
        seconds(diagnosis.length_ns),
    );
    let name = xml(&account::title(diagnosis));
    let mut output = String::new();
    if let Some(page) = &diagnosis.page {
        let _ = writeln!(output, "[[ATTACHMENT|{page}]]");
    }
    if let Some(again) = account::again(diagnosis) {
        let _ = writeln!(output, "again: {}", again.join(" "));
    }
    let _ = writeln!(output, "did it bite? {}", diagnosis.bite.evidence);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n<testsuite name=\"{name}\" {counts}{}>\n{}{}<system-out>{}</system-out>\n</testsuite>\n</testsuites>\n",
        timestamp(diagnosis),
        properties(diagnosis),
        cases.concat(),
        xml(&output),
    )
}

/// When it began, as the format wants it: `2026-11-21T06:45:00`.
fn timestamp(diagnosis: &Diagnosis) -> String {
    let started = diagnosis.run.as_ref().map_or("", |run| run.started.as_str());
    let digits: String = started.chars().filter(char::is_ascii_digit).collect();
    match digits.get(..12) {
        Some(at) => format!(
            r#" timestamp="{}-{}-{}T{}:{}:00""#,
            &at[..4],
            &at[4..6],
            &at[6..8],
            &at[8..10],
            &at[10..12]
        ),
        None => String::new(),
    }
}

fn properties(diagnosis: &Diagnosis) -> String {
    let Some(run) = &diagnosis.run else {
        return String::new();
    };
    let version = run.version.clone().unwrap_or_default();
    let facts = [
        ("run", &run.run),
        ("seed", &run.seed),
        ("product", &run.product),
        ("version", &version),
        ("runtime", &run.runtime),
        ("harness", &run.harness),
    ];
    let facts = facts.map(|(name, value)| format!("<property name=\"{name}\" value=\"{}\"/>\n", xml(value)));
    format!("<properties>\n{}</properties>\n", facts.concat())
}

fn case(diagnosis: &Diagnosis, finding: &Finding, class: &str) -> String {
    let name = format!("{} {}", finding.property.id(), finding.property.name());
    let inside = match finding.verdict {
        Verdict::Holds => String::new(),
        Verdict::NotApplicable => format!("<skipped message=\"{}\"/>", xml(&finding.evidence)),
        Verdict::Inconclusive => format!("<error type=\"inconclusive\" message=\"{}\"/>", xml(&finding.evidence)),
        Verdict::Violated => failure(diagnosis, finding),
    };
    let time = seconds(finding.check_us * 1000);
    format!(
        "<testcase classname=\"{class}\" name=\"{}\" time=\"{time}\">{inside}</testcase>\n",
        xml(&name)
    )
}

fn failure(diagnosis: &Diagnosis, finding: &Finding) -> String {
    let Some(first) = finding.violations.first() else {
        return format!("<failure type=\"violated\" message=\"{}\"/>", xml(&finding.evidence));
    };
    let mut text = format!("{}\n", account::evidence(finding));
    for (number, because) in (1..).zip(&first.because) {
        let _ = writeln!(text, "{number}. {}", because.text);
    }
    for (label, remark) in account::remarks(diagnosis, finding, first) {
        let _ = writeln!(text, "{label}: {remark}");
    }
    format!(
        "<failure type=\"{}\" message=\"{}\">{}</failure>",
        xml(&first.class),
        xml(&format!("{}  {}", first.id, first.summary)),
        xml(&text)
    )
}

/// The case that fails when no property does and the run is no pass all the same.
fn whole(diagnosis: &Diagnosis, class: &str) -> String {
    let inside = match diagnosis.outcome {
        Outcome::Pass | Outcome::Fail => String::new(),
        Outcome::Unsure | Outcome::Error => {
            let reasons = account::reasons(diagnosis);
            let text: Vec<String> = reasons
                .iter()
                .map(|(label, reason)| format!("{label}: {reason}"))
                .collect();
            format!(
                "<error type=\"{}\" message=\"{}\">{}</error>",
                diagnosis.outcome.word().to_lowercase(),
                xml(&account::sentence(diagnosis)),
                xml(&text.join("\n"))
            )
        }
    };
    let time = seconds(diagnosis.length_ns);
    format!("<testcase classname=\"{class}\" name=\"{CONCLUSIVE}\" time=\"{time}\">{inside}</testcase>\n")
}

fn seconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e9)
}

/// Text as XML 1.0 takes it: escaped, and without the characters that it has no place for.
pub fn xml(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len());
    for letter in raw.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push(' '),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup_and_nothing_is_forbidden() {
        assert_eq!(
            xml("<a b=\"&\">\u{0}\u{1b}\n"),
            "&lt;a b=&quot;&amp;&quot;&gt;\u{fffd}\u{fffd}&#10;"
        );
    }
}
