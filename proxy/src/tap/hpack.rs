//! Header compression of HTTP/2 (RFC 7541), as far as reading the path of a request needs it: a decoder with its table.
//!
//! Every header of a block is decoded, since each may enter the table and later ones refer to it. The Huffman code is
//! canonical, so its lengths are the whole of it. Nothing here panics on any input, and the table never outgrows
//! [`MAX_TABLE`].

use std::collections::VecDeque;
use std::sync::LazyLock;

/// The largest table that is kept; a peer with a larger one is not read any further.
const MAX_TABLE: usize = 64 << 10;
/// The table until a peer sets another size.
const DEFAULT_TABLE: usize = 4096;
/// Bytes of an entry in addition to its text.
const ENTRY: usize = 32;
/// Symbols of the Huffman code: all bytes and the end of the string.
const SYMBOLS: usize = 257;
const LONGEST_CODE: usize = 30;

/// A header block that cannot be read; the table is of no use any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

type Text = Vec<u8>;

pub(super) struct HpackDecoder {
    table: VecDeque<(Text, Text)>,
    size: usize,
    limit: usize,
}

impl HpackDecoder {
    pub(super) fn new() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            limit: DEFAULT_TABLE,
        }
    }

    /// Reads a whole header block and returns its path.
    pub(super) fn path(&mut self, block: &[u8]) -> Result<Option<Text>, Unreadable> {
        let mut path = None;
        let mut rest = block;
        while let Some(first) = rest.first().copied() {
            let (name, value) = match first {
                0x80.. => self.entry(integer(&mut rest, 7)?)?,
                0x40..0x80 => {
                    let (name, value) = self.literal(&mut rest, 6)?;
                    self.add(name.clone(), value.clone());
                    (name, value)
                }
                0x20..0x40 => {
                    let limit = integer(&mut rest, 5)?;
                    self.resize(limit)?;
                    continue;
                }
                _ => self.literal(&mut rest, 4)?,
            };
            if name == b":path" {
                path = Some(value);
            }
        }
        Ok(path)
    }

    fn entry(&self, index: usize) -> Result<(Text, Text), Unreadable> {
        let index = index.checked_sub(1).ok_or(Unreadable)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        self.table.get(index - STATIC.len()).cloned().ok_or(Unreadable)
    }

    fn literal(&self, rest: &mut &[u8], prefix: u32) -> Result<(Text, Text), Unreadable> {
        let name = match integer(rest, prefix)? {
            0 => string(rest)?,
            index => self.entry(index)?.0,
        };
        Ok((name, string(rest)?))
    }

    fn add(&mut self, name: Text, value: Text) {
        self.size += name.len() + value.len() + ENTRY;
        self.table.push_front((name, value));
        self.shrink();
    }

    fn resize(&mut self, limit: usize) -> Result<(), Unreadable> {
        if limit > MAX_TABLE {
            return Err(Unreadable);
        }
        self.limit = limit;
        self.shrink();
        Ok(())
    }

    fn shrink(&mut self) {
        while self.size > self.limit {
            let Some((name, value)) = self.table.pop_back() else {
                return;
            };
            self.size -= name.len() + value.len() + ENTRY;
        }
    }
}

/// Takes an integer whose first `prefix` bits share a byte with something else.
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Unreadable> {
    let mut take = || {
        let (first, others) = rest.split_first().ok_or(Unreadable)?;
        *rest = others;
        Ok(usize::from(*first))
    };
    let mask = (1 << prefix) - 1;
    let mut value = take()? & mask;
    if value < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = take()?;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Unreadable)
}

fn string(rest: &mut &[u8]) -> Result<Text, Unreadable> {
    let coded = rest.first().ok_or(Unreadable)? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (text, others) = rest.split_at_checked(length).ok_or(Unreadable)?;
    *rest = others;
    if coded { HUFFMAN.decode(text) } else { Ok(text.to_vec()) }
}

/// A canonical code: codes of one length follow each other, and the symbols of a length are in order.
struct Huffman {
    /// By length: the first code, how many there are, and where their symbols begin.
    lengths: [(u32, u32, usize); LONGEST_CODE + 1],
    symbols: Vec<u16>,
}

static HUFFMAN: LazyLock<Huffman> = LazyLock::new(Huffman::new);

impl Huffman {
    fn new() -> Self {
        let mut symbols: Vec<u16> = (0..SYMBOLS as u16).collect();
        symbols.sort_by_key(|symbol| CODE_LENGTHS[usize::from(*symbol)]);
        let mut lengths = [(0, 0, 0); LONGEST_CODE + 1];
        let (mut code, mut start) = (0_u32, 0);
        for (length, entry) in lengths.iter_mut().enumerate().skip(1) {
            code <<= 1;
            let count = CODE_LENGTHS
                .iter()
                .filter(|other| usize::from(**other) == length)
                .count();
            *entry = (code, count as u32, start);
            code += count as u32;
            start += count;
        }
        Self { lengths, symbols }
    }

    fn decode(&self, coded: &[u8]) -> Result<Text, Unreadable> {
        let mut text = Vec::with_capacity(coded.len() * 2);
        let (mut code, mut length) = (0_u32, 0);
        for bit in coded
            .iter()
            .flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1))
        {
            code = code << 1 | u32::from(bit);
            length += 1;
            let (first, count, start) = *self.lengths.get(length).ok_or(Unreadable)?;
            if code < first + count && code >= first {
                let symbol = self.symbols[start + (code - first) as usize];
                // the end of the string is never sent
                text.push(u8::try_from(symbol).map_err(|_| Unreadable)?);
                (code, length) = (0, 0);
            }
        }
        // what is left is padding: fewer than eight ones
        let padding = (1_u32 << length) - 1;
        if length < 8 && code == padding {
            Ok(text)
        } else {
            Err(Unreadable)
        }
    }
}

/// RFC 7541, appendix B: the length of each symbol's code.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6,
    6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6,
    6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22,
    20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23,
    22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22,
    23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22,
    25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// RFC 7541, appendix A.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"),
    (":status", "200"), (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"),
    ("accept-charset", ""), ("accept-encoding", "gzip, deflate"), ("accept-language", ""),
    ("accept-ranges", ""), ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""),
    ("content-language", ""), ("content-length", ""), ("content-location", ""), ("content-range", ""),
    ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""),
    ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""),
    ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn the_requests_of_the_standards_appendix_are_read_with_and_without_huffman() {
        for blocks in [
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
        ] {
            let mut decoder = HpackDecoder::new();
            let paths: Vec<Text> = blocks
                .iter()
                .map(|block| decoder.path(&bytes(block)).unwrap().unwrap())
                .collect();
            assert_eq!(paths, [b"/".to_vec(), b"/".to_vec(), b"/index.html".to_vec()]);
            let table: Vec<(&[u8], &[u8])> = decoder
                .table
                .iter()
                .map(|(name, value)| (&name[..], &value[..]))
                .collect();
            let expected: [(&[u8], &[u8]); 3] = [
                (b"custom-key", b"custom-value"),
                (b"cache-control", b"no-cache"),
                (b":authority", b"www.example.com"),
            ];
            assert_eq!(table, expected);
            assert_eq!(decoder.size, 164, "as the appendix counts it");
        }
    }

    #[test]
    fn old_entries_leave_a_table_that_is_full() {
        let mut decoder = HpackDecoder::new();
        decoder.resize(100).unwrap();
        for value in 0..10_u8 {
            decoder.add(b"name".to_vec(), vec![value; 20]);
            assert!(decoder.size <= 100);
        }
        assert_eq!(decoder.table.len(), 1);
        assert_eq!(decoder.resize(MAX_TABLE + 1), Err(Unreadable));
    }
}
