//! A suite's record as one offline page, `index.html` in its folder: what is not as expected and why, with a link to each
//! run's own report, what changed since the suite ran before, and every row.

use std::fmt::Write;

use super::judge::Judged;
use super::record::{Record, RowRecord};
use super::render::{again, clock, outcome, sum, verdicts};
use super::since::Since;
use crate::report::diagnosis::Outcome;
use crate::report::html::text::{fill, prose, text};
use crate::report::html::{date, policy, sign};
use crate::report::index::{SCRIPT, STYLE};

/// Rows that the title names.
const NAMED: usize = 2;

/// The page. `before` is the suite's record of the time before, with the name of its folder, where there is one beside it.
pub fn page(record: &Record, before: Option<(&str, &Record)>) -> String {
    let outcome = outcome(record);
    let rows: String = record.rows.iter().map(row).collect();
    let wrong: String = record.rows.iter().filter(is_wrong).map(wrong).collect();
    let since = before.map(|(name, before)| since(name, &Since::of(before, record)));
    fill(
        include_str!("../report/page/suite.html"),
        &[
            ("title", &text(&format!("{} suite {}", outcome.word(), record.suite))),
            ("policy", &policy(SCRIPT)),
            ("style", STYLE),
            ("outcome", &outcome.word().to_lowercase()),
            ("badge", &format!("{} {}", sign(outcome), outcome.word())),
            ("sentence", &text(&sentence(record))),
            ("what", &what(record)),
            ("wrong", &wrong),
            ("since", &since.unwrap_or_default()),
            ("boxes", &boxes(record)),
            ("rows", &rows),
            ("script", SCRIPT),
        ],
    )
}

fn is_wrong(row: &&RowRecord) -> bool {
    row.judged != Judged::AsExpected
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
        (0, _) => format!("all {rows} rows came out as expected"),
        (1, 1) => format!("its one row is not as expected: {named}"),
        (1, _) => format!("1 of {rows} rows is not as expected: {named}"),
        (count, _) => format!("{count} of {rows} rows are not as expected: {named}{more}"),
    }
}

fn what(record: &Record) -> String {
    let shard = record.shard.map(|shard| format!(" shard {shard}")).unwrap_or_default();
    let parts = [
        format!("suite {}{shard}", record.suite),
        format!("begun {}", date(&record.started)),
        format!("harness {}", record.harness),
        sum(record),
    ];
    let parts = parts.iter().map(|part| format!("<span>{}</span>", text(part)));
    parts.collect::<Vec<_>>().join(" · ")
}

/// The report of a row's last run, if it came to one.
fn report(row: &RowRecord, label: &str) -> String {
    let run = row.last().and_then(|attempt| attempt.run.as_deref());
    match run {
        Some(run) => format!(r#"<a href="{}/report.html">{}</a>"#, text(&address(run)), text(label)),
        None => text(label),
    }
}

/// A path as an address has it.
fn address(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,~".contains(&byte);
    let mut address = String::new();
    for byte in path.bytes() {
        if plain(byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

/// A row that is not as expected: why, run by run, and the line that makes its plan again.
fn wrong(row: &RowRecord) -> String {
    let mut reasons = String::new();
    for (number, attempt) in row.attempts.iter().enumerate() {
        for why in &attempt.why {
            let which = match row.attempts.len() {
                1 => String::new(),
                _ => format!(r#"<span class="quiet">run {}</span> "#, number + 1),
            };
            let _ = write!(reasons, "<li>{which}{}</li>", prose(why));
        }
    }
    if row.attempts.is_empty() {
        reasons = "<li>no machine has run it: its shard is missing, or the suite was stopped</li>".to_owned();
    }
    let again = row.last().map(again).filter(|again| !again.is_empty());
    let again = again.map(|again| format!(r#"<div class="again"><code>{}</code></div>"#, text(&again)));
    format!(
        r#"<section class="violation"><h2><span class="judged">{}</span> {}</h2><ul class="why">{reasons}</ul>{}</section>"#,
        text(row.judged.word()),
        report(row, &row.name),
        again.unwrap_or_default(),
    )
}

fn since(name: &str, since: &Since) -> String {
    let mut items = String::new();
    for (word, class, names) in [
        ("new", "fail", &since.new),
        ("still", "unsure", &since.still),
        ("mended", "pass", &since.mended),
    ] {
        for name in names {
            let _ = write!(items, r#"<li><b class="{class}">{word}</b> {}</li>"#, text(name));
        }
    }
    let changes = if items.is_empty() {
        r#"<p class="quiet">Nothing was wrong then, and nothing is now.</p>"#.to_owned()
    } else {
        format!("<ul>{items}</ul>")
    };
    format!(
        r#"<section><h2>Since <a href="../{}/index.html">{}</a></h2>{changes}</section>"#,
        text(&address(name)),
        text(name)
    )
}

/// A box for each way in which a row of this suite came out.
fn boxes(record: &Record) -> String {
    let mut ways: Vec<Judged> = record.rows.iter().map(|row| row.judged).collect();
    ways.sort_unstable();
    ways.dedup();
    let one = |judged: &Judged| {
        let (word, count) = (judged.word(), record.count(|other| other == *judged));
        format!(r#"<label><input type="checkbox" name="outcome" value="{word}" checked> {word} {count}</label>"#)
    };
    ways.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn row(row: &RowRecord) -> String {
    let (sign, class) = match row.judged {
        Judged::AsExpected => ('✓', "pass"),
        Judged::Unsure | Judged::Interrupted | Judged::NotRun => ('?', "unsure"),
        _ => ('✕', "fail"),
    };
    let word = row.judged.word();
    // a violation that was looked for is no alarm
    let wanted = row.judged == Judged::AsExpected && row.last().is_some_and(|last| last.outcome == Some(Outcome::Fail));
    let expected = if wanted { "as expected: " } else { "" };
    format!(
        r#"<tr data-outcome="{word}"><td class="head {class}">{sign} {word}</td><td class="head">{}</td><td data-label="verdicts">{expected}{}</td><td>{}</td><td class="number" data-label="runs">{}</td><td class="number">{}</td></tr>"#,
        report(row, &row.name),
        text(verdicts(row).trim()),
        text(row.last().map_or("", |attempt| &attempt.bite)),
        row.attempts.len(),
        clock(row.took_ms()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::record::tests::record;

    const OK: &[Judged] = &[Judged::AsExpected];

    #[test]
    fn a_reader_sees_first_how_many_rows_and_which_are_not_as_expected() {
        let of = |rows: &[(&str, &[Judged])]| sentence(&record(None, &[], rows));
        const BAD: &[Judged] = &[Judged::Unexpected];
        assert_eq!(of(&[("a", OK), ("b", OK)]), "all 2 rows came out as expected");
        assert_eq!(of(&[("a", OK), ("b", BAD)]), "1 of 2 rows is not as expected: b");
        let many = of(&[("a", BAD), ("b", BAD), ("c", BAD), ("d", &[])]);
        assert_eq!(many, "4 of 4 rows are not as expected: a; b; and 2 more");
    }

    #[test]
    fn what_is_wrong_stands_above_with_its_reason_its_report_and_what_to_type() {
        let now = record(
            None,
            &[],
            &[("a <b>", &[Judged::Unsure, Judged::Unexpected]), ("c", OK), ("d", &[])],
        );
        let page = page(&now, None);
        let (above, table) = page.split_once("All rows").unwrap();
        assert!(
            above.contains(r#"<a href="runs/20261121-0645-zk-none-5eed/report.html">a &lt;b&gt;</a>"#),
            "{above}"
        );
        assert!(above.contains("run 2</span> a reason &lt;VIOLATED&gt;"), "{above}");
        assert!(above.contains("--client &#39;python3 my lock.py&#39;"), "{above}");
        assert!(above.contains("no machine has run it"), "{above}");
        assert_eq!(table.matches("<tr data-outcome=").count(), 3);
        assert!(!page.contains("<h2>Since"));
    }

    #[test]
    fn the_time_before_is_named_and_led_to() {
        let (before, now) = (
            record(None, &[], &[("a", OK)]),
            record(None, &[], &[("a", &[Judged::Missing])]),
        );
        let page = page(&now, Some(("20261120-0645-suite-nightly", &before)));
        assert!(
            page.contains(r#"<a href="../20261120-0645-suite-nightly/index.html">"#),
            "{page}"
        );
        assert!(page.contains(r#"<li><b class="fail">new</b> a</li>"#), "{page}");
    }

    #[test]
    fn a_path_is_an_address_whatever_is_in_it() {
        assert_eq!(
            address("../runs/a b/partition=holder#1%"),
            "../runs/a%20b/partition=holder%231%25"
        );
    }
}
