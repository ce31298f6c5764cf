//! One member of a cluster ([`Member`]): its data, what it has to do, and who waits for what of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use harness_workloads::within;
use tokio::sync::{oneshot, watch};

use super::calls::MemberConnection;
use super::cluster::{AnswersDue, MemberWork, ProposedChange, SimulatedEtcd};
use super::lessor::{LOOK_NS, LeaseRenewal};
use super::request::{EtcdAnswer, EtcdMessage, EtcdRequest, EtcdStatus, StoreEvent};
use super::store::{EtcdStore, StoreChange};
use super::watchers::{KeyWatcher, SYNC_NS};
use crate::network::Port;
use crate::process::SimulatedProcess;
use crate::work_queue::WorkQueue;
use crate::world::World;

/// A member gives a request up after this: `ReqTimeout`, `etcdserver/config.go:286` of 3.4.23.
const REQUEST_LIMIT: Duration = Duration::from_secs(7);
/// A read asks the leader again after this: `readIndexRetryTime`, `etcdserver/v3_server.go:44`.
const READ_AGAIN: Duration = Duration::from_millis(500);
/// A renewal that the leader did not take is tried again, as a loop of requests over loopback takes (`LeaseRenew`,
/// `etcdserver/v3_server.go:286`, which does not pause).
const RENEW_AGAIN: Duration = Duration::from_millis(1);

/// The number of a request among those to members.
pub(super) type RequestId = u64;

/// What a member believes of the leader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LeaderView {
    pub leader: Option<usize>,
    /// How often it heard of another one.
    pub changes: u64,
    /// Since when it knows none, in nanoseconds.
    pub none_since: u64,
}

pub(super) struct Member {
    pub process: SimulatedProcess,
    pub port: Port<EtcdRequest, EtcdMessage>,
    pub store: RefCell<EtcdStore>,
    /// Entries of the log that it has applied.
    pub applied: Cell<usize>,
    /// What it has to do, by time.
    pub work: RefCell<WorkQueue<MemberWork>>,
    pub alarm: RefCell<Option<Waker>>,
    pub connections: RefCell<BTreeMap<u64, MemberConnection>>,
    pub is_running: Cell<bool>,
    pub last_apply: Cell<u64>,
    /// When the last message of this member is with the one that it was sent to.
    pub last_told: Cell<u64>,
    pub silent_since: Cell<Option<u64>>,
    pub view: watch::Sender<LeaderView>,
    proposals: AnswersDue<EtcdAnswer>,
    reads: AnswersDue<()>,
    /// Reads that wait until so many entries are applied.
    ready_reads: RefCell<BTreeMap<(usize, RequestId), oneshot::Sender<()>>>,
    renewals: AnswersDue<LeaseRenewal>,
    pub watchers: RefCell<BTreeMap<u64, Rc<KeyWatcher>>>,
    /// When watches that asked for the past are brought up to date.
    pub sync_at: Cell<Option<u64>>,
    /// When its loops look, within their periods.
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
            work: RefCell::default(),
            alarm: RefCell::default(),
            connections: RefCell::default(),
            is_running: Cell::new(false),
            last_apply: Cell::new(0),
            last_told: Cell::new(0),
            silent_since: Cell::new(None),
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
        let alarm = self.alarm.borrow_mut().take();
        if let Some(alarm) = alarm {
            alarm.wake();
        }
    }

    pub fn add_work(&self, at: u64, work: MemberWork) {
        self.work.borrow_mut().add(at, work);
        self.wake();
    }

    /// When its loop of this period looks next, from `at` on.
    fn next_look(&self, at: u64, period: u64) -> u64 {
        let phase = self.phase % period;
        let past = (at + period - phase) % period;
        if past == 0 { at } else { at + period - past }
    }

    /// When it looks for leases that have run out by `due`.
    pub fn lease_look(&self, due: u64) -> u64 {
        self.next_look(due, LOOK_NS)
    }

    /// When it brings watches up to date that asked for the past.
    pub fn watch_look(&self, at: u64) -> u64 {
        self.next_look(at, SYNC_NS)
    }

    /// The process is gone, and all that waited in it.
    pub fn forget_requests(&self) {
        self.work.borrow_mut().clear();
        self.proposals.borrow_mut().clear();
        self.reads.borrow_mut().clear();
        self.ready_reads.borrow_mut().clear();
        self.renewals.borrow_mut().clear();
        self.watchers.borrow_mut().clear();
        self.sync_at.set(None);
    }

    /// It hears who leads.
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

    /// Tells its watches of what it has applied.
    pub fn notify(&self, events: &[StoreEvent]) {
        for event in events {
            for watcher in self.watchers.borrow().values() {
                watcher.hear(event);
            }
        }
    }

    pub fn answer(&self, number: RequestId, answer: EtcdAnswer) {
        if let Some(asked) = self.proposals.borrow_mut().remove(&number) {
            // the one who asked may be gone
            let _ = asked.send(answer);
        }
    }

    pub fn answer_renewal(&self, number: RequestId, found: LeaseRenewal) {
        if let Some(asked) = self.renewals.borrow_mut().remove(&number) {
            let _ = asked.send(found);
        }
    }

    /// A read waits until so many entries are applied.
    pub fn read_from(&self, number: RequestId, entries: usize) {
        if let Some(asked) = self.reads.borrow_mut().remove(&number) {
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

/// What members do for the calls that they serve.
impl SimulatedEtcd {
    /// Puts a change into the log, and answers when this member has applied it: `raftRequest`. It may happen although its caller gives up,
    /// but not before there is a leader.
    pub(super) async fn propose(self, member: usize, change: StoreChange) -> Result<EtcdAnswer, EtcdStatus> {
        let etcd = self.0.get();
        let own = &etcd.members[member];
        let proposing = async {
            let mut view = own.view.subscribe();
            let known = view.wait_for(|view| view.leader.is_some()).await;
            let leader = known.ok().and_then(|view| view.leader)?;
            let number = self.new_request();
            let (asked, answer) = oneshot::channel();
            own.proposals.borrow_mut().insert(number, asked);
            let origin = Some((member, number));
            self.tell(member, leader, MemberWork::Propose(ProposedChange { change, origin }));
            answer.await.ok()
        };
        match within(&*own.process.host(), REQUEST_LIMIT, proposing).await.flatten() {
            Some(EtcdAnswer::Failed(status)) => Err(status),
            Some(answer) => Ok(answer),
            None => Err(EtcdStatus::Unavailable("request timed out")),
        }
    }

    /// Waits until this member may answer a linearizable read: `linearizableReadLoop`.
    pub(super) async fn may_read(self, member: usize) -> Result<(), EtcdStatus> {
        let etcd = self.0.get();
        let own = &etcd.members[member];
        let host = own.process.host();
        let mut view = own.view.subscribe();
        let began = view.borrow_and_update().changes;
        let reading = async {
            let number = self.new_request();
            let (asked, mut answer) = oneshot::channel();
            own.reads.borrow_mut().insert(number, asked);
            loop {
                let leader = own.view.borrow().leader;
                if let Some(leader) = leader {
                    self.tell(member, leader, MemberWork::ReadIndex(member, number));
                }
                let answered = async { (&mut answer).await.is_ok() };
                let changed = async { _ = view.wait_for(|view| view.changes != began).await };
                match within(&*host, READ_AGAIN, first_of(answered, changed)).await {
                    Some(Some(true)) => return Ok(()),
                    Some(Some(false)) => return Err(EtcdStatus::Unavailable("the server stopped")),
                    Some(None) => return Err(EtcdStatus::Unavailable("etcdserver: leader changed")),
                    None => {}
                }
            }
        };
        let timed_out = Err(EtcdStatus::Unavailable("etcdserver: request timed out"));
        within(&*host, REQUEST_LIMIT, reading).await.unwrap_or(timed_out)
    }

    /// Renews a lease at the leader, also when another leads by then; in seconds, 0 for a lease that is gone: `LeaseRenew`.
    pub(super) async fn renew(self, member: usize, lease: i64) -> Result<i64, EtcdStatus> {
        let etcd = self.0.get();
        let own = &etcd.members[member];
        let host = own.process.host();
        let renewing = async {
            loop {
                let leader = own.view.borrow().leader;
                if let Some(leader) = leader.filter(|leader| self.is_running(*leader)) {
                    let number = self.new_request();
                    let (asked, answer) = oneshot::channel();
                    own.renewals.borrow_mut().insert(number, asked);
                    self.tell(member, leader, MemberWork::Renew(member, number, lease));
                    // the process of a leader that is killed ends its connections
                    let gone = async {
                        while self.is_running(leader) {
                            host.sleep(RENEW_AGAIN * 10).await;
                        }
                    };
                    match first_of(answer, gone).await {
                        Some(Ok(LeaseRenewal::Renewed(ttl))) => return ttl,
                        Some(Ok(LeaseRenewal::Missing)) => return 0,
                        Some(Ok(LeaseRenewal::RunOut | LeaseRenewal::NotLeader) | Err(_)) | None => {}
                    }
                }
                host.sleep(RENEW_AGAIN).await;
            }
        };
        let renewed = within(&*host, REQUEST_LIMIT, renewing).await;
        renewed.ok_or(EtcdStatus::Unavailable("etcdserver: request timed out"))
    }
}

/// The answer of `work`, or `None` if `other` is done before it.
pub(super) async fn first_of<T>(work: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut other) = (std::pin::pin!(work), std::pin::pin!(other));
    std::future::poll_fn(|task| {
        if let std::task::Poll::Ready(answer) = work.as_mut().poll(task) {
            return std::task::Poll::Ready(Some(answer));
        }
        other.as_mut().poll(task).map(|()| None)
    })
    .await
}
