//! The tasks of a cluster: each member's own, and the one that supervises them: the leader, and the members that know it.

use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use harness_workloads::{Constructor, LockClient, RecipeOptions, SignalSink};
use rand::Rng;

use super::cluster::{ClusterState, SimulatedEtcd};
use super::lessor::LOOK_NS;
use super::member_connection::MemberConnection;
use super::request::{EtcdMessage, EtcdRequest};
use super::work::MemberWork;
use crate::network::{PortEvent, PortListener, keep_waker};
use crate::servers::{ClientPlace, SimulatedServers};
use crate::world::{SimulatedProcess, WorldSleep, nanoseconds};

/// How long a member takes to start, from the start of its process to where it serves, if there is a leader: 0.1 s was measured
/// of 3.4.23.
const START: Duration = Duration::from_millis(100);
/// A heartbeat, by which elections are counted: `--heartbeat-interval` of the real servers.
const TICK: Duration = Duration::from_millis(100);
/// Ticks of an election timeout, to which every member draws below as many again for itself: `resetRandomizedElectionTimeout`,
/// `raft/raft.go:1586` of 3.4.23.
const ELECTION_TICKS: u64 = 10;
/// From the last call of a connection to the end of it, where both arrive together and the call begins before the end is read.
const END_NS: u64 = 50_000;
/// A member that knows no leader for so long ends what needs one: three looks, one an election timeout (`maxNoLeaderCnt`,
/// `etcdserver/api/v3rpc/interceptor.go:37`).
const LEADERLESS_NS: u64 = 3_000_000_000;

impl SimulatedServers for SimulatedEtcd {
    fn count(&self) -> usize {
        self.0.get().members.len()
    }

    fn process(&self, member: usize) -> SimulatedProcess {
        self.0.get().members[member].process
    }

    fn is_running(&self, member: usize) -> bool {
        self.0.get().members[member].is_running.get()
    }

    fn leader(&self) -> Option<usize> {
        self.0.get().leader.get()
    }

    /// Kills a member. The entries that it has applied stay on its disk.
    fn kill(&self, member: usize) {
        let etcd = self.0.get();
        let killed = &etcd.members[member];
        killed.is_running.set(false);
        killed.process.kill();
        killed.forget_requests();
        drop(killed.connections.take());
        if etcd.leader.get() == Some(member) {
            self.lose_leader();
        }
    }

    fn restart(&self, member: usize, _: bool) {
        if self.is_running(member) {
            self.kill(member);
        }
        let etcd = self.0.get();
        let own = &etcd.members[member];
        own.hear(None, self.clock());
        self.run(member, START);
    }

    fn client(&self, options: RecipeOptions, place: ClientPlace, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Etcd(make) = options.recipe.constructor else {
            panic!("{} is for another store", options.recipe.name);
        };
        let ClientPlace { process, links, lease } = place;
        let session = self.session(links, process, lease);
        options.build(make, Rc::new(session), signals, lease)
    }
}

impl SimulatedEtcd {
    fn lose_leader(self) {
        let etcd = self.0.get();
        etcd.leader.set(None);
        etcd.leads.set(false);
        etcd.lessor.borrow_mut().demote();
    }

    pub(super) fn run(self, member: usize, after: Duration) {
        let etcd = self.0.get();
        let started = &etcd.members[member];
        let begins = move || {
            let etcd = self.0.get();
            etcd.members[member].is_running.set(true);
            if let Some(leader) = etcd.leader.get() {
                self.give(&etcd, member, 0, MemberWork::Hear(Some(leader)));
            }
            let decided = etcd.committed.get();
            self.catch_up(&etcd, member, decided);
        };
        let listening = started.port.listen_after(after, begins);
        started.is_running.set(after.is_zero());
        let serving = async move { self.serve(member, listening.await).await };
        started.process.spawn(serving).detach();
    }

    async fn serve(self, member: usize, listener: PortListener<EtcdRequest, EtcdMessage>) {
        let etcd = self.0.get();
        let own = &etcd.members[member];
        let mut timer = None;
        loop {
            let due = self.do_what_is_due(&etcd, member);
            WorldSleep::set(&mut timer, self.0.world(), due);
            let hear = |task: &Context<'_>| keep_waker(&mut own.alarm.borrow_mut(), task);
            let event = listener.next_or_woken(timer.as_mut(), hear).await;
            match event {
                Some(PortEvent::Opened(side)) => {
                    let number = side.number();
                    own.connections.borrow_mut().insert(number, MemberConnection::new(side));
                }
                Some(PortEvent::Message(connection, request)) => self.take(&etcd, member, connection, request),
                Some(PortEvent::Over(connection)) => self.end_soon(&etcd, member, connection),
                None => {}
            }
        }
    }

    /// Ends a connection soon. Whether a call begins that arrived with the end of its connection is a race of two threads: of two runs on a
    /// real server, one renewed a lease so and one did not.
    fn end_soon(self, etcd: &ClusterState, member: usize, connection: u64) {
        let begins = etcd.dice.borrow_mut().next_u64().is_multiple_of(2);
        let after = if begins { END_NS } else { 0 };
        self.give(etcd, member, after, MemberWork::Close(connection));
    }

    /// Does the work that is due, and returns the time of more.
    fn do_what_is_due(self, etcd: &ClusterState, member: usize) -> Option<u64> {
        let own = &etcd.members[member];
        while let Some(work) = own.work.take_due(self.clock()) {
            self.perform(etcd, member, work);
        }
        let now = self.clock();
        let lease_look = || {
            let leads = etcd.leader.get() == Some(member);
            let due = leads.then(|| etcd.lessor.borrow().next_due()).flatten();
            due.map(|due| own.next_look(due, LOOK_NS))
        };
        if lease_look().is_some_and(|at| at <= now) {
            self.end_leases(etcd, member);
        }
        if own.sync_at.get().is_some_and(|at| at <= now) {
            own.sync_watches();
        }
        let work = own.work.next_at();
        let watch_look = own.sync_at.get();
        work.into_iter().chain(lease_look()).chain(watch_look).min()
    }

    /// Supervises the cluster: whether its leader is there, and which members know it.
    pub(super) async fn supervise(self) {
        let world = self.0.world();
        // when a member that hears of no leader wants to lead
        let mut election: Option<u64> = None;
        loop {
            world.sleep(TICK).await;
            let etcd = self.0.get();
            let now = self.clock();
            let leader = etcd.leader.get();
            let answers = leader.is_some_and(|leader| etcd.members[leader].responds());
            match (answers, etcd.has_majority()) {
                (true, true) => election = None,
                // a leader without a majority steps down, and members without a leader want to lead
                _ => {
                    let at = *election.get_or_insert_with(|| now + self.election_time());
                    if now >= at {
                        election = None;
                        self.end_term(now);
                    }
                }
            }
            self.end_leaderless(now);
        }
    }

    /// Ends the term after an election timeout. If no member runs that could notice, nothing has happened.
    fn end_term(self, now: u64) {
        let etcd = self.0.get();
        let responding = || (0..etcd.members.len()).filter(|member| etcd.members[*member].responds());
        if responding().next().is_none() {
            return;
        }
        if etcd.leader.get().is_some() {
            self.lose_leader();
        }
        if !etcd.has_majority() {
            responding().for_each(|member| etcd.members[member].hear(None, now));
            return;
        }
        let foremost = responding().map(|member| etcd.members[member].applied.get()).max();
        let able: Vec<usize> = responding()
            .filter(|member| Some(etcd.members[*member].applied.get()) == foremost)
            .collect();
        let draw = etcd.dice.borrow_mut().next_u64() as usize % able.len().max(1);
        if let Some(leader) = able.get(draw) {
            self.elect(&etcd, *leader);
        }
    }

    /// Ends calls that need a leader, on members that know none for long.
    fn end_leaderless(self, now: u64) {
        let etcd = self.0.get();
        for member in &etcd.members {
            let view = *member.view.borrow();
            if member.responds() && view.leader.is_none() && now - view.none_since >= LEADERLESS_NS {
                member.end_leaderless_calls();
            }
        }
    }

    /// Draws the time until the first of the members that are left wants to lead.
    fn election_time(self) -> u64 {
        let etcd = self.0.get();
        if etcd.members.len() == 1 {
            return 0;
        }
        let mut dice = etcd.dice.borrow_mut();
        let responding = etcd.members.iter().filter(|member| member.responds());
        let ticks = responding.map(|_| ELECTION_TICKS + dice.next_u64() % ELECTION_TICKS);
        ticks.min().unwrap_or(ELECTION_TICKS) * nanoseconds(TICK)
    }
}
