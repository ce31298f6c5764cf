//! RESP2 and RESP3: commands as arrays or lines, answers in the order of the commands, and pushes in between.
//!
//! Commands that subscribe have no answer in that order: each of their channels is confirmed by a push, or by an array
//! that looks like one (RESP2).

use std::collections::VecDeque;

use super::answers::{Answer, Answers, Kind};
use super::commands::{Command, Commands};
use super::{Heard, Lost, Name, What};

/// Commands without an answer yet.
const MAX_UNANSWERED: usize = 65_536;

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
