//! An ensemble in a world ([`SimulatedZk`]): servers that apply one log, each with a lag of its own, and a leader that appends to it.
//!
//! Reads are answered by the server that was asked, writes go through the leader. Sessions are ended by the leader, which hears of
//! sessions on other servers every half tick. A leader that is killed, or silent for too long, is followed by another after an
//! election; until then no server serves, and every session has all of its time again afterwards.
//!
//! Not modelled: consensus (an election is a duration, and the old leader's decisions stay), links between servers that faults could be put
//! on, local sessions, observers, disks.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use super::expiry::SessionExpiry;
use super::request::{ZkAnswer, ZkCode, ZkMessage, ZkRequest};
use super::tree::{ZkTransaction, ZkTree};
use super::work::{Proposal, Work};
use crate::network::{Port, ServerSide, applied_at, arrives_behind, peer_latency};
use crate::servers::RequestOrigin;
use crate::work_queue::WorkQueue;
use crate::world::events::Event;
use crate::world::task::TaskId;
use crate::world::{Kept, SimulatedProcess, World, nanoseconds};

/// A server grants no session longer than this many ticks; see `maxSessionTimeout`.
pub(super) const LONGEST_SESSION: u64 = 20;
/// A session is at least this many ticks; see `minSessionTimeout`.
pub(super) const SHORTEST_SESSION: u64 = 2;
/// A server that has not got a majority, or not all entries, looks again after this, in nanoseconds.
pub(super) const LOOK_AGAIN: u64 = 1_000_000;

/// A change of a node or a session, as the leader applied it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZkChange<'a> {
    Created {
        path: &'a str,
        owner: i64,
        czxid: i64,
    },
    Deleted {
        path: &'a str,
    },
    /// A session is over, and its nodes are deleted.
    SessionOver {
        session: i64,
        expired: bool,
    },
}

type ZkChangeHook = Rc<dyn Fn(&ZkChange<'_>)>;

/// ZooKeeper servers. The handle is a number, and `Send`.
#[derive(Clone, Copy)]
pub struct SimulatedZk(pub(super) Kept<EnsembleState>);

pub(super) struct EnsembleState {
    pub servers: Vec<ZkServer>,
    /// In nanoseconds.
    pub tick: u64,
    pub log: RefCell<Vec<Rc<LogEntry>>>,
    /// Entries of the log that a majority has.
    committed: Cell<usize>,
    /// The data with every entry of the log applied.
    head: RefCell<ZkTree>,
    zxid: Cell<i64>,
    pub leader: Cell<Option<usize>>,
    pub expiry: RefCell<SessionExpiry>,
    /// The timeout of every session, in nanoseconds.
    pub timeouts: RefCell<BTreeMap<i64, u64>>,
    opened: Cell<i64>,
    pub dice: RefCell<ChaCha8Rng>,
    hook: RefCell<Option<ZkChangeHook>>,
}

pub(super) struct LogEntry {
    zxid: i64,
    transaction: ZkTransaction,
    origin: Option<RequestOrigin>,
    /// Whether the session expired, and was not closed.
    expired: bool,
}

/// The server's end of a client's connection.
pub(super) struct ServedConnection {
    pub side: ServerSide<ZkRequest, ZkMessage>,
    pub session: i64,
    pub queue: VecDeque<ZkRequest>,
    /// Whether a write of it is not applied yet, so that its later requests wait.
    pub waits: bool,
}

pub(super) struct ZkServer {
    pub process: SimulatedProcess,
    pub port: Port<ZkRequest, ZkMessage>,
    pub tree: RefCell<ZkTree>,
    /// Entries of the log that it has applied.
    pub applied: Cell<usize>,
    /// Its work, by time.
    pub work: WorkQueue<Work>,
    /// Its task, once it serves.
    pub task: Cell<Option<TaskId>>,
    /// Whether its task does the due work before it waits again.
    pub is_awake: Cell<bool>,
    pub connections: RefCell<BTreeMap<u64, ServedConnection>>,
    pub touched: RefCell<BTreeSet<i64>>,
    pub is_running: Cell<bool>,
    /// Whether it takes sessions: there is a leader, and it is in step with it.
    pub serves: Cell<bool>,
    pub last_apply: Cell<u64>,
    /// The time at which the last message of this server is with the leader, to which it has one connection.
    last_arrival: Cell<u64>,
    pub silent_since: Cell<Option<u64>>,
}

impl SimulatedZk {
    /// Starts an ensemble of `count` servers, named `n1`, `n2`, …, whose first leader is `n1`.
    pub fn start(world: World, count: usize, tick: Duration) -> Self {
        let server = |number: usize| ZkServer {
            process: world.process(&format!("n{}", number + 1)),
            port: Port::new(world),
            tree: RefCell::default(),
            applied: Cell::new(0),
            work: WorkQueue::default(),
            task: Cell::new(None),
            is_awake: Cell::new(false),
            connections: RefCell::default(),
            touched: RefCell::default(),
            is_running: Cell::new(false),
            serves: Cell::new(true),
            last_apply: Cell::new(0),
            last_arrival: Cell::new(0),
            silent_since: Cell::new(None),
        };
        let tick = nanoseconds(tick);
        let zk = SimulatedZk(world.keep(EnsembleState {
            servers: (0..count).map(server).collect(),
            tick,
            log: RefCell::default(),
            committed: Cell::new(0),
            head: RefCell::default(),
            zxid: Cell::new(1 << 32),
            leader: Cell::new(Some(0)),
            expiry: RefCell::new(SessionExpiry::new(tick)),
            timeouts: RefCell::default(),
            opened: Cell::new(0),
            dice: RefCell::new(world.dice("zk ensemble")),
            hook: RefCell::default(),
        }));
        (0..count).for_each(|server| zk.run(server, Duration::ZERO));
        world.spawn(zk.supervise()).detach();
        zk
    }

    /// Calls `hook` with every change that the leader applies, in place of an earlier hook.
    pub fn on_change(self, hook: impl Fn(&ZkChange<'_>) + 'static) {
        drop(self.0.get().hook.replace(Some(Rc::new(hook))));
    }

    /// Returns the nodes below `path`, as the leader has decided them.
    pub fn children(self, path: &str) -> Vec<String> {
        self.0.get().head.borrow().children(path).unwrap_or_default()
    }

    pub(super) fn clock(self) -> u64 {
        self.0.world().clock_ns()
    }

    /// Gives a server something to do `after` nanoseconds.
    pub(super) fn give(self, server: &ZkServer, after: u64, work: Work) {
        let at = self.clock() + after;
        server.work.add(at, work);
        if after > 0 || !server.is_awake.get() {
            self.wake_at(server, at);
        }
    }

    /// Wakes a server's task then, if it serves.
    pub(super) fn wake_at(self, server: &ZkServer, at: u64) {
        match server.task.get() {
            Some(task) if at > self.clock() => {
                self.0.world().add_event(at, Event::Task(task));
            }
            Some(task) => self.0.world().wake(task),
            None => {}
        }
    }

    /// Sends a message to another server, behind all that was sent to it before, or to itself at once. Followers speak with the leader.
    pub(super) fn tell(self, zk: &EnsembleState, from: usize, to: usize, work: Work) {
        if from == to {
            return self.give(&zk.servers[to], 0, work);
        }
        let last = match zk.leader.get() {
            Some(leader) if leader == from => &zk.servers[to].last_apply,
            _ => &zk.servers[from].last_arrival,
        };
        let now = self.clock();
        let at = arrives_behind(last, now + peer_latency(&mut zk.dice.borrow_mut()));
        self.give(&zk.servers[to], at - now, work);
    }

    pub(super) fn perform(self, zk: &EnsembleState, server: usize, work: Work) {
        match work {
            Work::Apply(entry) => self.apply_up_to(zk, server, entry),
            Work::Propose(origin, proposal) => self.propose(zk, server, origin, proposal),
            Work::Touch(sessions) => {
                let mut expiry = zk.expiry.borrow_mut();
                let now = self.clock();
                sessions.into_iter().for_each(|session| expiry.touch(now, session));
            }
            Work::Validate(origin, session) => {
                let alive = zk.head.borrow().has_session(session);
                zk.expiry.borrow_mut().touch(self.clock(), session);
                zk.expiry.borrow_mut().moves(session, origin.server);
                self.tell(zk, server, origin.server, Work::Validated(origin, session, alive));
            }
            Work::Validated(origin, session, alive) => self.reopen(zk, origin, session, alive),
            Work::Sync(origin) => self.sync(zk, server, origin),
            Work::Synced(origin, entries) => self.synced(zk, origin, entries),
            Work::StepDown => zk.servers[server].close_all(),
        }
    }

    /// Ends the sessions that were not heard of; the leader's task. Returns whether there were any.
    pub(super) fn expire(self, zk: &EnsembleState, server: usize) -> bool {
        if zk.leader.get() != Some(server) {
            return false;
        }
        let ended = zk.expiry.borrow_mut().take_ended(self.clock());
        let any = !ended.is_empty();
        for session in ended {
            let expired = true;
            self.propose(zk, server, None, Proposal::Close { session, expired });
        }
        any
    }

    /// Appends a decision to the log, as the leader, and lets every server apply it.
    fn propose(self, zk: &EnsembleState, server: usize, origin: Option<RequestOrigin>, proposal: Proposal) {
        if zk.leader.get() != Some(server) {
            return;
        }
        let (transaction, expired) = zk.decide(origin.map(|origin| origin.server), proposal);
        let zxid = zk.zxid.get() + 1;
        zk.zxid.set(zxid);
        zk.head.borrow_mut().apply(zxid, &transaction);
        let entry = {
            let mut log = zk.log.borrow_mut();
            log.push(Rc::new(LogEntry {
                zxid,
                transaction,
                origin,
                expired,
            }));
            log.len() - 1
        };
        let now = self.clock();
        let last = zk.servers.iter().map(|own| &own.last_apply);
        for (own, at) in zk.servers.iter().zip(applied_at((now, server), last, &zk.dice)) {
            self.give(own, at - now, Work::Apply(entry));
        }
    }

    /// Applies the log, if a majority has it.
    fn apply_up_to(self, zk: &EnsembleState, server: usize, entry: usize) {
        if zk.leader.get() == Some(server) && zk.has_majority() {
            zk.committed.set(zk.committed.get().max(entry + 1));
        }
        if entry >= zk.committed.get() {
            return self.give(&zk.servers[server], LOOK_AGAIN, Work::Apply(entry));
        }
        self.catch_up(zk, server, entry + 1);
    }

    /// Applies the first `count` entries of the log, as far as they are not applied.
    pub(super) fn catch_up(self, zk: &EnsembleState, server: usize, count: usize) {
        let own = &zk.servers[server];
        while own.applied.get() < count {
            let entry = zk.log.borrow()[own.applied.get()].clone();
            let (zxid, transaction) = (entry.zxid, &entry.transaction);
            own.applied.set(own.applied.get() + 1);
            let events = own.tree.borrow_mut().apply(zxid, transaction);
            for (connection, kind, path) in events {
                own.send(connection, ZkMessage::Event { kind, path });
            }
            if zk.leader.get() == Some(server) {
                self.lead(zk, &entry);
            }
            if let Some(origin) = entry.origin.filter(|origin| origin.server == server) {
                self.finish(zk, origin, zxid, transaction);
            }
            if let ZkTransaction::CloseSession { session } = transaction {
                own.close_session(*session);
            }
        }
    }

    /// Does the leader's part when a transaction is applied: sessions and the hook.
    fn lead(self, zk: &EnsembleState, entry: &LogEntry) {
        let change = match &entry.transaction {
            ZkTransaction::OpenSession { session } => {
                let timeout = zk.timeouts.borrow().get(session).copied().unwrap_or(0);
                zk.expiry.borrow_mut().track(self.clock(), *session, timeout);
                return;
            }
            ZkTransaction::Create { path, owner } => ZkChange::Created {
                path: path.as_str(),
                owner: *owner,
                czxid: entry.zxid,
            },
            ZkTransaction::Delete { path } => ZkChange::Deleted { path: path.as_str() },
            ZkTransaction::CloseSession { session } => ZkChange::SessionOver {
                session: *session,
                expired: entry.expired,
            },
            ZkTransaction::Refused(_) => return,
        };
        let hook = zk.hook.borrow().clone();
        if let Some(hook) = hook {
            hook(&change);
        }
    }

    /// Answers the request that a transaction came from.
    fn finish(self, zk: &EnsembleState, origin: RequestOrigin, zxid: i64, transaction: &ZkTransaction) {
        let own = &zk.servers[origin.server];
        let answer = match transaction {
            ZkTransaction::OpenSession { session } => {
                own.with_connection(origin.connection, |served| served.session = *session);
                let timeout = zk.timeouts.borrow().get(session).copied().unwrap_or(0) / 1_000_000;
                ZkAnswer::Connected {
                    session: *session,
                    timeout,
                }
            }
            ZkTransaction::Create { path, .. } => match own.tree.borrow().stat(path.as_str()) {
                Some(stat) => ZkAnswer::Created {
                    path: path.as_str().to_owned(),
                    stat,
                },
                None => ZkAnswer::Done,
            },
            ZkTransaction::Refused(ZkCode::SessionMoved) => return own.close(origin.connection),
            ZkTransaction::Refused(code) => ZkAnswer::Failed(*code),
            ZkTransaction::Delete { .. } | ZkTransaction::CloseSession { .. } => ZkAnswer::Done,
        };
        own.answer(origin, zxid, answer);
        self.written(zk, origin);
    }

    /// Drops the decisions that the servers waited for, and closes their clients' connections: there is no leader any more.
    pub(super) fn lose_leader(self) {
        let zk = self.0.get();
        zk.leader.set(None);
        for server in &zk.servers {
            server.serves.set(false);
            server.work.retain(|work| matches!(work, Work::Apply(_)));
            self.give(server, 0, Work::StepDown);
        }
    }

    /// Makes a server the leader: all sessions have all of their time again.
    pub(super) fn elect(self, leader: usize) {
        let zk = self.0.get();
        zk.leader.set(Some(leader));
        zk.zxid.set(((zk.zxid.get() >> 32) + 1) << 32);
        let mut expiry = SessionExpiry::new(zk.tick);
        for session in zk.head.borrow().sessions() {
            let timeout = zk.timeouts.borrow().get(&session).copied().unwrap_or(0);
            expiry.track(self.clock(), session, timeout);
        }
        zk.expiry.replace(expiry);
        zk.committed.set(zk.log.borrow().len());
        // it looks when the first of them ends
        self.wake_at(&zk.servers[leader], self.clock());
    }

    /// Brings a server in step with the leader, so that it serves.
    pub(super) fn join(self, server: usize) {
        let zk = self.0.get();
        self.catch_up(&zk, server, zk.committed.get());
        zk.servers[server].serves.set(true);
    }
}

impl EnsembleState {
    fn decide(&self, from: Option<usize>, proposal: Proposal) -> (ZkTransaction, bool) {
        let head = self.head.borrow();
        let over = |session| !head.has_session(session);
        let elsewhere = |session| from.is_some_and(|server| self.expiry.borrow_mut().is_elsewhere(session, server));
        match proposal {
            Proposal::Open { timeout } => {
                self.opened.set(self.opened.get() + 1);
                let session = (1 << 56) + self.opened.get();
                self.timeouts.borrow_mut().insert(session, timeout);
                (ZkTransaction::OpenSession { session }, false)
            }
            Proposal::Create { session, .. } | Proposal::Delete { session, .. } if over(session) => {
                (ZkTransaction::Refused(ZkCode::SessionExpired), false)
            }
            Proposal::Create { session, .. } | Proposal::Delete { session, .. } if elsewhere(session) => {
                (ZkTransaction::Refused(ZkCode::SessionMoved), false)
            }
            Proposal::Create {
                path,
                owner,
                sequential,
                ..
            } => (head.plan_create(&path, sequential, owner), false),
            Proposal::Delete { path, .. } => (head.plan_delete(&path), false),
            Proposal::Close { session, expired } => {
                self.expiry.borrow_mut().forget(session);
                (ZkTransaction::CloseSession { session }, expired)
            }
        }
    }

    /// Whether a majority of the servers runs and is not stopped.
    pub fn has_majority(&self) -> bool {
        self.servers.iter().filter(|server| server.responds()).count() > self.servers.len() / 2
    }
}
