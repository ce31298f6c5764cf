//! The framer of protocols whose messages begin with their length: it joins pieces of any size to whole messages, of which it keeps the
//! beginning.

use super::TapError;

/// Bytes of a message that are kept: names, a path, the beginning of a statement, the description of a server.
const KEPT: usize = 1024;

/// One side's messages, read in pieces.
#[derive(Default)]
pub(super) struct Framer {
    pub(super) head: Vec<u8>,
    /// Bytes of the body that are still to come.
    left: usize,
    /// Bytes of the body so far.
    pub(super) length: usize,
    pub(super) kept: Vec<u8>,
}

impl Framer {
    /// Reads a piece of `chunk`: a head has so many bytes, of which `length_of` reads how many follow. Returns how many bytes it read,
    /// which of them are of the body, and whether the message is whole.
    pub(super) fn step<'a>(
        &mut self,
        chunk: &'a [u8],
        head: usize,
        length_of: impl FnOnce(&[u8]) -> Result<usize, TapError>,
    ) -> Result<(usize, &'a [u8], bool), TapError> {
        if self.head.len() < head {
            let part = &chunk[..chunk.len().min(head - self.head.len())];
            self.head.extend_from_slice(part);
            let whole_head = self.head.len() == head;
            if whole_head {
                self.left = length_of(&self.head)?;
            }
            return Ok((part.len(), &[], whole_head && self.left == 0));
        }
        let body = &chunk[..chunk.len().min(self.left)];
        self.left -= body.len();
        self.length += body.len();
        let room = KEPT.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&body[..body.len().min(room)]);
        Ok((body.len(), body, self.left == 0))
    }

    /// Whether a message begins here.
    pub(super) fn at_start(&self) -> bool {
        self.head.is_empty()
    }

    /// Clears the message, which is whole and read: another begins.
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.kept.clear();
        self.length = 0;
    }
}
