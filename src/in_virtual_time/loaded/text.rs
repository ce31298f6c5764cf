//! Texts that are written without an allocation ([`ShortText`]): paths, and lines of a trace.

use core::fmt;

/// A text of at most `N` bytes.
pub struct ShortText<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> ShortText<N> {
    /// Writes a text, up to the first part for which there is no room.
    pub fn of(parts: fmt::Arguments<'_>) -> Self {
        let mut text = Self {
            bytes: [0; N],
            length: 0,
        };
        let _ = fmt::write(&mut text, parts);
        text
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const N: usize> fmt::Write for ShortText<N> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}
