//! The fields of etcd's messages that a tap reads: the key of a watch's first event, the number of a lease, the success of a transaction.

/// The messages of a server that are notifications, by the place of their subject.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum WatchKind {
    Nothing,
    /// `WatchResponse`: events, each with a key-value pair.
    Events,
    /// `LeaderResponse` of `Election.Observe`: a key-value pair.
    Leader,
}

impl WatchKind {
    /// Returns the key of the first event, by the beginning of a message. `None`: it has no event, and answers a request.
    pub(super) fn key_in(self, message: &[u8]) -> Option<&[u8]> {
        let pair = match self {
            Self::Nothing => return None,
            Self::Events => field(field(message, 11)?, 2).unwrap_or_default(),
            Self::Leader => field(message, 2)?,
        };
        Some(field(pair, 1).unwrap_or_default())
    }
}

/// Returns the fields of a message that may be cut short, as far as they can be read: the number of each, its value or its length, and the
/// bytes of that length that are there.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, u64, Option<&[u8]>)> {
    std::iter::from_fn(move || {
        let (tag, value) = (varint(&mut message)?, varint(&mut message)?);
        let bytes = match tag & 7 {
            0 => None,
            2 => {
                let (bytes, rest) = message.split_at(usize::try_from(value).ok()?.min(message.len()));
                message = rest;
                Some(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, value, bytes))
    })
}

/// Returns the first field of that number with a length.
fn field(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message).find_map(|(number, _, bytes)| bytes.filter(|_| number == wanted))
}

/// Returns the first field of that number that is a number itself.
pub(super) fn number_in(message: &[u8], wanted: u64) -> Option<u64> {
    fields(message).find_map(|(number, value, bytes)| (number == wanted && bytes.is_none()).then_some(value))
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
