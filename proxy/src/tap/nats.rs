//! The tap of NATS: a published message has its name from its subject and its headers, and is answered by a message to its inbox.
//!
//! A write of a key is a `create`, an `update` or a `put` by the revision that it expects, and a `delete` or a `purge` by its marker.
//! <https://docs.nats.io/reference/reference-protocols/nats-protocol>

use std::collections::{BTreeMap, VecDeque};

use super::lines::line;
use super::{
    MAX_UNANSWERED, MessageName, Observation, RequestDigest, TLS, TLS_HANDSHAKE, TapError, TapOutput, UNANSWERED,
    refusals,
};

/// Bytes of a line, and of a message, that are kept: of which both sides know the beginning.
const KEPT: usize = 4096;
/// The most fetches whose answers are awaited.
const MAX_FETCHES: usize = 64;
/// The beginning of the subjects of keys.
const KEY: &[u8] = b"$KV.";
/// The beginning of the subjects of requests to JetStream.
const API: &[u8] = b"$JS.API.";

/// The requests to JetStream that locks make, by the rest of their subjects.
const REQUESTS: &[(&[u8], &str)] = &[
    (b"STREAM.MSG.GET.", "read"),
    (b"DIRECT.GET.", "read"),
    (b"STREAM.MSG.DELETE.", "remove"),
    (b"STREAM.PURGE.", "purge"),
    (b"STREAM.INFO.", "stream_info"),
    (b"STREAM.CREATE.", "stream_create"),
    (b"CONSUMER.MSG.NEXT.", "next"),
    (b"CONSUMER.DELETE.", "unwatch"),
    (b"CONSUMER.", "watch"),
];

#[derive(Default)]
pub(super) struct NatsReader {
    client: NatsSide,
    server: NatsSide,
    requests: u64,
    /// The message that is being published, once its line is whole.
    published: Option<Publication>,
    /// By inbox.
    unanswered: BTreeMap<Vec<u8>, (u64, MessageName)>,
    /// Inboxes and numbers of fetches: the messages of a stream that answer one have subjects of their own.
    fetches: VecDeque<(Vec<u8>, u64)>,
    /// Numbers of pings, which are answered in their order.
    pings: VecDeque<u64>,
    /// A message of a watch about a key, until its headers are whole.
    watched: Option<WatchedKey>,
}

/// The line or the message that one side is sending.
#[derive(Default)]
struct NatsSide {
    line: Vec<u8>,
    /// Bytes of a message that are still to come, with its end.
    left: usize,
}

struct Publication {
    number: u64,
    subject: Vec<u8>,
    /// Empty for a message without an answer.
    inbox: Vec<u8>,
    /// Of its headers.
    length: usize,
    headers: Vec<u8>,
    is_named: bool,
    print: RequestDigest,
}

/// A message of a key that comes unasked.
struct WatchedKey {
    subject: Vec<u8>,
    /// Of its headers.
    length: usize,
    headers: Vec<u8>,
}

impl NatsReader {
    pub(super) fn client(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() {
            if self.client.left == 0 {
                if self.client.line.is_empty() {
                    output.at = here;
                    if chunk[here] == TLS_HANDSHAKE {
                        return Err(TLS);
                    }
                }
                let (taken, is_whole) = line(&mut self.client.line, &chunk[here..], KEPT)?;
                here += taken;
                if is_whole {
                    let line = std::mem::take(&mut self.client.line);
                    self.client_line(&line, output)?;
                }
            } else {
                let taken = self.client.left.min(chunk.len() - here);
                let bytes = &chunk[here..here + taken];
                here += taken;
                self.client.left -= taken;
                self.publishing(bytes, output)?;
            }
        }
        Ok(())
    }

    /// Reads a whole line of the client.
    fn client_line(&mut self, line: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let words = LineWords::of(line)?;
        let (subject, inbox, lengths) = match words.verb().as_slice() {
            b"PUB" => words.message(1, 1)?,
            b"HPUB" => words.message(1, 2)?,
            b"PING" => {
                if self.pings.len() >= MAX_UNANSWERED {
                    return Err(UNANSWERED);
                }
                self.requests += 1;
                self.pings.push_back(self.requests);
                output.request(self.requests, MessageName::new(b"ping"));
                output.asked(self.requests, RequestDigest::default().state);
                return Ok(());
            }
            b"CONNECT" | b"PONG" | b"SUB" | b"UNSUB" => return Ok(()),
            _ => return Err(TapError("a word that no client of NATS says")),
        };
        self.requests += 1;
        let [headers, total] = lengths;
        let mut print = RequestDigest::default();
        print.add(subject);
        self.client.left = total + 2;
        self.published = Some(Publication {
            number: self.requests,
            subject: subject.to_vec(),
            inbox: inbox.to_vec(),
            length: headers.min(KEPT),
            headers: Vec::new(),
            is_named: false,
            print,
        });
        // without headers it has its name now
        self.publishing(&[], output)
    }

    /// Reads further bytes of the message that is published.
    fn publishing(&mut self, bytes: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let Some(published) = &mut self.published else {
            return Ok(());
        };
        published.print.add(bytes);
        let room = published.length - published.headers.len();
        published.headers.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let number = published.number;
        if !published.is_named && published.headers.len() == published.length {
            published.is_named = true;
            let name = MessageName::new(name_of(&published.subject, &published.headers).as_bytes());
            output.request(number, name);
            if !published.inbox.is_empty() {
                let inbox = std::mem::take(&mut published.inbox);
                if name.is("next") {
                    self.fetches.push_back((inbox.clone(), number));
                }
                self.unanswered.insert(inbox, (number, name));
            }
            if self.fetches.len() > MAX_FETCHES
                && let Some((inbox, number)) = self.fetches.pop_front()
                && self.unanswered.get(&inbox).is_some_and(|(latest, _)| *latest == number)
            {
                self.unanswered.remove(&inbox);
                output.push(Observation::Unanswered { number });
            }
            if self.unanswered.len() > MAX_UNANSWERED {
                return Err(UNANSWERED);
            }
        }
        if self.client.left == 0 {
            output.asked(number, published.print.state);
            self.published = None;
        }
        Ok(())
    }

    pub(super) fn server(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() {
            if self.server.left > 0 {
                let taken = self.server.left.min(chunk.len() - here);
                self.watching(&chunk[here..here + taken], output);
                here += taken;
                self.server.left -= taken;
                continue;
            }
            if self.server.line.is_empty() {
                output.at = here;
            }
            let (taken, is_whole) = line(&mut self.server.line, &chunk[here..], KEPT)?;
            here += taken;
            if is_whole {
                let line = std::mem::take(&mut self.server.line);
                self.server_line(&line, &chunk[here..], output)?;
            }
        }
        Ok(())
    }

    /// Reads a whole line of the server, which `body` follows if it is a message.
    fn server_line(&mut self, line: &[u8], body: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let words = LineWords::of(line)?;
        let (subject, _, [headers, total]) = match words.verb().as_slice() {
            b"MSG" => words.message(2, 1)?,
            b"HMSG" => words.message(2, 2)?,
            b"PONG" => {
                if let Some(number) = self.pings.pop_front() {
                    output.reply(number, MessageName::new(b"ping"), false);
                }
                return Ok(());
            }
            b"INFO" | b"PING" | b"+OK" | b"-ERR" => return Ok(()),
            _ => return Err(TapError("a word that no server of NATS says")),
        };
        self.server.left = total + 2;
        let body = &body[..body.len().min(total)];
        if let Some((number, name)) = self.unanswered.remove(subject) {
            output.reply(number, name, refusals::in_nats(body, headers));
        } else if subject.starts_with(KEY) && headers > 0 {
            self.watched = Some(WatchedKey {
                subject: subject.to_vec(),
                length: headers.min(KEPT),
                headers: Vec::new(),
            });
        }
        Ok(())
    }

    /// Reads further bytes of a message of a watch. Only the end of a key is a notification: a watch begins with the values that are there,
    /// and reports each renewal, which frees no lock.
    fn watching(&mut self, bytes: &[u8], output: &mut TapOutput) {
        let Some(watched) = &mut self.watched else { return };
        let room = watched.length - watched.headers.len();
        watched.headers.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if watched.headers.len() == watched.length {
            if is_end(&watched.headers) {
                output.notification(MessageName::new(b"message"), &watched.subject);
            }
            self.watched = None;
        }
    }
}

/// The subject of a message, its inbox, and the lengths of headers and of all of it.
type MessageHead<'a> = (&'a [u8], &'a [u8], [usize; 2]);

/// The words of a line.
struct LineWords<'a>(Vec<&'a [u8]>);

impl<'a> LineWords<'a> {
    fn of(line: &'a [u8]) -> Result<Self, TapError> {
        let words = line.split(|byte| byte.is_ascii_whitespace());
        let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).take(8).collect();
        match words.is_empty() {
            true => Err(TapError("a line without a word")),
            false => Ok(Self(words)),
        }
    }

    /// Returns the verb in capitals, which may be left out: <https://docs.nats.io/reference/reference-protocols/nats-protocol>.
    fn verb(&self) -> Vec<u8> {
        self.0[0].to_ascii_uppercase()
    }

    /// Parses a message with so many words between the verb and the inbox, and so many lengths after the inbox.
    fn message(&self, before: usize, lengths: usize) -> Result<MessageHead<'a>, TapError> {
        let words = &self.0[1..];
        let inboxes = words
            .len()
            .checked_sub(before + lengths)
            .filter(|inboxes| *inboxes <= 1);
        inboxes.ok_or(TapError("a message of NATS with other words"))?;
        let length = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
        let length = |word: &[u8]| length(word).ok_or(TapError("a length that is not a number"));
        let total = length(words[words.len() - 1])? as usize;
        let headers = if lengths == 2 {
            length(words[words.len() - 2])? as usize
        } else {
            0
        };
        if headers > total {
            return Err(TapError("headers that are longer than their message"));
        }
        let inbox: &'a [u8] = if words.len() > before + lengths {
            words[before]
        } else {
            b""
        };
        Ok((words[0], inbox, [headers, total]))
    }
}

fn name_of(subject: &[u8], headers: &[u8]) -> &'static str {
    if subject.starts_with(KEY) {
        let expected = header(headers, b"Nats-Expected-Last-Subject-Sequence:");
        return marker_of(headers).unwrap_or(match expected {
            None => "put",
            Some(b"0") => "create",
            Some(_) => "update",
        });
    }
    let Some(request) = subject.strip_prefix(API) else {
        return if subject.starts_with(b"$JS.ACK.") {
            "ack"
        } else {
            "publish"
        };
    };
    let known = REQUESTS.iter().find(|(begin, _)| request.starts_with(begin));
    known.map_or("api", |(_, name)| name)
}

/// Returns the name of a marker.
fn marker_of(headers: &[u8]) -> Option<&'static str> {
    match header(headers, b"KV-Operation:")? {
        b"DEL" => Some("delete"),
        b"PURGE" => Some("purge"),
        _ => None,
    }
}

/// Whether these are the headers of a marker, by a client, or by a server in place of a key that it removed.
fn is_end(headers: &[u8]) -> bool {
    marker_of(headers).is_some() || header(headers, b"Nats-Marker-Reason:").is_some()
}

/// Returns the value of a header, whose name ends in a colon.
fn header<'a>(headers: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = headers.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    Some(value.trim_ascii())
}
