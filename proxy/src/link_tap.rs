//! The taps of a link: they count its messages, one tap for each connection, and ask the message rules of the link.
//!
//! A [`LinkTap`] belongs to a link and outlives its connections; a [`ConnectionTap`] belongs to one connection and is shared by its two
//! pumps. Neither holds a byte back by itself: a tap says where to stop, and the pump stops there. A network that carries messages
//! and not bytes tells its taps of each message, and they say the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc;

use super::direction::Direction;
use super::label::{ClientLabels, Label, LabelScheme, LabelSet};
use super::link_state::Layer;
use super::lost_replies::{LostReplies, LostReply};
use super::message_rule::{MessageRule, RequestSeen};
use super::message_state::{AwaitedReply, MessageState};
use super::sessions::{SeenSession, Sessions};
use super::tap::{MessageName, Observation, Protocol, TapError, TapParser};
use super::tap_counts::{MessageCounters, Tally, TapCounts};

/// A notification that passed a link towards its client.
#[derive(Debug, Clone)]
pub struct TapNotification {
    pub client: u32,
    /// A reading of `CLOCK_MONOTONIC`.
    pub at: u64,
    pub name: MessageName,
    /// The path, key or channel that it is about.
    pub subject: Box<str>,
}

/// The state that the taps of all links share.
#[derive(Debug)]
pub struct TapHub {
    protocol: Protocol,
    total: MessageCounters,
    pub labels: ClientLabels,
    notices: mpsc::Sender<TapNotification>,
    /// Requests that passed, by name and label of the client.
    passed: Mutex<Tally<(MessageName, Label), RequestTally>>,
    /// Numbers of accepted and of refused requests, by name.
    answered: Mutex<Tally<MessageName, [u64; 2]>>,
    lost_replies: LostReplies,
    sessions: Sessions,
    /// Connections on which a tap lost its place, and the first reason.
    lost: Mutex<(u64, Option<(String, TapError)>)>,
}

/// A request with the label of its client and the labels of the other clients at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestState {
    pub name: MessageName,
    pub label: Label,
    pub others: LabelSet,
}

/// The requests of one name of clients that were doing the same.
#[derive(Debug, Clone, Copy, Default)]
struct RequestTally {
    passed: u64,
    /// A bit for each set of labels that the other clients had, by its number.
    others: u64,
}

impl TapHub {
    /// Makes a hub for `clients` clients. A notification that does not fit into `notices` counts as a lost place.
    pub fn new(
        protocol: Protocol,
        labels: LabelScheme,
        clients: u32,
        notices: mpsc::Sender<TapNotification>,
    ) -> Arc<Self> {
        Arc::new(Self {
            protocol,
            total: MessageCounters::default(),
            labels: ClientLabels::new(labels, clients),
            notices,
            passed: Mutex::default(),
            answered: Mutex::default(),
            lost_replies: LostReplies::default(),
            sessions: Sessions::default(),
            lost: Mutex::default(),
        })
    }

    /// Returns the requests that passed all links so far, with the labels of their clients and how often, without those that keep a
    /// connection alive.
    pub fn requests(&self) -> Vec<(MessageName, Label, u64)> {
        let passed = self.passed.lock().expect("no one panics while holding counts");
        let counts = passed.0.iter();
        let counts = counts.map(|((name, label), request)| (*name, *label, request.passed));
        let mut counts: Vec<(MessageName, Label, u64)> = counts.collect();
        drop(passed);
        counts.sort_unstable();
        counts
    }

    /// Returns the states of all clients in which requests passed so far.
    pub fn states(&self) -> Vec<RequestState> {
        let passed = self.passed.lock().expect("no one panics while holding counts");
        let mut states: Vec<RequestState> = Vec::new();
        for ((name, label), request) in &passed.0 {
            let (name, label) = (*name, *label);
            let seen = (0_u8..64).filter(|number| request.others >> number & 1 == 1);
            let all_others = seen.map(LabelSet::of_number);
            states.extend(all_others.map(|others| RequestState { name, label, others }));
        }
        drop(passed);
        states.sort_unstable();
        states
    }

    /// Counts one request, and what the other clients were doing when it passed.
    pub fn count_request(&self, name: MessageName, label: Label, others: LabelSet) {
        let mut passed = self.passed.lock().expect("no one panics while holding counts");
        if let Some(request) = passed.of((name, label)) {
            request.passed += 1;
            request.others |= 1 << others.number();
        }
    }

    /// Counts one reply.
    pub fn count_reply(&self, name: MessageName, refused: bool) {
        let mut answered = self.answered.lock().expect("no one panics while holding counts");
        if let Some(counts) = answered.of(name) {
            counts[usize::from(refused)] += 1;
        }
    }

    /// Returns the replies that were dropped though their requests were accepted, with the requests that followed.
    pub fn lost_replies(&self) -> Vec<LostReply> {
        self.lost_replies.all()
    }

    /// Returns the sessions and leases that servers gave to clients, in their order.
    pub fn sessions(&self) -> Vec<SeenSession> {
        self.sessions.all()
    }

    /// Whether some requests of this name were accepted and others refused so far.
    pub fn is_sometimes_refused(&self, name: MessageName) -> bool {
        let answered = self.answered.lock().expect("no one panics while holding counts");
        let counts = answered.0.iter().find(|(counted, _)| *counted == name);
        counts.is_some_and(|(_, counts)| !counts.contains(&0))
    }

    /// Returns the counts of all links so far.
    pub fn counts(&self) -> TapCounts {
        self.total.read()
    }

    /// Returns on how many connections a tap lost its place, and the link and reason of the first.
    pub fn lost(&self) -> (u64, Option<String>) {
        let lost = self.lost.lock().expect("no one panics while holding a reason");
        (lost.0, lost.1.as_ref().map(|(link, why)| format!("{link}: {}", why.0)))
    }

    fn lose(&self, link: &str, why: TapError) {
        let mut lost = self.lost.lock().expect("no one panics while holding a reason");
        lost.0 += 1;
        lost.1.get_or_insert_with(|| (link.to_owned(), why));
    }
}

/// The messages of one link.
#[derive(Debug)]
pub struct LinkTap {
    hub: Arc<TapHub>,
    client: u32,
    name: Arc<str>,
    counters: MessageCounters,
    rules: Mutex<Vec<(Layer, Arc<MessageRule>)>>,
    /// Whether the link has rules: read for every message.
    has_rules: AtomicBool,
}

impl LinkTap {
    pub fn new(hub: &Arc<TapHub>, client: u32, name: String) -> Arc<Self> {
        Arc::new(Self {
            hub: Arc::clone(hub),
            client,
            name: name.into(),
            counters: MessageCounters::default(),
            rules: Mutex::default(),
            has_rules: AtomicBool::new(false),
        })
    }

    pub fn counts(&self) -> TapCounts {
        self.counters.read()
    }

    fn rules(&self) -> MutexGuard<'_, Vec<(Layer, Arc<MessageRule>)>> {
        self.rules.lock().expect("no one panics while holding a link's rules")
    }

    pub(super) fn arm(&self, layer: Layer, rule: Arc<MessageRule>) {
        let mut rules = self.rules();
        rules.push((layer, rule));
        self.has_rules.store(true, Relaxed);
    }

    pub(super) fn disarm(&self, layer: Layer) {
        let mut rules = self.rules();
        rules.retain(|(other, _)| *other != layer);
        self.has_rules.store(!rules.is_empty(), Relaxed);
    }

    /// Whether a new connection is refused by a rule at `now`, in nanoseconds by the clock of this link.
    pub fn refuses(&self, now: u64) -> bool {
        self.has_rules.load(Relaxed) && self.rules().iter().any(|(_, rule)| rule.refuses(self.client, now))
    }

    fn count(&self, counter: fn(&MessageCounters) -> &AtomicU64) {
        counter(&self.counters).fetch_add(1, Relaxed);
        counter(&self.hub.total).fetch_add(1, Relaxed);
    }
}

/// The place in a chunk at which a pump must stop, and the rule that acts on the message there: nothing more passes and the
/// connection ends, or the rest waits for the delay of the rule, or until it is lifted.
#[derive(Debug)]
pub struct TapStop {
    pub at: usize,
    pub rule: Arc<MessageRule>,
}

/// Reads one connection. Times are nanoseconds by the clock of its link.
pub struct ConnectionTap {
    link: Arc<LinkTap>,
    state: Mutex<TapState>,
}

struct TapState {
    tap: TapParser,
    is_reported: bool,
    messages: MessageState,
}

impl ConnectionTap {
    pub fn new(link: &Arc<LinkTap>) -> Self {
        Self {
            link: Arc::clone(link),
            state: Mutex::new(TapState {
                tap: TapParser::new(link.hub.protocol),
                is_reported: false,
                messages: MessageState::default(),
            }),
        }
    }

    /// Reads a chunk before it is passed on. Returns the places at which to stop, in their order: none behind an end. `clock` is that of
    /// the link.
    pub fn observe(&self, direction: Direction, chunk: &[u8], clock: impl Fn() -> u64) -> Vec<TapStop> {
        let mut state = self.state();
        let state = &mut *state;
        state.tap.keep_words(self.link.has_rules.load(Relaxed));
        let mut stops: Vec<TapStop> = Vec::new();
        for heard in state.tap.observe(direction, chunk) {
            let now = clock();
            let acts = match &heard.what {
                Observation::Request { number, name } => self.request_begins(*number, *name, now, &mut state.messages),
                Observation::Asked { number, print, words } => {
                    state.messages.keep_words(*number, words);
                    self.request_ends(*print, &mut state.messages);
                    None
                }
                Observation::Answering { number, refused } => self.answer(*number, *refused, now, &mut state.messages),
                Observation::Reply { number, name, refused } => {
                    self.reply_ends(*number, *name, *refused, now, &mut state.messages)
                }
                Observation::Unanswered { number } => {
                    state.messages.never_answered(*number);
                    None
                }
                Observation::Session { name } => {
                    self.link.hub.sessions.note(self.link.client, name, now);
                    None
                }
                Observation::Notification { name, subject } => {
                    self.notification(*name, subject, now);
                    None
                }
            };
            let is_over = stops.last().is_some_and(|stop| stop.rule.spec.action.ends());
            match acts {
                Some(rule) if is_over => rule.missed(),
                Some(rule) => stops.push(TapStop { at: heard.at, rule }),
                None => {}
            }
        }
        if let Some(why) = state.tap.lost().filter(|_| !state.is_reported) {
            state.is_reported = true;
            self.link.hub.lose(&self.link.name, why);
        }
        stops
    }

    /// Notes a whole request, the `number`th of the connection; equal requests have equal prints. Returns the rule that acts on it, if not
    /// all of it passes.
    pub fn request(&self, number: u64, name: MessageName, print: u64, now: u64) -> Option<Arc<MessageRule>> {
        let mut state = self.state();
        let messages = &mut state.messages;
        let stop = self.request_begins(number, name, now, messages);
        self.request_ends(print, messages);
        stop
    }

    /// Notes the whole reply to the `number`th request; `refused` if it says that nothing was done.
    pub fn reply(&self, number: u64, name: MessageName, refused: bool, now: u64) -> Option<Arc<MessageRule>> {
        self.reply_ends(number, name, refused, now, &mut self.state().messages)
    }

    fn state(&self) -> MutexGuard<'_, TapState> {
        self.state.lock().expect("no one panics while listening")
    }

    fn request_begins(
        &self,
        number: u64,
        name: MessageName,
        now: u64,
        state: &mut MessageState,
    ) -> Option<Arc<MessageRule>> {
        state.name = Some(name);
        let label = self.link.hub.labels.get(self.link.client).0;
        if !name.is_ping() {
            self.link.count(|counters| &counters.requests);
            let others = self.link.hub.labels.others(self.link.client);
            self.link.hub.count_request(name, label, others);
        }
        if !self.link.has_rules.load(Relaxed) {
            return None;
        }
        let asked = RequestSeen {
            name,
            client: self.link.client,
            link: Arc::clone(&self.link.name),
            label,
            at: now,
        };
        let mut of_requests = Vec::new();
        // each rule counts every message, also one that another acts on
        for (_, rule) in self.link.rules().iter().filter(|(_, rule)| rule.may_take(&asked)) {
            if rule.spec.accepted {
                state.awaits(number, Arc::clone(rule), Some(asked.clone()));
            } else if rule.takes(&asked) {
                match rule.spec.action.is_of_reply() {
                    true => state.awaits(number, Arc::clone(rule), None),
                    false => of_requests.push(Arc::clone(rule)),
                }
            }
        }
        Self::stop(of_requests, now)
    }

    /// Joins several rules on one message: it is dropped if one of them drops it, and the others wait for the next; or it comes as late as
    /// the latest.
    fn stop(rules: Vec<Arc<MessageRule>>, now: u64) -> Option<Arc<MessageRule>> {
        if let Some(drops) = rules.iter().find(|rule| rule.spec.action.ends()) {
            let others = rules.iter().filter(|rule| !Arc::ptr_eq(rule, drops));
            others.for_each(|rule| rule.missed());
            return Some(Arc::clone(drops));
        }
        let latest = rules.iter().max_by_key(|rule| rule.spec.action.delay())?;
        let time = latest.spec.action.delay();
        for rule in &rules {
            rule.holds(time, now);
        }
        Some(Arc::clone(latest))
    }

    fn request_ends(&self, print: u64, state: &mut MessageState) {
        let (label, changes) = self.link.hub.labels.get(self.link.client);
        // the prints of one label say nothing of the next
        let again = self.link.hub.labels.is_retrying(label) && state.has_asked(print, changes);
        if again && !state.name.is_some_and(|name| name.is_ping()) {
            self.link.count(|counters| &counters.retries);
        }
    }

    fn reply_ends(
        &self,
        number: u64,
        name: MessageName,
        refused: bool,
        now: u64,
        state: &mut MessageState,
    ) -> Option<Arc<MessageRule>> {
        if !name.is_ping() {
            self.link.count(|counters| &counters.replies);
            self.link.hub.count_reply(name, refused);
            if refused {
                let changes = self.link.hub.labels.get(self.link.client).1;
                let replies = &self.link.hub.lost_replies;
                replies.note_refusal(self.link.client, name, changes, now);
            }
        }
        self.answer(number, refused, now, state)
    }

    fn answer(&self, number: u64, refused: bool, now: u64, state: &mut MessageState) -> Option<Arc<MessageRule>> {
        let mut awaited = state.rules_of_reply(number, refused);
        awaited.retain(|awaited| !awaited.rule.is_lifted());
        let dropped = awaited.iter().find(|awaited| awaited.rule.spec.action.ends());
        if let Some(AwaitedReply { words, .. }) = dropped {
            state.dropped = (!refused).then(|| words.clone());
        }
        Self::stop(awaited.into_iter().map(|awaited| awaited.rule).collect(), now)
    }

    /// Notes a notification of the server.
    pub fn notification(&self, name: MessageName, subject: &str, now: u64) {
        self.link.count(|counters| &counters.notifications);
        let notice = TapNotification {
            client: self.link.client,
            at: now,
            name,
            subject: subject.into(),
        };
        if let Err(mpsc::error::TrySendError::Full(_)) = self.link.hub.notices.try_send(notice) {
            self.link.hub.lose(
                &self.link.name,
                TapError("notifications came faster than they were recorded"),
            );
        }
    }

    /// Notes that the action of a rule came to pass on this connection.
    pub fn done(&self, rule: &MessageRule, now: u64) {
        rule.done(self.link.client, now);
        let dropped = self.state().messages.dropped.take();
        if let (Some(words), Some(matched)) = (dropped, rule.matched()) {
            let name = MessageName::new(matched.message.as_bytes());
            let changes = self.link.hub.labels.get(self.link.client).1;
            let replies = &self.link.hub.lost_replies;
            replies.note_loss(LostReply::new(self.link.client, name, matched.at, changes, words));
        }
    }
}

impl Drop for ConnectionTap {
    fn drop(&mut self) {
        if let Ok(state) = self.state.get_mut() {
            state.messages.end();
        }
    }
}
