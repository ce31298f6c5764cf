//! The parser of the commands that a client sends to Redis: arrays of strings, or lines of their own.

use super::lines::{KEPT, LINE, keep, line, number};
use super::{RequestDigest, TapError};

/// Words of one command that are kept: a script with its keys and arguments.
const MOST_WORDS: usize = 32;

/// The command that the client is sending.
#[derive(Default)]
pub(super) struct CommandParser {
    pub(super) at: CommandStep,
    line: Vec<u8>,
    /// Arguments still to come, the one being read included.
    left: i64,
    /// Arguments so far.
    pub(super) count: usize,
    /// The first two.
    pub(super) words: [Vec<u8>; 2],
    /// The first of them all, where they are asked for.
    pub(super) all_words: Option<Vec<Vec<u8>>>,
    pub(super) print: RequestDigest,
    pub(super) named: bool,
}

#[derive(Default, Clone, Copy, PartialEq)]
pub(super) enum CommandStep {
    #[default]
    Start,
    Inline,
    /// The number of arguments.
    Count,
    /// The length of the next one.
    Length,
    /// Bytes of an argument still to come, its line end included.
    Argument(usize),
}

impl CommandParser {
    pub(super) fn new(keeps_words: bool) -> Self {
        Self {
            all_words: keeps_words.then(Vec::new),
            ..Self::default()
        }
    }

    /// Reads the next piece of the rest of the chunk.
    pub(super) fn step(&mut self, rest: &[u8]) -> Result<usize, TapError> {
        let length = match self.at {
            CommandStep::Start => 0,
            CommandStep::Inline => {
                let (length, whole) = line(&mut self.line, rest, KEPT)?;
                self.print.add(&rest[..length]);
                if whole {
                    self.inline();
                }
                length
            }
            CommandStep::Count => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    self.left = number(&self.line)?;
                    self.line.clear();
                    self.at = if self.left > 0 {
                        CommandStep::Length
                    } else {
                        CommandStep::Start
                    };
                }
                length
            }
            CommandStep::Length => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let text = self
                        .line
                        .strip_prefix(b"$")
                        .ok_or(TapError("an argument without a length"))?;
                    let argument = usize::try_from(number(text)?).map_err(|_| TapError("an argument that is none"))?;
                    self.line.clear();
                    self.at = CommandStep::Argument(argument + 2);
                }
                length
            }
            CommandStep::Argument(left) => {
                let part = &rest[..rest.len().min(left)];
                self.print.add(part);
                let text = &part[..part.len().min(left.saturating_sub(2))];
                if let Some(word) = self.words.get_mut(self.count) {
                    keep(word, text);
                }
                self.keep_of_all(text);
                self.argument(left - part.len());
                part.len()
            }
        };
        Ok(length)
    }

    fn keep_of_all(&mut self, text: &[u8]) {
        let Some(words) = self.all_words.as_mut().filter(|_| self.count < MOST_WORDS) else {
            return;
        };
        if words.len() == self.count {
            words.push(Vec::new());
        }
        keep(&mut words[self.count], text);
    }

    fn argument(&mut self, left: usize) {
        if left > 0 {
            self.at = CommandStep::Argument(left);
            return;
        }
        self.print.next_part();
        self.count += 1;
        self.left -= 1;
        self.at = if self.left > 0 {
            CommandStep::Length
        } else {
            CommandStep::Start
        };
    }

    /// An inline command, as people type them; an empty line is none.
    fn inline(&mut self) {
        let mut words = self.line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for word in &mut self.words {
            *word = words.next().unwrap_or_default().to_vec();
            self.count += usize::from(!word.is_empty());
        }
        self.count += words.count();
        self.at = CommandStep::Start;
    }
}
