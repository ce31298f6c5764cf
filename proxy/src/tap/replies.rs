//! The parser of the replies that Redis sends: values of RESP2 and RESP3, one in another.

use super::TapError;
use super::lines::{KEPT, LINE, keep, line, number};

/// The deepest nesting of replies.
const DEPTH: usize = 32;

/// The value that the server is sending.
#[derive(Default)]
pub(super) struct ReplyParser {
    pub(super) at: ReplyStep,
    line: Vec<u8>,
    /// Elements still to come, for each list that is open.
    pub(super) open: Vec<i64>,
    /// Elements of the outermost list so far.
    pub(super) count: usize,
    /// The first elements of a push or of an array that may be one, those of its lists among them.
    pub(super) words: Vec<Vec<u8>>,
    /// The kind of the value, by its first byte or its first element.
    pub(super) kind: ReplyKind,
}

#[derive(Default, Clone, Copy, PartialEq)]
pub(super) enum ReplyStep {
    #[default]
    Start,
    /// A line whose text does not matter.
    Simple,
    /// The length of a string.
    Length,
    /// The length of a list: elements for each that it counts.
    Count(i64),
    Text(usize),
}

#[derive(Default, Clone, Copy, PartialEq)]
pub(super) enum ReplyKind {
    #[default]
    Reply,
    Push,
    /// An array on a connection that subscribed, until its first element is read.
    Unsure,
}

impl ReplyParser {
    pub(super) fn is_whole(&self) -> bool {
        self.at == ReplyStep::Start && self.open.is_empty()
    }

    /// Reads the next piece of the rest of the chunk.
    pub(super) fn step(&mut self, rest: &[u8]) -> Result<usize, TapError> {
        match self.at {
            ReplyStep::Start => {
                self.at = match rest[0] {
                    b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => ReplyStep::Simple,
                    b'$' | b'!' | b'=' => ReplyStep::Length,
                    b'*' | b'~' | b'>' => ReplyStep::Count(1),
                    b'%' => ReplyStep::Count(2),
                    _ => return Err(TapError("an answer of an unknown kind")),
                };
                self.line.clear();
                Ok(1)
            }
            ReplyStep::Simple => {
                let (length, whole) = line(&mut self.line, rest, KEPT)?;
                if whole {
                    let text = self.line.trim_ascii_end().to_vec();
                    self.element(&text);
                }
                Ok(length)
            }
            ReplyStep::Length => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let text = number(&self.line)?;
                    self.line.clear();
                    match usize::try_from(text) {
                        Ok(text) => self.at = ReplyStep::Text(text + 2),
                        Err(_) => self.element(b""),
                    }
                }
                Ok(length)
            }
            ReplyStep::Count(each) => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let count = number(&self.line)? * each;
                    self.list(count)?;
                }
                Ok(length)
            }
            ReplyStep::Text(left) => {
                let part = &rest[..rest.len().min(left)];
                let text = part.len().min(left.saturating_sub(2));
                keep(&mut self.line, &part[..text]);
                self.at = ReplyStep::Text(left - part.len());
                if left == part.len() {
                    let text = std::mem::take(&mut self.line);
                    self.element(&text);
                }
                Ok(part.len())
            }
        }
    }

    fn list(&mut self, count: i64) -> Result<(), TapError> {
        if count <= 0 {
            self.element(b"");
            return Ok(());
        }
        if self.open.len() == DEPTH {
            return Err(TapError("an answer that is nested too deep"));
        }
        self.open.push(count);
        self.at = ReplyStep::Start;
        Ok(())
    }

    /// Notes that an element is whole, and with it every list that it was the last of.
    fn element(&mut self, text: &[u8]) {
        self.at = ReplyStep::Start;
        if matches!(self.open.len(), 1 | 2) && self.words.len() < 3 && self.kind != ReplyKind::Reply {
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
