//! MySQL and MariaDB: packets of a length and a number. A request is a command: a query, the execution of a prepared statement, a
//! ping. One with a statement is named by its first word, as `UPDATE`, or by the function of a lock in it, as `GET_LOCK`.
//!
//! <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html>. Answers come in the order of the requests, and the packets of
//! each count on from those of its request, which begin with 0: so an answer is told from the next one by its numbers, whatever is in it.
//! What MariaDB adds: <https://mariadb.com/docs/server/reference/clientserver-protocol>.

use std::collections::{BTreeMap, VecDeque};

use super::framer::Framer;
use super::refusals::{self, AnswerForm};
use super::statements::{Statement, remember, statement_name};
use super::{MAX_UNANSWERED, MessageName, RequestDigest, TLS, TapError, TapOutput, UNANSWERED};

/// The longest packet; a longer payload goes on in the next.
const LONGEST: usize = 0xff_ffff;
/// The longest packet while a client logs in, far above the packets of that time.
const LONGEST_LOG_IN: usize = 1 << 16;
/// The number of the statement that was prepared last, in MariaDB.
const LAST_PREPARED: u32 = u32::MAX;

/// Bits of the capabilities.
const CLIENT_MYSQL: u32 = 1;
const CLIENT_COMPRESS: u32 = 1 << 5;
const CLIENT_SSL: u32 = 1 << 11;
const CLIENT_DEPRECATE_EOF: u32 = 1 << 24;
const CLIENT_ZSTD: u32 = 1 << 26;
/// One of MariaDB's own, which are in a field of their own.
const CACHE_METADATA: u32 = 1 << 4;

/// Functions by which a statement is named.
const FUNCTIONS: [(&str, &str); 5] = [
    ("RELEASE_ALL_LOCKS(", "RELEASE_ALL_LOCKS"),
    ("RELEASE_LOCK(", "RELEASE_LOCK"),
    ("IS_FREE_LOCK(", "IS_FREE_LOCK"),
    ("IS_USED_LOCK(", "IS_USED_LOCK"),
    ("GET_LOCK(", "GET_LOCK"),
];

/// The capabilities of both sides, as the server offered and the client chose.
#[derive(Debug, Clone, Copy, Default)]
struct Capabilities {
    common: u32,
    of_mariadb: u32,
}

/// An answer that the client waits for, or the last one that it got.
struct AwaitedAnswer {
    number: u64,
    name: MessageName,
    /// The statement that it prepares.
    prepares: Option<Statement>,
    form: AnswerForm,
    /// The number of its first packet.
    first: u8,
    /// Payloads of the server before its request.
    heard: u64,
    /// Whether it has begun.
    begun: bool,
}

#[derive(Default)]
pub(super) struct MysqlReader {
    client: PacketParser,
    server: PacketParser,
    offered: Capabilities,
    chosen: Capabilities,
    /// The client has answered the greeting.
    opened: bool,
    /// The server has let it in.
    admitted: bool,
    /// The first of them may have begun.
    awaited: VecDeque<AwaitedAnswer>,
    requests: u64,
    /// Payloads of the server so far, and the number of the packet after the last one.
    heard: u64,
    next: u8,
    statements: BTreeMap<u32, Statement>,
    /// The statement of the last request to prepare one.
    prepared: Option<Statement>,
    print: RequestDigest,
}

/// One side's payloads, each over as many packets as it takes.
#[derive(Default)]
struct PacketParser {
    packets: Framer,
    /// The number of the payload's first packet, once there is one.
    number: Option<u8>,
}

impl PacketParser {
    /// Reads the next piece of `chunk`, as [`Framer::step`] does; returns whether the payload is whole.
    fn step<'a>(&mut self, chunk: &'a [u8], longest: usize) -> Result<(usize, &'a [u8], bool), TapError> {
        let (length, part, whole) = self.packets.step(chunk, 4, |head| {
            let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
            self.number.get_or_insert(head[3]);
            if length > longest {
                return Err(TapError("a message of impossible length"));
            }
            Ok(length)
        })?;
        // a packet that is as long as one can be: its payload goes on in the next
        let goes_on = whole && self.packets.head.starts_with(&[0xff; 3]);
        if goes_on {
            self.packets.head.clear();
        }
        Ok((length, part, whole && !goes_on))
    }

    fn at_start(&self) -> bool {
        self.number.is_none() && self.packets.at_start()
    }

    /// Returns the payload that is whole, or its beginning, with the number of its first packet and that of the one after it; and begins
    /// the next one.
    fn take(&mut self) -> (u8, u8, Vec<u8>) {
        let Self { packets, number } = std::mem::take(self);
        let last = packets.head.last().copied().unwrap_or_default();
        (number.unwrap_or_default(), last.wrapping_add(1), packets.kept)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads the capabilities in a server's greeting: after its version, ten numbers in a fixed order.
fn offered(greeting: &[u8]) -> Option<Capabilities> {
    if greeting.first() != Some(&10) {
        return None;
    }
    let version = greeting.iter().skip(1).position(|byte| *byte == 0)? + 2;
    // the number of the connection, and a part of the challenge with its end
    let low = version + 4 + 9;
    let [a, b] = [*greeting.get(low)?, *greeting.get(low + 1)?];
    let [c, d] = [low + 5, low + 6].map(|at| greeting.get(at).copied().unwrap_or_default());
    let common = u32::from_le_bytes([a, b, c, d]);
    let own = u32_at(greeting, low + 14).filter(|_| common & CLIENT_MYSQL == 0);
    Some(Capabilities {
        common,
        of_mariadb: own.unwrap_or_default(),
    })
}

/// Returns the name of a command as a request. `None`: it has no answer.
fn command(code: u8) -> Result<Option<&'static str>, TapError> {
    Ok(Some(match code {
        0x02 => "USE",
        0x03 => "QUERY",
        0x04 => "FIELD_LIST",
        0x07 => "REFRESH",
        0x08 => "SHUTDOWN",
        0x09 => "STATISTICS",
        0x0a => "PROCESSLIST",
        0x0c => "KILL",
        0x0d => "DEBUG",
        0x0e => "PING",
        0x11 => "CHANGE_USER",
        0x16 => "PREPARE",
        0x17 | 0xfa => "EXECUTE",
        0x1a => "RESET_STATEMENT",
        0x1b => "SET_OPTION",
        0x1c => "FETCH",
        0x1f => "RESET_CONNECTION",
        // the end, data of a parameter, and a statement that is given up
        0x01 | 0x18 | 0x19 => return Ok(None),
        _ => return Err(TapError("a command of an unknown kind")),
    }))
}

impl MysqlReader {
    pub(super) fn client(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() {
            if self.client.at_start() {
                output.at = here;
                self.print = RequestDigest::default();
            }
            let longest = if self.opened { LONGEST } else { LONGEST_LOG_IN };
            let (length, part, whole) = self.client.step(&chunk[here..], longest)?;
            here += length;
            self.print.add(part);
            if whole {
                self.client_payload(output)?;
            }
        }
        Ok(())
    }

    /// Reads a whole payload of the client.
    fn client_payload(&mut self, output: &mut TapOutput) -> Result<(), TapError> {
        let (number, first, body) = self.client.take();
        if !self.opened {
            return self.open(number, &body);
        }
        if number != 0 {
            // it goes on logging in, or sends a file that the server asked for
            return Ok(());
        }
        let print = self.print.state;
        let Some((code, rest)) = body.split_first() else {
            return Err(TapError("a command of an unknown kind"));
        };
        let Some(name) = command(*code)? else {
            if let (0x19, Some(statement)) = (*code, u32_at(rest, 0)) {
                self.statements.remove(&statement);
            }
            return Ok(());
        };
        let mut prepares = None;
        let (name, print) = match name {
            "QUERY" => (statement_name(rest, &FUNCTIONS), print),
            "PREPARE" => {
                prepares = Some((statement_name(rest, &FUNCTIONS), print));
                self.prepared = prepares;
                (MessageName::new(b"PREPARE"), print)
            }
            "EXECUTE" => {
                let statement = u32_at(rest, 0).unwrap_or_default();
                let known = match statement {
                    LAST_PREPARED => self.prepared,
                    _ => self.statements.get(&statement).copied(),
                };
                let (name, of) = known.unwrap_or((MessageName::new(b"EXECUTE"), 0));
                (name, of ^ print)
            }
            other => (MessageName::new(other.as_bytes()), print),
        };
        self.asked((name, print), (first, *code == 0x17), prepares, output)
    }

    /// Reads the client's answer to the greeting.
    fn open(&mut self, number: u8, body: &[u8]) -> Result<(), TapError> {
        let common = u32_at(body, 0).filter(|_| number > 0);
        let common = common.ok_or(TapError("an answer to the greeting that cannot be read"))?;
        if common & CLIENT_SSL != 0 && body.len() <= 32 {
            return Err(TLS);
        }
        let of_mariadb = u32_at(body, 28).filter(|_| common & CLIENT_MYSQL == 0);
        self.chosen = Capabilities {
            common: common & self.offered.common,
            of_mariadb: of_mariadb.unwrap_or_default() & self.offered.of_mariadb,
        };
        self.opened = true;
        Ok(())
    }

    fn asked(
        &mut self,
        (name, print): Statement,
        (first, binary): (u8, bool),
        prepares: Option<Statement>,
        output: &mut TapOutput,
    ) -> Result<(), TapError> {
        if self.awaited.len() >= MAX_UNANSWERED {
            return Err(UNANSWERED);
        }
        self.requests += 1;
        let number = self.requests;
        let form = AnswerForm {
            without_eof: self.chosen.common & CLIENT_DEPRECATE_EOF != 0,
            // only the answer to a prepared statement may leave its columns out
            caches: binary && self.chosen.of_mariadb & CACHE_METADATA != 0,
            binary,
        };
        self.awaited.push_back(AwaitedAnswer {
            number,
            name,
            prepares,
            form,
            first,
            heard: self.heard,
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
            }
            let longest = if self.admitted { LONGEST } else { LONGEST_LOG_IN };
            let (length, _, whole) = self.server.step(&chunk[here..], longest)?;
            here += length;
            if whole {
                let messages = if begins_here { &chunk[output.at..] } else { &[] };
                self.server_payload(messages, output)?;
            }
        }
        Ok(())
    }

    /// Reads a whole payload of the server: the first of `messages`, where it is whole there.
    fn server_payload(&mut self, messages: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let (number, next, body) = self.server.take();
        let goes_on = number == std::mem::replace(&mut self.next, next);
        self.heard += 1;
        if !self.opened {
            // a server that refuses at once sends the reason, and closes
            if body.first() != Some(&0xff) {
                self.offered = offered(&body).ok_or(TapError("a greeting of an unknown version"))?;
            }
            return Ok(());
        }
        if !self.admitted {
            self.admitted = body.first() == Some(&0);
            if self.admitted && self.chosen.common & (CLIENT_COMPRESS | CLIENT_ZSTD) != 0 {
                return Err(TapError("a client that compresses, which a tap cannot read"));
            }
            return Ok(());
        }
        // after 256 packets the numbers are those of another answer, which cannot be that of a request sent since the last of them
        let begins = |other: &AwaitedAnswer| number == other.first && (!goes_on || other.heard + 1 == self.heard);
        if self.awaited.front().is_some_and(|awaited| awaited.begun) && self.awaited.get(1).is_some_and(begins) {
            self.awaited.pop_front();
        }
        let Some(awaited) = self.awaited.front_mut() else {
            // unasked, it sends the reason for which it ends the connection
            return match body.first() {
                Some(0xff) => Ok(()),
                _ => Err(TapError("an answer to no request")),
            };
        };
        // the progress of a long statement, which MariaDB reports in between, is no answer
        if awaited.begun || body.starts_with(&[0xff, 0xff, 0xff]) {
            return Ok(());
        }
        awaited.begun = true;
        let refused = refusals::in_mysql(messages, awaited.name.as_str(), awaited.form);
        output.reply(awaited.number, awaited.name, refused);
        if let (Some(known), Some(0), Some(statement)) = (awaited.prepares, body.first(), u32_at(&body, 1)) {
            remember(&mut self.statements, statement, known)?;
        }
        Ok(())
    }
}
