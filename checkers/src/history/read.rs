//! Reading histories: recognises the format, and reads our own JSON lines.
//!
//! A history is read in blocks, so one of any size needs memory for its events only.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use super::History;
use super::blocks::each_block;
use super::builder::HistoryBuilder;
use super::compressed::Compression;
use super::entry::NO_INDEX;
use super::error::ReadError;
use super::event::{FORMAT, Header, VERSION};
use super::jepsen::{self, ReadOptions};
use super::lines::LineBlock;
use super::names::{NONE, Names, Symbol};

/// The size of the read buffer, for which system calls cost nothing.
pub(super) const BUFFER_BYTES: usize = 1 << 18;
/// The first bytes by which a compression is recognised, or a byte order mark.
const MARK_BYTES: usize = 4;
/// The first bytes by which a format is recognised: more than a header.
const FORMAT_BYTES: usize = 1 << 15;
/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

type BoxedText<'a> = Box<dyn BufRead + Send + 'a>;

impl History {
    /// Reads a file. See [`Self::read`].
    ///
    /// # Errors
    /// Fails if the file cannot be opened, and as [`Self::read`] does.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, ReadError> {
        Self::read(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?), options)
    }

    /// Reads a history of any format of this crate, compressed or not, which its first bytes show.
    ///
    /// A large one is parsed in parallel. gzip and zstd need the features of these names.
    ///
    /// A torn last line is left out, and the history is then [`Self::partial`].
    ///
    /// # Errors
    /// Fails if reading fails, a line does not have the form of its format, or the history is not well formed.
    pub fn read(input: impl BufRead + Send, options: &ReadOptions) -> Result<Self, ReadError> {
        let mut input = begun(text(input)?, FORMAT_BYTES)?;
        match format(&mut input)? {
            HistoryFormat::Own => read_own(input),
            HistoryFormat::Edn => jepsen::read(input, false, options),
            HistoryFormat::Json => jepsen::read(input, true, options),
        }
    }
}

/// Returns the text of an input that may be compressed, without the byte order mark that some editors put before it.
pub(super) fn text<'a>(input: impl BufRead + Send + 'a) -> Result<BoxedText<'a>, ReadError> {
    let mut input = begun(Box::new(input), MARK_BYTES)?;
    let text = match Compression::of(input.fill_buf()?) {
        Some(compression) => compression.text(input)?,
        None => input,
    };
    let mut text = begun(text, MARK_BYTES)?;
    if text.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
        text.consume(BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

/// Returns an input whose first buffer has so many bytes, unless it has fewer: a pipe or a decoder may bring them in smaller parts.
fn begun(mut input: BoxedText<'_>, bytes: usize) -> io::Result<BoxedText<'_>> {
    let mut start = Vec::new();
    loop {
        let part = input.fill_buf()?;
        if start.is_empty() && part.len() >= bytes {
            return Ok(input);
        }
        if part.is_empty() || start.len() >= bytes {
            return Ok(Box::new(Cursor::new(start).chain(input)));
        }
        start.extend_from_slice(part);
        let read = part.len();
        input.consume(read);
    }
}

enum HistoryFormat {
    Own,
    /// Jepsen's, in either notation.
    Edn,
    Json,
}

/// Recognises the format by the first bytes in the buffer. Our own header is a JSON object that names its format, or fails as one; Jepsen's
/// JSON is a vector of objects, or an object with an operation's fields, on one line or several.
fn format(input: &mut impl BufRead) -> Result<HistoryFormat, ReadError> {
    let start = input.fill_buf()?.trim_ascii_start();
    if start.is_empty() {
        return if input.fill_buf()?.is_empty() {
            Err(ReadError::Empty)
        } else {
            Ok(HistoryFormat::Own)
        };
    }
    let vector = start.starts_with(b"[");
    let inner = start.strip_prefix(b"[").unwrap_or(start).trim_ascii_start();
    let Some(object) = inner.strip_prefix(b"{") else {
        let edn = vector || matches!(inner, [b'#' | b'(' | b';' | b']', ..]);
        return Ok(if edn { HistoryFormat::Edn } else { HistoryFormat::Own });
    };
    // The first line, or the first object if that has more lines.
    let end = |mark: u8| object.iter().position(|byte| *byte == mark).unwrap_or(object.len());
    let fields = &object[..end(b'\n').max(end(b'}'))];
    let has = |word: &[u8]| fields.windows(word.len()).any(|window| window == word);
    Ok(match object.trim_ascii_start() {
        [b':', ..] => HistoryFormat::Edn,
        [b'"', ..] if vector || has(b"\"process\"") && has(b"\"type\"") && !has(b"\"format\"") => HistoryFormat::Json,
        _ => HistoryFormat::Own,
    })
}

fn read_own(mut input: impl BufRead + Send) -> Result<History, ReadError> {
    let mut line = Vec::with_capacity(512);
    input.read_until(b'\n', &mut line)?;
    let mut reading = OwnReading {
        builder: HistoryBuilder::new(header(&line)?),
        lines: 1,
        symbols: Vec::new(),
    };
    each_block(input, |block| reading.take(block))?;
    Ok(reading.builder.finish())
}

struct OwnReading {
    builder: HistoryBuilder,
    /// Lines before the block.
    lines: u64,
    /// The history's symbols by those of the block; `NONE` for names that no event has needed yet.
    symbols: Vec<Symbol>,
}

impl OwnReading {
    fn take(&mut self, block: &mut LineBlock) -> Result<(), ReadError> {
        self.symbols.clear();
        self.symbols.resize(block.names.len(), NONE);
        let mut nemesis = block.nemesis.iter().peekable();
        for (at, fields) in block.events.iter_mut().enumerate() {
            let line = self.lines + u64::from(fields.line);
            if fields.index == NO_INDEX {
                fields.index = line - 1;
            }
            for name in [&mut fields.lock, &mut fields.owner, &mut fields.node] {
                *name = self.symbol(*name, &block.names);
            }
            let mut rare = block.rare.get(fields.rare as usize).copied();
            if let Some(rare) = &mut rare {
                for name in [&mut rare.rare.cause, &mut rare.rare.error] {
                    *name = self.symbol(*name, &block.names);
                }
            }
            let added = self.builder.add(fields, rare.as_ref());
            added.map_err(|fault| ReadError::NotWellFormed { line, fault })?;
            if let Some(text) = nemesis.next_if(|text| text.event == at) {
                self.builder.add_nemesis(&text.name, &text.raw);
            }
        }
        if let Some(line) = block.torn_line(self.lines)? {
            self.builder.partial(format!("the last line, {line}, is torn"));
        }
        self.lines += block.lines;
        Ok(())
    }

    fn symbol(&mut self, name: Symbol, names: &Names) -> Symbol {
        let Some(symbol) = self.symbols.get_mut(name as usize) else {
            return NONE;
        };
        if *symbol == NONE {
            *symbol = self.builder.names().intern(names.get(name));
        }
        *symbol
    }
}

pub(super) fn header(line: &[u8]) -> Result<Header, ReadError> {
    let wrong = |found: String, expected: &str| ReadError::meaning(1, found, expected);
    let expected = format!("a header with \"format\":\"{FORMAT}\"");
    let header: Header = serde_json::from_slice(line).map_err(|error| wrong(error.to_string(), &expected))?;
    if header.format != FORMAT {
        return Err(wrong(format!("the format `{}`", header.format), &expected));
    }
    if header.version != VERSION {
        return Err(wrong(
            format!("version {}", header.version),
            &format!("version {VERSION}"),
        ));
    }
    Ok(header)
}
