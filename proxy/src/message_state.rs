//! The messages of one connection that a tap remembers ([`MessageState`]): requests, and those whose replies rules wait for.

use std::sync::Arc;

use super::message_rule::{MessageRule, RequestSeen};
use super::tap::{MessageName, RequestWords};

/// Requests of a connection whose replies a rule waits for, to see which of them was accepted.
const PENDING: usize = 64;
/// Requests of one wait whose prints are remembered, so that one that is asked again is seen.
const REMEMBERED: usize = 256;

/// The messages of one connection that a tap remembers.
#[derive(Default)]
pub(super) struct MessageState {
    awaited: Vec<AwaitedReply>,
    /// Prints of the client's requests since its label changed for the `changes`th time.
    asked: Vec<u64>,
    changes: u64,
    /// The request that the client is sending.
    pub name: Option<MessageName>,
    /// The words of the request whose reply is dropped, though it was accepted.
    pub dropped: Option<RequestWords>,
}

/// A request whose reply a rule waits for, with its words where they are kept.
pub(super) struct AwaitedReply {
    number: u64,
    pub rule: Arc<MessageRule>,
    /// The request, where the rule matches it only if its reply says that it was accepted.
    if_accepted: Option<RequestSeen>,
    pub words: RequestWords,
}

impl MessageState {
    /// Notes that the rule matches the reply to this request, perhaps only `if_accepted`.
    pub fn awaits(&mut self, number: u64, rule: Arc<MessageRule>, if_accepted: Option<RequestSeen>) {
        let mut awaited = self.awaited.iter();
        // some are never answered
        if awaited.len() >= PENDING
            && let Some(oldest) = awaited.position(|awaited| awaited.if_accepted.is_some())
        {
            self.awaited.remove(oldest);
        }
        self.awaited.push(AwaitedReply {
            number,
            rule,
            if_accepted,
            words: RequestWords::default(),
        });
    }

    /// Keeps the words of a request that a rule matches, or may match.
    pub fn keep_words(&mut self, number: u64, words: &RequestWords) {
        if words.is_empty() {
            return;
        }
        for awaited in self.awaited.iter_mut().filter(|awaited| awaited.number == number) {
            awaited.words = words.clone();
        }
    }

    /// Returns the rules that match the reply to this request: those that matched the request, and those that match it because it was
    /// accepted.
    pub fn rules_of_reply(&mut self, number: u64, refused: bool) -> Vec<AwaitedReply> {
        let of_request = self.awaited.extract_if(.., |awaited| awaited.number == number);
        let matches = |awaited: &AwaitedReply| match &awaited.if_accepted {
            Some(asked) => !refused && awaited.rule.takes(asked),
            None => true,
        };
        of_request.filter(matches).collect()
    }

    /// Whether the client sent the same request before, since its label changed for the `changes`th time.
    pub fn has_asked(&mut self, print: u64, changes: u64) -> bool {
        if self.changes != changes {
            self.changes = changes;
            self.asked.clear();
        }
        let again = self.asked.contains(&print);
        if !again && self.asked.len() < REMEMBERED {
            self.asked.push(print);
        }
        again
    }

    /// Notes that a request is never answered.
    pub fn never_answered(&mut self, number: u64) {
        missed(self.awaited.extract_if(.., |awaited| awaited.number == number));
    }

    /// Notes the end of the connection.
    pub fn end(&mut self) {
        missed(self.awaited.drain(..));
    }
}

/// Lets rules whose replies never came match the next request.
fn missed(unanswered: impl Iterator<Item = AwaitedReply>) {
    let matched = unanswered.filter(|awaited| awaited.if_accepted.is_none());
    matched.for_each(|awaited| awaited.rule.missed());
}
