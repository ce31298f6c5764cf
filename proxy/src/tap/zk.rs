//! The tap of ZooKeeper: records after their length. Requests carry a number that their answers repeat; a record with −1 is the
//! notification of a watch. The first record of each side has neither: it opens the session.
//!
//! Before it opens one, a client may ask a server in a connection of its own with [four letters](https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_4lw)
//! in place of a length: `srvr` for the version, `isro` for whether it only reads. That is answered with text up to the end of the
//! connection, and there is no request in it.

use std::collections::VecDeque;

use super::framer::Framer;
use super::messages::zk_request;
use super::{MAX_UNANSWERED, MessageName, Observation, RequestDigest, TapError, TapOutput, UNANSWERED};

/// The longest record. Servers take one megabyte by default.
const LONGEST: u32 = 64 << 20;
/// Bytes that say how long a record is.
const LENGTH: usize = 4;

/// The number and the kind of a request.
const REQUEST_HEAD: usize = 8;
/// The number of an answer.
const REPLY_HEAD: usize = 4;
/// The place of the error in an answer.
const REPLY_ERROR: usize = 12;
/// The place of the session in the answer that opens it.
const SESSION: std::ops::Range<usize> = 8..16;
/// The request for several operations, of which all are done or none.
const MULTI: &str = "multi";
/// The number of records that no request asked for.
const NOTIFICATION: i32 = -1;
/// Bytes of the number, transaction and error of an answer, which precede its body.
const REPLY_HEADER: usize = 16;

#[derive(Default)]
pub(super) struct ZkReader {
    client: Framer,
    server: Framer,
    /// Requests without an answer: the number on the wire, the tap's own, the name.
    unanswered: VecDeque<(i32, u64, MessageName)>,
    /// Requests so far.
    requests: u64,
    opened: bool,
    /// Whether the server is sending the answer that opens the session.
    opening: bool,
    /// Whether the server is sending a notification.
    notifying: bool,
    /// The print of the record that the client is sending.
    print: RequestDigest,
    /// Whether the connection is one of four letters and text.
    is_text: bool,
}

/// Returns the length of the record with this head.
fn record_length(head: &[u8]) -> Result<usize, TapError> {
    let length = head.last_chunk().map_or(0, |length| u32::from_be_bytes(*length));
    if length > LONGEST || (length as usize) < REPLY_HEAD {
        return Err(TapError("a record of impossible length"));
    }
    Ok(length as usize)
}

/// Returns a number in the kept beginning of a record.
fn number_at(record: &[u8], at: usize) -> Option<i32> {
    let bytes = record.get(at..at + 4)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}

impl ZkReader {
    pub(super) fn client(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() && !self.is_text {
            if self.client.at_start() {
                output.at = here;
                self.print = RequestDigest::default();
            }
            let stepped = self.client.step(&chunk[here..], LENGTH, record_length);
            self.is_text = self.requests == 0 && self.has_four_letters();
            if self.is_text {
                break;
            }
            let (length, body, whole) = stepped?;
            here += length;
            let before = self.client.length - body.len();
            // what opens a session has no number and no kind
            let (number, head) = if self.opened { (4_usize, REQUEST_HEAD) } else { (0, 1) };
            if before < head && self.client.length >= head {
                self.asked(output)?;
            }
            // the number of a request is no part of its print: it differs when the same is asked again
            let number = body.len().min(number.saturating_sub(before));
            self.print.add(&body[number..]);
            if whole {
                if self.client.length < head {
                    return Err(TapError("a request without a head"));
                }
                self.opened = true;
                output.asked(self.requests, self.print.state);
                self.client.clear();
            }
        }
        Ok(())
    }

    /// Whether four letters are in the place of a length.
    fn has_four_letters(&self) -> bool {
        self.client.head.len() == LENGTH && self.client.head.iter().all(u8::is_ascii_lowercase)
    }

    fn asked(&mut self, output: &mut TapOutput) -> Result<(), TapError> {
        let (xid, name) = if self.opened {
            let (Some(xid), Some(kind)) = (number_at(&self.client.kept, 0), number_at(&self.client.kept, 4)) else {
                return Err(TapError("a request without a head"));
            };
            (xid, zk_request(kind).ok_or(TapError("a request of an unknown kind"))?)
        } else {
            (0, "connect")
        };
        if self.unanswered.len() >= MAX_UNANSWERED {
            return Err(UNANSWERED);
        }
        self.requests += 1;
        let (number, name) = (self.requests, MessageName::new(name.as_bytes()));
        self.unanswered.push_back((xid, number, name));
        output.request(number, name);
        Ok(())
    }

    pub(super) fn server(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() && !self.is_text {
            if self.server.at_start() {
                output.at = here;
            }
            let (length, body, whole) = self.server.step(&chunk[here..], LENGTH, record_length)?;
            here += length;
            let before = self.server.length - body.len();
            if before < REPLY_HEAD && self.server.length >= REPLY_HEAD {
                let xid = number_at(&self.server.kept, 0).unwrap_or_default();
                // the answer that opens a session comes first, and begins with the version of the protocol
                self.opening = matches!(self.unanswered.front(), Some((_, 1, _)));
                self.notifying = !self.opening && xid == NOTIFICATION;
                if !self.notifying {
                    self.answered(if self.opening { 0 } else { xid }, output)?;
                }
            }
            if whole {
                if self.notifying {
                    self.notified(output);
                } else if self.opening
                    && let Some(name) = self.session()
                {
                    output.push(Observation::Session { name });
                }
                self.server.clear();
            }
        }
        Ok(())
    }

    fn answered(&mut self, xid: i32, output: &mut TapOutput) -> Result<(), TapError> {
        let place = self.unanswered.iter().position(|(asked, ..)| *asked == xid);
        let (_, number, name) = place
            .and_then(|place| self.unanswered.remove(place))
            .ok_or(TapError("an answer to no request"))?;
        // what opens a session has no error
        let refused = number > 1 && (self.has_error() || name.is(MULTI) && self.has_failed_operation());
        output.reply(number, name, refused);
        Ok(())
    }

    /// Whether the head of an answer has an error.
    fn has_error(&self) -> bool {
        number_at(&self.server.kept, REPLY_ERROR).is_some_and(|error| error != 0)
    }

    /// Whether the first result in the answer to a `multi` is an error: then all are, since it does all of its operations or none
    /// (`MultiResponse.java`). Such an answer has no error in its head.
    fn has_failed_operation(&self) -> bool {
        let kept = &self.server.kept;
        // the kind of the result, and whether it is none but the end of them
        number_at(kept, REPLY_HEADER) == Some(-1) && kept.get(REPLY_HEADER + 4) == Some(&0)
    }

    /// Returns the name of the session in the answer that opens it; `None` where the session that was asked for is over.
    fn session(&self) -> Option<Box<str>> {
        let bytes = self.server.kept.get(SESSION)?;
        let session = u64::from_be_bytes(bytes.try_into().ok()?);
        (session != 0).then(|| format!("0x{session:x}").into())
    }

    /// Reads the kind and the state of a notification, then the path after its length.
    fn notified(&self, output: &mut TapOutput) {
        let kept = &self.server.kept;
        let name = match number_at(kept, REPLY_HEADER) {
            Some(1) => "NodeCreated",
            Some(2) => "NodeDeleted",
            Some(3) => "NodeDataChanged",
            Some(4) => "NodeChildrenChanged",
            _ => "watch",
        };
        let path = REPLY_HEADER + 12;
        let length = number_at(kept, path - 4).unwrap_or(0).max(0) as usize;
        let end = path.saturating_add(length).min(kept.len());
        let subject = kept.get(path..end).unwrap_or_default();
        output.notification(MessageName::new(name.as_bytes()), subject);
    }
}

#[cfg(test)]
impl ZkReader {
    /// Bytes that are kept of records that are not whole yet.
    pub(super) fn kept(&self) -> usize {
        self.client.kept.len() + self.server.kept.len()
    }
}
