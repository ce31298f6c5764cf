//! What is known of a link's messages: counted by taps, one a connection, and struck by the rules that lie on the link.
//!
//! A [`Wire`] belongs to a link and outlives its connections; an [`Ear`] belongs to one connection and is shared by its two
//! lanes. Neither holds a byte back by itself: an ear says where to stop, and the lane stops there.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::label::{ClientLabels, LabelScheme};
use super::link::Layer;
use super::rule::{Asked, Fate, Rule};
use super::tap::{Lost, Name, Protocol, Side, Tap, What};
use crate::clock::monotonic_ns;

/// Requests of one wait whose prints are remembered, so that one that is asked again is seen.
const REMEMBERED: usize = 256;

/// Messages, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    pub requests: u64,
    pub replies: u64,
    pub notifications: u64,
    /// Requests that a client repeated, byte for byte, while its label says that it retries ([`LabelScheme::retrying`]).
    pub retries: u64,
}

impl Traffic {
    /// As a history has it: requests, replies, notifications, retries.
    pub fn columns(self) -> [u64; 4] {
        [self.requests, self.replies, self.notifications, self.retries]
    }

    /// Requests and what came back.
    pub fn messages(self) -> u64 {
        self.requests + self.replies + self.notifications
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            replies: self.replies + other.replies,
            notifications: self.notifications + other.notifications,
            retries: self.retries + other.retries,
        }
    }
}

/// The same, counted by many at once.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    replies: AtomicU64,
    notifications: AtomicU64,
    retries: AtomicU64,
}

impl Counters {
    fn read(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Relaxed),
            replies: self.replies.load(Relaxed),
            notifications: self.notifications.load(Relaxed),
            retries: self.retries.load(Relaxed),
        }
    }
}

/// A notification that passed a link towards its client.
#[derive(Debug, Clone)]
pub struct Notice {
    pub client: u32,
    /// A reading of `CLOCK_MONOTONIC`.
    pub at: u64,
    pub name: Name,
    /// The path, key or channel that it is about.
    pub subject: Box<str>,
}

/// What all wires of a run share.
#[derive(Debug)]
pub struct Exchange {
    protocol: Protocol,
    total: Counters,
    pub labels: ClientLabels,
    notices: mpsc::Sender<Notice>,
    /// Connections on which a tap lost its place, and the first reason.
    lost: Mutex<(u64, Option<(String, Lost)>)>,
}

impl Exchange {
    /// For so many clients; notices go to `notices`, and one that does not fit there is a lost place.
    pub fn new(protocol: Protocol, labels: LabelScheme, clients: u32, notices: mpsc::Sender<Notice>) -> Arc<Self> {
        Arc::new(Self {
            protocol,
            total: Counters::default(),
            labels: ClientLabels::new(labels, clients),
            notices,
            lost: Mutex::default(),
        })
    }

    /// What passed all links so far.
    pub fn traffic(&self) -> Traffic {
        self.total.read()
    }

    /// On how many connections a tap lost its place, and the first: link and reason.
    pub fn lost(&self) -> (u64, Option<String>) {
        let lost = self.lost.lock().expect("no one panics while holding a reason");
        (lost.0, lost.1.as_ref().map(|(link, why)| format!("{link}: {}", why.0)))
    }

    fn lose(&self, link: &str, why: Lost) {
        let mut lost = self.lost.lock().expect("no one panics while holding a reason");
        lost.0 += 1;
        lost.1.get_or_insert_with(|| (link.to_owned(), why));
    }
}

/// The messages of one link.
#[derive(Debug)]
pub struct Wire {
    exchange: Arc<Exchange>,
    client: u32,
    link: String,
    counters: Counters,
    rules: Mutex<Vec<(Layer, Arc<Rule>)>>,
    /// Whether there are any: asked for every message.
    ruled: AtomicBool,
}

impl Wire {
    pub fn new(exchange: &Arc<Exchange>, client: u32, link: String) -> Arc<Self> {
        Arc::new(Self {
            exchange: Arc::clone(exchange),
            client,
            link,
            counters: Counters::default(),
            rules: Mutex::default(),
            ruled: AtomicBool::new(false),
        })
    }

    pub fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    fn rules(&self) -> MutexGuard<'_, Vec<(Layer, Arc<Rule>)>> {
        self.rules.lock().expect("no one panics while holding a link's rules")
    }

    pub(super) fn arm(&self, layer: Layer, rule: Arc<Rule>) {
        let mut rules = self.rules();
        rules.push((layer, rule));
        self.ruled.store(true, Relaxed);
    }

    pub(super) fn disarm(&self, layer: Layer) {
        let mut rules = self.rules();
        rules.retain(|(other, _)| *other != layer);
        self.ruled.store(!rules.is_empty(), Relaxed);
    }

    /// Whether a new connection is refused by a rule.
    pub(super) fn refuses(&self) -> bool {
        self.ruled.load(Relaxed) && self.rules().iter().any(|(_, rule)| rule.refuses(self.client))
    }

    fn count(&self, counter: fn(&Counters) -> &AtomicU64) {
        counter(&self.counters).fetch_add(1, Relaxed);
        counter(&self.exchange.total).fetch_add(1, Relaxed);
    }
}

/// Where a lane must stop in the chunk that was heard, and what follows.
#[derive(Debug)]
pub(super) struct Halt {
    pub at: usize,
    pub then: Then,
}

#[derive(Debug)]
pub(super) enum Then {
    /// Nothing more passes: the connection ends.
    End(Arc<Rule>),
    /// The rest waits for so long, or until the rule is lifted.
    Wait(Arc<Rule>, Duration),
}

/// Listens to one connection.
pub(super) struct Ear {
    wire: Arc<Wire>,
    state: Mutex<Listening>,
}

struct Listening {
    tap: Tap,
    told: bool,
    /// The request whose answer is meant.
    awaited: Option<(u64, Arc<Rule>)>,
    /// Prints of what the client asked since its role changed for the `changes`th time.
    asked: HashSet<u64>,
    changes: u64,
    /// The request that the client is in the middle of.
    name: Option<Name>,
}

impl Ear {
    pub(super) fn new(wire: &Arc<Wire>) -> Self {
        Self {
            wire: Arc::clone(wire),
            state: Mutex::new(Listening {
                tap: Tap::new(wire.exchange.protocol),
                told: false,
                awaited: None,
                asked: HashSet::new(),
                changes: 0,
                name: None,
            }),
        }
    }

    /// Hears a chunk before it is passed on; says where to stop, if anywhere.
    pub(super) fn hear(&self, side: Side, chunk: &[u8]) -> Option<Halt> {
        let mut state = self.state.lock().expect("no one panics while listening");
        let state = &mut *state;
        let mut halt = None;
        for heard in state.tap.hear(side, chunk) {
            let then = match &heard.what {
                What::Request { number, name } => {
                    state.name = Some(*name);
                    self.request(*number, *name, &mut state.awaited)
                }
                What::Asked { print, .. } => {
                    let again = self.is_repeated(*print, &mut state.asked, &mut state.changes);
                    if again && !state.name.is_some_and(is_idle_talk) {
                        self.wire.count(|counters| &counters.retries);
                    }
                    None
                }
                What::Answering { number } => self.answer(*number, &mut state.awaited),
                What::Reply { number, name } => {
                    if !is_idle_talk(*name) {
                        self.wire.count(|counters| &counters.replies);
                    }
                    self.answer(*number, &mut state.awaited)
                }
                What::Notification { name, subject } => {
                    self.notification(*name, subject);
                    None
                }
            };
            if let Some(then) = then.filter(|_| halt.is_none()) {
                halt = Some(Halt { at: heard.at, then });
            }
        }
        if let Some(why) = state.tap.lost().filter(|_| !state.told) {
            state.told = true;
            self.wire.exchange.lose(&self.wire.link, why);
        }
        halt
    }

    fn request(&self, number: u64, name: Name, awaited: &mut Option<(u64, Arc<Rule>)>) -> Option<Then> {
        if !is_idle_talk(name) {
            self.wire.count(|counters| &counters.requests);
        }
        if !self.wire.ruled.load(Relaxed) {
            return None;
        }
        let asked = Asked {
            name,
            client: self.wire.client,
            link: &self.wire.link,
            label: self.wire.exchange.labels.get(self.wire.client).0,
            at: monotonic_ns(),
        };
        let rules: Vec<Arc<Rule>> = self.wire.rules().iter().map(|(_, rule)| Arc::clone(rule)).collect();
        let rule = rules.into_iter().find(|rule| rule.takes(asked))?;
        match rule.meant.fate {
            Fate::DropRequest => Some(Then::End(rule)),
            Fate::DelayRequest(time) => Some(Then::Wait(rule, time)),
            Fate::DropReply | Fate::DelayReply(_) => {
                *awaited = Some((number, rule));
                None
            }
        }
    }

    fn answer(&self, number: u64, awaited: &mut Option<(u64, Arc<Rule>)>) -> Option<Then> {
        let (_, rule) = awaited.take_if(|(wanted, _)| *wanted == number)?;
        match rule.meant.fate {
            _ if rule.is_lifted() => None,
            Fate::DelayReply(time) => Some(Then::Wait(rule, time)),
            _ => Some(Then::End(rule)),
        }
    }

    /// Whether a client that waits asked the same since it began to wait.
    fn is_repeated(&self, print: u64, asked: &mut HashSet<u64>, changes: &mut u64) -> bool {
        let (label, now) = self.wire.exchange.labels.get(self.wire.client);
        if *changes != now {
            *changes = now;
            asked.clear();
        }
        let known = asked.contains(&print);
        if !known && asked.len() < REMEMBERED {
            asked.insert(print);
        }
        known && self.wire.exchange.labels.is_retrying(label)
    }

    fn notification(&self, name: Name, subject: &str) {
        self.wire.count(|counters| &counters.notifications);
        let notice = Notice {
            client: self.wire.client,
            at: monotonic_ns(),
            name,
            subject: subject.into(),
        };
        if let Err(mpsc::error::TrySendError::Full(_)) = self.wire.exchange.notices.try_send(notice) {
            self.wire.exchange.lose(
                &self.wire.link,
                Lost("notifications came faster than they were recorded"),
            );
        }
    }

    /// What a rule meant came to pass on this connection.
    pub(super) fn done(&self, rule: &Rule) {
        rule.done(self.wire.client);
    }
}

impl Drop for Ear {
    /// An answer that never came was not struck.
    fn drop(&mut self) {
        let awaited = self.state.get_mut().map(|state| state.awaited.take());
        if let Ok(Some((_, rule))) = awaited {
            rule.missed();
        }
    }
}

/// Messages that keep a connection or a session alive say nothing of a lock.
fn is_idle_talk(name: Name) -> bool {
    matches!(name.as_str(), "ping" | "PING")
}
