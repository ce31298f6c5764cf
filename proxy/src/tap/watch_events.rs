//! A walk over the outermost fields of etcd's `WatchResponse`, as it comes: its events are counted, and the key of the
//! first one is read. Nothing else of it is kept.

/// Bytes of an event that are kept for its key.
const KEPT: usize = 256;

/// A walk over the outermost fields of a `WatchResponse`: events are counted, and the beginning of the first is kept.
#[derive(Default)]
pub(super) struct WatchEvents {
    watched: WatchKind,
    at: WireField,
    number: u64,
    shift: u32,
    tag: u64,
    pub(super) events: u64,
    first: Vec<u8>,
}

/// Which messages of a server are notifications, and where their subject is.
#[derive(Default, Clone, Copy, PartialEq)]
pub(super) enum WatchKind {
    #[default]
    Nothing,
    /// `WatchResponse`: events, each with a key-value pair.
    Events,
    /// `LeaderResponse` of `Election.Observe`: a key-value pair.
    Leader,
}

impl WatchKind {
    /// The field that holds an event.
    fn event(self) -> u64 {
        if self == Self::Leader { 2 } else { 11 }
    }
}

#[derive(Default, Clone, Copy, PartialEq)]
enum WireField {
    #[default]
    Tag,
    Number,
    Length,
    Skip(u64),
    /// Not a message that can be walked over.
    Astray,
}

impl WatchEvents {
    pub(super) fn new(watched: WatchKind) -> Self {
        Self {
            watched,
            ..Self::default()
        }
    }

    pub(super) fn over(&mut self, body: &[u8]) {
        let mut rest = body;
        while let Some((byte, others)) = rest.split_first() {
            if let WireField::Skip(left) = self.at {
                let part = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                if self.tag >> 3 == self.watched.event() && self.events == 1 {
                    let room = KEPT.saturating_sub(self.first.len());
                    self.first.extend_from_slice(&rest[..part.min(room)]);
                }
                let left = left - part as u64;
                self.at = if left > 0 {
                    WireField::Skip(left)
                } else {
                    WireField::Tag
                };
                rest = &rest[part..];
                continue;
            }
            if self.at == WireField::Astray {
                return;
            }
            rest = others;
            if self.digit(*byte) {
                self.value();
            }
        }
    }

    /// Takes a byte of a number; answers whether the number is whole.
    fn digit(&mut self, byte: u8) -> bool {
        if self.shift >= 64 {
            self.at = WireField::Astray;
            return false;
        }
        self.number |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        byte & 0x80 == 0
    }

    /// A number is whole: a tag, a value, or a length.
    fn value(&mut self) {
        let number = std::mem::take(&mut self.number);
        self.shift = 0;
        self.at = match self.at {
            WireField::Tag => {
                self.tag = number;
                match number & 7 {
                    0 => WireField::Number,
                    1 => WireField::Skip(8),
                    2 => WireField::Length,
                    5 => WireField::Skip(4),
                    _ => WireField::Astray,
                }
            }
            WireField::Length => {
                self.events += u64::from(self.tag >> 3 == self.watched.event());
                if number > 0 {
                    WireField::Skip(number)
                } else {
                    WireField::Tag
                }
            }
            _ => WireField::Tag,
        };
    }

    /// The key of the first event: field 1 of its field 2, or of the event itself where that is a pair.
    pub(super) fn subject(&self) -> &[u8] {
        let pair = match self.watched {
            WatchKind::Leader => &self.first[..],
            _ => field(&self.first, 2).unwrap_or_default(),
        };
        field(pair, 1).unwrap_or_default()
    }
}

/// The fields of a message that may be cut short, as far as they can be read: the number of each, its value or its length, and the bytes of
/// that length that are there.
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

/// The first field of that number with a length.
fn field(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message).find_map(|(number, _, bytes)| bytes.filter(|_| number == wanted))
}

/// The first field of that number that is a number itself.
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
