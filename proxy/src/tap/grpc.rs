//! gRPC over HTTP/2 without TLS: a method is the path of a stream, a message follows its length in the
//! stream's data.

use std::collections::HashMap;

use super::framer::Framer;
use super::frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_HEAD, Frames, HEADERS, RST_STREAM};
use super::hpack::HpackDecoder;
use super::watch_events::{WatchKind, number_in};
use super::{MessageName, Observation, RequestDigest, TapError, TapOutput, refusals};

/// The first bytes of a client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Streams that are open at once.
const MAX_STREAMS: usize = 8192;
/// The method that grants a lease.
const LEASE_GRANT: &str = "LeaseGrant";
/// The field of its answer that is the lease.
const LEASE_ID: u64 = 2;
/// Flag and length before a message.
const MESSAGE_HEAD: usize = 5;

pub(super) struct GrpcReader {
    preface: usize,
    client: Frames,
    server: Frames,
    decoder: HpackDecoder,
    streams: HashMap<u32, Call>,
}

impl Default for GrpcReader {
    fn default() -> Self {
        Self {
            preface: 0,
            client: Frames::default(),
            server: Frames::default(),
            decoder: HpackDecoder::new(),
            streams: HashMap::new(),
        }
    }
}

/// One call.
struct Call {
    name: MessageName,
    watched: WatchKind,
    requests: Framer,
    answers: Framer,
    /// Of the request that is being read.
    print: RequestDigest,
    asked: u32,
    answered: u32,
    /// Whether the answer's headers came.
    answering: bool,
}

/// Returns the length of the message with this head.
fn message_length(head: &[u8]) -> Result<usize, TapError> {
    let length = head.last_chunk().map_or(0, |length| u32::from_be_bytes(*length));
    Ok(length as usize)
}

impl GrpcReader {
    pub(super) fn client(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while self.preface < PREFACE.len() && here < chunk.len() {
            if chunk[here] != PREFACE[self.preface] {
                return Err(TapError("a client that does not speak HTTP/2 in the clear"));
            }
            self.preface += 1;
            here += 1;
        }
        output.at = here;
        while here < chunk.len() {
            if self.client.have < FRAME_HEAD {
                if self.client.have == 0 {
                    output.at = here;
                }
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
                DATA => self.requests(stream, part, output)?,
                HEADERS | CONTINUATION => {
                    self.client.add_to_block(part)?;
                    if over && self.client.flags() & END_HEADERS != 0 {
                        self.open(stream)?;
                    }
                }
                RST_STREAM if over => self.end(stream, output),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends a stream: requests without an answer get none.
    fn end(&mut self, stream: u32, output: &mut TapOutput) {
        let Some(call) = self.streams.remove(&stream) else {
            return;
        };
        for place in call.answered.saturating_add(1)..=call.asked {
            let number = number(stream, place);
            output.push(Observation::Unanswered { number });
        }
    }

    /// Reads a whole header block of a client: a new stream, or trailers.
    fn open(&mut self, stream: u32) -> Result<(), TapError> {
        let path = self.decoder.path(&self.client.block);
        let path = path.map_err(|_| TapError("a header block that cannot be read"))?;
        let Some(path) = path.filter(|_| !self.streams.contains_key(&stream)) else {
            return Ok(());
        };
        if self.streams.len() >= MAX_STREAMS {
            return Err(TapError("too many open streams"));
        }
        let method = path.rsplit(|letter| *letter == b'/').next().unwrap_or_default();
        let stream_of = Call {
            name: MessageName::new(method),
            watched: match method {
                b"Watch" => WatchKind::Events,
                b"Observe" => WatchKind::Leader,
                _ => WatchKind::Nothing,
            },
            requests: Framer::default(),
            answers: Framer::default(),
            print: RequestDigest::default(),
            asked: 0,
            answered: 0,
            answering: false,
        };
        self.streams.insert(stream, stream_of);
        Ok(())
    }

    fn requests(&mut self, stream: u32, mut part: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let Some(call) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        while !part.is_empty() {
            let in_head = call.requests.head.len() < MESSAGE_HEAD;
            let (length, body, whole) = call.requests.step(part, MESSAGE_HEAD, message_length)?;
            part = &part[length..];
            if in_head && call.requests.head.len() == MESSAGE_HEAD {
                call.asked = call.asked.wrapping_add(1);
                // the same bytes mean another thing to another method
                call.print = RequestDigest::default();
                call.print.add(call.name.as_str().as_bytes());
                output.request(number(stream, call.asked), call.name);
            }
            call.print.add(body);
            if whole {
                output.asked(number(stream, call.asked), call.print.state);
                call.requests.clear();
            }
        }
        Ok(())
    }

    pub(super) fn server(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() {
            if self.server.have < FRAME_HEAD {
                if self.server.have == 0 {
                    output.at = here;
                }
                self.server.begin(chunk[here]);
                here += 1;
                if self.server.have < FRAME_HEAD {
                    continue;
                }
                let frames = if here - output.at == FRAME_HEAD {
                    &chunk[output.at..]
                } else {
                    &[]
                };
                self.answering(frames, output);
                if self.server.left > 0 {
                    continue;
                }
            }
            let (part, length, over) = self.server.payload(&chunk[here..]);
            here += length;
            let (kind, stream, flags) = (self.server.kind(), self.server.stream(), self.server.flags());
            if kind == DATA {
                self.answers(stream, part, output)?;
            }
            let ended = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            if over && (ended || kind == RST_STREAM) {
                self.end(stream, output);
            }
        }
        Ok(())
    }

    /// Reads the whole head of a server's frame. Headers that end a stream before a message are an error, which is the answer. `frames` is
    /// the chunk from that head on, and empty where the head began in an earlier one.
    fn answering(&mut self, frames: &[u8], output: &mut TapOutput) {
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
        // a watch ends without an answer of its own
        let lacks_message = call.watched == WatchKind::Nothing && call.answered < call.asked;
        if flags & END_STREAM != 0 {
            if first || lacks_message {
                output.reply(number, name, true);
            }
        } else if first {
            let refused = name.as_str() == "Txn" && refusals::in_etcd_transaction(frames);
            output.push(Observation::Answering { number, refused });
        }
    }

    fn answers(&mut self, stream: u32, mut part: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let Some(call) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        while !part.is_empty() {
            let in_head = call.answers.head.len() < MESSAGE_HEAD;
            let (length, _, whole) = call.answers.step(part, MESSAGE_HEAD, message_length)?;
            part = &part[length..];
            let begun = in_head && call.answers.head.len() == MESSAGE_HEAD;
            if begun && call.watched == WatchKind::Nothing {
                call.answered = call.answered.wrapping_add(1);
                output.reply(number(stream, call.answered), call.name, false);
            }
            if whole {
                call.answered_whole(stream, output);
                call.answers.clear();
            }
        }
        Ok(())
    }
}

impl Call {
    /// Reads a whole message of the server.
    fn answered_whole(&mut self, stream: u32, output: &mut TapOutput) {
        if let Some(name) = self.lease() {
            output.push(Observation::Session { name });
        } else if self.watched != WatchKind::Nothing {
            self.watch_message(stream, output);
        }
    }

    /// Whether the server's messages cannot be read.
    fn is_compressed(&self) -> bool {
        self.answers.head.first() != Some(&0)
    }

    /// Returns the lease that an answer grants.
    fn lease(&self) -> Option<Box<str>> {
        if !self.name.is(LEASE_GRANT) || self.is_compressed() {
            return None;
        }
        let lease = number_in(&self.answers.kept, LEASE_ID).filter(|lease| *lease != 0)?;
        Some(format!("0x{lease:x}").into())
    }

    /// Reads a message of a watch: events, or the answer to a request.
    fn watch_message(&mut self, stream: u32, output: &mut TapOutput) {
        let key = match self.is_compressed() {
            true => Some(&b""[..]),
            false => self.watched.key_in(&self.answers.kept),
        };
        if let Some(key) = key {
            return output.notification(self.name, key);
        }
        // the progress of a watch comes unasked
        if self.answered == self.asked {
            return;
        }
        self.answered = self.answered.wrapping_add(1);
        output.reply(number(stream, self.answered), self.name, false);
    }
}

/// Returns a request's number on its connection, of its stream and its place among the stream's requests.
fn number(stream: u32, place: u32) -> u64 {
    u64::from(stream) << 32 | u64::from(place)
}
