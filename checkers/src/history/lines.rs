//! Lines of our own format: a block of text becomes events whose names are numbers of the block's own.
//!
//! No block depends on another one; [`super::read`] passes the fields to the builder, which joins them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::entry::{EventFields, F, Mode, NO_INDEX, Rare, RareFields};
use super::error::ReadError;
use super::event::{Fenced, Kind, Process};
use super::names::{NONE, Names};
use super::recorded::{ShortNames, recorded_line};

/// A block of whole lines with their events.
#[derive(Debug, Default)]
pub(super) struct LineBlock {
    /// The input of [`Self::parse`].
    pub text: Vec<u8>,
    /// Whether it is the last block.
    pub last: bool,
    /// The names of its lines.
    pub names: Names,
    short_names: ShortNames,
    pub events: Vec<EventFields>,
    /// Equal neighbours share one.
    pub rare: Vec<RareFields>,
    pub nemesis: Vec<NemesisText>,
    /// Lines that were read: all, or those up to the broken one.
    pub lines: u64,
    /// The error in the line after the last event, with its number in the block.
    pub fault: Option<ReadError>,
}

/// A nemesis line, by the place of its event in the block.
#[derive(Debug)]
pub(super) struct NemesisText {
    pub event: usize,
    pub name: String,
    pub raw: String,
}

impl LineBlock {
    /// Reads the lines of the text, up to the first broken one.
    pub(super) fn parse(&mut self) {
        self.events.clear();
        self.rare.clear();
        self.nemesis.clear();
        self.names.clear();
        self.short_names.clear();
        self.lines = 0;
        let bytes = std::mem::take(&mut self.text);
        let (text, broken) = match std::str::from_utf8(&bytes) {
            Ok(text) => (text, false),
            Err(error) => (
                std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
                true,
            ),
        };
        self.fault = self.read_lines(text, broken).err();
        self.text = bytes;
    }

    /// Reads lines. A `broken` text is cut before bytes that are no UTF-8, within a line that cannot be read.
    fn read_lines(&mut self, text: &str, broken: bool) -> Result<(), ReadError> {
        let whole = match broken {
            true => text.rfind('\n').map_or(0, |newline| newline + 1),
            false => text.len(),
        };
        let mut at = 0;
        while at < whole {
            self.lines += 1;
            let mut rare = None;
            let names = (&mut self.names, &mut self.short_names);
            if let Some((mut event, next)) = recorded_line(text, at, names, &mut rare) {
                event.line = self.lines as u32;
                if let Some(rare) = rare {
                    event.rare = self.rare_of(rare);
                }
                self.events.push(event);
                at = next;
                continue;
            }
            let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
            let line = text[at..end].trim_end_matches([' ', '\t', '\r']);
            at = end + 1;
            if !line.is_empty() {
                self.read_line(line)?;
            }
        }
        if broken {
            self.lines += 1;
            return Err(ReadError::Syntax {
                line: self.lines,
                column: text.len() - whole + 1,
                found: "other bytes".to_owned(),
                expected: "text in UTF-8".to_owned(),
            });
        }
        Ok(())
    }

    /// Reads the last line that was counted.
    fn read_line(&mut self, text: &str) -> Result<(), ReadError> {
        let line = self.lines;
        let parsed = serde_json::from_str::<LineValue<'_>>(text).map_err(|error| {
            let said = error.to_string();
            let said = said.split(" at line ").next().unwrap_or_default();
            let at = match error.is_eof() {
                true => text.len(),
                false => error.column().saturating_sub(1),
            };
            syntax(line, text, at, format!("JSON ({said})"))
        })?;
        let LineValue::Object(parsed) = parsed else {
            return Err(syntax(line, text, 0, "an object".to_owned()));
        };
        let fields = LineFields { line, fields: &parsed };
        let (mut event, rare, word) = fields.event(&mut self.names)?;
        event.rare = self.rare_of(rare);
        if event.f == F::Nemesis {
            self.nemesis.push(NemesisText {
                event: self.events.len(),
                name: word.to_owned(),
                raw: text.to_owned(),
            });
        }
        self.events.push(event);
        Ok(())
    }

    fn rare_of(&mut self, rare: RareFields) -> u32 {
        if rare == RareFields::default() {
            return NONE;
        }
        if self.rare.last() != Some(&rare) {
            self.rare.push(rare);
        }
        self.rare.len() as u32 - 1
    }

    /// Returns the number of the last line if it is torn; `before` is the number of lines before the block.
    ///
    /// # Errors
    /// Fails with any other error of a line.
    pub(super) fn torn_line(&mut self, before: u64) -> Result<Option<u64>, ReadError> {
        match self.fault.take().map(|fault| fault.behind(before)) {
            None => Ok(None),
            Some(ReadError::Syntax { line, .. }) if self.is_torn() => Ok(Some(line)),
            Some(fault) => Err(fault),
        }
    }

    /// Returns whether the line of the error is the last of the file.
    fn is_torn(&self) -> bool {
        let mut behind = self.text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let end = behind.nth(self.lines as usize - 1).map(|(at, _)| at + 1);
        self.last && end.is_none_or(|end| end == self.text.len())
    }
}

/// Returns an error at a place of a line.
fn syntax(line: u64, text: &str, at: usize, expected: String) -> ReadError {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    let shown = String::from_utf8_lossy(&rest[..rest.len().min(24)]);
    ReadError::Syntax {
        line,
        column: at + 1,
        found: match rest {
            [] => "the end of the line".to_owned(),
            _ => format!("`{}`", shown.trim()),
        },
        expected,
    }
}

/// A line, or a value in one. Texts without escapes are not copied.
enum LineValue<'a> {
    Number(u64),
    Text(Cow<'a, str>),
    /// A list of four whole numbers.
    Counts([u64; 4]),
    Object(Vec<(LineValue<'a>, LineValue<'a>)>),
    Null,
    Other,
}

impl LineValue<'_> {
    /// Returns the text of a string.
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn counts(&self) -> Option<[u64; 4]> {
        match self {
            Self::Counts(counts) => Some(*counts),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for LineValue<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LineValueVisitor)
    }
}

struct LineValueVisitor;

impl<'de> Visitor<'de> for LineValueVisitor {
    type Value = LineValue<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(LineValue::Number(number))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(LineValue::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(LineValue::Other)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(LineValue::Other)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(LineValue::Null)
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(LineValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(LineValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut counts, mut items, mut whole) = ([0; 4], 0, true);
        while let Some(item) = list.next_element::<LineValue<'de>>()? {
            match (item, counts.get_mut(items)) {
                (LineValue::Number(number), Some(count)) => *count = number,
                _ => whole = false,
            }
            items += 1;
        }
        let four = whole && items == counts.len();
        Ok(if four {
            LineValue::Counts(counts)
        } else {
            LineValue::Other
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(LineValue::Object(fields))
    }
}

const NUMBER: &str = "a whole number of at most 64 bits";
const SMALL: &str = "a whole number of at most 32 bits";
const TEXT: &str = "a string";
const WHOSE: &str = "a number, `server` or `nemesis`";
const TYPES: &str = "one of invoke, ok, fail, info, signal";
const OPERATIONS: &str =
    "one of acquire, release, extend, read, write, cas, lost, woken, died, notified, granted, revoked";

/// The fields of one line; those without a meaning are ignored.
struct LineFields<'l> {
    line: u64,
    fields: &'l [(LineValue<'l>, LineValue<'l>)],
}

impl<'l> LineFields<'l> {
    /// Returns the value of a field; null counts as absent.
    fn get(&self, field: &str) -> Option<&'l LineValue<'l>> {
        let mut fields = self.fields.iter().rev();
        let (_, value) = fields.find(|(name, _)| name.text() == Some(field))?;
        Some(value).filter(|value| !matches!(value, LineValue::Null))
    }

    /// Returns a field in the form that it must have, if the line has it.
    fn said<T>(
        &self,
        field: &str,
        expected: &str,
        form: impl Fn(&'l LineValue<'l>) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        let wrong = || ReadError::meaning(self.line, format!("the field `{field}`"), expected);
        let value = self.get(field);
        value.map(|value| form(value).ok_or_else(wrong)).transpose()
    }

    fn number(&self, field: &str) -> Result<Option<u64>, ReadError> {
        self.said(field, NUMBER, LineValue::number)
    }

    fn small(&self, field: &str) -> Result<Option<u32>, ReadError> {
        self.said(field, SMALL, |value| u32::try_from(value.number()?).ok())
    }

    fn text(&self, field: &str) -> Result<Option<&'l str>, ReadError> {
        self.said(field, TEXT, LineValue::text)
    }

    /// Returns the event, its rare fields, and the word of `f`.
    fn event(&self, names: &mut Names) -> Result<(EventFields, RareFields, &'l str), ReadError> {
        let missing = |field: &str, expected: &str| ReadError::meaning(self.line, format!("no `{field}`"), expected);
        let unknown = |field: &str, word: &str, expected: &str| {
            ReadError::meaning(self.line, format!("the {field} `{word}`"), expected)
        };
        let process = self.said("process", WHOSE, whose)?;
        let process = process.ok_or_else(|| missing("process", WHOSE))?;
        let word = self.text("type")?.ok_or_else(|| missing("type", TYPES))?;
        let kind = Kind::parse(word).ok_or_else(|| unknown("type", word, TYPES))?;
        let word = self.text("f")?.ok_or_else(|| missing("f", OPERATIONS))?;
        let f = match process {
            Process::Nemesis => F::Nemesis,
            _ => F::parse(word).ok_or_else(|| unknown("f", word, OPERATIONS))?,
        };
        let time = self.number("time")?;
        let time = time.ok_or_else(|| missing("time", "nanoseconds since the recorder started"))?;
        // another value of these two fields is not ours
        let node = self.get("node").and_then(LineValue::text);
        let wire = self.get("wire").and_then(LineValue::counts);
        let mut name = |text: Option<&str>| text.map_or(NONE, |text| names.intern(text));
        let fields = EventFields {
            token: self.number("token")?,
            client: self.small("client")?,
            lock: name(self.text("lock")?),
            owner: name(self.text("owner")?),
            node: name(node.filter(|_| f == F::Acquire)),
            mode: self.text("mode")?.map_or(Mode::Write, Mode::parse),
            line: self.line as u32,
            ..EventFields::new(self.number("index")?.unwrap_or(NO_INDEX), time, process, kind, f)
        };
        let rare = Rare {
            value: self.number("value")?,
            expected: self.number("expected")?,
            wait_ms: self.number("wait_ms")?.map_or(NONE, Rare::wait_of),
            late_us: self.small("late_us")?.unwrap_or(NONE),
            permits: self.small("permits")?.unwrap_or(NONE),
            cause: name(self.text("cause")?),
            error: name(self.text("error")?),
            fenced: self.said("fenced", "`accepted` or `refused`", fenced)?,
            extends: false,
        };
        let wire = wire.filter(|_| f == F::Release);
        Ok((fields, RareFields { rare, wire }, word))
    }
}

fn whose(value: &LineValue<'_>) -> Option<Process> {
    match value.text() {
        Some("server") => Some(Process::Server),
        Some("nemesis") => Some(Process::Nemesis),
        _ => Some(Process::Client(u32::try_from(value.number()?).ok()?)),
    }
}

fn fenced(value: &LineValue<'_>) -> Option<Fenced> {
    match value.text()? {
        "accepted" => Some(Fenced::Accepted),
        "refused" => Some(Fenced::Refused),
        _ => None,
    }
}
