//! Wire taps: they read the bytes of a connection, and name and count its messages. Each protocol is one file (`zk`, `resp`, `grpc`,
//! `postgres`, `mysql`, `nats`), with the grammar of its pieces in files next to it.
//!
//! A tap never alters the bytes. It keeps a bounded part of them, gives the same result for every division of a stream into chunks, and
//! panics on no input. When a stream breaks the rules of its protocol, the tap has lost its place: it reports that once, and reads no
//! further. Start at [`TapParser`]; `link_tap` uses the result.

mod commands;
mod framer;
mod frames;
mod grpc;
mod hpack;
mod lines;
mod messages;
mod mysql;
mod nats;
mod postgres;
mod refusals;
mod replies;
mod resp;
mod statements;
mod watch_events;
mod zk;

pub use messages::{MessageKind, Protocol};

use std::fmt;

use crate::direction::Direction;

/// Something that a tap read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The place at which its message begins in the chunk that was read; 0 when it began in an earlier one.
    pub at: usize,
    pub what: Observation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// The beginning of a request. Its number is its own on this connection.
    Request { number: u64, name: MessageName },
    /// The end of a request; equal requests have equal prints, their numbers apart. Its words are there where they are kept
    /// ([`TapParser::keep_words`]) and the protocol has them: the arguments of a command of Redis, its name first.
    Asked {
        number: u64,
        print: u64,
        words: RequestWords,
    },
    /// A part of the answer to a request that is no message by itself.
    Answering { number: u64, refused: bool },
    /// The beginning of the answer to a request; `refused` where the bytes up to the end of the chunk say that nothing was done.
    Reply {
        number: u64,
        name: MessageName,
        refused: bool,
    },
    /// A request that is never answered: its client or its server gave it up.
    Unanswered { number: u64 },
    /// The server's name of the session or lease that the client has from now on, as a server shows the owner of a lock: `0x1a2b`.
    Session { name: Box<str> },
    /// An unasked message of the server about a change: its name, and the subject of the change.
    Notification { name: MessageName, subject: Box<str> },
}

/// The words of a request, its name first.
pub type RequestWords = Box<[Box<str>]>;

/// The messages that a reader found in a chunk, in its order.
#[derive(Default)]
struct TapOutput {
    /// The place at which the current message begins; 0 when it began in an earlier chunk.
    at: usize,
    observed: Vec<Observed>,
}

impl TapOutput {
    fn push(&mut self, what: Observation) {
        self.observed.push(Observed { at: self.at, what });
    }

    fn request(&mut self, number: u64, name: MessageName) {
        self.push(Observation::Request { number, name });
    }

    /// Notes a whole request of a protocol whose words are not kept.
    fn asked(&mut self, number: u64, print: u64) {
        let words = RequestWords::default();
        self.push(Observation::Asked { number, print, words });
    }

    fn reply(&mut self, number: u64, name: MessageName, refused: bool) {
        self.push(Observation::Reply { number, name, refused });
    }

    fn notification(&mut self, name: MessageName, subject: &[u8]) {
        let subject = String::from_utf8_lossy(subject).into();
        self.push(Observation::Notification { name, subject });
    }
}

/// The reason for which a tap reads no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapError(pub &'static str);

/// The longest name; a command's name is shorter.
const NAME: usize = 24;

/// The name of a message, as its protocol spells it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageName {
    length: u8,
    bytes: [u8; NAME],
}

impl MessageName {
    /// Takes the first bytes of `text` that fit; bytes that cannot be printed become `?`.
    pub fn new(text: &[u8]) -> Self {
        let mut bytes = [0; NAME];
        let length = text.len().min(NAME);
        bytes[..length].copy_from_slice(&text[..length]);
        // all of them, whatever the length is: that is done side by side
        for byte in &mut bytes {
            *byte = if byte.is_ascii_graphic() { *byte } else { b'?' };
        }
        bytes[length..].fill(0);
        Self {
            length: length as u8,
            bytes,
        }
    }

    /// Whether this is the name `text`: called for each message.
    pub fn is(&self, text: &str) -> bool {
        self.bytes[..usize::from(self.length)] == *text.as_bytes()
    }

    /// Whether it keeps a connection or a session alive, and says nothing of a lock.
    pub fn is_ping(&self) -> bool {
        self.is("ping") || self.is("PING")
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Debug for MessageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for MessageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The most requests of a connection that have no answer yet.
const MAX_UNANSWERED: usize = 65_536;
const UNANSWERED: TapError = TapError("too many requests without an answer");

/// The first byte of a TLS connection; no protocol that is read begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS: TapError = TapError("a client that speaks TLS, which a tap cannot read");

enum ProtocolReader {
    Zk(zk::ZkReader),
    Resp(resp::RespReader),
    Grpc(Box<grpc::GrpcReader>),
    Postgres(Box<postgres::PostgresReader>),
    Mysql(Box<mysql::MysqlReader>),
    Nats(nats::NatsReader),
    Opaque,
}

/// Reads both directions of one connection.
pub struct TapParser {
    begun: bool,
    reader: ProtocolReader,
    lost: Option<TapError>,
    output: TapOutput,
}

impl TapParser {
    pub fn new(protocol: Protocol) -> Self {
        Self {
            begun: false,
            reader: match protocol {
                Protocol::Zk => ProtocolReader::Zk(zk::ZkReader::default()),
                Protocol::Resp => ProtocolReader::Resp(resp::RespReader::default()),
                Protocol::Grpc => ProtocolReader::Grpc(Box::default()),
                Protocol::Postgres => ProtocolReader::Postgres(Box::default()),
                Protocol::Mysql => ProtocolReader::Mysql(Box::default()),
                Protocol::Nats => ProtocolReader::Nats(nats::NatsReader::default()),
                Protocol::Opaque => ProtocolReader::Opaque,
            },
            lost: None,
            output: TapOutput::default(),
        }
    }

    /// Reads the next bytes of one direction. The result is in the order of the chunk.
    pub fn observe(&mut self, direction: Direction, chunk: &[u8]) -> &[Observed] {
        self.output.at = 0;
        self.output.observed.clear();
        if self.lost.is_none() {
            let first = !std::mem::replace(&mut self.begun, true);
            let speaks_tls = first && direction == Direction::ToServer && chunk.first() == Some(&TLS_HANDSHAKE);
            let output = &mut self.output;
            let read = match (&mut self.reader, direction) {
                (ProtocolReader::Zk(zk), Direction::ToServer) => zk.client(chunk, output),
                (ProtocolReader::Zk(zk), Direction::ToClient) => zk.server(chunk, output),
                (ProtocolReader::Resp(resp), Direction::ToServer) => resp.client(chunk, output),
                (ProtocolReader::Resp(resp), Direction::ToClient) => resp.server(chunk, output),
                (ProtocolReader::Grpc(grpc), Direction::ToServer) => grpc.client(chunk, output),
                (ProtocolReader::Grpc(grpc), Direction::ToClient) => grpc.server(chunk, output),
                (ProtocolReader::Postgres(postgres), Direction::ToServer) => postgres.client(chunk, output),
                (ProtocolReader::Postgres(postgres), Direction::ToClient) => postgres.server(chunk, output),
                (ProtocolReader::Mysql(mysql), Direction::ToServer) => mysql.client(chunk, output),
                (ProtocolReader::Mysql(mysql), Direction::ToClient) => mysql.server(chunk, output),
                (ProtocolReader::Nats(nats), Direction::ToServer) => nats.client(chunk, output),
                (ProtocolReader::Nats(nats), Direction::ToClient) => nats.server(chunk, output),
                (ProtocolReader::Opaque, _) => Ok(()),
            };
            self.lost = if speaks_tls { Some(TLS) } else { read.err() };
        }
        &self.output.observed
    }

    /// Sets whether the words of requests that begin from now on are kept.
    pub fn keep_words(&mut self, keep: bool) {
        if let ProtocolReader::Resp(resp) = &mut self.reader {
            resp.keep_words(keep);
        }
    }

    /// Returns the reason for which it reads no further, if there is one.
    pub fn lost(&self) -> Option<TapError> {
        self.lost
    }
}

/// The print of a request: equal bytes give equal prints. Only the beginning counts, or that of each part, which tells requests apart well
/// enough and costs little.
#[derive(Debug, Clone, Copy)]
struct RequestDigest {
    state: u64,
    left: usize,
}

/// Bytes of a request, or of a part of one, that its print is made of.
const PRINTED: usize = 1024;

impl Default for RequestDigest {
    fn default() -> Self {
        Self {
            state: 0xcbf2_9ce4_8422_2325,
            left: PRINTED,
        }
    }
}

impl RequestDigest {
    /// Begins another part, such as the key that follows a long script.
    fn next_part(&mut self) {
        self.left = PRINTED;
    }

    /// Adds bytes by FNV-1a: they come in pieces of any size, and the print must not depend on where they are cut.
    fn add(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        for byte in bytes {
            self.state = (self.state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
