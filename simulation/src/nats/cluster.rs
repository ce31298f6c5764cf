//! A cluster in a world ([`SimulatedNats`]): servers with a copy of the bucket each, and a leader that decides on changes.
//!
//! A client is connected to one server. A message that it publishes goes to the leader of the bucket, and is answered once a majority has
//! it; without a leader it is refused at once. A request to JetStream comes to all servers: the leader answers, and one that knows no
//! leader says so. A read is answered from the leader's own copy: by one that was stopped and goes on, too, until it hears of its
//! successor.
//!
//! Not modelled: consensus (an election is a duration, and a leader's proposals stay), links between servers that faults could be put on,
//! other buckets, consumers and watches, disks; and the answers of an earlier leader to writes before it hears of its successor.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use harness_workloads::nats::api::JetStreamError;
use harness_workloads::nats::{KeyAnswer, KeyMessage, KeyOutcome, KeyRequest};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::bucket::BucketChange;
use super::request::{NatsCall, NatsMessage};
use super::server::{BUCKET, ElectedGroup, META, NatsServer, ServerWork};
use crate::mutants::is_mutant;
use crate::network::{Port, applied_at, arrives_behind, peer_latency};
use crate::servers::{RequestOrigin, SimulatedServers};
use crate::world::{Kept, World, nanoseconds};

/// A server with a change that no majority has looks again after this, in nanoseconds.
const LOOK_AGAIN: u64 = 2_000_000;
/// A message that is read so long after it was sent came while the server was stopped.
const LATE: u64 = 5_000_000;
/// Until a leader that went on has read that there is another one, and until it knows which: a read was answered 2 ms after it went
/// on, and one some milliseconds later refused, in two of six trials of 2.9.10.
const OVERTAKEN: u64 = 4_000_000;

/// A change of a key, as the leader of the bucket shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsChange {
    pub key: String,
    /// Its last message, if there is one.
    pub message: Option<KeyMessage>,
    /// Whether the message ended by its age, or while no server led.
    pub expired: bool,
}

type NatsChangeHook = Rc<dyn Fn(NatsChange)>;

/// NATS servers. The handle is a number, and `Send`.
#[derive(Clone, Copy)]
pub struct SimulatedNats(pub(super) Kept<NatsCluster>);

pub(super) struct NatsCluster {
    pub servers: Vec<NatsServer>,
    pub groups: [ElectedGroup; 2],
    /// The age of the bucket's messages, in nanoseconds; 0: there is no bucket.
    pub age: Cell<u64>,
    log: RefCell<Vec<Rc<ProposedWrite>>>,
    /// Changes of the log that a majority has.
    pub committed: Cell<usize>,
    /// The revision that was given out last.
    revision: Cell<u64>,
    pub dice: RefCell<ChaCha8Rng>,
    hook: RefCell<Option<NatsChangeHook>>,
    /// The revisions that the hook was last called with, by key.
    shown: RefCell<BTreeMap<String, u64>>,
}

/// A change that a leader proposed, with the origin of the request.
struct ProposedWrite {
    change: BucketChange,
    asker: RequestOrigin,
}

impl SimulatedNats {
    /// Starts a cluster of `count` servers, named `n1`, `n2`, …, without a bucket.
    pub fn start(world: World, count: usize) -> Self {
        let mut dice = world.dice("nats cluster");
        let leader = dice.next_u64() as usize % count;
        let groups = [ElectedGroup::default(), ElectedGroup::default()];
        groups[META].leader.set(Some(leader));
        let nats = SimulatedNats(
            world.keep(NatsCluster {
                servers: (0..count)
                    .map(|number| NatsServer::new(world, number, leader))
                    .collect(),
                groups,
                age: Cell::new(0),
                log: RefCell::default(),
                committed: Cell::new(0),
                revision: Cell::new(0),
                dice: RefCell::new(dice),
                hook: RefCell::default(),
                shown: RefCell::default(),
            }),
        );
        (0..count).for_each(|server| nats.run(server, Duration::ZERO));
        world.spawn(nats.supervise()).detach();
        nats
    }

    /// Whether a client has made the bucket.
    pub fn has_bucket(self) -> bool {
        self.0.get().age.get() > 0
    }

    /// Calls `hook` with every change that the leader of the bucket shows, in place of an earlier hook.
    pub fn on_change(self, hook: impl Fn(NatsChange) + 'static) {
        drop(self.0.get().hook.replace(Some(Rc::new(hook))));
    }

    /// Calls the hook with the differences of the leader's copy from the last calls.
    pub(super) fn show(self, leader: usize, expired: bool) {
        let nats = self.0.get();
        let Some(hook) = nats.hook.borrow().clone() else {
            return;
        };
        let (bucket, mut shown) = (nats.servers[leader].bucket.borrow(), nats.shown.borrow_mut());
        shown.retain(|key, _| {
            let stays = bucket.last(key).is_some();
            if !stays {
                let (key, message) = (key.clone(), None);
                hook(NatsChange { key, message, expired });
            }
            stays
        });
        for (key, message) in bucket.messages() {
            if shown.get(key) != Some(&message.revision) {
                shown.insert(key.to_owned(), message.revision);
                let (key, message) = (key.to_owned(), Some(message.clone()));
                hook(NatsChange { key, message, expired });
            }
        }
    }

    pub(super) fn clock(self) -> u64 {
        self.0.world().clock_ns()
    }

    /// Returns the address of a server for clients.
    pub(super) fn address_of(self, server: usize) -> Port<NatsCall, NatsMessage> {
        self.0.get().servers[server].port
    }

    /// Draws how long a message between two servers takes.
    pub(super) fn latency(self) -> u64 {
        peer_latency(&mut self.0.get().dice.borrow_mut())
    }

    /// Gives a server something to do `after` nanoseconds.
    pub(super) fn give(self, server: usize, after: u64, work: ServerWork) {
        self.0.get().servers[server].add_work(self.clock() + after, work);
    }

    /// Sends a message to another server, behind all that was sent to others before, or to itself at once.
    fn tell(self, from: usize, to: usize, work: ServerWork) {
        let mut after = 0;
        if from != to {
            let last = &self.0.get().servers[from].last_arrival;
            after = arrives_behind(last, self.clock() + self.latency()) - self.clock();
        }
        // messages to a process that is gone are lost
        if self.is_running(to) {
            self.give(to, after, work);
        }
    }

    fn answer(self, server: usize, asker: RequestOrigin, outcome: KeyOutcome) {
        self.tell(server, asker.server, ServerWork::Answer(asker, outcome));
    }

    /// Takes a message of a client.
    pub(super) fn take(self, server: usize, connection: u64, call: NatsCall) {
        let nats = self.0.get();
        let (number, name) = (call.number, call.name());
        let Some(request) = call.asks else {
            return nats.servers[server].send(connection, NatsMessage::Pong { number });
        };
        let asker = RequestOrigin {
            server,
            connection,
            number,
            name,
        };
        let is_published = matches!(request, KeyRequest::Put { .. });
        let unheard = if is_published {
            nats.leading(BUCKET).is_empty().then(no_responders)
        } else {
            nats.refuses_at(self.clock(), server, &request)
        };
        if let Some(error) = unheard {
            return self.answer(server, asker, Err(error));
        }
        for leader in nats.leading(group_of(&request)) {
            self.tell(server, leader, ServerWork::Serve(asker, request.clone()));
        }
    }

    pub(super) fn perform(self, nats: &NatsCluster, server: usize, work: ServerWork) {
        let own = &nats.servers[server];
        match work {
            ServerWork::Serve(asker, request) => {
                if own.leaders[group_of(&request)].get() == Some(server) {
                    self.carry_out(nats, server, asker, request);
                }
            }
            ServerWork::Answer(asker, outcome) => {
                let RequestOrigin { number, name, .. } = asker;
                own.send(asker.connection, NatsMessage::Reply { number, name, outcome });
            }
            ServerWork::Apply(count) => self.apply_up_to(server, count),
            ServerWork::Hear(group, told) => {
                let (now, draw) = (self.clock(), nats.dice.borrow_mut().next_u64());
                let leader = nats.groups[group].leader.get();
                if own.leaders[group].get() == Some(server) && leader != Some(server) {
                    // it was stopped, and requests of clients that came meanwhile may be first; then it knows no leader for a moment
                    let reads_on = now > told + LATE && draw.is_multiple_of(2);
                    own.leaders[group].set(Some(server).filter(|_| reads_on));
                    return self.give(server, draw % OVERTAKEN, ServerWork::Hear(group, now));
                }
                own.leaders[group].set(leader);
            }
        }
    }

    /// Carries a request out, as a leader, or as a server that believes to be it.
    fn carry_out(self, nats: &NatsCluster, leader: usize, asker: RequestOrigin, request: KeyRequest) {
        let own = &nats.servers[leader];
        let change = match request {
            KeyRequest::Make { age, .. } => return self.answer(leader, asker, self.make(nats, nanoseconds(age))),
            KeyRequest::Read { key } => {
                let last = own.bucket.borrow().last(&key).cloned();
                return self.answer(leader, asker, Ok(KeyAnswer::Last(last)));
            }
            // proposals of a server that leads no more are lost
            _ if nats.groups[BUCKET].leader.get() != Some(leader) => return,
            KeyRequest::Put { key, value, last } => {
                if let Some(error) = last.and_then(|last| nats.refuses_write(leader, &key, last)) {
                    return self.answer(leader, asker, Err(error));
                }
                nats.revision.set(nats.revision.get() + 1);
                let message = KeyMessage {
                    revision: nats.revision.get(),
                    deleted: value.is_none(),
                    value: value.unwrap_or_default(),
                };
                let written = own.wall_ns();
                BucketChange::Put { key, message, written }
            }
            KeyRequest::Remove { revision } => BucketChange::Remove { revision },
            KeyRequest::Purge { key } => BucketChange::Purge { key },
        };
        self.propose(nats, leader, ProposedWrite { change, asker });
    }

    fn make(self, nats: &NatsCluster, age: u64) -> KeyOutcome {
        let made = nats.age.get();
        if made > 0 {
            let is_same = made == age || is_mutant("nats: a bucket with another age is the same");
            return is_same.then_some(KeyAnswer::Done).ok_or_else(other_stream);
        }
        nats.age.set(age);
        for server in &nats.servers {
            server.bucket.borrow_mut().make(age);
        }
        self.elect_any(BUCKET);
        Ok(KeyAnswer::Done)
    }

    /// Appends a change to the log, as the leader, and lets every server apply it.
    fn propose(self, nats: &NatsCluster, leader: usize, write: ProposedWrite) {
        let count = {
            let mut log = nats.log.borrow_mut();
            log.push(Rc::new(write));
            log.len()
        };
        let last = nats.servers.iter().map(|server| &server.last_apply);
        let applied = applied_at((self.clock(), leader), last, &nats.dice);
        for (server, at) in nats.servers.iter().zip(applied) {
            server.add_work(at, ServerWork::Apply(count));
        }
    }

    fn apply_up_to(self, server: usize, count: usize) {
        let nats = self.0.get();
        let leads = nats.groups[BUCKET].leader.get() == Some(server);
        if leads && nats.has_majority() {
            nats.committed.set(nats.committed.get().max(count));
        }
        // messages of a successor tell of it, too
        let is_former = !leads && nats.servers[server].leaders[BUCKET].get() == Some(server);
        if is_former || count > nats.committed.get() {
            return self.give(server, LOOK_AGAIN, ServerWork::Apply(count));
        }
        self.catch_up(server, count);
    }

    /// Applies the first `count` changes of the log, as far as they are not applied. The leader answers their clients.
    pub(super) fn catch_up(self, server: usize, count: usize) {
        let nats = self.0.get();
        let own = &nats.servers[server];
        while own.applied.get() < count {
            let place = own.applied.get();
            let write = nats.log.borrow()[place].clone();
            let outcome = own.bucket.borrow_mut().apply(own.wall_ns(), &write.change);
            own.applied.set(place + 1);
            if nats.groups[BUCKET].leader.get() == Some(server) {
                self.show(server, false);
                self.answer(server, write.asker, outcome);
            }
        }
    }
}

impl NatsCluster {
    /// Whether a majority of the servers runs and is not stopped.
    pub fn has_majority(&self) -> bool {
        self.servers.iter().filter(|server| server.responds()).count() > self.servers.len() / 2
    }

    /// Returns how many changes were proposed.
    pub fn proposed(&self) -> usize {
        self.log.borrow().len()
    }

    /// Returns the servers that believe to lead a group: one, and for a moment two.
    fn leading(&self, group: usize) -> Vec<usize> {
        let believes = |server: &usize| self.servers[*server].leaders[group].get() == Some(*server);
        (0..self.servers.len()).filter(believes).collect()
    }

    /// Returns the error with which a server refuses a request to JetStream, if it does not leave that to the leader.
    fn refuses_at(&self, now: u64, server: usize, request: &KeyRequest) -> Option<JetStreamError> {
        let own = &self.servers[server];
        let knows_leader = |group: usize| own.leaders[group].get().is_some() || now < own.reticent_until.get();
        let makes = matches!(request, KeyRequest::Make { .. });
        if !knows_leader(META) || (!makes && self.age.get() > 0 && !knows_leader(BUCKET)) {
            return Some(JetStreamError::new(
                503,
                10008,
                "JetStream system temporarily unavailable",
            ));
        }
        (!makes && self.age.get() == 0).then(|| JetStreamError::new(404, 10059, "stream not found"))
    }

    /// Returns the error with which the leader refuses a write that expects this revision, if it does.
    fn refuses_write(&self, leader: usize, key: &str, expected: u64) -> Option<JetStreamError> {
        let own = &self.servers[leader];
        let there = own.bucket.borrow().last(key).map_or(0, |message| message.revision);
        let is_of_key = |write: &Rc<ProposedWrite>| match &write.change {
            BucketChange::Put { key: other, .. } => other == key,
            BucketChange::Remove { .. } | BucketChange::Purge { .. } => false,
        };
        // `checkMsgHeadersPreClusteredProposal`, `server/jetstream_batching.go`; 2.9 does not look for those of other revisions than 0
        let is_in_process = self.log.borrow()[own.applied.get()..].iter().any(is_of_key);
        let is_taken = there == expected && !is_in_process;
        let refuses = !is_taken && !is_mutant("nats: a write is not compared");
        refuses.then(|| JetStreamError::new(400, 10071, format!("wrong last sequence: {there}")))
    }
}

/// Returns the group whose leader a request is for.
fn group_of(request: &KeyRequest) -> usize {
    match request {
        KeyRequest::Make { .. } => META,
        KeyRequest::Read { .. } | KeyRequest::Put { .. } | KeyRequest::Remove { .. } | KeyRequest::Purge { .. } => {
            BUCKET
        }
    }
}

/// Returns the error of a message to which nobody has subscribed: a status, and no answer of JetStream.
fn no_responders() -> JetStreamError {
    JetStreamError::new(503, 0, "no server leads it")
}

fn other_stream() -> JetStreamError {
    JetStreamError::new(400, 10058, "stream name already in use with a different configuration")
}
