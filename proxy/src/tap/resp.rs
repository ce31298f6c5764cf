//! The tap of Redis (RESP2 and RESP3): replies in the order of the commands, and pushes in between; and the words of a command that a history
//! keeps, without passwords.
//!
//! Commands that subscribe have no answer in that order: each of their channels is confirmed by a push, or by an array
//! that looks like one (RESP2).

use std::collections::VecDeque;

use super::commands::{CommandParser, CommandStep};
use super::replies::{ReplyKind, ReplyParser};
use super::{MAX_UNANSWERED, MessageName, Observation, TapError, TapOutput, UNANSWERED, refusals};

/// Commands that may say a password, so that their words are not kept.
const SECRET: [&str; 5] = ["ACL", "AUTH", "CONFIG", "HELLO", "MIGRATE"];

#[derive(Default)]
pub(super) struct RespReader {
    keeps_words: bool,
    commands: CommandParser,
    replies: ReplyParser,
    /// Commands without an answer.
    unanswered: VecDeque<(u64, MessageName)>,
    /// Subscriptions without a confirmation, and how many each still has to get.
    unconfirmed: VecDeque<(u64, MessageName, usize)>,
    requests: u64,
    /// Subscriptions that were confirmed: channels, patterns and shard channels.
    subscribed: [u64; 3],
    /// Whether the server sends pushes as such, so that an array is never one.
    resp3: bool,
}

impl RespReader {
    pub(super) fn keep_words(&mut self, keep: bool) {
        self.keeps_words = keep;
    }

    pub(super) fn client(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() {
            if self.commands.at == CommandStep::Start {
                output.at = here;
                self.commands = CommandParser::new(self.keeps_words);
                self.commands.at = if chunk[here] == b'*' {
                    CommandStep::Count
                } else {
                    CommandStep::Inline
                };
                here += usize::from(chunk[here] == b'*');
                continue;
            }
            let rest = &chunk[here..];
            here += self.commands.step(rest)?;
            let commands = &mut self.commands;
            if commands.count > 0 && !commands.named {
                commands.named = true;
                self.asked(output)?;
            }
            if self.commands.at == CommandStep::Start {
                self.over(output)?;
            }
        }
        Ok(())
    }

    /// Notes a command whose name is known.
    fn asked(&mut self, output: &mut TapOutput) -> Result<(), TapError> {
        self.requests += 1;
        let name = MessageName::new(&self.commands.words[0].to_ascii_uppercase());
        output.request(self.requests, name);
        if matches!(name.as_str(), "MONITOR" | "SYNC" | "PSYNC") {
            return Err(TapError("a command after which replies come unasked"));
        }
        // its answer may come before its last byte was read here
        if subscription_kind(&self.commands.words[0]).is_none() {
            self.unanswered.push_back((self.requests, name));
        }
        if self.unanswered.len() + self.unconfirmed.len() > MAX_UNANSWERED {
            return Err(UNANSWERED);
        }
        Ok(())
    }

    /// Notes the end of a command.
    fn over(&mut self, output: &mut TapOutput) -> Result<(), TapError> {
        let commands = &self.commands;
        if !commands.named {
            return Ok(());
        }
        let name = MessageName::new(&commands.words[0].to_ascii_uppercase());
        if name.as_str() == "CLIENT" && commands.words[1].eq_ignore_ascii_case(b"REPLY") {
            return Err(TapError("a client that wants no replies"));
        }
        if let Some(kind) = subscription_kind(&commands.words[0]) {
            // without an argument all subscriptions of its kind end; where there is none, that is confirmed once
            let confirmations = match commands.count - 1 {
                0 => self.subscribed[kind].max(1) as usize,
                channels => channels,
            };
            self.unconfirmed.push_back((self.requests, name, confirmations));
        }
        let is_secret = SECRET.contains(&name.as_str());
        let words = commands.all_words.iter().flatten().filter(|_| !is_secret);
        output.push(Observation::Asked {
            number: self.requests,
            print: commands.print.state,
            words: words.map(|word| String::from_utf8_lossy(word).into()).collect(),
        });
        Ok(())
    }

    pub(super) fn server(&mut self, chunk: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        let mut here = 0;
        while here < chunk.len() {
            if self.replies.is_whole() {
                output.at = here;
                self.begin(&chunk[here..], output)?;
            }
            here += self.replies.step(&chunk[here..])?;
            if self.replies.kind == ReplyKind::Unsure && self.replies.count > 0 {
                self.settle(output)?;
            }
            if self.replies.is_whole() {
                self.whole(output)?;
            }
        }
        Ok(())
    }

    /// Notes the beginning of a value.
    fn begin(&mut self, value: &[u8], output: &mut TapOutput) -> Result<(), TapError> {
        self.replies = ReplyParser::default();
        match value[0] {
            b'>' => {
                self.resp3 = true;
                self.replies.kind = ReplyKind::Push;
            }
            b'*' if self.may_be_push() => self.replies.kind = ReplyKind::Unsure,
            b'-' if self.confirms_next() => {
                if let Some((number, name, _)) = self.unconfirmed.pop_front() {
                    output.reply(number, name, true);
                }
            }
            _ => {
                self.replied(refusals::in_resp(value), output)?;
                // only RESP3 has maps: the answer to HELLO 3 is one
                self.resp3 |= value[0] == b'%';
            }
        }
        Ok(())
    }

    /// Whether an array may be a push: in RESP2, while a channel is subscribed, and where a confirmation is due.
    fn may_be_push(&self) -> bool {
        !self.resp3 && (self.subscribed != [0; 3] || self.confirms_next())
    }

    /// Whether the next value that is no message confirms a subscription, or is the error in its place: no command before
    /// it waits.
    fn confirms_next(&self) -> bool {
        let next = self.unanswered.front().map_or(u64::MAX, |(number, _)| *number);
        self.unconfirmed.front().is_some_and(|(number, ..)| *number < next)
    }

    fn replied(&mut self, refused: bool, output: &mut TapOutput) -> Result<(), TapError> {
        let (number, name) = self.unanswered.pop_front().ok_or(TapError("an answer to no command"))?;
        match name.as_str() {
            "RESET" => (self.subscribed, self.resp3) = ([0; 3], false),
            "HELLO" if !refused => self.resp3 = false,
            _ => {}
        }
        output.reply(number, name, refused);
        Ok(())
    }

    /// Decides by the first element of an array whether it is an answer or a push of RESP2.
    fn settle(&mut self, output: &mut TapOutput) -> Result<(), TapError> {
        let first = self.replies.words.first().map_or(&[][..], Vec::as_slice);
        if is_notification(first) || confirmed_kind(first).is_some() {
            self.replies.kind = ReplyKind::Push;
            return Ok(());
        }
        self.replies.kind = ReplyKind::Reply;
        self.replied(false, output)
    }

    /// Notes the end of a value. An array without elements never had a first one.
    fn whole(&mut self, output: &mut TapOutput) -> Result<(), TapError> {
        match self.replies.kind {
            ReplyKind::Reply => return Ok(()),
            ReplyKind::Unsure => {
                self.replies.kind = ReplyKind::Reply;
                return self.replied(false, output);
            }
            ReplyKind::Push => {}
        }
        let words = &self.replies.words;
        let word = |place: usize| words.get(place).map_or(&[][..], Vec::as_slice);
        if let Some(kind) = confirmed_kind(word(0)) {
            let now = std::str::from_utf8(word(2))
                .ok()
                .and_then(|count| count.parse::<u64>().ok());
            // channels and patterns are counted together
            let others = if kind == SHARDS { 0 } else { self.subscribed[1 - kind] };
            self.subscribed[kind] = now.unwrap_or(0).saturating_sub(others);
            if let Some((number, name, left)) = self.unconfirmed.front_mut() {
                *left -= 1;
                let (number, name, left) = (*number, *name, *left);
                if left == 0 {
                    self.unconfirmed.pop_front();
                }
                output.reply(number, name, false);
            }
            return Ok(());
        }
        // a pattern precedes the channel that matched it
        let subject = word(if word(0) == b"pmessage" { 2 } else { 1 });
        output.notification(MessageName::new(word(0)), subject);
        Ok(())
    }
}

/// The words of subscriptions to channels, patterns and shard channels, and of their ends.
const SUBSCRIPTIONS: [[&[u8]; 2]; 3] = [
    [b"subscribe", b"unsubscribe"],
    [b"psubscribe", b"punsubscribe"],
    [b"ssubscribe", b"sunsubscribe"],
];
/// The place of shard channels among them.
const SHARDS: usize = 2;

/// Returns the kind of subscription that a command is about; `None`: it is not answered by confirmations.
fn subscription_kind(command: &[u8]) -> Option<usize> {
    let is_one_of = |words: &[&[u8]; 2]| words.iter().any(|word| command.eq_ignore_ascii_case(word));
    SUBSCRIPTIONS.iter().position(is_one_of)
}

fn is_notification(word: &[u8]) -> bool {
    matches!(word, b"message" | b"pmessage" | b"smessage")
}

/// Returns the kind of subscription that a message confirms, by its first word.
fn confirmed_kind(word: &[u8]) -> Option<usize> {
    SUBSCRIPTIONS.iter().position(|words| words.contains(&word))
}
