//! RESP2 and RESP3: commands as arrays or lines, answers in the order of the commands, and pushes in between.
//!
//! Commands that subscribe have no answer in that order: each of their channels is confirmed by a push, or by an array
//! that looks like one (RESP2).

use std::collections::VecDeque;

use super::{Heard, Lost, Name, Print, What};

/// Commands without an answer yet.
const MAX_UNANSWERED: usize = 65_536;
/// The longest line that is a number, or an inline command's name.
const LINE: usize = 64;
/// The longest string and the longest list: what Redis itself takes.
const LONGEST: i64 = 512 << 20;
/// How deep answers are nested.
const DEPTH: usize = 32;
/// Bytes of an element that are kept: a name, a channel.
const KEPT: usize = 128;

#[derive(Default)]
pub(super) struct Resp {
    commands: Commands,
    answers: Answers,
    /// Commands without an answer.
    unanswered: VecDeque<(u64, Name)>,
    /// Subscriptions without a confirmation, and how many each still has to get.
    unconfirmed: VecDeque<(u64, Name, usize)>,
    requests: u64,
    /// Whether the connection ever subscribed: from then on an array may be a push.
    subscribed: bool,
}

/// What the client's side is in the middle of.
#[derive(Default)]
struct Commands {
    at: Command,
    line: Vec<u8>,
    /// Arguments still to come, the one being read included.
    left: i64,
    /// Arguments so far.
    count: usize,
    /// The first two.
    words: [Vec<u8>; 2],
    print: Print,
    named: bool,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Command {
    #[default]
    Start,
    Inline,
    /// How many arguments.
    Count,
    /// How long the next one is.
    Length,
    /// Bytes of an argument still to come, its line end included.
    Argument(usize),
}

/// What the server's side is in the middle of.
#[derive(Default)]
struct Answers {
    at: Answer,
    line: Vec<u8>,
    /// Elements still to come, for each list that is open.
    open: Vec<i64>,
    /// Elements of the outermost list so far.
    count: usize,
    /// The first elements of a push or of an array that may be one, those of its lists among them.
    words: Vec<Vec<u8>>,
    /// What the value is: told by its first byte, or by its first element.
    kind: Kind,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Answer {
    #[default]
    Start,
    /// A line whose text does not matter.
    Simple,
    /// How long a string is.
    Length,
    /// How long a list is: elements for each that it counts.
    Count(i64),
    Text(usize),
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Kind {
    #[default]
    Reply,
    Push,
    /// An array on a connection that subscribed, until its first element is read.
    Unsure,
}

/// Moves bytes up to a line's end into `line`; answers how many there were, and whether the line is whole.
fn line(line: &mut Vec<u8>, chunk: &[u8], longest: usize) -> Result<(usize, bool), Lost> {
    let end = chunk.iter().position(|byte| *byte == b'\n');
    let part = &chunk[..end.map_or(chunk.len(), |end| end + 1)];
    let room = longest.saturating_sub(line.len());
    if part.len() > room && longest == LINE {
        return Err(Lost("a line that is too long"));
    }
    line.extend_from_slice(&part[..part.len().min(room)]);
    Ok((part.len(), end.is_some()))
}

fn number(line: &[u8]) -> Result<i64, Lost> {
    let digits = line.strip_suffix(b"\r\n").ok_or(Lost("a line without its end"))?;
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    number
        .filter(|number| (-1..=LONGEST).contains(number))
        .ok_or(Lost("a length that is no number"))
}

fn keep(word: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT.saturating_sub(word.len());
    word.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

impl Resp {
    pub(super) fn client(&mut self, chunk: &[u8], heard: &mut Vec<Heard>) -> Result<(), Lost> {
        let (mut here, mut start) = (0, 0);
        while here < chunk.len() {
            if self.commands.at == Command::Start {
                start = here;
                self.commands = Commands::default();
                self.commands.at = if chunk[here] == b'*' {
                    Command::Count
                } else {
                    Command::Inline
                };
                here += usize::from(chunk[here] == b'*');
                continue;
            }
            let rest = &chunk[here..];
            here += self.commands.step(rest)?;
            let commands = &mut self.commands;
            if commands.count > 0 && !commands.named {
                commands.named = true;
                self.asked(start, heard)?;
            }
            if self.commands.at == Command::Start {
                self.over(start, heard)?;
            }
        }
        Ok(())
    }

    /// A command has its name.
    fn asked(&mut self, at: usize, heard: &mut Vec<Heard>) -> Result<(), Lost> {
        self.requests += 1;
        let name = Name::new(&self.commands.words[0].to_ascii_uppercase());
        heard.push(Heard {
            at,
            what: What::Request {
                number: self.requests,
                name,
            },
        });
        if matches!(name.as_str(), "MONITOR" | "SYNC" | "PSYNC") {
            return Err(Lost("a command after which answers come unasked"));
        }
        // its answer may come before its last byte was read here
        if confirmations(name.as_str()).is_none() {
            self.unanswered.push_back((self.requests, name));
        }
        if self.unanswered.len() + self.unconfirmed.len() > MAX_UNANSWERED {
            return Err(Lost("too many commands without an answer"));
        }
        Ok(())
    }

    /// A command is whole.
    fn over(&mut self, at: usize, heard: &mut Vec<Heard>) -> Result<(), Lost> {
        let commands = &self.commands;
        if !commands.named {
            return Ok(());
        }
        let name = Name::new(&commands.words[0].to_ascii_uppercase());
        if name.as_str() == "CLIENT" && commands.words[1].eq_ignore_ascii_case(b"REPLY") {
            return Err(Lost("a client that wants no answers"));
        }
        if let Some(subscribes) = confirmations(name.as_str()) {
            self.subscribed |= subscribes;
            let channels = commands.count - 1;
            if channels > 0 {
                self.unconfirmed.push_back((self.requests, name, channels));
            }
        }
        heard.push(Heard {
            at,
            what: What::Asked {
                number: self.requests,
                print: commands.print.state,
            },
        });
        Ok(())
    }

    pub(super) fn server(&mut self, chunk: &[u8], heard: &mut Vec<Heard>) -> Result<(), Lost> {
        let (mut here, mut start) = (0, 0);
        while here < chunk.len() {
            let begins = self.answers.at == Answer::Start && self.answers.open.is_empty();
            if begins {
                start = here;
                self.begin(chunk[here], start, heard)?;
            }
            here += self.answers.step(&chunk[here..])?;
            if self.answers.kind == Kind::Unsure && self.answers.count > 0 {
                self.settle(start, heard)?;
            }
            if self.answers.is_whole() {
                self.whole(start, heard)?;
            }
        }
        Ok(())
    }

    /// A value begins with `first`.
    fn begin(&mut self, first: u8, at: usize, heard: &mut Vec<Heard>) -> Result<(), Lost> {
        self.answers = Answers::default();
        match first {
            b'>' => self.answers.kind = Kind::Push,
            b'*' if self.subscribed => self.answers.kind = Kind::Unsure,
            b'-' if self.is_refused_subscription() => {
                if let Some((number, name, _)) = self.unconfirmed.pop_front() {
                    heard.push(reply(at, number, name));
                }
            }
            _ => self.replied(at, heard)?,
        }
        Ok(())
    }

    /// An error comes in the place of a confirmation when no command before it waits.
    fn is_refused_subscription(&self) -> bool {
        let next = self.unanswered.front().map_or(u64::MAX, |(number, _)| *number);
        self.unconfirmed.front().is_some_and(|(number, ..)| *number < next)
    }

    fn replied(&mut self, at: usize, heard: &mut Vec<Heard>) -> Result<(), Lost> {
        let (number, name) = self.unanswered.pop_front().ok_or(Lost("an answer to no command"))?;
        heard.push(reply(at, number, name));
        Ok(())
    }

    /// An array has its first element: it is an answer, or a push of RESP2.
    fn settle(&mut self, at: usize, heard: &mut Vec<Heard>) -> Result<(), Lost> {
        let first = self.answers.words.first().map_or(&[][..], Vec::as_slice);
        if is_notification(first) || is_confirmation(first) {
            self.answers.kind = Kind::Push;
            return Ok(());
        }
        self.answers.kind = Kind::Reply;
        self.replied(at, heard)
    }

    /// A value is whole. An array without elements never had a first one.
    fn whole(&mut self, at: usize, heard: &mut Vec<Heard>) -> Result<(), Lost> {
        match self.answers.kind {
            Kind::Reply => return Ok(()),
            Kind::Unsure => {
                self.answers.kind = Kind::Reply;
                return self.replied(at, heard);
            }
            Kind::Push => {}
        }
        let words = &self.answers.words;
        let word = |place: usize| words.get(place).map_or(&[][..], Vec::as_slice);
        if is_confirmation(word(0)) {
            if let Some((number, name, left)) = self.unconfirmed.front_mut() {
                *left -= 1;
                let (number, name, left) = (*number, *name, *left);
                if left == 0 {
                    self.unconfirmed.pop_front();
                }
                heard.push(reply(at, number, name));
            }
            return Ok(());
        }
        // a pattern stands before the channel that matched it
        let subject = word(if word(0) == b"pmessage" { 2 } else { 1 });
        heard.push(Heard {
            at,
            what: What::Notification {
                name: Name::new(word(0)),
                subject: String::from_utf8_lossy(subject).into(),
            },
        });
        Ok(())
    }
}

fn reply(at: usize, number: u64, name: Name) -> Heard {
    Heard {
        at,
        what: What::Reply { number, name },
    }
}

/// Whether a command is answered by confirmations, and whether it begins to subscribe.
fn confirmations(name: &str) -> Option<bool> {
    match name {
        "SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE" => Some(true),
        "UNSUBSCRIBE" | "PUNSUBSCRIBE" | "SUNSUBSCRIBE" => Some(false),
        _ => None,
    }
}

fn is_notification(word: &[u8]) -> bool {
    matches!(word, b"message" | b"pmessage" | b"smessage")
}

fn is_confirmation(word: &[u8]) -> bool {
    let kinds = [&b"subscribe"[..], b"unsubscribe"];
    let sort = word.split_first().filter(|(sort, _)| matches!(sort, b'p' | b's'));
    kinds.contains(&word) || sort.is_some_and(|(_, rest)| kinds.contains(&rest))
}

impl Commands {
    /// Takes one step into what is left of the chunk.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Lost> {
        let length = match self.at {
            Command::Start => 0,
            Command::Inline => {
                let (length, whole) = line(&mut self.line, rest, KEPT)?;
                self.print.add(&rest[..length]);
                if whole {
                    self.inline();
                }
                length
            }
            Command::Count => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    self.left = number(&self.line)?;
                    self.line.clear();
                    self.at = if self.left > 0 { Command::Length } else { Command::Start };
                }
                length
            }
            Command::Length => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let text = self
                        .line
                        .strip_prefix(b"$")
                        .ok_or(Lost("an argument without a length"))?;
                    let argument = usize::try_from(number(text)?).map_err(|_| Lost("an argument that is none"))?;
                    self.line.clear();
                    self.at = Command::Argument(argument + 2);
                }
                length
            }
            Command::Argument(left) => {
                let part = &rest[..rest.len().min(left)];
                self.print.add(part);
                if let Some(word) = self.words.get_mut(self.count) {
                    let text = part.len().min(left.saturating_sub(2));
                    keep(word, &part[..text]);
                }
                self.argument(left - part.len());
                part.len()
            }
        };
        Ok(length)
    }

    fn argument(&mut self, left: usize) {
        if left > 0 {
            self.at = Command::Argument(left);
            return;
        }
        self.count += 1;
        self.left -= 1;
        self.at = if self.left > 0 { Command::Length } else { Command::Start };
    }

    /// A command on a line of its own, as people type them; an empty line is none.
    fn inline(&mut self) {
        let mut words = self.line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for word in &mut self.words {
            *word = words.next().unwrap_or_default().to_vec();
            self.count += usize::from(!word.is_empty());
        }
        self.count += words.count();
        self.at = Command::Start;
    }
}

impl Answers {
    fn is_whole(&self) -> bool {
        self.at == Answer::Start && self.open.is_empty()
    }

    /// Takes one step into what is left of the chunk.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Lost> {
        match self.at {
            Answer::Start => {
                self.at = match rest[0] {
                    b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Answer::Simple,
                    b'$' | b'!' | b'=' => Answer::Length,
                    b'*' | b'~' | b'>' => Answer::Count(1),
                    b'%' => Answer::Count(2),
                    _ => return Err(Lost("an answer of an unknown kind")),
                };
                self.line.clear();
                Ok(1)
            }
            Answer::Simple => {
                let (length, whole) = line(&mut self.line, rest, KEPT)?;
                if whole {
                    let text = self.line.trim_ascii_end().to_vec();
                    self.element(&text);
                }
                Ok(length)
            }
            Answer::Length => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let text = number(&self.line)?;
                    self.line.clear();
                    match usize::try_from(text) {
                        Ok(text) => self.at = Answer::Text(text + 2),
                        Err(_) => self.element(b""),
                    }
                }
                Ok(length)
            }
            Answer::Count(each) => {
                let (length, whole) = line(&mut self.line, rest, LINE)?;
                if whole {
                    let count = number(&self.line)? * each;
                    self.list(count)?;
                }
                Ok(length)
            }
            Answer::Text(left) => {
                let part = &rest[..rest.len().min(left)];
                let text = part.len().min(left.saturating_sub(2));
                keep(&mut self.line, &part[..text]);
                self.at = Answer::Text(left - part.len());
                if left == part.len() {
                    let text = std::mem::take(&mut self.line);
                    self.element(&text);
                }
                Ok(part.len())
            }
        }
    }

    fn list(&mut self, count: i64) -> Result<(), Lost> {
        if count <= 0 {
            self.element(b"");
            return Ok(());
        }
        if self.open.len() == DEPTH {
            return Err(Lost("an answer that is nested too deep"));
        }
        self.open.push(count);
        self.at = Answer::Start;
        Ok(())
    }

    /// An element is whole, and with it every list that it was the last of.
    fn element(&mut self, text: &[u8]) {
        self.at = Answer::Start;
        if matches!(self.open.len(), 1 | 2) && self.words.len() < 3 && self.kind != Kind::Reply {
            self.words.push(text.to_vec());
        }
        while let Some(left) = self.open.last_mut() {
            self.count += 1;
            *left -= 1;
            if *left > 0 {
                break;
            }
            self.open.pop();
        }
    }
}
