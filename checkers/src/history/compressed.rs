//! Compressed histories: zstd and gzip, recognised by their first bytes, and read with the feature of that name.

use std::io::BufRead;

use super::error::ReadError;

/// The compression of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// Decides by the first bytes of a file: <https://www.rfc-editor.org/rfc/rfc1952>, <https://www.rfc-editor.org/rfc/rfc8878>.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the text of a compressed input.
    ///
    /// # Errors
    /// Fails if the feature is off, or the decoder cannot begin.
    pub(super) fn text<'a>(self, input: impl BufRead + Send + 'a) -> Result<Box<dyn BufRead + Send + 'a>, ReadError> {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => Ok(buffered(flate2::bufread::MultiGzDecoder::new(input))),
            #[cfg(not(feature = "gzip"))]
            Self::Gzip => Err(without("gzip", input)),
            #[cfg(feature = "zstd")]
            Self::Zstd => Ok(buffered(zstd::stream::read::Decoder::with_buffer(input)?)),
            #[cfg(not(feature = "zstd"))]
            Self::Zstd => Err(without("zstd", input)),
        }
    }
}

/// Less than a decoder returns at once: larger reads are not copied through the buffer.
#[cfg(any(feature = "gzip", feature = "zstd"))]
const BUFFER_BYTES: usize = 1 << 15;

#[cfg(any(feature = "gzip", feature = "zstd"))]
fn buffered<'a>(decoder: impl std::io::Read + Send + 'a) -> Box<dyn BufRead + Send + 'a> {
    Box::new(std::io::BufReader::with_capacity(BUFFER_BYTES, decoder))
}

#[cfg(not(all(feature = "gzip", feature = "zstd")))]
fn without(feature: &'static str, _input: impl BufRead) -> ReadError {
    ReadError::Compressed { feature }
}
