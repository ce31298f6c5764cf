//! ZooKeeper: records after their length. Requests carry a number that their answers repeat; what carries −1 is the
//! notification of a watch. The first record of each side has neither: it opens the session.
//!
//! Before it opens one, a client may ask a server in a connection of its own with [four letters](https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_4lw)
//! in place of a length: `srvr` for the version, `isro` for whether it only reads. That is answered with text up to the end of the
//! connection, and there is no request in it.

use std::collections::VecDeque;

use super::messages::zk_request;
use super::{MessageName, Observation, RequestDigest, TapError, Telling};

/// The longest record. Servers take one megabyte unless told otherwise.
const LONGEST: u32 = 64 << 20;
/// Bytes of a record that are kept: the head, and of a notification the path.
const KEPT: usize = 512;
/// Requests without an answer yet.
const MAX_UNANSWERED: usize = 16_384;

/// The number and the kind of a request.
const REQUEST_HEAD: usize = 8;
/// The number of an answer.
const REPLY_HEAD: usize = 4;
/// Where the error of an answer is.
const REPLY_ERROR: usize = 12;
/// Where the answer that opens a session names it.
const SESSION: std::ops::Range<usize> = 8..16;
/// The number of what no request asked for.
const NOTIFICATION: i32 = -1;
/// Number, transaction and error of an answer: what precedes the body.
const REPLY_HEADER: usize = 16;

#[derive(Default)]
pub(super) struct ZkReader {
    client: RecordParser,
    server: RecordParser,
    /// Requests without an answer: the number on the wire, the tap's own, the name.
    unanswered: VecDeque<(i32, u64, MessageName)>,
    /// Requests so far.
    requests: u64,
    opened: bool,
    /// The server is in the middle of the answer that opens the session.
    opening: bool,
    /// What the record is that the client is in the middle of.
    print: RequestDigest,
    /// The connection is one of four letters and text.
    is_text: bool,
}

/// One side's records, read in pieces.
#[derive(Default)]
struct RecordParser {
    length: [u8; 4],
    /// How much of the length there is.
    have: usize,
    /// Bytes of the record that are still to come.
    left: usize,
    kept: Vec<u8>,
    named: bool,
}

/// A step in a side's records.
enum RecordStep<'a> {
    /// Nothing to tell yet.
    Nothing,
    /// More of the body, with what is kept of it so far; and whether that is all.
    Body(&'a [u8], bool),
}

impl RecordParser {
    /// Takes one step into `chunk` and returns how far it went.
    fn step<'a>(&mut self, chunk: &'a [u8]) -> Result<(usize, RecordStep<'a>), TapError> {
        if self.have < self.length.len() {
            self.length[self.have] = chunk[0];
            self.have += 1;
            if self.have == self.length.len() {
                let length = u32::from_be_bytes(self.length);
                if length > LONGEST || (length as usize) < REPLY_HEAD {
                    return Err(TapError("a record of impossible length"));
                }
                self.left = length as usize;
                self.kept.clear();
                self.named = false;
            }
            return Ok((1, RecordStep::Nothing));
        }
        let body = &chunk[..chunk.len().min(self.left)];
        self.left -= body.len();
        let room = KEPT.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&body[..body.len().min(room)]);
        if self.left == 0 {
            self.have = 0;
        }
        Ok((body.len(), RecordStep::Body(body, self.left == 0)))
    }

    /// Whether four letters are where a length should be.
    fn has_four_letters(&self) -> bool {
        self.have == self.length.len() && self.length.iter().all(u8::is_ascii_lowercase)
    }

    /// Whether a new record begins here.
    fn at_start(&self) -> bool {
        self.have == 0
    }

    fn number(&self, at: usize) -> Option<i32> {
        let bytes = self.kept.get(at..at + 4)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    }
}

impl ZkReader {
    pub(super) fn client(&mut self, chunk: &[u8], told: &mut Telling) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() && !self.is_text {
            if self.client.at_start() {
                told.at = here;
                self.print = RequestDigest::default();
            }
            let stepped = self.client.step(&chunk[here..]);
            self.is_text = self.requests == 0 && self.client.has_four_letters();
            if self.is_text {
                break;
            }
            let (length, step) = stepped?;
            here += length;
            let RecordStep::Body(body, whole) = step else { continue };
            let opens = !self.opened;
            if !self.client.named && (opens || self.client.kept.len() >= REQUEST_HEAD) {
                self.client.named = true;
                self.asked(told)?;
            }
            self.print_body(body, opens);
            if whole {
                if !self.client.named {
                    return Err(TapError("a request without a head"));
                }
                self.opened = true;
                told.asked(self.requests, self.print.state);
            }
        }
        Ok(())
    }

    /// The number of a request is no part of its print: it differs when the same is asked again.
    fn print_body(&mut self, body: &[u8], opens: bool) {
        let after = self.client.read() - body.len();
        let number = if opens { 0 } else { 4_usize.saturating_sub(after) };
        self.print.add(&body[number.min(body.len())..]);
    }

    fn asked(&mut self, told: &mut Telling) -> Result<(), TapError> {
        let (xid, name) = if self.opened {
            let (Some(xid), Some(kind)) = (self.client.number(0), self.client.number(4)) else {
                return Err(TapError("a request without a head"));
            };
            (xid, zk_request(kind).ok_or(TapError("a request of an unknown kind"))?)
        } else {
            (0, "connect")
        };
        if self.unanswered.len() >= MAX_UNANSWERED {
            return Err(TapError("too many requests without an answer"));
        }
        self.requests += 1;
        let (number, name) = (self.requests, MessageName::new(name.as_bytes()));
        self.unanswered.push_back((xid, number, name));
        told.request(number, name);
        Ok(())
    }

    pub(super) fn server(&mut self, chunk: &[u8], told: &mut Telling) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() && !self.is_text {
            if self.server.at_start() {
                told.at = here;
            }
            let (length, step) = self.server.step(&chunk[here..])?;
            here += length;
            let RecordStep::Body(_, whole) = step else { continue };
            if !self.server.named && self.server.kept.len() >= REPLY_HEAD {
                let xid = self.server.number(0).unwrap_or_default();
                // the answer that opens a session comes first, and begins with the version of the protocol
                let opens = matches!(self.unanswered.front(), Some((_, 1, _)));
                if opens || xid != NOTIFICATION {
                    self.server.named = true;
                    self.opening = opens;
                    self.answered(if opens { 0 } else { xid }, told)?;
                }
            }
            if whole
                && std::mem::take(&mut self.opening)
                && let Some(name) = self.session()
            {
                told.tell(Observation::Session { name });
            }
            if whole && !self.server.named {
                self.notified(told);
            }
        }
        Ok(())
    }

    fn answered(&mut self, xid: i32, told: &mut Telling) -> Result<(), TapError> {
        let place = self.unanswered.iter().position(|(asked, ..)| *asked == xid);
        let (_, number, name) = place
            .and_then(|place| self.unanswered.remove(place))
            .ok_or(TapError("an answer to no request"))?;
        // what opens a session has no error
        let refused = number > 1 && self.server.number(REPLY_ERROR).is_some_and(|error| error != 0);
        told.reply(number, name, refused);
        Ok(())
    }

    /// What the answer that opens a session calls it; nothing where the session that was asked for is over.
    fn session(&self) -> Option<Box<str>> {
        let bytes = self.server.kept.get(SESSION)?;
        let session = u64::from_be_bytes(bytes.try_into().ok()?);
        (session != 0).then(|| format!("0x{session:x}").into())
    }

    /// Kind and state, then the path after its length.
    fn notified(&self, told: &mut Telling) {
        let name = match self.server.number(REPLY_HEADER) {
            Some(1) => "NodeCreated",
            Some(2) => "NodeDeleted",
            Some(3) => "NodeDataChanged",
            Some(4) => "NodeChildrenChanged",
            _ => "watch",
        };
        let path = REPLY_HEADER + 12;
        let length = self.server.number(path - 4).unwrap_or(0).max(0) as usize;
        let kept = &self.server.kept;
        let end = path.saturating_add(length).min(kept.len());
        let subject = kept.get(path..end).unwrap_or_default();
        told.notification(MessageName::new(name.as_bytes()), subject);
    }
}

impl RecordParser {
    /// Bytes of the record so far.
    fn read(&self) -> usize {
        u32::from_be_bytes(self.length) as usize - self.left
    }
}

#[cfg(test)]
impl ZkReader {
    /// Bytes that are kept of records that are not whole yet.
    pub(super) fn kept(&self) -> usize {
        self.client.kept.len() + self.server.kept.len()
    }
}
