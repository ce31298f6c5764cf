//! One member of a cluster ([`Member`]): its data, its work, and the requests that wait for its answers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;

use tokio::sync::{oneshot, watch};

use super::key_watcher::KeyWatcher;
use super::lessor::LeaseRenewal;
use super::member_connection::MemberConnection;
use super::request::{EtcdMessage, EtcdOutcome, EtcdRequest, StoreEvent};
use super::store::EtcdStore;
use super::work::{AnswersDue, MemberWork, RequestId};
use crate::network::{Port, wake_kept};
use crate::work_queue::WorkQueue;
use crate::world::{SimulatedProcess, World};

/// The leader, as a member believes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LeaderView {
    pub leader: Option<usize>,
    /// The number of times that the member heard of another leader.
    pub changes: u64,
    /// The time since which it knows none, in nanoseconds.
    pub none_since: u64,
}

pub(super) struct Member {
    pub process: SimulatedProcess,
    pub port: Port<EtcdRequest, EtcdMessage>,
    pub store: RefCell<EtcdStore>,
    /// Entries of the log that it has applied.
    pub applied: Cell<usize>,
    /// Its work, by time.
    pub work: WorkQueue<MemberWork>,
    pub alarm: RefCell<Option<Waker>>,
    pub connections: RefCell<BTreeMap<u64, MemberConnection>>,
    pub is_running: Cell<bool>,
    pub last_apply: Cell<u64>,
    /// The time at which the last message of this member arrives.
    pub last_arrival: Cell<u64>,
    pub view: watch::Sender<LeaderView>,
    pub proposals: AnswersDue<EtcdOutcome>,
    pub reads: AnswersDue<()>,
    /// Reads that wait until so many entries are applied.
    ready_reads: RefCell<BTreeMap<(usize, RequestId), oneshot::Sender<()>>>,
    pub renewals: AnswersDue<LeaseRenewal>,
    pub watchers: RefCell<BTreeMap<u64, Rc<KeyWatcher>>>,
    /// The time at which watches of the past are brought up to date.
    pub sync_at: Cell<Option<u64>>,
    /// The time at which its loops look, within their periods.
    phase: u64,
}

impl Member {
    pub fn new(world: World, number: usize, phase: u64) -> Self {
        let view = LeaderView {
            leader: Some(0),
            ..LeaderView::default()
        };
        Member {
            process: world.process(&format!("n{}", number + 1)),
            port: Port::new(world),
            store: RefCell::default(),
            applied: Cell::new(0),
            work: WorkQueue::default(),
            alarm: RefCell::default(),
            connections: RefCell::default(),
            is_running: Cell::new(false),
            last_apply: Cell::new(0),
            last_arrival: Cell::new(0),
            view: watch::channel(view).0,
            proposals: RefCell::default(),
            reads: RefCell::default(),
            ready_reads: RefCell::default(),
            renewals: RefCell::default(),
            watchers: RefCell::default(),
            sync_at: Cell::new(None),
            phase,
        }
    }

    pub fn responds(&self) -> bool {
        self.is_running.get() && !self.process.is_stopped()
    }

    pub fn wake(&self) {
        wake_kept(&self.alarm);
    }

    pub fn add_work(&self, at: u64, work: MemberWork) {
        self.work.add(at, work);
        self.wake();
    }

    /// Returns the time at which its loop of this period looks next, from `at` on.
    pub fn next_look(&self, at: u64, period: u64) -> u64 {
        let phase = self.phase % period;
        let past = (at + period - phase) % period;
        if past == 0 { at } else { at + period - past }
    }

    /// Drops all requests of the process, which is gone.
    pub fn forget_requests(&self) {
        self.work.clear();
        self.proposals.borrow_mut().clear();
        self.reads.borrow_mut().clear();
        self.ready_reads.borrow_mut().clear();
        self.renewals.borrow_mut().clear();
        self.watchers.borrow_mut().clear();
        self.sync_at.set(None);
    }

    /// Notes who leads.
    pub fn hear(&self, leader: Option<usize>, now: u64) {
        self.view.send_if_modified(|view| {
            let changed = view.leader != leader;
            if changed {
                view.leader = leader;
                view.changes += u64::from(leader.is_some());
                view.none_since = now;
            }
            changed
        });
    }

    /// Gives its watches the events that it has applied.
    pub fn notify(&self, events: &[StoreEvent]) {
        for event in events {
            for watcher in self.watchers.borrow().values() {
                watcher.hear(event);
            }
        }
    }

    /// Keeps a read until so many entries are applied.
    pub fn read_from(&self, number: RequestId, entries: usize) {
        if let Some(asked) = self.reads.borrow_mut().remove(number) {
            self.ready_reads.borrow_mut().insert((entries, number), asked);
        }
        self.release_reads();
    }

    pub fn release_reads(&self) {
        let mut waiting = self.ready_reads.borrow_mut();
        while let Some(first) = waiting.first_entry() {
            if first.key().0 > self.applied.get() {
                return;
            }
            let _ = first.remove().send(());
        }
    }
}
