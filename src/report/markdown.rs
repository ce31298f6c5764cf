//! `summary.md`: the diagnosis as Markdown for job summaries, issues and chats. At most as long as GitHub allows for one step.

use std::fmt::Write;

use harness_checkers::{Finding, Violation};

use super::coverage::Coverage;
use super::diagnosis::{Diagnosis, Outcome};
use super::escape;
use super::summary;
use super::terminal::picture;
use super::words::span;

/// Maximum size of a summary in bytes.
pub const MAX_SUMMARY: usize = 64 << 10;
const CUT: &str = "\n\n… cut here: the run's `report.html` has it all.\n";

pub fn render(diagnosis: &Diagnosis) -> String {
    let ((_, sign), word) = (diagnosis.outcome.signs(), diagnosis.outcome.word());
    let (title, sentence) = (plain(&summary::title(diagnosis)), prose(&summary::sentence(diagnosis)));
    let mut text = format!("## {sign} {word}: {title}\n\n**{sentence}**\n\n");
    if let Some(run) = &diagnosis.run {
        let version = run.version.as_deref().unwrap_or_default();
        let [product, version, servers] = [run.product.as_str(), version, run.servers_were()].map(plain);
        let (nodes, seed, length) = (run.nodes, code(&run.seed), span(diagnosis.length_ns));
        let _ = writeln!(
            text,
            "{product} {version} ×{nodes} on {servers}, seed {seed}, {length} run\n"
        );
    }
    for (finding, violation) in summary::shown(diagnosis) {
        violation_text(diagnosis, finding, violation, &mut text);
    }
    if let Some(more) = summary::more(diagnosis) {
        let _ = writeln!(text, "{}\n", plain(&more));
    }
    if let Some(again) = summary::again(diagnosis) {
        let (command, run) = (command_block(&again.join(" ")), summary::made_again(diagnosis));
        let _ = writeln!(text, "{command}\nIt makes {run}.\n");
    }
    table(diagnosis, &mut text);
    for (label, reason) in summary::reasons(diagnosis) {
        let _ = writeln!(text, "- {label}: {}", prose(reason));
    }
    let _ = writeln!(text, "- effect of the faults: {}", plain(&diagnosis.effect.evidence));
    for missed in summary::missed(&diagnosis.effect) {
        let _ = writeln!(text, "- {}", plain(&missed));
    }
    if let Some(coverage) = diagnosis.coverage.as_ref().and_then(Coverage::in_words) {
        let _ = writeln!(text, "- struck: {}", plain(&coverage));
    }
    if let Some(latency) = summary::latency(diagnosis) {
        let _ = writeln!(text, "- {latency}");
    }
    let _ = writeln!(text, "- {}", summary::amount(diagnosis));
    if let Some(page) = summary::page(diagnosis) {
        let _ = writeln!(text, "- report: {}", code(&page));
    }
    cut(escape::no_commands(&text))
}

fn violation_text(diagnosis: &Diagnosis, finding: &Finding, violation: &Violation, text: &mut String) {
    let _ = writeln!(text, "### {}: {}\n", plain(&violation.id), prose(&violation.summary));
    if let Some(drawing) = diagnosis.drawings.get(&violation.id) {
        let _ = writeln!(text, "```text\n{}\n```\n", fenced(&picture(drawing)));
    }
    for (number, because) in (1..).zip(&violation.because) {
        let _ = writeln!(text, "{number}. {}", prose(&because.text));
    }
    text.push('\n');
    for (label, remark) in summary::remarks(diagnosis, finding, violation) {
        let _ = writeln!(text, "- {label}: {}", prose(&remark));
    }
    text.push('\n');
}

fn table(diagnosis: &Diagnosis, text: &mut String) {
    text.push_str("| | property | verdict | evidence |\n| --- | --- | --- | --- |\n");
    for finding in &diagnosis.findings {
        let sign = Outcome::like(finding.verdict).map_or('–', |outcome| outcome.signs().1);
        let (id, name) = (finding.property.id(), finding.property.name());
        let word = summary::verdict_word(finding.verdict);
        let evidence = prose(&summary::evidence(finding));
        let _ = writeln!(text, "| {id} | {name} | {sign} {word} | {evidence} |");
    }
    text.push('\n');
}

/// Returns text on one line in which nothing has a meaning in Markdown or HTML.
pub fn plain(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len());
    for letter in one_line(raw).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '@' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Returns a sentence of harness: text between backticks is code.
fn prose(raw: &str) -> String {
    let parts: Vec<&str> = raw.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return plain(raw);
    }
    let marked = parts.iter().enumerate().map(|(place, part)| {
        if place % 2 == 1 && !part.is_empty() {
            code(part)
        } else {
            plain(part)
        }
    });
    marked.collect()
}

/// Returns a code span. In a table, a bar ends the cell even there.
fn code(raw: &str) -> String {
    format!("`{}`", one_line(raw).replace('|', " ").replace('`', "'"))
}

fn one_line(raw: &str) -> String {
    escape::lines(raw).replace(['\n', '\t'], " ")
}

/// Returns text of several lines for a fence, which nothing in it can end.
pub fn fenced(raw: &str) -> String {
    escape::lines(raw).replace('`', "'")
}

/// Returns a command as it is typed, in a fence that is longer than any row of backticks in it.
fn command_block(command: &str) -> String {
    let rows = command.split(|letter: char| letter != '`');
    let fence = "`".repeat(rows.map(|row| row.len() + 1).max().unwrap_or(0).max(3));
    format!("{fence}sh\n{}\n{fence}", escape::lines(command))
}

/// Cuts a text at the end of a line to the size of a summary, and leaves no fence open.
fn cut(text: String) -> String {
    if text.len() <= MAX_SUMMARY {
        return text;
    }
    let mut kept = String::new();
    let mut open = "";
    for line in text.split_inclusive('\n') {
        if kept.len() + line.len() + CUT.len() + open.len() + 8 > MAX_SUMMARY {
            break;
        }
        let (fence, _) = line.split_at(line.len() - line.trim_start_matches('`').len());
        match fence.len() {
            3.. if open.is_empty() => open = fence,
            length if !open.is_empty() && length >= open.len() => open = "",
            _ => {}
        }
        kept.push_str(line);
    }
    kept + open + CUT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(plain("<b>|*a*\n@x"), "&lt;b&gt;\\|\\*a\\* \\@x");
        assert_eq!(prose("held `l0|<b>` twice"), "held `l0 <b>` twice");
        assert_eq!(prose("held `l0\x1b[2J` \u{202e}"), "held `l0\\u{1b}[2J` \\\\u{202e}");
        assert_eq!(code("a`b"), "`a'b`");
        assert_eq!(command_block("run './lock `id`'"), "```sh\nrun './lock `id`'\n```");
        assert_eq!(command_block("a\n```b"), "````sh\na\n```b\n````");
        assert_eq!(fenced("a\n```\n\x1b"), "a\n'''\n\\u{1b}");
    }

    #[test]
    fn what_is_too_long_is_cut_at_a_line_with_no_fence_left_open() {
        for fence in ["```", "````"] {
            let long = format!("a\n{fence}\n{}", "0123456789\n".repeat(10_000));
            let kept = cut(long);
            assert!(kept.len() <= MAX_SUMMARY);
            let end = format!("0123456789\n{fence}{CUT}");
            assert!(kept.ends_with(&end), "{}", &kept[kept.len() - 80..]);
        }
        let closed = cut(format!("```\na\n```\n{}", "0123456789\n".repeat(10_000)));
        assert!(closed.ends_with(&format!("0123456789\n{CUT}")));
    }
}
