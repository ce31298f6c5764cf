//! A stream of a history, read line by line while it is written, for callers that need each event once.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use super::entry::{Entry, NO_INDEX};
use super::error::{FormError, ReadError};
use super::event::Header;
use super::lines::LineBlock;
use super::nemesis::PHASE;
use super::phase_fact::PhaseFact;
use super::read::{BUFFER_BYTES, header, text};

/// A history of our own lines, read as it comes from a file, a pipe or a socket. Events are not stored.
pub struct EventStream<'a> {
    input: Box<dyn BufRead + Send + 'a>,
    header: Header,
    /// The bytes after the last newline.
    rest: Vec<u8>,
    block: LineBlock,
    /// Lines before the block.
    lines: u64,
    /// The number of the last line, if it is torn.
    torn: Option<u64>,
    /// The last phase.
    phase: Option<PhaseFact>,
}

impl<'a> EventStream<'a> {
    /// Reads a file. See [`Self::new`].
    ///
    /// # Errors
    /// Fails if the file cannot be opened, and as [`Self::new`] does.
    pub fn open(path: &Path) -> Result<EventStream<'static>, ReadError> {
        EventStream::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?))
    }

    /// Reads the header of a history of our own lines, compressed or not.
    ///
    /// # Errors
    /// Fails if reading fails, or the first line is no header: histories of Jepsen's have no lines of their own, see
    /// [`super::History::read`].
    pub fn new(input: impl BufRead + Send + 'a) -> Result<Self, ReadError> {
        let mut input = text(input)?;
        let mut line = Vec::new();
        input.by_ref().read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(ReadError::Empty);
        }
        Ok(Self {
            input,
            header: header(&line)?,
            rest: Vec::new(),
            block: LineBlock::default(),
            lines: 1,
            torn: None,
            phase: None,
        })
    }

    /// Returns the header, line 1.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the reason why the events that were read to the end of the input are no whole history, if they are none, as
    /// [`super::History::partial`] does.
    pub fn partial(&self) -> Option<String> {
        let is_over = |phase: &PhaseFact| matches!(phase, PhaseFact::End { .. });
        match self.torn {
            Some(line) => Some(format!("the last line, {line}, is torn")),
            None if self.phase.as_ref().is_none_or(is_over) => None,
            None => Some("the run was stopped before its end".to_owned()),
        }
    }

    /// Calls `see` with each event as soon as its line is complete, until the input ends (`None`) or `see` breaks. A torn last line is left
    /// out: see [`Self::partial`]. An error of `see` is reported with its line.
    ///
    /// # Errors
    /// Fails if reading fails, a line is not well formed, or `see` refuses an event.
    pub fn each<B>(
        &mut self,
        mut see: impl FnMut(&Entry<'_>) -> Result<ControlFlow<B>, FormError>,
    ) -> Result<Option<B>, ReadError> {
        while self.fill()? {
            self.block.parse();
            let mut nemesis = self.block.nemesis.iter().peekable();
            for (at, fields) in self.block.events.iter().enumerate() {
                let line = self.lines + u64::from(fields.line);
                let rare = self.block.rare.get(fields.rare as usize).copied().unwrap_or_default();
                let mut entry = Entry::of(fields, &rare, &self.block.names);
                if entry.index == NO_INDEX {
                    entry.index = line - 1;
                }
                if let Some(text) = nemesis.next_if(|text| text.event == at) {
                    (entry.name, entry.raw) = (Some(text.name.as_str()), Some(text.raw.as_str()));
                    if text.name == PHASE {
                        self.phase = serde_json::from_str(&text.raw).ok().or(self.phase.take());
                    }
                }
                match see(&entry) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(value)) => return Ok(Some(value)),
                    Err(fault) => return Err(ReadError::NotWellFormed { line, fault }),
                }
            }
            self.torn = self.block.torn_line(self.lines)?;
            if self.torn.is_some() {
                return Ok(None);
            }
            self.lines += self.block.lines;
        }
        Ok(None)
    }

    /// Fills the block with the complete lines, and waits for at least one. Returns `false` at the end of the input.
    fn fill(&mut self) -> Result<bool, ReadError> {
        let text = &mut self.block.text;
        text.clear();
        loop {
            let there = self.input.fill_buf()?;
            if there.is_empty() {
                text.append(&mut self.rest);
                let more = !text.is_empty();
                self.block.last = true;
                return Ok(more);
            }
            let count = there.len();
            let end = there.iter().rposition(|byte| *byte == b'\n').map(|newline| newline + 1);
            if let Some(end) = end {
                text.append(&mut self.rest);
                text.extend_from_slice(&there[..end]);
            }
            self.rest.extend_from_slice(&there[end.unwrap_or(0)..]);
            self.input.consume(count);
            if end.is_some() {
                self.block.last = false;
                return Ok(true);
            }
        }
    }
}
