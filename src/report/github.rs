//! Workflow commands of GitHub's runner, one a line, for annotations and folded groups.

use super::diagnosis::{Diagnosis, Outcome};
use super::{escape, summary};

/// Maximum number of annotations of one run; the page of a job shows ten in all.
const MAX_ANNOTATIONS: usize = 5;

/// Returns a line for each violation that follows from no other, or one with the reason for which the run is no pass.
pub fn annotations(diagnosis: &Diagnosis) -> Vec<String> {
    let title = summary::title(diagnosis);
    let lines: Vec<String> = match diagnosis.outcome {
        Outcome::Pass => Vec::new(),
        Outcome::Fail => summary::roots(&diagnosis.findings)
            .map(|(_, violation)| {
                let mut text = vec![violation.summary.clone()];
                text.extend(violation.because.iter().map(|because| because.text.clone()));
                text.extend(summary::again(diagnosis).map(|again| format!("again: {}", again.join(" "))));
                command("error", &format!("{} {title}", violation.id), &text.join("\n"))
            })
            .collect(),
        outcome @ (Outcome::Unsure | Outcome::Error) => {
            let level = if outcome == Outcome::Unsure { "warning" } else { "error" };
            let title = format!("{} {title}", outcome.word());
            vec![command(level, &title, &summary::sentence(diagnosis))]
        }
    };
    lines.into_iter().take(MAX_ANNOTATIONS).collect()
}

/// Returns the line that begins a folded group; [`END_GROUP`] ends it.
pub fn group(title: &str) -> String {
    format!("::group::{}", data(title))
}

pub const END_GROUP: &str = "::endgroup::";

fn command(name: &str, title: &str, text: &str) -> String {
    let title = data(title).replace(':', "%3A").replace(',', "%2C");
    format!("::{name} title={title}::{}", data(text))
}

fn data(text: &str) -> String {
    escape::lines(text).replace('%', "%25").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_its_command() {
        let line = command("error", "a: b, c", "50%\n::warning::x\r\x1b[2J");
        assert_eq!(line, "::error title=a%3A b%2C c::50%25%0A::warning::x\\r\\u{1b}[2J");
    }
}
