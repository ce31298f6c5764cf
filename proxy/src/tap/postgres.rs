//! PostgreSQL: messages after their kind and length. A request is a simple query, or the execution of a portal; it is named by
//! its statement, as `UPDATE`, or by the advisory lock that it is about, as `advisory_unlock`.
//!
//! <https://www.postgresql.org/docs/current/protocol-flow.html>. Answers come in the order of the requests. After an error the
//! server skips what it was sent until the client synchronizes, and is ready then.

use std::collections::{BTreeMap, VecDeque};

use super::framer::Framer;
use super::statements::{Statement, forget_deallocated, remember, statement_name};
use super::{MAX_UNANSWERED, MessageName, Observation, RequestDigest, TLS, TapError, TapOutput, UNANSWERED, refusals};

/// The longest message: what the server itself takes.
const LONGEST: u32 = 1 << 30;
/// Bytes that say how long a message is; its kind precedes them.
const LENGTH: usize = 4;

/// The codes in the place of a version, of messages that have no kind.
const CANCEL: u32 = 80_877_102;
const TLS_WANTED: u32 = 80_877_103;
const GSS_WANTED: u32 = 80_877_104;

/// Functions by which a statement is named.
const FUNCTIONS: [(&str, &str); 5] = [
    ("PG_TRY_ADVISORY_XACT_LOCK(", "try_advisory_xact_lock"),
    ("PG_ADVISORY_XACT_LOCK(", "advisory_xact_lock"),
    ("PG_TRY_ADVISORY_LOCK(", "try_advisory_lock"),
    ("PG_ADVISORY_UNLOCK(", "advisory_unlock"),
    ("PG_ADVISORY_LOCK(", "advisory_lock"),
];

/// A message that the client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The answer to a request.
    Answer {
        number: u64,
        name: MessageName,
        /// It is a simple query, whose answer has a description of its rows.
        simple: bool,
        begun: bool,
    },
    /// The message that the server is ready for the next query.
    Ready,
}

#[derive(Default)]
pub(super) struct PostgresReader {
    client: Framer,
    server: Framer,
    opened: bool,
    /// Answers of one byte that are still to come: whether the server accepts the client's proposal.
    proposals: u32,
    awaited: VecDeque<Awaited>,
    requests: u64,
    statements: BTreeMap<Vec<u8>, Statement>,
    portals: BTreeMap<Vec<u8>, Statement>,
    print: RequestDigest,
}

/// Returns how many bytes follow the head of a message, whose last four say how long it is.
fn rest_length(head: &[u8]) -> Result<usize, TapError> {
    let length = head.last_chunk().map_or(0, |length| u32::from_be_bytes(*length));
    if !(4..=LONGEST).contains(&length) {
        return Err(TapError("a message of impossible length"));
    }
    Ok(length as usize - 4)
}

/// Returns the kind of a message, of those that have one.
fn kind(message: &Framer) -> u8 {
    message.head.first().copied().unwrap_or_default()
}

/// Returns the text before the first zero, and the bytes after it.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

impl PostgresReader {
    pub(super) fn client(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() {
            if self.client.at_start() {
                output.at = here;
                self.print = RequestDigest::default();
            }
            let head = LENGTH + usize::from(self.opened);
            let (length, part, whole) = self.client.step(&chunk[here..], head, rest_length)?;
            here += length;
            self.print.add(part);
            if whole {
                self.client_message(output)?;
                self.client.clear();
            }
        }
        Ok(())
    }

    /// Reads a whole message of the client.
    fn client_message(&mut self, output: &mut TapOutput) -> Result<(), TapError> {
        let body = std::mem::take(&mut self.client.kept);
        let print = self.print.state;
        if !self.opened {
            match body.first_chunk().map(|code| u32::from_be_bytes(*code)) {
                Some(TLS_WANTED | GSS_WANTED) => self.proposals += 1,
                Some(CANCEL) => self.opened = true,
                Some(version) if version >> 16 == 3 => {
                    self.opened = true;
                    self.awaited.push_back(Awaited::Ready);
                }
                _ => return Err(TapError("a start-up message of an unknown version")),
            }
            return Ok(());
        }
        match kind(&self.client) {
            b'Q' => {
                let statement = text(&body).0;
                forget_deallocated(&mut self.statements, statement);
                self.asked((statement_name(statement, &FUNCTIONS), print), true, output)?;
                self.awaited.push_back(Awaited::Ready);
            }
            b'P' => {
                let (name, rest) = text(&body);
                let statement = text(rest).0;
                // one without a name is executed at once
                if name.is_empty() {
                    forget_deallocated(&mut self.statements, statement);
                }
                let known = (statement_name(statement, &FUNCTIONS), print);
                remember(&mut self.statements, name.to_vec(), known)?;
            }
            b'B' => {
                let (portal, rest) = text(&body);
                let (name, of) = self
                    .statements
                    .get(text(rest).0)
                    .copied()
                    .unwrap_or((MessageName::new(b"EXECUTE"), 0));
                remember(&mut self.portals, portal.to_vec(), (name, of ^ print))?;
            }
            b'E' => {
                let unknown = (MessageName::new(b"EXECUTE"), 0);
                let known = self.portals.get(text(&body).0).copied().unwrap_or(unknown);
                self.asked(known, false, output)?;
            }
            b'C' => {
                let (kind, name) = body.split_first().unwrap_or((&0, &[]));
                let named = if *kind == b'S' {
                    &mut self.statements
                } else {
                    &mut self.portals
                };
                named.remove(text(name).0);
            }
            b'F' => {
                self.asked((MessageName::new(b"FUNCTION"), print), true, output)?;
                self.awaited.push_back(Awaited::Ready);
            }
            b'S' => self.awaited.push_back(Awaited::Ready),
            // describe, flush, data of a copy, a password, the end
            b'D' | b'H' | b'd' | b'c' | b'f' | b'p' | b'X' => {}
            _ => return Err(TapError("a message of an unknown kind")),
        }
        Ok(())
    }

    fn asked(&mut self, (name, print): Statement, simple: bool, output: &mut TapOutput) -> Result<(), TapError> {
        if self.awaited.len() >= MAX_UNANSWERED {
            return Err(UNANSWERED);
        }
        self.requests += 1;
        let number = self.requests;
        self.awaited.push_back(Awaited::Answer {
            number,
            name,
            simple,
            begun: false,
        });
        output.request(number, name);
        output.asked(number, print);
        Ok(())
    }

    pub(super) fn server(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        // what began in an earlier chunk cannot be read from its beginning
        let mut begins_here = false;
        while here < chunk.len() {
            if self.server.at_start() {
                output.at = here;
                begins_here = true;
                if self.proposals > 0 {
                    self.proposals -= 1;
                    here += 1;
                    match chunk[output.at] {
                        b'N' => continue,
                        _ => return Err(TLS),
                    }
                }
            }
            let (length, _, whole) = self.server.step(&chunk[here..], LENGTH + 1, rest_length)?;
            here += length;
            if whole {
                let messages = if begins_here { &chunk[output.at..] } else { &[] };
                self.server_message(messages, output)?;
                self.server.clear();
            }
        }
        Ok(())
    }

    /// Reads a whole message of the server: the first of `messages`, where it is whole there.
    fn server_message(&mut self, messages: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        match kind(&self.server) {
            // the description of rows, rows, a copy, the result of a function
            b'T' | b'D' | b'G' | b'H' | b'W' | b'V' => self.begun(messages, output),
            // the end of a statement or of a portal, an error
            b'C' | b'I' | b's' | b'E' => {
                self.begun(messages, output);
                if let Some(Awaited::Answer { begun: true, .. }) = self.awaited.front() {
                    self.awaited.pop_front();
                }
            }
            b'Z' => loop {
                match self.awaited.pop_front() {
                    Some(Awaited::Ready) => break,
                    // skipped after an error
                    Some(Awaited::Answer { number, .. }) => output.push(Observation::Unanswered { number }),
                    None => return Err(TapError("an answer to no request")),
                }
            },
            b'A' => {
                let channel = text(self.server.kept.get(4..).unwrap_or_default()).0;
                output.notification(MessageName::new(b"notification"), channel);
            }
            // log-in, parameters, notices, and the ends of steps that are no request
            b'R' | b'K' | b'S' | b'N' | b'v' | b'1' | b'2' | b'3' | b'n' | b't' | b'd' | b'c' => {}
            _ => return Err(TapError("an answer of an unknown kind")),
        }
        Ok(())
    }

    /// Notes that an answer begins or goes on. A message without a request answers none: an error at the end of the server.
    fn begun(&mut self, messages: &[u8], output: &mut TapOutput) {
        let described = kind(&self.server) == b'T';
        if let Some(Awaited::Answer {
            number,
            name,
            simple,
            begun,
        }) = self.awaited.front_mut()
            && !*begun
            && (*simple || !described)
        {
            *begun = true;
            output.reply(*number, *name, refusals::in_postgres(messages));
        }
    }
}
