//! One server of a cluster ([`NatsServer`]): its copy of the bucket, its work, and the leaders, as it believes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;

use harness_workloads::nats::{KeyOutcome, KeyRequest};

use super::bucket::NatsBucket;
use super::request::{NatsCall, NatsMessage};
use crate::network::{Port, ServerSide, wake_kept};
use crate::servers::RequestOrigin;
use crate::work_queue::WorkQueue;
use crate::world::{SimulatedProcess, World, nanoseconds};

/// The servers that have the bucket, and those that decide which buckets there are: the same ones, and each group has a leader.
pub(super) const BUCKET: usize = 0;
pub(super) const META: usize = 1;

/// A group of servers that elects its leader.
#[derive(Default)]
pub(super) struct ElectedGroup {
    pub leader: Cell<Option<usize>>,
    /// The lack of the group, and the time at which something follows from it.
    pub lacks: Cell<Option<(GroupLack, u64)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupLack {
    /// A leader that answers.
    Leader,
    /// Servers that answer its leader.
    Majority,
}

/// The work of a server at its time.
pub(super) enum ServerWork {
    /// Carries a request out, as the leader that it is for.
    Serve(RequestOrigin, KeyRequest),
    /// Answers a client of its own.
    Answer(RequestOrigin, KeyOutcome),
    /// Applies so many changes, if a majority has them.
    Apply(usize),
    /// Hears who leads a group; the message was sent at this time.
    Hear(usize, u64),
}

pub(super) struct NatsServer {
    pub process: SimulatedProcess,
    pub port: Port<NatsCall, NatsMessage>,
    pub bucket: RefCell<NatsBucket>,
    /// Changes that it has applied.
    pub applied: Cell<usize>,
    pub work: WorkQueue<ServerWork>,
    pub alarm: RefCell<Option<Waker>>,
    pub connections: RefCell<BTreeMap<u64, ServerSide<NatsCall, NatsMessage>>>,
    pub is_running: Cell<bool>,
    /// The time before which it does not report that it knows no leader, in nanoseconds.
    pub reticent_until: Cell<u64>,
    /// The leader of each group, as it believes.
    pub leaders: [Cell<Option<usize>>; 2],
    pub last_apply: Cell<u64>,
    /// The time at which the last message of this server arrives.
    pub last_arrival: Cell<u64>,
}

impl NatsServer {
    /// Makes a server that believes this server to lead all servers.
    pub fn new(world: World, number: usize, leader: usize) -> Self {
        NatsServer {
            process: world.process(&format!("n{}", number + 1)),
            port: Port::new(world),
            bucket: RefCell::default(),
            applied: Cell::new(0),
            work: WorkQueue::default(),
            alarm: RefCell::default(),
            connections: RefCell::default(),
            is_running: Cell::new(false),
            reticent_until: Cell::new(0),
            leaders: [Cell::new(None), Cell::new(Some(leader))],
            last_apply: Cell::new(0),
            last_arrival: Cell::new(0),
        }
    }

    pub fn responds(&self) -> bool {
        self.is_running.get() && !self.process.is_stopped()
    }

    pub fn add_work(&self, at: u64, work: ServerWork) {
        self.work.add(at, work);
        wake_kept(&self.alarm);
    }

    /// Returns its wall clock, in nanoseconds since 1970.
    pub fn wall_ns(&self) -> u64 {
        nanoseconds(self.process.wall_clock())
    }

    /// Sends to a client that may be gone.
    pub fn send(&self, connection: u64, message: NatsMessage) {
        if let Some(side) = self.connections.borrow().get(&connection) {
            side.send(message);
        }
    }
}
