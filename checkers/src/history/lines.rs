//! Lines of our own format: a block of text becomes events whose names are numbers of the block's own.
//!
//! No block depends on another one; [`super::read`] passes the fields to the builder, which joins them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::entry::{EventFields, F, Mode, NO_INDEX, Rare, RareFields};
use super::error::ReadError;
use super::event::{Fenced, Kind, Process};
use super::names::{NONE, Names, Symbol};
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
        let mut fields = LineFields::default();
        for (key, value) in &parsed {
            fields.set(key.text().unwrap_or_default(), value, &mut self.names);
        }
        if let Some((field, expected)) = fields.wrong {
            return Err(ReadError::meaning(line, format!("the field `{field}`"), expected));
        }
        let mut event = fields.event(line, &self.names)?;
        event.rare = self.rare_of(RareFields {
            rare: fields.rare,
            wire: fields.wire.filter(|_| event.f == F::Release),
        });
        if event.f == F::Nemesis {
            self.nemesis.push(NemesisText {
                event: self.events.len(),
                name: fields.word(&self.names).to_owned(),
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

/// The fields of one line, each by itself.
struct LineFields {
    time: Option<u64>,
    process: Option<Process>,
    kind: Option<Kind>,
    f: Option<F>,
    /// A `type` and an `f` without a known name.
    other_kind: Symbol,
    other_f: Symbol,
    /// All other fields, with arbitrary time, process, kind and operation.
    others: EventFields,
    rare: Rare,
    wire: Option<[u64; 4]>,
    /// The name of a field with a value of a wrong type, and the expected type.
    wrong: Option<(&'static str, &'static str)>,
}

impl Default for LineFields {
    fn default() -> Self {
        Self {
            time: None,
            process: None,
            kind: None,
            f: None,
            other_kind: NONE,
            other_f: NONE,
            others: EventFields::new(NO_INDEX, 0, Process::Nemesis, Kind::Info, F::Nemesis),
            rare: Rare::default(),
            wire: None,
            wrong: None,
        }
    }
}

const NUMBER: &str = "a whole number of at most 64 bits";
const SMALL: &str = "a whole number of at most 32 bits";
const TEXT: &str = "a string";
const WHOSE: &str = "a number, `server` or `nemesis`";
const TYPES: &str = "one of invoke, ok, fail, info, signal";
const OPERATIONS: &str =
    "one of acquire, release, extend, read, write, cas, lost, woken, died, notified, granted, revoked";

impl LineFields {
    /// Sets a field; null counts as absent, and unknown fields are ignored.
    #[inline]
    fn set(&mut self, key: &str, value: &LineValue<'_>, names: &mut Names) {
        if matches!(value, LineValue::Null) {
            return;
        }
        match key {
            "index" => self.others.index = self.number("index", value).unwrap_or(NO_INDEX),
            "time" => self.time = self.number("time", value),
            "process" => self.process = self.whose(value),
            "client" => self.others.client = self.small("client", value),
            "type" => self.set_kind(value, names),
            "f" => self.set_f(value, names),
            "lock" => self.others.lock = self.name("lock", value, names),
            "token" => self.others.token = self.number("token", value),
            "owner" => self.others.owner = self.name("owner", value, names),
            _ => self.set_rare(key, value, names),
        }
    }

    fn set_rare(&mut self, key: &str, value: &LineValue<'_>, names: &mut Names) {
        match key {
            "value" => self.rare.value = self.number("value", value),
            "expected" => self.rare.expected = self.number("expected", value),
            "permits" => self.rare.permits = self.small("permits", value).unwrap_or(NONE),
            "late_us" => self.rare.late_us = self.small("late_us", value).unwrap_or(NONE),
            "wait_ms" => {
                let ms = self.number("wait_ms", value);
                self.rare.wait_ms = ms.map_or(NONE, Rare::wait_of);
            }
            "cause" => self.rare.cause = self.name("cause", value, names),
            "error" => self.rare.error = self.name("error", value, names),
            "wire" => {
                // Another value of that field is not ours.
                self.wire = match value {
                    LineValue::Counts(counts) => Some(*counts),
                    _ => None,
                };
            }
            "node" => self.others.node = value.text().map_or(NONE, |text| names.intern(text)),
            "mode" => self.others.mode = self.text("mode", value).map_or(Mode::Write, Mode::parse),
            "fenced" => match self.text("fenced", value) {
                Some("accepted") => self.rare.fenced = Some(Fenced::Accepted),
                Some("refused") => self.rare.fenced = Some(Fenced::Refused),
                _ => self.wrong = Some(("fenced", "`accepted` or `refused`")),
            },
            _ => {}
        }
    }

    /// Returns the value of a field; without one, notes the expected type.
    fn said<T>(&mut self, said: Option<T>, field: &'static str, expected: &'static str) -> Option<T> {
        if said.is_none() {
            self.wrong.get_or_insert((field, expected));
        }
        said
    }

    fn number(&mut self, field: &'static str, value: &LineValue<'_>) -> Option<u64> {
        self.said(value.number(), field, NUMBER)
    }

    fn small(&mut self, field: &'static str, value: &LineValue<'_>) -> Option<u32> {
        let small = value.number().and_then(|number| u32::try_from(number).ok());
        self.said(small, field, SMALL)
    }

    fn text<'v>(&mut self, field: &'static str, value: &'v LineValue<'_>) -> Option<&'v str> {
        self.said(value.text(), field, TEXT)
    }

    fn name(&mut self, field: &'static str, value: &LineValue<'_>, names: &mut Names) -> Symbol {
        self.text(field, value).map_or(NONE, |text| names.intern(text))
    }

    fn whose(&mut self, value: &LineValue<'_>) -> Option<Process> {
        let process = match value.text() {
            Some("server") => Some(Process::Server),
            Some("nemesis") => Some(Process::Nemesis),
            _ => value
                .number()
                .and_then(|number| Some(Process::Client(u32::try_from(number).ok()?))),
        };
        self.said(process, "process", WHOSE)
    }

    fn set_kind(&mut self, value: &LineValue<'_>, names: &mut Names) {
        let Some(word) = self.text("type", value) else { return };
        self.kind = Kind::parse(word);
        self.other_kind = if self.kind.is_none() { names.intern(word) } else { NONE };
    }

    fn set_f(&mut self, value: &LineValue<'_>, names: &mut Names) {
        let Some(word) = self.text("f", value) else { return };
        self.f = F::parse(word);
        self.other_f = if self.f.is_none() { names.intern(word) } else { NONE };
    }

    /// Returns the word of `f`.
    fn word<'n>(&self, names: &'n Names) -> &'n str {
        match self.f {
            Some(f) => f.name(),
            None => names.get(self.other_f),
        }
    }

    fn event(&self, line: u64, names: &Names) -> Result<EventFields, ReadError> {
        let missing = |field: &str, expected: &str| ReadError::meaning(line, format!("no `{field}`"), expected);
        let process = self.process.ok_or_else(|| missing("process", WHOSE))?;
        let unknown = |field: &str, word: Symbol, expected: &str| match word {
            NONE => missing(field, expected),
            word => ReadError::meaning(line, format!("the {field} `{}`", names.get(word)), expected),
        };
        let kind = self.kind.ok_or_else(|| unknown("type", self.other_kind, TYPES))?;
        let f = match self.f {
            Some(_) if process == Process::Nemesis => F::Nemesis,
            Some(f) => f,
            None if process == Process::Nemesis && self.other_f != NONE => F::Nemesis,
            None => return Err(unknown("f", self.other_f, OPERATIONS)),
        };
        let time = self
            .time
            .ok_or_else(|| missing("time", "nanoseconds since the recorder started"))?;
        Ok(EventFields {
            time,
            process,
            kind,
            f,
            node: if f == F::Acquire { self.others.node } else { NONE },
            line: line as u32,
            ..self.others
        })
    }
}
