//! One line of JSON into the few fields that matter, without a tree and without allocating.
//!
//! Every byte of the line is still checked: what is skipped must be JSON, too. Strings with escapes are the one case
//! that allocates. Nothing is interpreted here.

use std::borrow::Cow;

/// Nesting that a value may have before the line is refused, so that no input can exhaust the stack.
const MAX_DEPTH: u32 = 64;

/// Where a line stopped being JSON and what should have stood there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScanError {
    pub column: usize,
    pub found: String,
    pub expected: &'static str,
    /// The line ended too early, as a torn line does.
    pub at_end: bool,
}

/// A value of a field: a number and a string are kept, the rest is checked and skipped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScanValue<'a> {
    Number(u64),
    Text(Cow<'a, str>),
    /// A list of plain values, flat: what Jepsen writes for independent keys and compare-and-set.
    List(Vec<ScanValue<'a>>),
    Null,
    Other,
}

/// A cursor over one line.
pub(crate) struct Scanner<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self { line, at: 0 }
    }

    /// Calls `field` with each key and value of the object that is the whole line.
    pub(crate) fn object(
        &mut self,
        mut field: impl FnMut(&Cow<'a, str>, ScanValue<'a>) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        self.expect(b'{', "`{`")?;
        if !self.accept(b'}') {
            loop {
                self.space();
                let key = self.string("a field name in quotes")?;
                self.expect(b':', "`:` after the field name")?;
                let value = self.value(0)?;
                field(&key, value)?;
                if self.accept(b'}') {
                    break;
                }
                self.expect(b',', "`,` or `}`")?;
            }
        }
        self.space();
        if self.at == self.line.len() {
            Ok(())
        } else {
            Err(self.broken("the end of the line"))
        }
    }

    /// An error at the cursor, for a value that is JSON and still wrong.
    pub(crate) fn broken(&self, expected: &'static str) -> ScanError {
        let rest = &self.line[self.at.min(self.line.len())..];
        let shown = String::from_utf8_lossy(&rest[..rest.len().min(24)])
            .trim_end()
            .to_owned();
        ScanError {
            column: self.at + 1,
            found: if rest.is_empty() {
                "the end of the line".to_owned()
            } else {
                format!("`{shown}`")
            },
            expected,
            at_end: rest.is_empty(),
        }
    }

    fn space(&mut self) {
        while matches!(self.line.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.line.get(self.at) == Some(&byte);
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

    fn value(&mut self, depth: u32) -> Result<ScanValue<'a>, ScanError> {
        self.space();
        match self.line.get(self.at) {
            Some(b'"') => self.string("a string").map(ScanValue::Text),
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
        if self.line[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        let rest = &self.line[self.at..];
        if word.starts_with(rest) {
            self.at = self.line.len();
        }
        Err(self.broken("`true`, `false` or `null`"))
    }

    fn skip_object(&mut self, depth: u32) -> Result<ScanValue<'a>, ScanError> {
        self.at += 1;
        if self.accept(b'}') {
            return Ok(ScanValue::Other);
        }
        loop {
            self.space();
            self.string("a field name in quotes")?;
            self.expect(b':', "`:` after the field name")?;
            self.value(depth + 1)?;
            if self.accept(b'}') {
                return Ok(ScanValue::Other);
            }
            self.expect(b',', "`,` or `}`")?;
        }
    }

    fn list(&mut self, depth: u32) -> Result<ScanValue<'a>, ScanError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.accept(b']') {
            return Ok(ScanValue::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.accept(b']') {
                return Ok(ScanValue::List(items));
            }
            self.expect(b',', "`,` or `]`")?;
        }
    }

    /// A whole number that fits is kept; any other JSON number is `Other`.
    fn number(&mut self) -> Result<ScanValue<'a>, ScanError> {
        let start = self.at;
        self.at += usize::from(self.line[self.at] == b'-');
        let digits = self.at;
        let mut value = Some(0u64);
        while let Some(digit @ b'0'..=b'9') = self.line.get(self.at) {
            value = value.and_then(|value| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
            self.at += 1;
        }
        if self.at == digits {
            return Err(self.broken("a digit"));
        }
        let whole = !matches!(self.line.get(self.at), Some(b'.' | b'e' | b'E'));
        while matches!(
            self.line.get(self.at),
            Some(b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
        ) {
            self.at += 1;
        }
        if whole {
            return Ok(value.map_or(ScanValue::Other, ScanValue::Number));
        }
        let text = std::str::from_utf8(&self.line[start..self.at]).unwrap_or_default();
        if text.parse::<f64>().is_ok() {
            Ok(ScanValue::Other)
        } else {
            Err(self.broken("a number"))
        }
    }

    fn string(&mut self, expected: &'static str) -> Result<Cow<'a, str>, ScanError> {
        if self.line.get(self.at) != Some(&b'"') {
            return Err(self.broken(expected));
        }
        let start = self.at;
        let mut escaped = false;
        self.at += 1;
        loop {
            match self.line.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 2;
                }
                Some(0..=31) => return Err(self.broken("a closing quote")),
                Some(_) => self.at += 1,
                None => {
                    self.at = self.line.len();
                    return Err(self.broken("a closing quote"));
                }
            }
        }
        self.at += 1;
        self.text(start, escaped)
    }

    fn text(&self, start: usize, escaped: bool) -> Result<Cow<'a, str>, ScanError> {
        let quoted = &self.line[start..self.at];
        let text = std::str::from_utf8(quoted).map_err(|_| self.broken("text in UTF-8"))?;
        if !escaped {
            return Ok(Cow::Borrowed(&text[1..text.len() - 1]));
        }
        serde_json::from_str(text)
            .map(Cow::Owned)
            .map_err(|_| self.broken("a valid escape in a string"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Result<Vec<(String, ScanValue<'_>)>, ScanError> {
        let mut found = Vec::new();
        Scanner::new(line.as_bytes()).object(|key, value| {
            found.push((key.to_string(), value));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn the_fields_of_a_line_come_in_order() {
        let found = fields(r#" {"a":1, "b" : "x\ny","c":[1,"k",null],"d":{"e":[{}]},"f":-1.5e3,"g":true} "#).unwrap();
        assert_eq!(found[0], ("a".into(), ScanValue::Number(1)));
        assert_eq!(found[1], ("b".into(), ScanValue::Text("x\ny".into())));
        assert_eq!(
            found[2].1,
            ScanValue::List(vec![ScanValue::Number(1), ScanValue::Text("k".into()), ScanValue::Null])
        );
        assert!(found[3..].iter().all(|(_, value)| *value == ScanValue::Other));
    }

    #[test]
    fn a_cut_line_says_so_at_every_length() {
        let line = r#"{"a":12,"b":"x\"y","c":[1,{"d":null}],"e":true}"#;
        for cut in 0..line.len() {
            let broken = fields(&line[..cut]).expect_err("a cut line is not JSON");
            assert!(broken.at_end, "cut at {cut}: {broken:?}");
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
    }
}
