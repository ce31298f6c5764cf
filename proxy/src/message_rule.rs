//! A message rule ([`MessageRule`]): the message that it matches, and the action on it. The link that carries the message asks it.
//!
//! A rule has no clock: the caller gives the time, in nanoseconds by a monotonic clock.
//!
//! A rule acts once. A message is held back whole, and either goes on later, with everything that follows it, or its connection ends: a
//! stream never lacks bytes in the middle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;

use super::label::{Label, LabelSet};
use super::tap::{MessageKind, MessageName};

/// Names of messages that a rule remembers having seen pass.
const REMEMBERED: usize = 64;

/// Selects clients by label; the name is what the selection is called in arguments and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFilter {
    name: &'static str,
    labels: LabelSet,
}

impl ClientFilter {
    pub const fn new(name: &'static str, labels: LabelSet) -> Self {
        Self { name, labels }
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    /// Whether it selects clients with this label.
    pub fn selects(self, label: Label) -> bool {
        self.labels.contains(label)
    }
}

/// The action on the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageAction {
    /// The request does not reach the server.
    DropRequest,
    /// The request was answered, and the answer does not reach the client.
    DropReply,
    /// The request reaches the server this much later.
    DelayRequest(Duration),
    /// The answer reaches the client this much later.
    DelayReply(Duration),
}

impl MessageAction {
    /// Whether it waits for the reply of the message.
    pub fn is_of_reply(self) -> bool {
        matches!(self, Self::DropReply | Self::DelayReply(_))
    }

    /// Whether the connection of the message ends.
    pub fn ends(self) -> bool {
        matches!(self, Self::DropRequest | Self::DropReply)
    }

    /// Returns for how long it holds the message back; zero for one that is dropped.
    pub fn delay(self) -> Duration {
        match self {
            Self::DropRequest | Self::DropReply => Duration::ZERO,
            Self::DelayRequest(time) | Self::DelayReply(time) => time,
        }
    }
}

/// The planned part of a rule: the message that it matches, and the action on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRuleSpec {
    pub message: MessageKind,
    /// The first one is 1.
    pub occurrence: u32,
    pub whose: ClientFilter,
    pub action: MessageAction,
    /// Whether only accepted requests count: no error, no nil, no zero in the reply. For actions on replies.
    pub accepted: bool,
    /// The time for which the client is refused after its connection ended.
    pub refuse: Option<Duration>,
}

/// The message that a rule matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchedMessage {
    pub message: String,
    /// `c3`
    pub client: String,
    /// `c3->n1`
    pub link: String,
    pub role: &'static str,
    /// A reading of `CLOCK_MONOTONIC`.
    #[serde(skip)]
    pub at: u64,
    /// Whether the action is over: the message was held back, and its connection ended or it went on.
    pub done: bool,
    /// Whether the request was accepted; only rules of accepted requests look.
    pub accepted: bool,
}

#[derive(Debug, Default)]
struct Progress {
    seen: u32,
    /// Messages of the clients that the rule selects, by name, matched or not.
    passed: BTreeMap<MessageName, u64>,
    matched: Option<MatchedMessage>,
    /// The time at which all effects of the match are over.
    over: Option<u64>,
    refused: Option<(u32, u64)>,
    refusals: u64,
}

impl Progress {
    /// Notes a message of a client that the rule selects.
    fn note(&mut self, name: MessageName) {
        if self.passed.len() < REMEMBERED || self.passed.contains_key(&name) {
            *self.passed.entry(name).or_default() += 1;
        }
    }
}

/// A rule that is active on links.
#[derive(Debug)]
pub struct MessageRule {
    pub spec: MessageRuleSpec,
    progress: Mutex<Progress>,
    changed: Notify,
    lifted: AtomicBool,
}

/// A request as a rule looks at it.
#[derive(Debug, Clone)]
pub(super) struct RequestSeen {
    pub name: MessageName,
    pub client: u32,
    pub link: Arc<str>,
    pub label: Label,
    pub at: u64,
}

impl MessageRule {
    pub fn new(spec: MessageRuleSpec) -> Self {
        Self {
            spec,
            progress: Mutex::default(),
            changed: Notify::new(),
            lifted: AtomicBool::new(false),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no one panics while holding a rule")
    }

    /// Notes a request that passes. Whether the rule may match it, by its number or once it is accepted.
    pub(super) fn may_take(&self, asked: &RequestSeen) -> bool {
        if self.is_lifted() || !self.spec.whose.selects(asked.label) {
            return false;
        }
        let mut progress = self.progress();
        progress.note(asked.name);
        progress.matched.is_none() && self.spec.message.means(&asked.name)
    }

    /// Whether the rule matches this request, which it may; from then on it matches no other.
    pub(super) fn takes(&self, asked: &RequestSeen) -> bool {
        let mut progress = self.progress();
        if self.is_lifted() || progress.matched.is_some() {
            return false;
        }
        progress.seen += 1;
        if progress.seen < self.spec.occurrence {
            return false;
        }
        progress.matched = Some(MatchedMessage {
            message: asked.name.to_string(),
            client: format!("c{}", asked.client),
            link: asked.link.to_string(),
            role: asked.label.words(),
            at: asked.at,
            done: false,
            accepted: self.spec.accepted,
        });
        true
    }

    /// Notes that the action came to pass at `now`. `client` is refused from then on, if the rule says so.
    pub(super) fn done(&self, client: u32, now: u64) {
        let mut progress = self.progress();
        if let Some(matched) = &mut progress.matched {
            matched.done = true;
        }
        let until = after(now, self.spec.refuse.unwrap_or_default());
        progress.refused = self.spec.refuse.map(|_| (client, until));
        progress.over = Some(until);
        drop(progress);
        self.changed.notify_waiters();
    }

    /// Notes that the message is held back from `now` on, for this long.
    pub(super) fn holds(&self, time: Duration, now: u64) {
        self.progress().over = Some(after(now, time));
        self.changed.notify_waiters();
    }

    /// Waits for the message. Returns the time at which the action on it is over, by the clock of the link.
    pub async fn found(&self) -> u64 {
        loop {
            let changed = self.changed.notified();
            let over = self.progress().over;
            if let Some(over) = over {
                return over;
            }
            changed.await;
        }
    }

    /// Notes that the connection ended before the action: the rule matches the next such message, unless the number alone selects it.
    pub(super) fn missed(&self) {
        if self.spec.message.is_any() {
            return;
        }
        let mut progress = self.progress();
        if progress.matched.as_ref().is_some_and(|matched| !matched.done) {
            (progress.matched, progress.over) = (None, None);
        }
    }

    /// Whether new connections of a client are refused at `now`; counts those that are.
    pub(super) fn refuses(&self, client: u32, now: u64) -> bool {
        if self.is_lifted() {
            return false;
        }
        let mut progress = self.progress();
        let refused = progress
            .refused
            .is_some_and(|(refused, until)| refused == client && now < until);
        progress.refusals += u64::from(refused);
        refused
    }

    pub(super) fn lift(&self) {
        self.lifted.store(true, Relaxed);
    }

    pub fn is_lifted(&self) -> bool {
        self.lifted.load(Relaxed)
    }

    /// Returns the message that was matched, if one was.
    pub fn matched(&self) -> Option<MatchedMessage> {
        self.progress().matched.clone()
    }

    /// Whether it dropped its message, or began to hold it back. A reply that never comes is not acted on.
    pub fn has_acted(&self) -> bool {
        self.progress().over.is_some()
    }

    /// Returns how many connections were refused.
    pub fn refusals(&self) -> u64 {
        self.progress().refusals
    }

    /// Returns the messages of selected clients that passed, most frequent first: `GET ×12, SET ×3`.
    pub fn passed(&self) -> String {
        let progress = self.progress();
        let mut passed: Vec<(&MessageName, &u64)> = progress.passed.iter().collect();
        passed.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let words: Vec<String> = passed.iter().map(|(name, count)| format!("{name} ×{count}")).collect();
        words.join(", ")
    }
}

/// Returns the time `time` after `now`, in nanoseconds.
fn after(now: u64, time: Duration) -> u64 {
    now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
