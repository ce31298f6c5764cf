//! Reading histories: finds out the format, and reads our own JSON lines.
//!
//! Lines are read one at a time into one buffer, so a history of any size needs memory for its events only.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::builder::HistoryBuilder;
use super::entry::{Entry, F, Mode};
use super::error::ReadError;
use super::event::{FORMAT, Fenced, Header, Kind, Process, VERSION};
use super::scan::{ScanError, ScanValue, Scanner};
use super::{History, jepsen};

/// The size of the read buffer: large enough that system calls do not show.
const BUFFER_BYTES: usize = 1 << 18;

/// How to read what does not say it itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Jepsen histories: the field that names the lock (`value` when the locks are independent keys).
    pub lock_key: Option<String>,
}

impl History {
    /// Reads a file. See [`Self::read`].
    ///
    /// # Errors
    /// When the file cannot be opened, and as [`Self::read`].
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, ReadError> {
        Self::read(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?), options)
    }

    /// Reads a history of any format that this crate knows: it is recognised by its first bytes.
    ///
    /// A torn last line is left out, and the history is then [`Self::partial`].
    ///
    /// # Errors
    /// When reading fails, a line is not what its format says, or the history is not well formed.
    pub fn read(mut input: impl BufRead, options: &ReadOptions) -> Result<Self, ReadError> {
        match format(&mut input)? {
            HistoryFormat::Own => read_own(input),
            HistoryFormat::Jepsen { json } => jepsen::read(input, json, options),
        }
    }
}

enum HistoryFormat {
    Own,
    Jepsen { json: bool },
}

/// Tells the formats apart by what the buffer shows at first. Our own header is a JSON object that names its format,
/// or fails as one; JSON of Jepsen's is a vector of objects, or an object with an operation's fields, on one line or several.
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
        return Ok(if edn {
            HistoryFormat::Jepsen { json: false }
        } else {
            HistoryFormat::Own
        });
    };
    // The first line, or the first object where that has more lines.
    let end = |mark: u8| object.iter().position(|byte| *byte == mark).unwrap_or(object.len());
    let fields = &object[..end(b'\n').max(end(b'}'))];
    let has = |word: &[u8]| fields.windows(word.len()).any(|window| window == word);
    Ok(match object.trim_ascii_start() {
        [b':', ..] => HistoryFormat::Jepsen { json: false },
        [b'"', ..] if vector || has(b"\"process\"") && has(b"\"type\"") && !has(b"\"format\"") => {
            HistoryFormat::Jepsen { json: true }
        }
        _ => HistoryFormat::Own,
    })
}

fn read_own(mut input: impl BufRead) -> Result<History, ReadError> {
    let mut line = Vec::with_capacity(512);
    input.read_until(b'\n', &mut line)?;
    let mut builder = HistoryBuilder::new(header(&line)?);
    let mut number = 1;
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(builder.finish());
        }
        number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let whole = line.last() == Some(&b'\n');
        match push_line(&mut builder, &line, number) {
            Err(ReadError::Syntax { .. }) if !whole || input.fill_buf()?.is_empty() => {
                builder.partial(format!("the last line, {number}, is torn"));
            }
            result => result?,
        }
    }
}

fn header(line: &[u8]) -> Result<Header, ReadError> {
    let wrong = |found: String, expected: &str| ReadError::Meaning {
        line: 1,
        found,
        expected: expected.to_owned(),
    };
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

fn push_line(builder: &mut HistoryBuilder, line: &[u8], number: u64) -> Result<(), ReadError> {
    let mut scanner = Scanner::new(line);
    let mut raw = Raw::default();
    let scanned = scanner.object(|key, value| {
        raw.set(key, value);
        Ok(())
    });
    scanned.map_err(|broken| syntax(number, broken))?;
    if let Some((field, expected)) = raw.wrong {
        return Err(meaning(number, format!("the field `{field}`"), expected));
    }
    let mut entry = raw.entry(number)?;
    let text;
    if entry.f == F::Nemesis {
        text = String::from_utf8_lossy(line).trim_end().to_owned();
        entry.raw = Some(&text);
    }
    builder
        .push(&entry)
        .map_err(|fault| ReadError::NotWellFormed { line: number, fault })
}

fn syntax(line: u64, broken: ScanError) -> ReadError {
    ReadError::Syntax {
        line,
        column: broken.column,
        found: broken.found,
        expected: broken.expected.to_owned(),
    }
}

fn meaning(line: u64, found: impl Into<String>, expected: &str) -> ReadError {
    ReadError::Meaning {
        line,
        found: found.into(),
        expected: expected.to_owned(),
    }
}

/// The fields of one line before they have a meaning.
#[derive(Default)]
struct Raw<'a> {
    index: Option<u64>,
    time: Option<u64>,
    process: Option<Process>,
    client: Option<u32>,
    kind: Option<Cow<'a, str>>,
    f: Option<Cow<'a, str>>,
    lock: Option<Cow<'a, str>>,
    token: Option<u64>,
    owner: Option<Cow<'a, str>>,
    value: Option<u64>,
    expected: Option<u64>,
    fenced: Option<Fenced>,
    mode: Mode,
    permits: Option<u32>,
    wait_ms: Option<u64>,
    cause: Option<Cow<'a, str>>,
    error: Option<Cow<'a, str>>,
    wire: Option<[u64; 4]>,
    node: Option<Cow<'a, str>>,
    /// A field whose value is of the wrong sort, and what it should be.
    wrong: Option<(&'static str, &'static str)>,
}

const NUMBER: &str = "a whole number of at most 64 bits";
const SMALL: &str = "a whole number of at most 32 bits";
const TEXT: &str = "a string";

impl<'a> Raw<'a> {
    /// Nulls count as absent, unknown fields as nothing.
    fn set(&mut self, key: &str, value: ScanValue<'a>) {
        if value == ScanValue::Null {
            return;
        }
        match key {
            "index" => self.index = self.number("index", value),
            "time" => self.time = self.number("time", value),
            "process" => self.process = self.whose(value),
            "client" => self.client = self.small("client", value),
            "type" => self.kind = self.text("type", value),
            "f" => self.f = self.text("f", value),
            "lock" => self.lock = self.text("lock", value),
            "token" => self.token = self.number("token", value),
            "owner" => self.owner = self.text("owner", value),
            "value" => self.value = self.number("value", value),
            "expected" => self.expected = self.number("expected", value),
            "permits" => self.permits = self.small("permits", value),
            "wait_ms" => self.wait_ms = self.number("wait_ms", value),
            "cause" => self.cause = self.text("cause", value),
            "error" => self.error = self.text("error", value),
            "wire" => self.wire = counts(&value),
            "node" => self.node = name(value),
            "mode" => self.mode = self.text("mode", value).map_or(Mode::Write, |mode| Mode::parse(&mode)),
            "fenced" => match self.text("fenced", value).as_deref() {
                Some("accepted") => self.fenced = Some(Fenced::Accepted),
                Some("refused") => self.fenced = Some(Fenced::Refused),
                _ => self.wrong = Some(("fenced", "`accepted` or `refused`")),
            },
            _ => {}
        }
    }

    fn number(&mut self, field: &'static str, value: ScanValue<'a>) -> Option<u64> {
        if let ScanValue::Number(number) = value {
            return Some(number);
        }
        self.wrong.get_or_insert((field, NUMBER));
        None
    }

    fn small(&mut self, field: &'static str, value: ScanValue<'a>) -> Option<u32> {
        let small = if let ScanValue::Number(number) = value {
            u32::try_from(number).ok()
        } else {
            None
        };
        if small.is_none() {
            self.wrong.get_or_insert((field, SMALL));
        }
        small
    }

    fn text(&mut self, field: &'static str, value: ScanValue<'a>) -> Option<Cow<'a, str>> {
        if let ScanValue::Text(text) = value {
            return Some(text);
        }
        self.wrong.get_or_insert((field, TEXT));
        None
    }

    fn whose(&mut self, value: ScanValue<'a>) -> Option<Process> {
        let process = match value {
            ScanValue::Number(number) => u32::try_from(number).ok().map(Process::Client),
            ScanValue::Text(name) if name == "server" => Some(Process::Server),
            ScanValue::Text(name) if name == "nemesis" => Some(Process::Nemesis),
            _ => None,
        };
        if process.is_none() {
            self.wrong.get_or_insert(("process", "a number, `server` or `nemesis`"));
        }
        process
    }

    fn entry(&self, line: u64) -> Result<Entry<'_>, ReadError> {
        let missing = |field: &str, expected: &str| meaning(line, format!("no `{field}`"), expected);
        let process = self
            .process
            .ok_or_else(|| missing("process", "a number, `server` or `nemesis`"))?;
        let kind = match self.kind.as_deref() {
            Some("invoke") => Kind::Invoke,
            Some("ok") => Kind::Ok,
            Some("fail") => Kind::Fail,
            Some("info") => Kind::Info,
            Some("signal") => Kind::Signal,
            Some(other) => return Err(meaning(line, format!("the type `{other}`"), TYPES)),
            None => return Err(missing("type", TYPES)),
        };
        let name = self.f.as_deref().ok_or_else(|| missing("f", OPERATIONS))?;
        let f = match process {
            Process::Nemesis => F::Nemesis,
            _ => F::parse(name).ok_or_else(|| meaning(line, format!("the f `{name}`"), OPERATIONS))?,
        };
        let time = self
            .time
            .ok_or_else(|| missing("time", "nanoseconds since the recorder started"))?;
        let mut entry = Entry::new(self.index.unwrap_or(line - 1), time, process, kind, f);
        entry.client = self.client;
        entry.lock = self.lock.as_deref();
        entry.token = self.token;
        entry.owner = self.owner.as_deref();
        entry.value = self.value;
        entry.expected = self.expected;
        entry.fenced = self.fenced;
        entry.mode = self.mode;
        entry.permits = self.permits;
        entry.wait_ms = self.wait_ms;
        entry.cause = self.cause.as_deref();
        entry.error = self.error.as_deref();
        entry.wire = self.wire.filter(|_| f == F::Release);
        entry.node = self.node.as_deref().filter(|_| f == F::Acquire);
        entry.name = (f == F::Nemesis).then_some(name);
        Ok(entry)
    }
}

/// Four numbers; anything else of that name is not ours.
fn counts(value: &ScanValue<'_>) -> Option<[u64; 4]> {
    let ScanValue::List(values) = value else { return None };
    let number = |value: &ScanValue<'_>| match value {
        ScanValue::Number(number) => Some(*number),
        _ => None,
    };
    let numbers: Option<Vec<u64>> = values.iter().map(number).collect();
    numbers?.try_into().ok()
}

/// A text; anything else of that name is not ours.
fn name(value: ScanValue<'_>) -> Option<Cow<'_, str>> {
    match value {
        ScanValue::Text(text) => Some(text),
        _ => None,
    }
}

const TYPES: &str = "one of invoke, ok, fail, info, signal";
const OPERATIONS: &str = "one of acquire, release, read, write, cas, lost, woken, died, notified, granted, revoked";
