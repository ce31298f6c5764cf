//! Frames of HTTP/2: their heads, their padding, and header blocks over as many frames as they take.

use super::TapError;

pub(super) const FRAME_HEAD: usize = 9;
/// The longest header block.
const LONGEST_BLOCK: usize = 64 << 10;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// One side's frames, read in pieces.
#[derive(Default)]
pub(super) struct Frames {
    head: [u8; FRAME_HEAD],
    pub(super) have: usize,
    /// Bytes of the payload still to come.
    pub(super) left: usize,
    /// Bytes of padding at its end; `None` until that is known.
    padding: Option<usize>,
    /// Bytes before a header block that are no part of it.
    skip: usize,
    /// A header block, over as many frames as it takes.
    pub(super) block: Vec<u8>,
}

impl Frames {
    pub(super) fn kind(&self) -> u8 {
        self.head[3]
    }

    pub(super) fn flags(&self) -> u8 {
        self.head[4]
    }

    pub(super) fn stream(&self) -> u32 {
        u32::from_be_bytes([self.head[5], self.head[6], self.head[7], self.head[8]]) & 0x7fff_ffff
    }

    /// Takes the next byte of a frame's head.
    pub(super) fn begin(&mut self, byte: u8) {
        self.head[self.have] = byte;
        self.have += 1;
        if self.have < FRAME_HEAD {
            return;
        }
        self.left = usize::from(self.head[0]) << 16 | usize::from(self.head[1]) << 8 | usize::from(self.head[2]);
        let padded = matches!(self.kind(), DATA | HEADERS) && self.flags() & PADDED != 0;
        self.padding = if padded { None } else { Some(0) };
        self.skip = if self.kind() == HEADERS && self.flags() & PRIORITY != 0 {
            5
        } else {
            0
        };
        if self.kind() == HEADERS {
            self.block.clear();
        }
    }

    /// Reads a part of the payload from `chunk`. Returns its bytes without the padding, the number of bytes read, and whether the frame is
    /// over.
    pub(super) fn payload<'a>(&mut self, chunk: &'a [u8]) -> (&'a [u8], usize, bool) {
        let mut part = &chunk[..chunk.len().min(self.left)];
        let length = part.len();
        self.left -= length;
        if self.padding.is_none()
            && let Some((padding, rest)) = part.split_first()
        {
            self.padding = Some(usize::from(*padding));
            part = rest;
        }
        let over = self.left == 0;
        let padding = self.padding.unwrap_or(0).saturating_sub(self.left).min(part.len());
        part = &part[..part.len() - padding];
        if over {
            self.have = 0;
        }
        (part, length, over)
    }

    pub(super) fn add_to_block(&mut self, part: &[u8]) -> Result<(), TapError> {
        let skipped = part.len().min(self.skip);
        self.skip -= skipped;
        if self.block.len() + part.len() > LONGEST_BLOCK {
            return Err(TapError("a header block that is too long"));
        }
        self.block.extend_from_slice(&part[skipped..]);
        Ok(())
    }
}
