//! Text for a terminal, escaped by its type: only [`Look`] adds colours. Control characters and workflow commands of a
//! history, a client or a server reach no screen.

use std::fmt;
use std::ops::Add;

use super::diagnosis::Outcome;
use super::escape::{line, no_command};
use super::words::wrap_words;

/// The end of a line of a command that continues.
const CONTINUED: &str = " \\";

/// Indent of a continued line without a column to continue under.
const INDENT: usize = 6;

/// A part of a line. Text is escaped when it is converted to one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScreenText(String);

impl ScreenText {
    /// Joins lines, without workflow commands in them.
    pub fn join(lines: &[Self]) -> String {
        let lines = lines.iter().map(|line| no_command(&line.0));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Joins lines, each wrapped to at most `columns`; see [`Self::in_columns`].
    pub fn join_in_columns(lines: Vec<Self>, columns: Option<usize>) -> String {
        let lines = lines.into_iter().flat_map(|line| line.in_columns(columns));
        Self::join(&lines.collect::<Vec<_>>())
    }

    /// Returns a command behind a label, in lines that a shell reads as one; `words` are quoted.
    pub fn command(label: &str, words: &[String], columns: Option<usize>) -> Vec<Self> {
        let indent = label.chars().count();
        let width = columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent + CONTINUED.len()));
        let mut lines = wrap_words(words.iter().map(String::as_str), width);
        if let Some((_, all_but_last)) = lines.split_last_mut() {
            all_but_last.iter_mut().for_each(|line| *line += CONTINUED);
        }
        let labels = [label.to_owned()]
            .into_iter()
            .chain(std::iter::repeat(" ".repeat(indent)));
        labels
            .zip(lines)
            .map(|(label, line)| Self::from(label + &line))
            .collect()
    }

    /// Wraps to lines of at most `columns`, all after the first indented; no word is broken, and colours take no room.
    pub fn wrapped(self, columns: Option<usize>, indent: usize) -> Vec<Self> {
        let Some(columns) = columns.filter(|columns| room(&self.0) > *columns) else {
            return vec![self];
        };
        let mut lines = vec![String::new()];
        let mut spaces = 0;
        for word in self.0.split(' ') {
            if !word.is_empty() {
                let line = lines.last_mut().expect("there is a first line");
                if !line.trim().is_empty() && room(line) + spaces + room(word) > columns {
                    lines.push(" ".repeat(indent) + word);
                } else {
                    *line += &" ".repeat(spaces);
                    *line += word;
                }
                spaces = 0;
            }
            spaces += 1;
        }
        lines.into_iter().map(Self).collect()
    }

    /// Wraps a line of a table to at most `columns`; the rest continues under the last column that leaves room for it.
    pub fn in_columns(self, columns: Option<usize>) -> Vec<Self> {
        let Some(columns) = columns else {
            return vec![self];
        };
        let gaps = self.0.trim_end().match_indices("  ");
        let behind = gaps.map(|(gap, _)| &self.0[..self.0.len() - self.0[gap..].trim_start_matches(' ').len()]);
        let starts = behind.map(room);
        let indent = starts.filter(|start| *start <= columns / 2).last().unwrap_or(INDENT);
        self.wrapped(Some(columns), indent)
    }
}

/// Returns the width of a text, without the codes of its colours.
fn room(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, |part| part.chars().count());
    let others = parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest).chars().count());
    first + others.sum::<usize>()
}

impl<T: AsRef<str>> From<T> for ScreenText {
    fn from(text: T) -> Self {
        Self(line(text.as_ref()).into_owned())
    }
}

impl Add for ScreenText {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.0 += &other.0;
        self
    }
}

impl<T: AsRef<str>> Add<T> for ScreenText {
    type Output = Self;

    fn add(self, text: T) -> Self {
        self + Self::from(text)
    }
}

impl fmt::Display for ScreenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&no_command(&self.0))
    }
}

/// The colours and the width of an output.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub color: bool,
    /// The width of the terminal, if it is one.
    pub columns: Option<usize>,
}

impl Look {
    /// The look of files and pipes.
    pub const PLAIN: Self = Self {
        color: false,
        columns: None,
    };

    /// Returns the wanted number of columns, or the width of the terminal if that is less.
    pub fn at_most(self, wanted: usize) -> usize {
        self.columns.map_or(wanted, |columns| wanted.min(columns))
    }

    /// Returns text in a colour, by its SGR code.
    pub fn paint(self, code: &str, text: &str) -> ScreenText {
        let text = line(text);
        if self.color {
            ScreenText(format!("\x1b[{code}m{text}\x1b[0m"))
        } else {
            ScreenText(text.into_owned())
        }
    }

    pub fn bold(self, text: &str) -> ScreenText {
        self.paint("1", text)
    }

    pub fn dim(self, text: &str) -> ScreenText {
        self.paint("2", text)
    }

    pub fn outcome(self, outcome: Outcome) -> ScreenText {
        let code = match outcome {
            Outcome::Pass => "1;32",
            Outcome::Fail | Outcome::Error => "1;31",
            Outcome::Unsure => "1;33",
        };
        self.paint(code, outcome.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_the_terminal_and_no_word_is_broken() {
        let color = Look {
            color: true,
            ..Look::PLAIN
        };
        let text = ScreenText::from("  x ") + color.bold("one two") + "   three";
        let lines = text.clone().wrapped(Some(11), 4);
        let lines: Vec<&str> = lines.iter().map(|line| line.0.as_str()).collect();
        assert_eq!(lines, ["  x \x1b[1mone two\x1b[0m", "    three"]);
        // a word that is wider than the terminal is not broken
        let lines = text.clone().wrapped(Some(4), 1);
        assert_eq!(lines.len(), 4, "{lines:?}");
        let whole = std::slice::from_ref(&text);
        for columns in [None, Some(19), Some(100)] {
            assert_eq!(text.clone().wrapped(columns, 4), whole, "{columns:?}");
        }
    }

    #[test]
    fn a_line_of_a_table_goes_on_under_its_last_column() {
        let line = ScreenText::from("still   HL005   it is stuck for 60s");
        let lines = |columns| ScreenText::join(&line.clone().in_columns(Some(columns)));
        assert_eq!(lines(34), "still   HL005   it is stuck for\n                60s");
        assert_eq!(lines(20), "still   HL005   it\n        is stuck for\n        60s");
        assert_eq!(lines(35), line.to_string());
        let lines = |text: &str, columns| ScreenText::join(&ScreenText::from(text).in_columns(Some(columns)));
        let apart = lines("a     b     c d e f g h", 18);
        assert_eq!(apart, "a     b     c d e\n      f g h");
        let plain = lines("no table, only a sentence", 12);
        assert_eq!(plain, "no table,\n      only a\n      sentence");
    }

    #[test]
    fn a_command_goes_on_as_a_shell_takes_it() {
        let words = ["harness", "run", "--lock", "'a b'"].map(str::to_owned);
        let lines = |columns| ScreenText::join(&ScreenText::command("again  ", &words, columns));
        assert_eq!(lines(None), "again  harness run --lock 'a b'");
        assert_eq!(lines(Some(20)), "again  harness run \\\n       --lock \\\n       'a b'");
    }

    #[test]
    fn only_a_look_adds_control_characters() {
        let color = Look {
            color: true,
            ..Look::PLAIN
        };
        let text = ScreenText::from("a\x1b[2J") + color.bold("b\x1b]0;x\x07") + "\n::error::c";
        let shown = "a\\u{1b}[2J\x1b[1mb\\u{1b}]0;x\\u{7}\x1b[0m\\n::error::c";
        assert_eq!(text.to_string(), shown);
        assert_eq!(ScreenText::join(&[Look::PLAIN.bold("  ::error::c")]), "  \\::error::c");
    }
}
