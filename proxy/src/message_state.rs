//! What a tap remembers of the messages of one connection: what was asked, and which replies rules wait for.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::label::Label;
use super::message_rule::{MessageRule, RequestSeen};
use super::tap::{MessageName, RequestWords};

/// Requests of a connection whose replies a rule waits for, to see which of them was accepted.
const PENDING: usize = 64;
/// Requests of one wait whose prints are remembered, so that one that is asked again is seen.
const REMEMBERED: usize = 256;

type PrintSet = HashSet<u64, BuildHasherDefault<PrintHasher>>;

/// Prints are hashes themselves.
#[derive(Default)]
struct PrintHasher(u64);

impl Hasher for PrintHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, print: u64) {
        self.0 = (self.0 ^ print).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What is remembered of the messages of a connection.
#[derive(Default)]
pub(super) struct MessageState {
    /// The request whose answer is meant.
    awaited: Option<AwaitedReply>,
    /// Requests that a rule means if they are accepted.
    pending: VecDeque<PendingRequest>,
    /// Prints of what the client asked since its role changed for the `changes`th time.
    asked: PrintSet,
    changes: u64,
    /// The request that the client is in the middle of.
    pub name: Option<MessageName>,
    /// The words of the request whose reply is dropped, though it was accepted.
    pub dropped: Option<RequestWords>,
}

/// A request that a rule means, and its words where they are kept.
pub(super) struct AwaitedReply {
    number: u64,
    pub rule: Arc<MessageRule>,
    pub words: RequestWords,
}

/// A request that is meant if its reply says that it was accepted.
struct PendingRequest {
    number: u64,
    rule: Arc<MessageRule>,
    name: MessageName,
    label: Label,
    at: u64,
    words: RequestWords,
}

impl MessageState {
    /// The rule means the reply to this request.
    pub fn awaits(&mut self, number: u64, rule: Arc<MessageRule>) {
        self.awaited = Some(AwaitedReply {
            number,
            rule,
            words: RequestWords::default(),
        });
    }

    /// The rule means this request if it is accepted.
    pub fn may_mean(&mut self, number: u64, rule: Arc<MessageRule>, asked: RequestSeen<'_>) {
        // some are never answered: PostgreSQL skips what follows an error
        if self.pending.len() == PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(PendingRequest {
            number,
            rule,
            name: asked.name,
            label: asked.label,
            at: asked.at,
            words: RequestWords::default(),
        });
    }

    /// The words of a request that a rule means, or may mean.
    pub fn keep_words(&mut self, number: u64, words: &RequestWords) {
        if words.is_empty() {
            return;
        }
        if let Some(awaited) = self.awaited.as_mut().filter(|awaited| awaited.number == number) {
            awaited.words = words.clone();
        }
        for pending in self.pending.iter_mut().filter(|pending| pending.number == number) {
            pending.words = words.clone();
        }
    }

    /// What means the reply to this request of a client on a link: the rule that took the request, or the first that takes it since it
    /// was accepted.
    pub fn rule_of_reply(&mut self, number: u64, refused: bool, client: u32, link: &str) -> Option<AwaitedReply> {
        let mut taken = self.awaited.take_if(|awaited| awaited.number == number);
        self.pending.retain_mut(|pending| {
            if pending.number != number {
                return true;
            }
            let asked = RequestSeen {
                name: pending.name,
                client,
                link,
                label: pending.label,
                at: pending.at,
            };
            if taken.is_none() && !refused && pending.rule.takes(asked) {
                taken = Some(AwaitedReply {
                    number,
                    rule: Arc::clone(&pending.rule),
                    words: std::mem::take(&mut pending.words),
                });
            }
            false
        });
        taken
    }

    /// Whether the client asked the same before, since its role changed for the `changes`th time.
    pub fn has_asked(&mut self, print: u64, changes: u64) -> bool {
        if self.changes != changes {
            self.changes = changes;
            self.asked.clear();
        }
        match self.asked.len() < REMEMBERED {
            true => !self.asked.insert(print),
            false => self.asked.contains(&print),
        }
    }

    /// The connection ends: a rule whose answer never came applies to the next request.
    pub fn end(&mut self) {
        if let Some(awaited) = self.awaited.take() {
            awaited.rule.missed();
        }
    }
}
