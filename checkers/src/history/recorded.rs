//! Recorded lines, read in one pass: the first fields in their order, no space between, no escapes.
//!
//! [`recorded_line`] returns the same fields as [`super::lines`] would by a parser of JSON, in a fraction of its time, or `None`: then the
//! parser reads the line, and reports its error if it has one. Numbers and strings are read eight bytes at a time, as in
//! <https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>: most are too short for a vector unit.

use super::entry::{EventFields, F, NO_INDEX, Rare, RareFields};
use super::event::{Kind, Process};
use super::names::{NONE, Names, Symbol};

/// Names of at most seven bytes, by their bytes: locks are few and have short names, so most are found without a hash table.
#[derive(Debug, Clone)]
pub(super) struct ShortNames {
    /// The name's bytes with its length, and its symbol; by the lowest bits of a product.
    slots: [(u64, Symbol); SLOTS],
}

const SLOTS: usize = 64;

impl Default for ShortNames {
    fn default() -> Self {
        Self {
            slots: [(u64::MAX, NONE); SLOTS],
        }
    }
}

impl ShortNames {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the symbol of a name with these bytes.
    fn symbol(&mut self, word: u64, name: &str, names: &mut Names) -> Symbol {
        let word = word | (name.len() as u64) << 56;
        let slot = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
        let (known, symbol) = &mut self.slots[slot];
        if *known != word {
            (*known, *symbol) = (word, names.intern(name));
        }
        *symbol
    }
}

/// Returns the fields of the line at a place of a text, and the place of the next line; `None` for a line of another form. Rare fields are
/// written to `rare`, which does not change if the line has none.
#[inline]
pub(super) fn recorded_line(
    text: &str,
    at: usize,
    (names, short): (&mut Names, &mut ShortNames),
    rare: &mut Option<RareFields>,
) -> Option<(EventFields, usize)> {
    let mut line = LineCursor { text, at };
    line.literal(b"{\"index\":")?;
    let index = line.number()?;
    line.literal(b",\"time\":")?;
    let time = line.number()?;
    line.literal(b",\"process\":")?;
    let (process, client) = line.whose()?;
    line.literal(b",\"type\":\"")?;
    let kind = meaning(&KINDS, line.word()?)?;
    line.literal(b",\"f\":\"")?;
    let f = meaning(&OPERATIONS, line.word()?)?;
    let mut fields = EventFields {
        client,
        ..EventFields::new(index, time, process, kind, f)
    };
    loop {
        match line.byte()? {
            b',' => line.field(&mut fields, rare, names, short)?,
            b'}' => break,
            _ => return None,
        }
    }
    (line.byte()? == b'\n' && index != NO_INDEX).then_some((fields, line.at))
}

/// A field name of at most seven bytes, or another word, as a number, for one comparison: its bytes, the first in the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key(u64);

impl Key {
    const TOKEN: Self = Self::of("token");
    const WAIT_MS: Self = Self::of("wait_ms");
    const LATE_US: Self = Self::of("late_us");
    const VALUE: Self = Self::of("value");
    const PERMITS: Self = Self::of("permits");
    const LOCK: Self = Self::of("lock");
    const OWNER: Self = Self::of("owner");
    const CAUSE: Self = Self::of("cause");
    const ERROR: Self = Self::of("error");
    const NODE: Self = Self::of("node");

    const fn of(name: &str) -> Self {
        let bytes = name.as_bytes();
        let (mut word, mut at) = (0, bytes.len());
        while at > 0 {
            at -= 1;
            word = (word << 8) | bytes[at] as u64;
        }
        Self(word)
    }
}

/// The types by their words, the most frequent first.
const KINDS: [(Key, Kind); 5] = [
    (Key::of("invoke"), Kind::Invoke),
    (Key::of("ok"), Kind::Ok),
    (Key::of("signal"), Kind::Signal),
    (Key::of("fail"), Kind::Fail),
    (Key::of("info"), Kind::Info),
];

/// Operations and signals by their words, the most frequent first; the others have longer words or are rare.
const OPERATIONS: [(Key, F); 10] = [
    (Key::of("acquire"), F::Acquire),
    (Key::of("release"), F::Release),
    (Key::of("extend"), F::Extend),
    (Key::of("granted"), F::Granted),
    (Key::of("revoked"), F::Revoked),
    (Key::of("read"), F::Read),
    (Key::of("write"), F::Write),
    (Key::of("woken"), F::Woken),
    (Key::of("lost"), F::Lost),
    (Key::of("cas"), F::Cas),
];

/// Returns what a word stands for.
#[inline]
fn meaning<T: Copy>(words: &[(Key, T)], word: Key) -> Option<T> {
    let (_, meaning) = words.iter().find(|(known, _)| *known == word)?;
    Some(*meaning)
}

struct LineCursor<'a> {
    text: &'a str,
    at: usize,
}

impl LineCursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.at += 1;
        self.text.as_bytes().get(self.at - 1).copied()
    }

    fn literal<const N: usize>(&mut self, literal: &[u8; N]) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += N;
        (rest.first_chunk() == Some(literal)).then_some(())
    }

    /// Reads a whole number of at most 19 digits; JSON has none with a zero before other digits.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let eight = eight_at(self.text, self.at)?;
        let (value, count) = leading_digits(eight);
        self.at += count;
        match count {
            0 => None,
            2.. if eight as u8 == b'0' => None,
            8 => self.more_digits(value),
            _ => Some(value),
        }
    }

    fn more_digits(&mut self, mut value: u64) -> Option<u64> {
        let mut left = 19 - 8;
        while let Some(digit @ b'0'..=b'9') = self.text.as_bytes().get(self.at) {
            value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.at += 1;
            left -= 1;
            if left == 0 {
                break;
            }
        }
        Some(value)
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Reads a process, and the client that a line names after it.
    fn whose(&mut self) -> Option<(Process, Option<u32>)> {
        if self.literal(b"\"server\"").is_some() {
            return Some((Process::Server, None));
        }
        self.at -= b"\"server\"".len();
        let process = Process::Client(self.small()?);
        let before = self.at;
        if self.literal(b",\"client\":").is_some() {
            return Some((process, Some(self.small()?)));
        }
        self.at = before;
        Some((process, None))
    }

    /// Reads a word of at most seven bytes and the quote after it, without the escapes that other lines may have.
    #[inline]
    fn word(&mut self) -> Option<Key> {
        let eight = eight_at(self.text, self.at)?;
        let length = zeros(eight ^ QUOTES).trailing_zeros() / 8;
        if length >= 8 {
            return None;
        }
        self.at += length as usize + 1;
        Some(Key(eight & !(u64::MAX << (8 * length))))
    }

    /// Reads a string without escapes, after its first quote.
    #[inline]
    fn name(&mut self, names: &mut Names, short: &mut ShortNames) -> Option<Symbol> {
        let start = self.at;
        let first = eight_at(self.text, start)?;
        let mut special_here = special(first);
        while special_here == 0 {
            self.at += 8;
            special_here = special(eight_at(self.text, self.at)?);
        }
        self.at += special_here.trailing_zeros() as usize / 8;
        let name = self.text.get(start..self.at)?;
        if self.byte()? != b'"' {
            return None;
        }
        if name.len() >= 8 {
            return Some(names.intern(name));
        }
        let word = first & !(u64::MAX << (8 * name.len()));
        Some(short.symbol(word, name, names))
    }

    /// Reads one field after its comma.
    #[inline]
    fn field(
        &mut self,
        fields: &mut EventFields,
        rare: &mut Option<RareFields>,
        names: &mut Names,
        short: &mut ShortNames,
    ) -> Option<()> {
        self.literal(b"\"")?;
        let key = self.word()?;
        self.literal(b":")?;
        match key {
            Key::TOKEN => fields.token = Some(self.number()?),
            Key::WAIT_MS => said(rare).wait_ms = Rare::wait_of(self.number()?),
            Key::LATE_US => said(rare).late_us = self.small()?,
            Key::VALUE => said(rare).value = Some(self.number()?),
            Key::PERMITS => said(rare).permits = self.small()?,
            Key::LOCK | Key::OWNER | Key::CAUSE | Key::ERROR | Key::NODE => {
                self.literal(b"\"")?;
                let name = self.name(names, short)?;
                match key {
                    Key::LOCK => fields.lock = name,
                    Key::OWNER => fields.owner = name,
                    Key::CAUSE => said(rare).cause = name,
                    Key::ERROR => said(rare).error = name,
                    _ if fields.f == F::Acquire => fields.node = name,
                    _ => {}
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// Returns the rare fields of this event, and adds them if there are none.
fn said(rare: &mut Option<RareFields>) -> &mut Rare {
    &mut rare.get_or_insert_default().rare
}

/// One in each byte.
const EACH: u64 = 0x0101_0101_0101_0101;
const QUOTES: u64 = EACH * b'"' as u64;
const BACKSLASHES: u64 = EACH * b'\\' as u64;
/// The highest bit of each byte.
const HIGH: u64 = EACH << 7;

/// Returns the eight bytes at a place of a text, the first in the lowest.
#[inline]
fn eight_at(text: &str, at: usize) -> Option<u64> {
    let bytes = text.as_bytes().get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Returns the highest bits of bytes that end the plain part of a string: a quote, a backslash, a control character. Only the lowest of
/// them is certain.
fn special(eight: u64) -> u64 {
    zeros(eight ^ QUOTES) | zeros(eight ^ BACKSLASHES) | controls(eight)
}

/// Returns the highest bits of bytes that are zero; only the lowest of them is certain.
fn zeros(eight: u64) -> u64 {
    eight.wrapping_sub(EACH) & !eight & HIGH
}

/// Returns the highest bits of bytes below a space; only the lowest of them is certain.
fn controls(eight: u64) -> u64 {
    eight.wrapping_sub(EACH * u64::from(b' ')) & !eight & HIGH
}

/// Returns the number of the digits before the first other byte, and how many there are.
fn leading_digits(eight: u64) -> (u64, usize) {
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
    use super::super::lines::LineBlock;
    use super::*;
    use crate::dice::dice;

    /// Returns the events of a block of lines, with names in place of their numbers, and whether it ends with an error.
    fn parsed(text: &str) -> (Vec<String>, bool) {
        let mut block = LineBlock::default();
        block.text.extend_from_slice(text.as_bytes());
        block.parse();
        let name = |symbol: Symbol| (symbol != NONE).then(|| block.names.get(symbol).to_owned());
        let events = block.events.iter().map(|fields| {
            let rare = block.rare.get(fields.rare as usize).copied().unwrap_or_default();
            let names = [fields.lock, fields.owner, fields.node, rare.rare.cause, rare.rare.error].map(name);
            let nameless = EventFields {
                lock: NONE,
                owner: NONE,
                node: NONE,
                rare: NONE,
                ..*fields
            };
            let (cause, error) = (NONE, NONE);
            let numbers = Rare {
                cause,
                error,
                ..rare.rare
            };
            format!("{nameless:?} {names:?} {numbers:?} {:?}", rare.wire)
        });
        (events.collect(), block.fault.is_some())
    }

    /// Lines that begin with a space are not recorded lines.
    fn spaced(text: &str) -> String {
        text.lines().map(|line| format!(" {line}\n")).collect()
    }

    const LINES: [&str; 8] = [
        r#"{"index":1,"time":104729,"process":0,"client":0,"type":"invoke","f":"acquire","lock":"l0","wait_ms":5000,"late_us":812}"#,
        r#"{"index":2,"time":1760000000123456789,"process":3,"client":3,"type":"ok","f":"acquire","lock":"l0","token":41,"node":"n1"}"#,
        r#"{"index":3,"time":0,"process":"server","type":"signal","f":"revoked","lock":"a-longer-name","owner":"s1","cause":"expired"}"#,
        r#"{"index":4,"time":12345678,"process":4294967295,"type":"fail","f":"acquire","lock":"é","error":"busy"}"#,
        r#"{"index":5,"time":1,"process":7,"client":7,"type":"info","f":"release","lock":"l1","error":"timed \"out\""}"#,
        r#"{"index":6,"time":99999999999999999999,"process":7,"type":"ok","f":"write","lock":"l1","value":9}"#,
        r#"{"index":7,"time":5,"process":1,"type":"invoke","f":"release","lock":"l1","wire":[1,2,3,4],"permits":2}"#,
        r#"{"index":8,"time":6,"process":"nemesis","type":"info","f":"partition","phase":"start","title":"x"}"#,
    ];

    #[test]
    fn lines_of_recorders_are_read_here() {
        let (mut names, mut short) = (Names::default(), ShortNames::default());
        for line in &LINES[..4] {
            let text = format!("{line}\n        ");
            let (_, next) = recorded_line(&text, 0, (&mut names, &mut short), &mut None).expect(line);
            assert_eq!(next, line.len() + 1);
        }
    }

    #[test]
    fn numbers_and_names_are_what_they_are_at_every_length() {
        for length in 0..19 {
            let number = "1234567890123456789".split_at(length + 1).0;
            for inside in ["x", "é", "\u{7f}", "\u{80}"] {
                let name = inside.repeat(length);
                let line = format!(
                    r#"{{"index":{number},"time":{number},"process":0,"type":"ok","f":"acquire","owner":"{name}","token":{number}}}"#
                );
                let text = format!("{line}\n        ");
                let (mut names, mut short) = (Names::default(), ShortNames::default());
                assert!(
                    recorded_line(&text, 0, (&mut names, &mut short), &mut None).is_some(),
                    "{line}"
                );
                let text = format!("{line}\n{}\n", LINES[0]);
                assert_eq!(parsed(&text), parsed(&spaced(&text)), "{line}");
                assert!(!parsed(&text).1, "{line}");
            }
        }
    }

    #[test]
    fn a_line_says_the_same_to_both_readers() {
        let mut dice = dice(0x9e37_79b9_7f4a_7c15);
        let mut roll = |sides: usize| dice(sides as u64) as usize;
        let letters: Vec<char> = "{}\":,[] 0159eE+-.\\abfnul\u{7}é".chars().collect();
        let mut wrong = 0;
        for _ in 0..60_000 {
            let mut line: Vec<char> = LINES[roll(LINES.len())].chars().collect();
            for _ in 0..roll(3) {
                let at = roll(line.len());
                match roll(4) {
                    0 => line[at] = letters[roll(letters.len())],
                    1 => line.insert(at, letters[roll(letters.len())]),
                    2 => drop(line.remove(at)),
                    _ => line.truncate(at.max(1)),
                }
            }
            let line: String = line.into_iter().collect();
            let text = format!("{line}\n{}\n{}\n", LINES[roll(2)], LINES[roll(2)]);
            let found = parsed(&text);
            wrong += usize::from(found.1);
            assert_eq!(found, parsed(&spaced(&text)), "{text}");
        }
        assert!((1_000..59_000).contains(&wrong), "{wrong}");
    }
}
