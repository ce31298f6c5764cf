//! Text for a terminal, escaped by its type: only [`Look`] adds colours, and control characters and workflow commands of a
//! history, a client or a server reach no screen.

use std::fmt;
use std::ops::Add;

use super::diagnosis::Outcome;
use super::escape::{line, no_command};

/// A part of a line. Text that becomes one is escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScreenText(String);

impl ScreenText {
    /// Lines as they are written, with no workflow command in them.
    pub fn join(lines: &[Self]) -> String {
        let lines = lines.iter().map(|line| no_command(&line.0));
        lines.collect::<Vec<_>>().join("\n")
    }
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

/// How things look.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub color: bool,
}

impl Look {
    /// Text in a colour, by its SGR code.
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
    fn only_a_look_adds_control_characters() {
        let color = Look { color: true };
        let text = ScreenText::from("a\x1b[2J") + color.bold("b\x1b]0;x\x07") + "\n::error::c";
        assert_eq!(
            text.to_string(),
            "a\\u{1b}[2J\x1b[1mb\\u{1b}]0;x\\u{7}\x1b[0m\\n::error::c"
        );
        let plain = Look { color: false };
        assert_eq!(ScreenText::join(&[plain.bold("  ::error::c")]), "  \\::error::c");
    }
}
