//! The scanner of JSON lines, for the few fields that matter, without a tree and without allocation.
//!
//! Every byte of a line is checked: skipped values must be JSON, too. Only strings with escapes allocate. Numbers and strings are read
//! eight bytes at a time, as in <https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>: most are too short for a vector unit.

/// The deepest nesting of a value in a line that is accepted, so that no input can exhaust the stack.
const MAX_DEPTH: u32 = 64;

/// The place at which a line is no JSON, and the text that is expected there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScanError {
    pub column: usize,
    pub found: String,
    pub expected: &'static str,
}

/// A value of a field: a number, a string or four counts; other values are checked and skipped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScanValue<'a> {
    Number(u64),
    Text(&'a str),
    /// A string with escapes, which are resolved.
    Unescaped(String),
    /// A list of four whole numbers.
    Counts([u64; 4]),
    Null,
    Other,
}

impl ScanValue<'_> {
    /// Returns the text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Unescaped(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// A field name as a number, for one comparison: its bytes, the first in the lowest.
///
/// A name of more than eight bytes is none of the fields that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(pub(super) u64);

impl Key {
    pub(crate) const fn of(name: &str) -> Self {
        if name.len() > 8 {
            Self(0)
        } else {
            Self(word_of(name.as_bytes()))
        }
    }
}

/// The fields of an event.
impl Key {
    pub(super) const INDEX: Self = Self::of("index");
    pub(super) const TIME: Self = Self::of("time");
    pub(super) const PROCESS: Self = Self::of("process");
    pub(super) const CLIENT: Self = Self::of("client");
    pub(super) const TYPE: Self = Self::of("type");
    pub(super) const F: Self = Self::of("f");
    pub(super) const LOCK: Self = Self::of("lock");
    pub(super) const TOKEN: Self = Self::of("token");
    pub(super) const OWNER: Self = Self::of("owner");
    pub(super) const VALUE: Self = Self::of("value");
    pub(super) const EXPECTED: Self = Self::of("expected");
    pub(super) const PERMITS: Self = Self::of("permits");
    pub(super) const WAIT_MS: Self = Self::of("wait_ms");
    pub(super) const LATE_US: Self = Self::of("late_us");
    pub(super) const CAUSE: Self = Self::of("cause");
    pub(super) const ERROR: Self = Self::of("error");
    pub(super) const WIRE: Self = Self::of("wire");
    pub(super) const NODE: Self = Self::of("node");
    pub(super) const MODE: Self = Self::of("mode");
    pub(super) const FENCED: Self = Self::of("fenced");
}

const fn word_of(bytes: &[u8]) -> u64 {
    let (mut word, mut at) = (0, bytes.len());
    while at > 0 {
        at -= 1;
        word = (word << 8) | bytes[at] as u64;
    }
    word
}

/// A cursor over lines.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// The beginning of the line.
    start: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, start: 0 }
    }

    /// Returns whether there are no more lines.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Returns the place of the cursor, in bytes of the text: after the newline of the last line that was read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Returns whether the line of the cursor is the last one and has no newline.
    pub(crate) fn is_cut(&self) -> bool {
        !self.text.as_bytes()[self.start.min(self.text.len())..].contains(&b'\n')
    }

    /// Moves to the beginning of another line.
    pub(crate) fn go_to(&mut self, position: usize) {
        self.at = position;
    }

    /// Skips an empty line.
    pub(crate) fn skip_blank_line(&mut self) -> bool {
        self.start = self.at;
        self.space();
        let blank = matches!(self.peek(), None | Some(b'\n'));
        self.at = if blank { self.at + 1 } else { self.start };
        blank
    }

    /// Calls `field` with each key of the object that is the whole line, and moves after the newline. `field` reads the value.
    pub(crate) fn line(&mut self, field: impl FnMut(Key, &mut Self) -> Result<(), ScanError>) -> Result<(), ScanError> {
        self.start = self.at;
        self.expect(b'{', "`{`")?;
        self.fields(field)?;
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(b'\n') => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.broken("the end of the line")),
        }
    }

    /// Calls `field` with each key of the object whose brace is before the cursor, up to the closing brace.
    #[inline]
    fn fields(&mut self, mut field: impl FnMut(Key, &mut Self) -> Result<(), ScanError>) -> Result<(), ScanError> {
        if self.accept(b'}') {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            self.expect(b':', "`:` after the field name")?;
            field(key, self)?;
            if self.accept(b'}') {
                return Ok(());
            }
            self.expect(b',', "`,` or `}`")?;
        }
    }

    /// Reads the field name at the cursor.
    fn key(&mut self) -> Result<Key, ScanError> {
        self.space();
        let at = self.at;
        match self.string("a field name in quotes")? {
            ScanValue::Text(text) if text.len() < 8 => Ok(Key(self.short(at + 1, text.len()))),
            value => Ok(Key::of(value.text().unwrap_or_default())),
        }
    }

    /// Returns a string of fewer than eight bytes as a number.
    fn short(&self, at: usize, length: usize) -> u64 {
        match eight_at(self.text, at) {
            Some(eight) => eight & !(u64::MAX << (8 * length)),
            None => word_of(&self.text.as_bytes()[at..at + length]),
        }
    }

    /// Returns an error at the cursor, for a value that is JSON and still wrong.
    pub(crate) fn broken(&self, expected: &'static str) -> ScanError {
        let rest = self.rest_of_line();
        let shown = String::from_utf8_lossy(&rest[..rest.len().min(24)])
            .trim_end()
            .to_owned();
        ScanError {
            column: self.at - self.start + 1,
            found: if rest.is_empty() {
                "the end of the line".to_owned()
            } else {
                format!("`{shown}`")
            },
            expected,
        }
    }

    fn rest_of_line(&self) -> &'a [u8] {
        let rest = &self.text.as_bytes()[self.at.min(self.text.len())..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        &rest[..end.unwrap_or(rest.len())]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), ScanError> {
        if self.accept(byte) {
            Ok(())
        } else {
            Err(self.broken(expected))
        }
    }

    /// Reads the value at the cursor.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<ScanValue<'a>, ScanError> {
        self.nested(0)
    }

    #[inline]
    fn nested(&mut self, depth: u32) -> Result<ScanValue<'a>, ScanError> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string("a string"),
            Some(b'0'..=b'9') => self.number(),
            Some(b'-') => self.number().map(|_| ScanValue::Other),
            Some(b'{') if depth < MAX_DEPTH => self.skip_object(depth),
            Some(b'[') if depth < MAX_DEPTH => self.list(depth),
            Some(b'{' | b'[') => Err(self.broken("fewer nested values")),
            Some(b't') => self.word(b"true", ScanValue::Other),
            Some(b'f') => self.word(b"false", ScanValue::Other),
            Some(b'n') => self.word(b"null", ScanValue::Null),
            _ => Err(self.broken("a value")),
        }
    }

    fn word(&mut self, word: &[u8], value: ScanValue<'a>) -> Result<ScanValue<'a>, ScanError> {
        let rest = self.rest_of_line();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        if word.starts_with(rest) {
            self.at += rest.len();
        }
        Err(self.broken("`true`, `false` or `null`"))
    }

    fn skip_object(&mut self, depth: u32) -> Result<ScanValue<'a>, ScanError> {
        self.at += 1;
        self.fields(|_, scanner| scanner.nested(depth + 1).map(drop))?;
        Ok(ScanValue::Other)
    }

    fn list(&mut self, depth: u32) -> Result<ScanValue<'a>, ScanError> {
        self.at += 1;
        let (mut counts, mut items, mut whole) = ([0; 4], 0, true);
        if self.accept(b']') {
            return Ok(ScanValue::Other);
        }
        loop {
            match (self.nested(depth + 1)?, counts.get_mut(items)) {
                (ScanValue::Number(number), Some(count)) => *count = number,
                _ => whole = false,
            }
            items += 1;
            if self.accept(b']') {
                let four = whole && items == counts.len();
                return Ok(if four {
                    ScanValue::Counts(counts)
                } else {
                    ScanValue::Other
                });
            }
            self.expect(b',', "`,` or `]`")?;
        }
    }

    /// Reads a number: a whole number that fits is returned, any other JSON number is `Other`.
    #[inline]
    fn number(&mut self) -> Result<ScanValue<'a>, ScanError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let digits = self.at;
        let value = self.digits();
        if self.at == digits {
            return Err(self.broken("a digit"));
        }
        if !matches!(self.peek(), Some(b'.' | b'e' | b'E' | b'+' | b'-')) {
            return Ok(value.map_or(ScanValue::Other, ScanValue::Number));
        }
        while matches!(self.peek(), Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
            self.at += 1;
        }
        if self.text[start..self.at].parse::<f64>().is_ok() {
            Ok(ScanValue::Other)
        } else {
            Err(self.broken("a number"))
        }
    }

    /// Reads the digits at the cursor as a number; `None` if it does not fit, or there is none.
    #[inline]
    fn digits(&mut self) -> Option<u64> {
        let (mut value, start) = (0u64, self.at);
        while let Some(eight) = eight_at(self.text, self.at) {
            let (number, count) = leading_digits(eight);
            let Some(power) = POWERS.get(count).filter(|_| self.at - start < 16) else {
                break;
            };
            value = value * power + number;
            self.at += count;
            if count < 8 {
                return Some(value);
            }
        }
        let mut value = Some(value);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value.and_then(|value| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
            self.at += 1;
        }
        value
    }

    #[inline]
    fn string(&mut self, expected: &'static str) -> Result<ScanValue<'a>, ScanError> {
        if self.peek() != Some(b'"') {
            return Err(self.broken(expected));
        }
        let start = self.at;
        let mut escaped = false;
        self.at += 1;
        loop {
            self.plain();
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    self.at += usize::from(self.peek().is_some_and(|byte| byte >= b' '));
                }
                _ => return Err(self.broken("a closing quote")),
            }
        }
        self.at += 1;
        if !escaped {
            return Ok(ScanValue::Text(&self.text[start + 1..self.at - 1]));
        }
        serde_json::from_str(&self.text[start..self.at])
            .map(ScanValue::Unescaped)
            .map_err(|_| self.broken("a valid escape in a string"))
    }

    /// Moves to the next quote, backslash or control character.
    #[inline]
    fn plain(&mut self) {
        while let Some(eight) = eight_at(self.text, self.at) {
            let special = special(eight);
            if special != 0 {
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        while matches!(self.peek(), Some(byte) if byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.at += 1;
        }
    }
}

/// One in each byte.
const EACH: u64 = 0x0101_0101_0101_0101;
pub(super) const QUOTES: u64 = EACH * b'"' as u64;
const BACKSLASHES: u64 = EACH * b'\\' as u64;
/// The highest bit of each byte.
const HIGH: u64 = EACH << 7;
const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Returns the eight bytes at a place of a text, the first in the lowest.
#[inline]
pub(super) fn eight_at(text: &str, at: usize) -> Option<u64> {
    let bytes = text.as_bytes().get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Returns the highest bits of bytes that end the plain part of a string: a quote, a backslash, a control character. Only the lowest of
/// them is certain.
pub(super) fn special(eight: u64) -> u64 {
    zeros(eight ^ QUOTES) | zeros(eight ^ BACKSLASHES) | controls(eight)
}

/// Returns the highest bits of bytes that are zero; only the lowest of them is certain.
pub(super) fn zeros(eight: u64) -> u64 {
    eight.wrapping_sub(EACH) & !eight & HIGH
}

/// Returns the highest bits of bytes below a space; only the lowest of them is certain.
fn controls(eight: u64) -> u64 {
    eight.wrapping_sub(EACH * u64::from(b' ')) & !eight & HIGH
}

/// Returns the number of the digits before the first other byte, and how many there are.
pub(super) fn leading_digits(eight: u64) -> (u64, usize) {
    // A byte is a digit when its high half is 3, and stays 3 after six are added.
    let (high, threes) = (EACH * 0xf0, EACH * 0x30);
    let other = ((eight & high) ^ threes) | ((eight.wrapping_add(EACH * 6) & high) ^ threes);
    let count = other.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // Leading zeros make eight digits, which are joined: by ones, by hundreds, by ten thousands.
    let digits = (eight << (64 - 8 * count)) & (EACH * 0x0f);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let number = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff;
    (number, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Result<Vec<(Key, ScanValue<'_>)>, ScanError> {
        let mut found = Vec::new();
        Scanner::new(line).line(|key, scanner| {
            found.push((key, scanner.value()?));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn the_fields_of_a_line_come_in_order() {
        let found =
            fields(r#" {"a":1, "b" : "x\ny","c":[1,"k",null],"d":{"e":[{}]},"f":-1.5e3,"g":[1,2,3,44],"h":null} "#);
        let found = found.unwrap();
        assert_eq!(found[0], (Key::of("a"), ScanValue::Number(1)));
        assert_eq!(found[1], (Key::of("b"), ScanValue::Unescaped("x\ny".into())));
        assert!(found[2..5].iter().all(|(_, value)| *value == ScanValue::Other));
        assert_eq!(found[5].1, ScanValue::Counts([1, 2, 3, 44]));
        assert_eq!(found[6].1, ScanValue::Null);
    }

    #[test]
    fn a_cut_line_says_so_at_every_length() {
        let line = r#"{"a":12,"b":"x\"y","c":[1,{"d":null}],"e":true}"#;
        for cut in 0..line.len() {
            for text in [line[..cut].to_owned(), format!("{}\n{line}\n", &line[..cut])] {
                let broken = fields(&text).expect_err("a cut line is not JSON");
                assert_eq!(broken.found, "the end of the line", "cut at {cut}: {broken:?}");
                assert_eq!(broken.column, cut + 1);
            }
        }
        assert!(fields(line).is_ok());
    }

    #[test]
    fn what_is_not_json_is_refused_where_it_stands() {
        for (line, column) in [("[1]", 1), (r#"{"a" 1}"#, 6), (r#"{"a":01x}"#, 8), (r#"{"a":1} x"#, 9)] {
            assert_eq!(fields(line).expect_err(line).column, column, "{line}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(100_000));
        assert_eq!(fields(&deep).expect_err("too deep").expected, "fewer nested values");
        assert!(fields("{\"a\":\n1}").is_err(), "a value does not go over lines");
    }

    #[test]
    fn numbers_are_what_they_are_at_every_length_and_place() {
        let mut number = 0u64;
        for digits in 0..20u64 {
            number = number.wrapping_mul(10).wrapping_add(digits % 9 + 1);
            for behind in ["}", ",\"longer than eight\":1}"] {
                let line = format!("{{\"a\":{number}{behind}");
                let found = fields(&line).unwrap();
                assert_eq!(found[0].1, ScanValue::Number(number), "{line}");
            }
        }
        for (text, value) in [
            ("18446744073709551615", ScanValue::Number(u64::MAX)),
            ("18446744073709551616", ScanValue::Other),
            ("-3", ScanValue::Other),
            ("1.5", ScanValue::Other),
            ("12345678e2", ScanValue::Other),
            ("123456789012345678901234", ScanValue::Other),
        ] {
            let line = format!("{{\"a\":{text}}}");
            assert_eq!(fields(&line).unwrap()[0].1, value, "{text}");
        }
        for wrong in ["1.5.5", "1e", "-", "1-1"] {
            assert!(fields(&format!("{{\"a\":{wrong}}}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn strings_end_at_their_quote_at_every_length() {
        for length in 0..20 {
            for inside in ["x", "é", "\u{7f}", "\u{80}"] {
                let text = inside.repeat(length);
                let line = format!("{{\"{text}\":\"{text}\"}}");
                let found = fields(&line).unwrap();
                assert_eq!(found, [(Key::of(&text), ScanValue::Text(&text))], "{line}");
                for control in ["\n", "\u{1f}", "\0"] {
                    let line = format!("{{\"{text}{control}\":\"{text}\"}}");
                    assert_eq!(fields(&line).expect_err(&line).column, text.len() + 3);
                }
            }
        }
    }
}
