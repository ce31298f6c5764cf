//! gRPC over HTTP/2 without TLS: a method is the path of a stream, a message is what stands behind its length in the
//! stream's data. Of the messages of a watch the events are counted, by a walk over the outermost fields.

use std::collections::HashMap;

use super::hpack::Decoder;
use super::{Heard, Lost, Name, Print, What};

/// What a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
/// Streams that are open at once.
const MAX_STREAMS: usize = 8192;
/// The longest header block.
const LONGEST_BLOCK: usize = 64 << 10;
/// Flag and length before a message.
const MESSAGE_HEAD: usize = 5;
/// Bytes of a message that are kept for what it is about.
const KEPT: usize = 256;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

pub(super) struct Grpc {
    preface: usize,
    client: Frames,
    server: Frames,
    decoder: Decoder,
    streams: HashMap<u32, Stream>,
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            preface: 0,
            client: Frames::default(),
            server: Frames::default(),
            decoder: Decoder::new(),
            streams: HashMap::new(),
        }
    }
}

/// One side's frames, read in pieces.
#[derive(Default)]
struct Frames {
    head: [u8; FRAME_HEAD],
    have: usize,
    /// Bytes of the payload still to come.
    left: usize,
    /// Bytes of padding at its end; `None` until that is known.
    padding: Option<usize>,
    /// Bytes before a header block that are no part of it.
    skip: usize,
    /// A header block, over as many frames as it takes.
    block: Vec<u8>,
    /// The flags of the frame that began the block.
    began: u8,
}

impl Frames {
    fn kind(&self) -> u8 {
        self.head[3]
    }

    fn flags(&self) -> u8 {
        self.head[4]
    }

    fn stream(&self) -> u32 {
        u32::from_be_bytes([self.head[5], self.head[6], self.head[7], self.head[8]]) & 0x7fff_ffff
    }

    /// Takes the next byte of a frame's head.
    fn begin(&mut self, byte: u8) {
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
            self.began = self.flags();
        }
    }

    /// Takes a part of the payload from `chunk`: what of it is neither padding nor its length, how far that went, and
    /// whether the frame is over.
    fn payload<'a>(&mut self, chunk: &'a [u8]) -> (&'a [u8], usize, bool) {
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

    fn add_to_block(&mut self, part: &[u8]) -> Result<(), Lost> {
        let skipped = part.len().min(self.skip);
        self.skip -= skipped;
        if self.block.len() + part.len() > LONGEST_BLOCK {
            return Err(Lost("a header block that is too long"));
        }
        self.block.extend_from_slice(&part[skipped..]);
        Ok(())
    }
}

/// One call.
struct Stream {
    name: Name,
    watches: bool,
    requests: Messages,
    answers: Messages,
    asked: u32,
    answered: u32,
    /// Whether the answer's headers came.
    answering: bool,
}

/// One side's messages of a stream, read in pieces.
#[derive(Default)]
struct Messages {
    head: [u8; MESSAGE_HEAD],
    have: usize,
    left: usize,
    print: Print,
    walk: Walk,
}

/// What a piece of a message means.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Nothing,
    /// The head is whole, and with it the message if there is nothing in it.
    Begun(bool),
    Over,
}

impl Messages {
    fn step(&mut self, part: &[u8], watches: bool) -> (usize, Step) {
        if self.have < MESSAGE_HEAD {
            self.head[self.have] = part[0];
            self.have += 1;
            if self.have < MESSAGE_HEAD {
                return (1, Step::Nothing);
            }
            let [_, length @ ..] = self.head;
            self.left = u32::from_be_bytes(length) as usize;
            self.print = Print::default();
            self.walk = Walk::default();
            if self.left == 0 {
                self.have = 0;
            }
            return (1, Step::Begun(self.left == 0));
        }
        let body = &part[..part.len().min(self.left)];
        self.left -= body.len();
        self.print.add(body);
        // a compressed message cannot be walked over
        if watches && self.head[0] == 0 {
            self.walk.over(body);
        }
        if self.left > 0 {
            return (body.len(), Step::Nothing);
        }
        self.have = 0;
        (body.len(), Step::Over)
    }
}

impl Grpc {
    pub(super) fn client(&mut self, chunk: &[u8], heard: &mut Vec<Heard>) -> Result<(), Lost> {
        let mut here = 0;
        while self.preface < PREFACE.len() && here < chunk.len() {
            if chunk[here] != PREFACE[self.preface] {
                return Err(Lost("a client that does not speak HTTP/2 in the clear"));
            }
            self.preface += 1;
            here += 1;
        }
        let mut start = here;
        while here < chunk.len() {
            if self.client.have < FRAME_HEAD {
                start = if self.client.have == 0 { here } else { start.min(here) };
                self.client.begin(chunk[here]);
                here += 1;
                if self.client.have < FRAME_HEAD || self.client.left > 0 {
                    continue;
                }
            }
            let (part, length, over) = self.client.payload(&chunk[here..]);
            here += length;
            let (kind, stream) = (self.client.kind(), self.client.stream());
            match kind {
                DATA => self.requests(stream, part, start, heard),
                HEADERS | CONTINUATION => {
                    self.client.add_to_block(part)?;
                    if over && self.client.flags() & END_HEADERS != 0 {
                        self.open(stream)?;
                    }
                }
                RST_STREAM if over => {
                    self.streams.remove(&stream);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A client's header block is whole: a new stream, or trailers.
    fn open(&mut self, stream: u32) -> Result<(), Lost> {
        let path = self.decoder.path(&self.client.block);
        let path = path.map_err(|_| Lost("a header block that cannot be read"))?;
        let Some(path) = path.filter(|_| !self.streams.contains_key(&stream)) else {
            return Ok(());
        };
        if self.streams.len() >= MAX_STREAMS {
            return Err(Lost("too many open streams"));
        }
        let method = path.rsplit(|letter| *letter == b'/').next().unwrap_or_default();
        let stream_of = Stream {
            name: Name::new(method),
            watches: method == b"Watch",
            requests: Messages::default(),
            answers: Messages::default(),
            asked: 0,
            answered: 0,
            answering: false,
        };
        self.streams.insert(stream, stream_of);
        Ok(())
    }

    fn requests(&mut self, stream: u32, mut part: &[u8], at: usize, heard: &mut Vec<Heard>) {
        let Some(call) = self.streams.get_mut(&stream) else {
            return;
        };
        while !part.is_empty() {
            let (length, step) = call.requests.step(part, false);
            part = &part[length..];
            if let Step::Begun(_) = step {
                call.asked = call.asked.wrapping_add(1);
                // the same bytes mean another thing to another method
                call.requests.print.add(call.name.as_str().as_bytes());
                let (number, name) = (number(stream, call.asked), call.name);
                heard.push(Heard {
                    at,
                    what: What::Request { number, name },
                });
            }
            if matches!(step, Step::Begun(true) | Step::Over) {
                let (number, print) = (number(stream, call.asked), call.requests.print.state);
                heard.push(Heard {
                    at,
                    what: What::Asked { number, print },
                });
            }
        }
    }

    pub(super) fn server(&mut self, chunk: &[u8], heard: &mut Vec<Heard>) -> Result<(), Lost> {
        let (mut here, mut start) = (0, 0);
        while here < chunk.len() {
            if self.server.have < FRAME_HEAD {
                if self.server.have == 0 {
                    start = here;
                }
                self.server.begin(chunk[here]);
                here += 1;
                if self.server.have < FRAME_HEAD {
                    continue;
                }
                self.answering(start, heard);
                if self.server.left > 0 {
                    continue;
                }
            }
            let (part, length, over) = self.server.payload(&chunk[here..]);
            here += length;
            let (kind, stream, flags) = (self.server.kind(), self.server.stream(), self.server.flags());
            if kind == DATA {
                self.answers(stream, part, start, heard);
            }
            let ended = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            if over && (ended || kind == RST_STREAM) {
                self.streams.remove(&stream);
            }
        }
        Ok(())
    }

    /// The head of a server's frame is whole. Headers that end a stream before any came are an answer without a message.
    fn answering(&mut self, at: usize, heard: &mut Vec<Heard>) {
        let (kind, stream, flags) = (self.server.kind(), self.server.stream(), self.server.flags());
        if kind != HEADERS {
            return;
        }
        let Some(call) = self.streams.get_mut(&stream) else {
            return;
        };
        let first = !std::mem::replace(&mut call.answering, true);
        let number = number(stream, call.answered.wrapping_add(1));
        let name = call.name;
        if first {
            let what = if flags & END_STREAM != 0 {
                What::Reply { number, name }
            } else {
                What::Answering { number }
            };
            heard.push(Heard { at, what });
        }
    }

    fn answers(&mut self, stream: u32, mut part: &[u8], at: usize, heard: &mut Vec<Heard>) {
        let Some(call) = self.streams.get_mut(&stream) else {
            return;
        };
        while !part.is_empty() {
            let (length, step) = call.answers.step(part, call.watches);
            part = &part[length..];
            let (begun, over) = match step {
                Step::Nothing => (false, false),
                Step::Begun(empty) => (true, empty),
                Step::Over => (false, true),
            };
            if begun && !call.watches {
                call.answered = call.answered.wrapping_add(1);
                let (number, name) = (number(stream, call.answered), call.name);
                heard.push(Heard {
                    at,
                    what: What::Reply { number, name },
                });
            } else if over && call.watches {
                heard.push(Heard {
                    at,
                    what: call.watched(stream),
                });
            }
        }
    }
}

impl Stream {
    /// What a message of a watch is: events, or the answer to a request.
    fn watched(&mut self, stream: u32) -> What {
        let walk = &self.answers.walk;
        let compressed = self.answers.head[0] != 0;
        if walk.events > 0 || compressed {
            return What::Notification {
                name: self.name,
                subject: walk.subject().into(),
            };
        }
        self.answered = self.answered.wrapping_add(1);
        What::Reply {
            number: number(stream, self.answered),
            name: self.name,
        }
    }
}

/// A request's number on its connection: its stream, and which of the stream's it is.
fn number(stream: u32, place: u32) -> u64 {
    u64::from(stream) << 32 | u64::from(place)
}

/// A walk over the outermost fields of a `WatchResponse`: events are counted, and the beginning of the first is kept.
#[derive(Default)]
struct Walk {
    at: Field,
    number: u64,
    shift: u32,
    tag: u64,
    events: u64,
    first: Vec<u8>,
}

/// The field of a `WatchResponse` that holds an event.
const EVENT: u64 = 11;

#[derive(Default, Clone, Copy, PartialEq)]
enum Field {
    #[default]
    Tag,
    Number,
    Length,
    Skip(u64),
    /// Not a message that can be walked over.
    Astray,
}

impl Walk {
    fn over(&mut self, body: &[u8]) {
        let mut rest = body;
        while let Some((byte, others)) = rest.split_first() {
            if let Field::Skip(left) = self.at {
                let part = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                if self.tag >> 3 == EVENT && self.events == 1 {
                    let room = KEPT.saturating_sub(self.first.len());
                    self.first.extend_from_slice(&rest[..part.min(room)]);
                }
                let left = left - part as u64;
                self.at = if left > 0 { Field::Skip(left) } else { Field::Tag };
                rest = &rest[part..];
                continue;
            }
            if self.at == Field::Astray {
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
            self.at = Field::Astray;
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
            Field::Tag => {
                self.tag = number;
                match number & 7 {
                    0 => Field::Number,
                    1 => Field::Skip(8),
                    2 => Field::Length,
                    5 => Field::Skip(4),
                    _ => Field::Astray,
                }
            }
            Field::Length => {
                self.events += u64::from(self.tag >> 3 == EVENT);
                if number > 0 { Field::Skip(number) } else { Field::Tag }
            }
            _ => Field::Tag,
        };
    }

    /// The key of the first event: field 1 of its field 2.
    fn subject(&self) -> String {
        let pair = field(&self.first, 2).unwrap_or_default();
        String::from_utf8_lossy(field(pair, 1).unwrap_or_default()).into_owned()
    }
}

/// The first field of that number with a length, in a message that may be cut short.
fn field(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => {
                varint(&mut message)?;
            }
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?.min(message.len());
                let (value, rest) = message.split_at(length);
                if tag >> 3 == wanted {
                    return Some(value);
                }
                message = rest;
            }
            _ => return None,
        }
    }
    None
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
