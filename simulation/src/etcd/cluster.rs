//! A cluster in a world ([`SimulatedEtcd`]): members that apply one log, each with a lag of its own, and a leader that appends to it.
//!
//! Writes and linearizable reads go through the leader, and are answered by the member that was asked once it has applied the entries that
//! they depend on. Leases are ended by the leader. A leader that is killed, or silent for an election timeout, is followed by another,
//! which gives every lease all of its time again.
//!
//! Not modelled: consensus (an election is a duration, and entries of a leader stay in the log), links between members that faults could be
//! put on, disks, learners, the throttle of revocations; and a leader that was stopped and goes on before it hears of its successor: it
//! hears first (etcd before 3.4.31 and 3.5.13 could revoke leases there: <https://github.com/etcd-io/etcd/issues/15247>).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::lessor::{LeaseRenewal, LessorClock};
use super::member::Member;
use super::request::{EtcdMessage, EtcdRequest, StoreEvent};
use super::store::{EtcdStore, StoreChange};
use super::work::{MemberWork, ProposedChange, RequestId};
use crate::mutants::is_mutant;
use crate::network::{Port, agreement, applied_at, arrives_behind, peer_latency};
use crate::world::{Kept, World};

/// A new leader extends leases by this: `electionTimeout`, `etcdserver/server.go:2219` of 3.4.23.
const EXTENSION_NS: u64 = 1_000_000_000;
/// A leader that has no majority looks again after this, in nanoseconds.
const LOOK_AGAIN: u64 = 1_000_000;

type EtcdChangeHook = Rc<dyn Fn(&StoreEvent)>;

/// etcd members. The handle is a number, and `Send`.
#[derive(Clone, Copy)]
pub struct SimulatedEtcd(pub(super) Kept<ClusterState>);

pub(super) struct ClusterState {
    pub members: Vec<Member>,
    log: RefCell<Vec<Rc<ProposedChange>>>,
    /// Entries of the log that a majority has.
    pub committed: Cell<usize>,
    pub leader: Cell<Option<usize>>,
    /// Whether the leader has applied its first entry: it answers reads, and counts leases.
    pub leads: Cell<bool>,
    pub lessor: RefCell<LessorClock>,
    /// Entries that the hook was called with.
    announced: Cell<usize>,
    requests: Cell<u64>,
    /// The first bits of the ids of leases, by member, and the number of leases so far.
    lease_heads: Vec<i64>,
    leases: Cell<i64>,
    pub dice: RefCell<ChaCha8Rng>,
    hook: RefCell<Option<EtcdChangeHook>>,
}

impl SimulatedEtcd {
    /// Starts a cluster of `count` members, named `n1`, `n2`, …, of which `n1` leads.
    pub fn start(world: World, count: usize) -> Self {
        let mut dice = world.dice("etcd cluster");
        let member = |number: usize| Member::new(world, number, dice.next_u64());
        let members: Vec<Member> = (0..count).map(member).collect();
        let head = |_| i64::try_from(dice.next_u64() >> 49).unwrap_or(0) << 48;
        let mut lessor = LessorClock::default();
        lessor.promote(0, 0, std::iter::empty());
        let etcd = SimulatedEtcd(world.keep(ClusterState {
            lease_heads: (0..count).map(head).collect(),
            members,
            log: RefCell::default(),
            committed: Cell::new(0),
            leader: Cell::new(Some(0)),
            leads: Cell::new(true),
            lessor: RefCell::new(lessor),
            announced: Cell::new(0),
            requests: Cell::new(0),
            leases: Cell::new(0),
            dice: RefCell::new(dice),
            hook: RefCell::default(),
        }));
        (0..count).for_each(|member| etcd.run(member, Duration::ZERO));
        world.spawn(etcd.supervise()).detach();
        etcd
    }

    /// Returns the leader, as this member believes.
    pub fn believed_leader(self, member: usize) -> Option<usize> {
        self.0.get().members[member].view.borrow().leader
    }

    /// Calls `hook` with every change when the first member applies it, in place of an earlier hook.
    pub fn on_change(self, hook: impl Fn(&StoreEvent) + 'static) {
        drop(self.0.get().hook.replace(Some(Rc::new(hook))));
    }

    /// Whether a member that has applied all that was decided knows this lease.
    pub fn has_lease(self, lease: i64) -> bool {
        let etcd = self.0.get();
        let foremost = etcd.members.iter().max_by_key(|member| member.applied.get());
        foremost.is_some_and(|member| member.store.borrow().has_lease(lease))
    }

    /// Returns the revision of the last change that any member has applied.
    pub fn revision(self) -> i64 {
        let etcd = self.0.get();
        let revisions = etcd.members.iter().map(|member| member.store.borrow().revision());
        revisions.max().unwrap_or(0)
    }

    pub(super) fn clock(self) -> u64 {
        self.0.world().clock_ns()
    }

    /// Returns the address of a member for clients.
    pub(super) fn address_of(self, member: usize) -> Port<EtcdRequest, EtcdMessage> {
        self.0.get().members[member].port
    }

    pub(super) fn new_request(self) -> RequestId {
        let etcd = self.0.get();
        etcd.requests.set(etcd.requests.get() + 1);
        etcd.requests.get()
    }

    /// Returns an id that no other lease has; members have ranges of their own (`idutil.NewGenerator`).
    pub(super) fn new_lease(self, member: usize) -> i64 {
        let etcd = self.0.get();
        etcd.leases.set(etcd.leases.get() + 1);
        etcd.lease_heads[member] | etcd.leases.get()
    }

    /// Gives a member something to do `after` nanoseconds.
    pub(super) fn give(self, etcd: &ClusterState, member: usize, after: u64, work: MemberWork) {
        etcd.members[member].add_work(self.clock() + after, work);
    }

    /// Sends a message to another member, behind all that was sent to others before, or to itself at once.
    pub(super) fn tell(self, etcd: &ClusterState, from: usize, to: usize, work: MemberWork) {
        let mut after = 0;
        if from != to {
            let last = &etcd.members[from].last_arrival;
            after = arrives_behind(last, self.clock() + etcd.latency()) - self.clock();
        }
        // messages to a process that is gone are lost
        if etcd.members[to].is_running.get() {
            self.give(etcd, to, after, work);
        }
    }

    pub(super) fn perform(self, etcd: &ClusterState, member: usize, work: MemberWork) {
        let own = &etcd.members[member];
        let leads = etcd.leader.get() == Some(member);
        match work {
            MemberWork::Apply(entry) => self.apply_up_to(etcd, member, entry),
            MemberWork::Propose(entry) if leads => self.append(etcd, member, entry),
            MemberWork::Propose(entry) => {
                // raft forwards a proposal to the leader that it knows (`stepFollower`)
                let leader = own.view.borrow().leader.filter(|leader| *leader != member);
                if let Some(leader) = leader {
                    self.tell(etcd, member, leader, MemberWork::Propose(entry));
                }
            }
            MemberWork::ReadIndex(from, number) if leads => {
                if etcd.leads.get() && etcd.has_majority() {
                    // a majority confirms first that it leads
                    let confirmed = agreement(etcd.members.len(), &etcd.dice);
                    let way = if from == member { 0 } else { etcd.latency() };
                    let read = MemberWork::ReadFrom(number, etcd.committed.get());
                    self.give(etcd, from, confirmed + way, read);
                } else {
                    self.give(etcd, member, LOOK_AGAIN, MemberWork::ReadIndex(from, number));
                }
            }
            // it is asked again
            MemberWork::ReadIndex(..) => {}
            MemberWork::ReadFrom(number, entries) => own.read_from(number, entries),
            MemberWork::Renew(from, number, lease) => {
                let found = if leads {
                    etcd.lessor.borrow_mut().renew(self.clock(), lease)
                } else {
                    LeaseRenewal::NotLeader
                };
                self.tell(etcd, member, from, MemberWork::Renewed(number, found));
            }
            MemberWork::Renewed(number, found) => own.renewals.borrow_mut().answer(number, found),
            MemberWork::Hear(leader) => own.hear(leader, self.clock()),
            MemberWork::Close(connection) => own.close(connection),
        }
    }

    /// Revokes the leases that have run out; the leader's task.
    pub(super) fn end_leases(self, etcd: &ClusterState, member: usize) {
        if etcd.leader.get() != Some(member) {
            return;
        }
        let due = etcd.lessor.borrow_mut().take_due(self.clock());
        for lease in due {
            let change = StoreChange::Revoke { lease };
            self.append(etcd, member, ProposedChange { change, origin: None });
        }
    }

    /// Appends an entry to the log, as the leader, and lets every member apply it.
    pub(super) fn append(self, etcd: &ClusterState, leader: usize, entry: ProposedChange) {
        let number = {
            let mut log = etcd.log.borrow_mut();
            log.push(Rc::new(entry));
            log.len() - 1
        };
        let last = etcd.members.iter().map(|member| &member.last_apply);
        let applied = applied_at((self.clock(), leader), last, &etcd.dice);
        for (member, at) in etcd.members.iter().zip(applied) {
            member.add_work(at, MemberWork::Apply(number));
        }
    }

    /// Applies the log, if a majority has it.
    fn apply_up_to(self, etcd: &ClusterState, member: usize, entry: usize) {
        if etcd.leader.get() == Some(member) && etcd.has_majority() {
            etcd.committed.set(etcd.committed.get().max(entry + 1));
        }
        if entry >= etcd.committed.get() {
            return self.give(etcd, member, LOOK_AGAIN, MemberWork::Apply(entry));
        }
        self.catch_up(etcd, member, entry + 1);
    }

    /// Applies the first `count` entries of the log, as far as they are not applied.
    pub(super) fn catch_up(self, etcd: &ClusterState, member: usize, count: usize) {
        let own = &etcd.members[member];
        while own.applied.get() < count {
            let place = own.applied.get();
            let entry = etcd.log.borrow()[place].clone();
            let ProposedChange { change, origin } = &*entry;
            let outcome = own.store.borrow_mut().apply(change);
            own.applied.set(place + 1);
            let store = own.store.borrow();
            let events = store.last_events();
            if etcd.announced.get() == place {
                etcd.announced.set(place + 1);
                etcd.announce(events);
            }
            if etcd.leader.get() == Some(member) {
                self.lead(etcd, &store, change);
            }
            own.notify(events);
            drop(store);
            own.release_reads();
            if let Some((_, number)) = origin.filter(|(asked, _)| *asked == member) {
                own.proposals.borrow_mut().answer(number, outcome);
            }
        }
    }

    /// Does the leader's part when it applies an entry: the leases.
    fn lead(self, etcd: &ClusterState, store: &EtcdStore, change: &StoreChange) {
        let mut lessor = etcd.lessor.borrow_mut();
        match change {
            StoreChange::NewTerm => {
                etcd.leads.set(true);
                let extension = if is_mutant("etcd: a new leader counts leases on") {
                    0
                } else {
                    EXTENSION_NS
                };
                lessor.promote(self.clock(), extension, store.leases());
            }
            StoreChange::Grant { lease, .. } => {
                let ttl = store.ttl(*lease).unwrap_or(0);
                lessor.grant(self.clock(), *lease, ttl);
            }
            StoreChange::Revoke { lease } => lessor.forget(*lease),
            StoreChange::Txn(_) | StoreChange::Delete { .. } => {}
        }
    }

    /// Makes a member the leader: it has all entries that were decided before.
    pub(super) fn elect(self, etcd: &ClusterState, leader: usize) {
        let decided = etcd.log.borrow().len();
        etcd.committed.set(decided);
        self.catch_up(etcd, leader, decided);
        etcd.lessor.borrow_mut().demote();
        etcd.leader.set(Some(leader));
        etcd.leads.set(false);
        for member in 0..etcd.members.len() {
            let after = if member == leader { 0 } else { etcd.latency() };
            self.give(etcd, member, after, MemberWork::Hear(Some(leader)));
            if decided > 0 {
                self.give(etcd, member, after, MemberWork::Apply(decided - 1));
            }
        }
        let change = StoreChange::NewTerm;
        self.append(etcd, leader, ProposedChange { change, origin: None });
    }
}

impl ClusterState {
    /// How long a message between two members takes.
    fn latency(&self) -> u64 {
        peer_latency(&mut self.dice.borrow_mut())
    }

    /// Whether a majority of the members runs and is not stopped.
    pub fn has_majority(&self) -> bool {
        self.members.iter().filter(|member| member.responds()).count() > self.members.len() / 2
    }

    fn announce(&self, events: &[StoreEvent]) {
        let hook = self.hook.borrow().clone();
        let Some(hook) = hook else { return };
        for event in events {
            hook(event);
        }
    }
}
