//! Values of EDN and JSON, read one at a time from a stream, so that a vector of gigabytes is never in memory.
//!
//! Only the types of Jepsen's histories are distinguished: words (keywords, symbols, strings), whole numbers, lists and maps.

use std::fmt;
use std::io::BufRead;

use super::error::ReadError;

/// The deepest nesting of a value, so that no input can exhaust the stack.
const MAX_DEPTH: u32 = 64;
/// The most bytes of a word.
const MAX_WORD: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Datum {
    Nil,
    Int(i64),
    /// A keyword without its colon, a symbol, or a string.
    Word(String),
    List(Vec<Datum>),
    Map(Vec<(Datum, Datum)>),
    /// A fraction, a truth value, a character, or a whole number of more than 64 bits, as it was written.
    Other(String),
}

impl Datum {
    /// Returns the value of a field, by the name of its key.
    pub(super) fn get(&self, key: &str) -> Option<&Datum> {
        let Self::Map(fields) = self else { return None };
        fields
            .iter()
            .find(|(name, _)| matches!(name, Self::Word(name) if name == key))
            .map(|(_, value)| value)
    }

    pub(super) fn word(&self) -> Option<&str> {
        if let Self::Word(word) = self { Some(word) } else { None }
    }

    pub(super) fn number(&self) -> Option<u64> {
        if let Self::Int(number) = self {
            u64::try_from(*number).ok()
        } else {
            None
        }
    }
}

/// Formats the value as EDN: equal values have equal texts.
impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = |f: &mut fmt::Formatter<'_>, items: &[Datum]| {
            let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
            f.write_str(&texts.join(" "))
        };
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Word(word) => f.write_str(&quoted(word)),
            Self::Other(text) => f.write_str(text),
            Self::List(list) => {
                f.write_str("[")?;
                items(f, list)?;
                f.write_str("]")
            }
            Self::Map(fields) => {
                f.write_str("{")?;
                let flat: Vec<Datum> = fields
                    .iter()
                    .flat_map(|(key, value)| [key.clone(), value.clone()])
                    .collect();
                items(f, &flat)?;
                f.write_str("}")
            }
        }
    }
}

/// Returns a string of EDN.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// The reason why a value could not be read.
pub(super) enum Stop {
    /// The input ended inside it.
    End,
    Wrong(ReadError),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Wrong(error.into())
    }
}

pub(super) struct Data<R> {
    input: R,
    json: bool,
    pub line: u64,
    column: usize,
}

impl<R: BufRead> Data<R> {
    pub(super) fn new(input: R, json: bool) -> Self {
        Self {
            input,
            json,
            line: 1,
            column: 1,
        }
    }

    /// Returns the next byte that is not blank; commas are blank in EDN, and may be between values in JSON.
    pub(super) fn next_visible(&mut self) -> Result<Option<u8>, Stop> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\t' | b'\r' | b'\n' | b',') => self.skip(),
                Some(b';') if !self.json => self.skip_comment()?,
                other => return Ok(other),
            }
        }
    }

    pub(super) fn skip(&mut self) {
        // The caller has peeked, so there is a byte.
        if let Ok(buffer) = self.input.fill_buf()
            && let Some(byte) = buffer.first()
        {
            (self.line, self.column) = if *byte == b'\n' {
                (self.line + 1, 1)
            } else {
                (self.line, self.column + 1)
            };
            self.input.consume(1);
        }
    }

    /// Reads the value that begins here.
    pub(super) fn value(&mut self, depth: u32) -> Result<Datum, Stop> {
        match self.visible()? {
            _ if depth > MAX_DEPTH => Err(self.wrong("fewer nested values")),
            b'"' => self.string(),
            b'{' => self.map(depth),
            b'[' | b'(' => self.list(depth),
            b'#' if !self.json => self.dispatch(depth),
            b'\\' if !self.json => self.character(),
            b']' | b')' | b'}' => Err(self.wrong("a value")),
            b'^' | b'\'' | b'@' | b'`' | b'~' => Err(self.wrong("a value of EDN")),
            _ => self.atom(),
        }
    }

    pub(super) fn wrong(&mut self, expected: &str) -> Stop {
        let found = match self.input.fill_buf() {
            Ok([]) => "the end".to_owned(),
            Ok(rest) => format!("`{}`", String::from_utf8_lossy(&rest[..rest.len().min(24)])),
            Err(error) => return Stop::Wrong(ReadError::Io(error)),
        };
        let (line, column) = (self.line, self.column);
        Stop::Wrong(ReadError::Syntax {
            line,
            column,
            found,
            expected: expected.to_owned(),
        })
    }

    fn peek(&mut self) -> Result<Option<u8>, Stop> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    /// Reads the next byte.
    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = self.peek()?.ok_or(Stop::End)?;
        self.skip();
        Ok(byte)
    }

    /// Returns the next byte that is not blank, or an error without one.
    fn visible(&mut self) -> Result<u8, Stop> {
        self.next_visible()?.ok_or(Stop::End)
    }

    fn skip_comment(&mut self) -> Result<(), Stop> {
        while self.peek()?.is_some_and(|byte| byte != b'\n') {
            self.skip();
        }
        Ok(())
    }

    /// Reads the rest after `#`: a set, a discarded value, or a tagged value, whose tag is ignored.
    fn dispatch(&mut self, depth: u32) -> Result<Datum, Stop> {
        self.skip();
        match self.peek()? {
            Some(b'{') => {
                self.skip();
                self.until(b'}', depth).map(Datum::List)
            }
            Some(b'_') => {
                self.skip();
                self.value(depth + 1)?;
                self.value(depth + 1)
            }
            Some(b'#') => {
                self.skip();
                self.atom()
            }
            Some(b'"') => self.string(),
            Some(_) => {
                self.atom()?;
                self.value(depth + 1)
            }
            None => Err(Stop::End),
        }
    }

    fn list(&mut self, depth: u32) -> Result<Datum, Stop> {
        let close = if self.byte()? == b'(' { b')' } else { b']' };
        self.until(close, depth).map(Datum::List)
    }

    fn until(&mut self, close: u8, depth: u32) -> Result<Vec<Datum>, Stop> {
        let mut items = Vec::new();
        while self.visible()? != close {
            items.push(self.value(depth + 1)?);
        }
        self.skip();
        Ok(items)
    }

    fn map(&mut self, depth: u32) -> Result<Datum, Stop> {
        self.skip();
        let mut fields = Vec::new();
        while self.visible()? != b'}' {
            let key = self.value(depth + 1)?;
            if self.json {
                if self.visible()? != b':' {
                    return Err(self.wrong("`:` after the field name"));
                }
                self.skip();
            }
            if self.next_visible()? == Some(b'}') {
                return Err(self.wrong("a value for the last key"));
            }
            fields.push((key, self.value(depth + 1)?));
        }
        self.skip();
        Ok(Datum::Map(fields))
    }

    fn string(&mut self) -> Result<Datum, Stop> {
        self.skip();
        let (mut text, mut units) = (Vec::new(), Vec::new());
        loop {
            let byte = self.byte()?;
            if byte != b'"' && text.len() + units.len() >= MAX_WORD {
                return Err(self.wrong("a shorter string"));
            }
            let escaped = if byte == b'\\' { Some(self.byte()?) } else { None };
            if escaped == Some(b'u') {
                units.push(self.four_digits()?);
                continue;
            }
            if !units.is_empty() {
                // the two halves of a surrogate pair are one character
                text.extend_from_slice(String::from_utf16_lossy(&units).as_bytes());
                units.clear();
            }
            match (byte, escaped) {
                (_, Some(b'n')) => text.push(b'\n'),
                (_, Some(b't')) => text.push(b'\t'),
                (_, Some(b'r')) => text.push(b'\r'),
                (_, Some(b'b')) => text.push(b'\x08'),
                (_, Some(b'f')) => text.push(b'\x0c'),
                (_, Some(other)) => text.push(other),
                (b'"', None) => return Ok(Datum::Word(String::from_utf8_lossy(&text).into_owned())),
                (byte, None) => text.push(byte),
            }
        }
    }

    /// Reads the four digits of `\\u`: a character in UTF-16, or a half of one.
    fn four_digits(&mut self) -> Result<u16, Stop> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.peek()?.ok_or(Stop::End)?;
            let digit = char::from(byte).to_digit(16);
            code = code * 16 + digit.ok_or_else(|| self.wrong("four hexadecimal digits"))?;
            self.skip();
        }
        Ok(code as u16)
    }

    /// Reads `\a`, `\newline` or `\(`: any character after the backslash belongs to it.
    fn character(&mut self) -> Result<Datum, Stop> {
        self.skip();
        let mut text = vec![b'\\', self.byte()?];
        while let Some(byte) = self.peek()?.filter(u8::is_ascii_alphanumeric) {
            text.push(byte);
            self.skip();
        }
        Ok(Datum::Other(String::from_utf8_lossy(&text).into_owned()))
    }

    fn atom(&mut self) -> Result<Datum, Stop> {
        let mut text = Vec::new();
        while let Some(byte) = self.peek()? {
            let ends = byte.is_ascii_whitespace()
                || matches!(byte, b',' | b'[' | b']' | b'(' | b')' | b'{' | b'}' | b'"' | b';');
            if ends || (self.json && byte == b':') {
                break;
            }
            if text.len() >= MAX_WORD {
                return Err(self.wrong("a shorter word"));
            }
            text.push(byte);
            self.skip();
        }
        if text.is_empty() {
            return Err(if self.peek()?.is_none() {
                Stop::End
            } else {
                self.wrong("a value")
            });
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.starts_with(|first: char| first.is_ascii_digit() || first == '-' || first == '+') {
            let digits = text.trim_end_matches(['N', 'M']).trim_start_matches('+');
            return Ok(match digits.parse() {
                Ok(number) => Datum::Int(number),
                Err(_) => Datum::Other(text),
            });
        }
        Ok(match text.as_str() {
            "nil" | "null" => Datum::Nil,
            "true" | "false" => Datum::Other(text),
            _ => Datum::Word(text.strip_prefix(':').unwrap_or(&text).to_owned()),
        })
    }
}
