//! Lines and lengths of RESP, as they come in pieces.

use super::TapError;

/// The longest line that is a number.
pub(super) const LINE: usize = 64;
/// The longest string and the longest list: what Redis itself takes.
const LONGEST: i64 = 512 << 20;
/// Bytes of a text that are kept: a name, a channel.
pub(super) const KEPT: usize = 128;

/// Moves bytes up to a line's end into `line`; returns how many there were, and whether the line is whole.
pub(super) fn line(line: &mut Vec<u8>, chunk: &[u8], longest: usize) -> Result<(usize, bool), TapError> {
    let end = chunk.iter().position(|byte| *byte == b'\n');
    let part = &chunk[..end.map_or(chunk.len(), |end| end + 1)];
    let room = longest.saturating_sub(line.len());
    if part.len() > room && longest == LINE {
        return Err(TapError("a line that is too long"));
    }
    line.extend_from_slice(&part[..part.len().min(room)]);
    Ok((part.len(), end.is_some()))
}

pub(super) fn number(line: &[u8]) -> Result<i64, TapError> {
    let digits = line.strip_suffix(b"\r\n").ok_or(TapError("a line without its end"))?;
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number
        .filter(|number| (-1..=LONGEST).contains(number))
        .ok_or(TapError("a length that is not a number"))
}

pub(super) fn keep(word: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT.saturating_sub(word.len());
    word.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
