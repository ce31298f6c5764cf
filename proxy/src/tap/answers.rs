//! What Redis sends: values of RESP2 and RESP3, one in another.

use super::Lost;
use super::lines::{KEPT, LINE, keep, line, number};

/// How deep answers are nested.
const DEPTH: usize = 32;

/// What the server's side is in the middle of.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) at: Answer,
    line: Vec<u8>,
    /// Elements still to come, for each list that is open.
    pub(super) open: Vec<i64>,
    /// Elements of the outermost list so far.
    pub(super) count: usize,
    /// The first elements of a push or of an array that may be one, those of its lists among them.
    pub(super) words: Vec<Vec<u8>>,
    /// What the value is: told by its first byte, or by its first element.
    pub(super) kind: Kind,
}

#[derive(Default, Clone, Copy, PartialEq)]
pub(super) enum Answer {
    #[default]
    Start,
    /// A line whose text does not matter.
    Simple,
    /// How long a string is.
    Length,
    /// How long a list is: elements for each that it counts.
    Count(i64),
    Text(usize),
}

#[derive(Default, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    #[default]
    Reply,
    Push,
    /// An array on a connection that subscribed, until its first element is read.
    Unsure,
}

impl Answers {
    pub(super) fn is_whole(&self) -> bool {
        self.at == Answer::Start && self.open.is_empty()
    }

    /// Takes one step into what is left of the chunk.
    pub(super) fn step(&mut self, rest: &[u8]) -> Result<usize, Lost> {
        match self.at {
            Answer::Start => {
                self.at = match rest[0] {
                    b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Answer::Simple,
                    b'$' | b'!' | b'=' => Answer::Length,
                    b'*' | b'~' | b'>' => Answer::Count(1),
                    b'%' => Answer::Count(2),
                    _ => return Err(Lost("an answer of an unknown kind")),
                };
                self.line.clear();
                Ok(1)
            }
            Answer::Simple => {
                let (length, whole) = line(&mut self.line, rest, KEPT)?;
                if whole {
                    let text = self.line.trim_ascii_end().to_vec();
                    self.element(&text);
                }
                Ok(length)
            }
            Answer::Length => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let text = number(&self.line)?;
                    self.line.clear();
                    match usize::try_from(text) {
                        Ok(text) => self.at = Answer::Text(text + 2),
                        Err(_) => self.element(b""),
                    }
                }
                Ok(length)
            }
            Answer::Count(each) => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let count = number(&self.line)? * each;
                    self.list(count)?;
                }
                Ok(length)
            }
            Answer::Text(left) => {
                let part = &rest[..rest.len().min(left)];
                let text = part.len().min(left.saturating_sub(2));
                keep(&mut self.line, &part[..text]);
                self.at = Answer::Text(left - part.len());
                if left == part.len() {
                    let text = std::mem::take(&mut self.line);
                    self.element(&text);
                }
                Ok(part.len())
            }
        }
    }

    fn list(&mut self, count: i64) -> Result<(), Lost> {
        if count <= 0 {
            self.element(b"");
            return Ok(());
        }
        if self.open.len() == DEPTH {
            return Err(Lost("an answer that is nested too deep"));
        }
        self.open.push(count);
        self.at = Answer::Start;
        Ok(())
    }

    /// An element is whole, and with it every list that it was the last of.
    fn element(&mut self, text: &[u8]) {
        self.at = Answer::Start;
        if matches!(self.open.len(), 1 | 2) && self.words.len() < 3 && self.kind != Kind::Reply {
            self.words.push(text.to_vec());
        }
        while let Some(left) = self.open.last_mut() {
            self.count += 1;
            *left -= 1;
            if *left > 0 {
                break;
            }
            self.open.pop();
        }
    }
}
