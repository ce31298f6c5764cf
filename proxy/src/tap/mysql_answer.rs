//! Answers of MySQL and MariaDB, packet by packet: where one begins, and where it is over. An answer is an OK, an error, or columns
//! and rows, once or several times.
//!
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase.html>

use super::TapError;

/// Bits of the status in an OK or EOF.
const MORE_RESULTS: u16 = 0x0008;
const CURSOR: u16 = 0x0040;
/// A payload that is as long or longer is a row, whatever it begins with.
const LONGEST: usize = 0xff_ffff;

/// The shape of the answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerShape {
    /// An OK, an error, or columns and rows; again while the status says that there is more.
    Results,
    /// The number of the prepared statement, then its parameters and columns.
    Prepared,
    /// Rows without columns before them.
    Rows,
    /// One packet that is neither.
    Lines,
    /// Logging in again: an OK or an error, and before it the packets of a method of authentication.
    Description,
}

/// The encoding of an answer's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerForm {
    /// No EOF follows the columns.
    pub(super) without_eof: bool,
    /// Whether a flag that the columns are left out follows their number.
    pub(super) caches: bool,
    /// The rows are those of a prepared statement.
    pub(super) binary: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerStep {
    First,
    /// Descriptions that are still to come, and whether an EOF follows them.
    Columns(u64, bool),
    Rows,
    /// Packets after which a statement is prepared.
    Prepared(u64),
}

/// One answer, read packet by packet.
pub(super) struct AnswerReader {
    shape: AnswerShape,
    pub(super) form: AnswerForm,
    step: AnswerStep,
    /// A packet of it was read.
    pub(super) begun: bool,
}

impl AnswerReader {
    pub(super) fn new(shape: AnswerShape, form: AnswerForm) -> Self {
        let step = match shape {
            AnswerShape::Rows => AnswerStep::Rows,
            _ => AnswerStep::First,
        };
        Self {
            shape,
            form,
            step,
            begun: false,
        }
    }

    /// Reads a packet, of which `body` is the beginning; answers whether the answer is over.
    pub(super) fn read(&mut self, body: &[u8], length: usize) -> Result<bool, TapError> {
        // the progress of a long statement, which MariaDB reports in between
        if body.starts_with(&[0xff, 0xff, 0xff]) {
            return Ok(false);
        }
        self.begun = true;
        if body.first() == Some(&0xff) && !matches!(self.step, AnswerStep::Columns(..) | AnswerStep::Prepared(_)) {
            return Ok(true);
        }
        match self.step {
            AnswerStep::First => self.first(body, length),
            AnswerStep::Columns(left, eof) => Ok(self.column(left, eof, body)),
            AnswerStep::Rows => Ok(self.row(body, length)),
            AnswerStep::Prepared(left) => {
                self.step = AnswerStep::Prepared(left - 1);
                Ok(left == 1)
            }
        }
    }

    fn first(&mut self, body: &[u8], length: usize) -> Result<bool, TapError> {
        match (self.shape, body.first()) {
            (_, None) => Err(TapError("an empty answer")),
            (AnswerShape::Lines, _) => Ok(true),
            (AnswerShape::Description, Some(first)) => Ok(*first == 0),
            (AnswerShape::Prepared, Some(0)) => {
                let number = |at: usize| {
                    body.get(at..at + 2)
                        .map(|two| u64::from(two[0]) | u64::from(two[1]) << 8)
                };
                let of = |count: u64| match count {
                    0 => 0,
                    _ => count + u64::from(!self.form.without_eof),
                };
                let (Some(columns), Some(parameters)) = (number(5), number(7)) else {
                    return Err(TapError("a prepared statement that cannot be read"));
                };
                let left = of(columns) + of(parameters);
                self.step = AnswerStep::Prepared(left);
                Ok(left == 0)
            }
            (_, Some(0)) => Ok(!self.goes_on(status_of_ok(body))),
            // a file is wanted of the client, and the answer is what follows it
            (_, Some(0xfb)) => Ok(false),
            (_, Some(0xfe)) if length < 9 => Ok(true),
            _ => {
                let (columns, rest) = lenenc(body).ok_or(TapError("an answer of an unknown kind"))?;
                let left_out = self.form.caches && rest.first() == Some(&0);
                self.step = match (columns, self.form.without_eof) {
                    _ if left_out && self.form.without_eof => AnswerStep::Rows,
                    _ if left_out => AnswerStep::Columns(0, true),
                    (columns, without_eof) => AnswerStep::Columns(columns, !without_eof),
                };
                Ok(false)
            }
        }
    }

    /// Reads a description of a column, or the EOF after the last.
    fn column(&mut self, left: u64, eof: bool, body: &[u8]) -> bool {
        match (left, eof) {
            // a cursor: its rows are fetched by another command
            (0, _) if status_of_eof(body) & CURSOR != 0 => return true,
            (0, _) | (1, false) => self.step = AnswerStep::Rows,
            _ => self.step = AnswerStep::Columns(left - 1, eof),
        }
        false
    }

    fn row(&mut self, body: &[u8], length: usize) -> bool {
        let ends = body.first() == Some(&0xfe);
        if self.form.without_eof && ends && length < LONGEST {
            return !self.goes_on(status_of_ok(body));
        }
        if !self.form.without_eof && ends && length < 9 {
            return !self.goes_on(status_of_eof(body));
        }
        false
    }

    /// Whether another result follows one with this status.
    fn goes_on(&mut self, status: u16) -> bool {
        let goes_on = status & MORE_RESULTS != 0 && self.shape == AnswerShape::Results;
        if goes_on {
            self.step = AnswerStep::First;
        }
        goes_on
    }
}

/// Parses a number of 1 to 9 bytes; returns the bytes after it, too.
pub(super) fn lenenc(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let length = match first {
        0..=0xfa => return Some((u64::from(*first), rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(length)?;
    let number = digits
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((number, rest))
}

/// Returns the status in an OK: after its head, the rows that were changed, and the last number that was inserted.
fn status_of_ok(body: &[u8]) -> u16 {
    let status = || {
        let (_, rest) = lenenc(body.get(1..)?)?;
        let (_, rest) = lenenc(rest)?;
        Some(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]))
    };
    status().unwrap_or_default()
}

/// Returns the status in an EOF: after its head and the number of warnings.
fn status_of_eof(body: &[u8]) -> u16 {
    match body {
        [_, _, _, low, high, ..] => u16::from_le_bytes([*low, *high]),
        _ => 0,
    }
}
