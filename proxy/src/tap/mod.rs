//! Wire taps: they read along what passes a connection, name its messages and count. Each protocol is one file (`zk`,
//! `resp`, `grpc`), with the grammar of its pieces beside it.
//!
//! A tap never alters what it reads. It keeps a bounded part of what it has seen, answers the same whatever pieces a stream
//! comes in, and panics on nothing. When a stream is not what its protocol says, the tap has lost its place: it says so
//! once, and reads no further. Start at [`Tap`]; what its findings are used for is in `wire`.

mod answers;
mod commands;
mod frames;
mod grpc;
mod hpack;
mod lines;
mod names;
mod resp;
mod walk;
mod zk;

pub use names::{Protocol, Spoken};

use std::fmt;

/// Who sent what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// Something that a tap read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Where its message begins in the chunk that was read; 0 when it began in an earlier one.
    pub at: usize,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A request begins. Its number is its own on this connection.
    Request { number: u64, name: Name },
    /// A request is over; equal requests have equal prints, their numbers apart.
    Asked { number: u64, print: u64 },
    /// Something that belongs to the answer to a request and is no message by itself.
    Answering { number: u64 },
    /// The answer to a request begins.
    Reply { number: u64, name: Name },
    /// The server tells of a change, unasked: what happened, and to what.
    Notification { name: Name, subject: Box<str> },
}

/// Why a tap reads no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost(pub &'static str);

/// The longest name; a command's name is shorter.
const NAME: usize = 24;

/// The name of a message, as its protocol spells it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    length: u8,
    bytes: [u8; NAME],
}

impl Name {
    /// The first bytes of `text` that fit; what cannot be printed becomes `?`.
    pub fn new(text: &[u8]) -> Self {
        let mut bytes = [0; NAME];
        let length = text.len().min(NAME);
        for (byte, letter) in bytes.iter_mut().zip(text) {
            *byte = if letter.is_ascii_graphic() { *letter } else { b'?' };
        }
        Self {
            length: length as u8,
            bytes,
        }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

enum Reader {
    Zk(zk::Zk),
    Resp(resp::Resp),
    Grpc(Box<grpc::Grpc>),
}

/// Reads along one connection, both ways.
pub struct Tap {
    reader: Reader,
    lost: Option<Lost>,
    heard: Vec<Heard>,
}

impl Tap {
    pub fn new(protocol: Protocol) -> Self {
        Self {
            reader: match protocol {
                Protocol::Zk => Reader::Zk(zk::Zk::default()),
                Protocol::Resp => Reader::Resp(resp::Resp::default()),
                Protocol::Grpc => Reader::Grpc(Box::default()),
            },
            lost: None,
            heard: Vec::new(),
        }
    }

    /// Reads the next bytes of one side. What it answers is in the order of the chunk.
    pub fn hear(&mut self, side: Side, chunk: &[u8]) -> &[Heard] {
        self.heard.clear();
        if self.lost.is_none() {
            let heard = &mut self.heard;
            let read = match (&mut self.reader, side) {
                (Reader::Zk(zk), Side::Client) => zk.client(chunk, heard),
                (Reader::Zk(zk), Side::Server) => zk.server(chunk, heard),
                (Reader::Resp(resp), Side::Client) => resp.client(chunk, heard),
                (Reader::Resp(resp), Side::Server) => resp.server(chunk, heard),
                (Reader::Grpc(grpc), Side::Client) => grpc.client(chunk, heard),
                (Reader::Grpc(grpc), Side::Server) => grpc.server(chunk, heard),
            };
            self.lost = read.err();
        }
        &self.heard
    }

    /// Why it reads no further, if it does not.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }
}

/// The print of a request: equal bytes give equal prints. Only the beginning counts, which tells requests apart well
/// enough and costs little.
#[derive(Debug, Clone, Copy)]
struct Print {
    state: u64,
    left: usize,
}

/// Bytes of a request that its print is made of.
const PRINTED: usize = 1024;

impl Default for Print {
    fn default() -> Self {
        Self {
            state: 0xcbf2_9ce4_8422_2325,
            left: PRINTED,
        }
    }
}

impl Print {
    /// FNV-1a: the bytes come in pieces of any size, and the print must not depend on where they are cut.
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
