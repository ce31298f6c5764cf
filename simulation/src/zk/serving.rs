//! The tasks of an ensemble: each server's own, and the one that supervises them: the leader, and the servers in step with it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use harness_workloads::{Constructor, LockClient, RecipeOptions, SignalSink};
use rand::Rng;

use super::ensemble::{EnsembleState, ServedConnection, SimulatedZk, ZkServer};
use super::request::{ZkMessage, ZkRequest};
use super::session::ZkRoutes;
use super::work::Work;
use crate::network::{Port, PortEvent, PortListener};
use crate::servers::{ClientPlace, SimulatedServers};
use crate::world::{SimulatedProcess, WorldSleep, nanoseconds};

/// The time in which a server starts, from the start of its process to where it looks for a leader.
const START: Duration = Duration::from_millis(1200);
/// The time of an election: the least, and the most that is drawn besides, as was measured on ensembles of three servers.
const ELECTION: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(2200));
/// A server that is silent for so many ticks has left the ensemble: `syncLimit`.
const SYNC_LIMIT: u64 = 10;

impl SimulatedServers for SimulatedZk {
    fn count(&self) -> usize {
        self.0.get().servers.len()
    }

    fn process(&self, server: usize) -> SimulatedProcess {
        self.0.get().servers[server].process
    }

    fn is_running(&self, server: usize) -> bool {
        self.0.get().servers[server].is_running.get()
    }

    fn leader(&self) -> Option<usize> {
        self.0.get().leader.get()
    }

    /// Kills a server. The entries that it has applied stay on its disk.
    fn kill(&self, server: usize) {
        let zk = self.0.get();
        let killed = &zk.servers[server];
        killed.is_running.set(false);
        killed.serves.set(false);
        killed.process.kill();
        killed.work.clear();
        killed.touched.borrow_mut().clear();
        killed.task.set(None);
        killed.is_awake.set(false);
        killed.close_all();
    }

    fn restart(&self, server: usize, _: bool) {
        if self.is_running(server) {
            self.kill(server);
        }
        self.run(server, START);
    }

    fn client(&self, options: RecipeOptions, place: ClientPlace, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Zk(make) = options.recipe.constructor else {
            panic!("{} is for another store", options.recipe.name);
        };
        let ClientPlace { process, links, lease } = place;
        let routes = ZkRoutes::new(*self, links, process, lease);
        options.build(make, Rc::new(routes), signals, lease)
    }
}

impl SimulatedZk {
    /// Returns the address of a server for clients.
    pub(super) fn address_of(self, server: usize) -> Port<ZkRequest, ZkMessage> {
        self.0.get().servers[server].port
    }

    pub(super) fn run(self, server: usize, after: Duration) {
        let zk = self.0.get();
        let started = &zk.servers[server];
        let begins = move || self.0.get().servers[server].is_running.set(true);
        let listening = started.port.listen_after(after, begins);
        started.is_running.set(after.is_zero());
        let serving = async move { self.serve(server, listening.await).await };
        started.process.spawn(serving).detach();
    }

    async fn serve(self, server: usize, listener: PortListener<ZkRequest, ZkMessage>) {
        let zk = self.0.get();
        let own = &zk.servers[server];
        // set again only for an earlier end: one that comes too early finds nothing to do
        let mut expiry: Option<WorldSleep> = None;
        loop {
            let due = self.do_what_is_due(&zk, server);
            expiry.take_if(|timer| timer.until <= self.clock());
            if due.is_some_and(|at| expiry.as_ref().is_none_or(|timer| timer.until > at)) {
                WorldSleep::set(&mut expiry, self.0.world(), due);
            }
            own.is_awake.set(false);
            let event = listener
                .next_or_woken(expiry.as_mut(), |_| self.hear_of_work(own))
                .await;
            own.is_awake.set(true);
            match event {
                Some(PortEvent::Opened(side)) => {
                    let served = ServedConnection {
                        session: 0,
                        queue: VecDeque::new(),
                        waits: false,
                        side,
                    };
                    own.connections.borrow_mut().insert(served.side.number(), served);
                }
                Some(PortEvent::Message(connection, request)) => self.take(&zk, server, connection, request),
                Some(PortEvent::Over(connection)) => own.close(connection),
                None => {}
            }
        }
    }

    /// Wakes the task of a server when there is work: also for work that came before it served.
    fn hear_of_work(self, server: &ZkServer) {
        if server.task.get().is_none() {
            server.task.set(Some(self.0.world().polled_task()));
            let works = server.work.times();
            works.into_iter().for_each(|at| self.wake_at(server, at));
        }
    }

    /// Does the work that is due, and returns the time at which a leader has a session to end.
    fn do_what_is_due(self, zk: &EnsembleState, server: usize) -> Option<u64> {
        let own = &zk.servers[server];
        loop {
            match own.work.take_due(self.clock()) {
                Some(work) => self.perform(zk, server, work),
                None if self.expire(zk, server) => {}
                None => break,
            }
        }
        let leads = zk.leader.get() == Some(server);
        zk.expiry.borrow().next_end().filter(|_| leads)
    }

    /// Supervises the ensemble: whether its leader is there, and which servers are in step with it.
    pub(super) async fn supervise(self) {
        let world = self.0.world();
        let half_tick = self.0.get().tick / 2;
        let mut election: Option<u64> = None;
        loop {
            let next = self.clock() / half_tick + 1;
            world.sleep_until(Duration::from_nanos(next * half_tick)).await;
            self.report_touches();
            let zk = self.0.get();
            let now = self.clock();
            let limit = SYNC_LIMIT * zk.tick;
            for server in &zk.servers {
                let silent = (!server.responds()).then(|| server.silent_since.get().unwrap_or(now));
                server.silent_since.set(silent);
            }
            let is_gone = |number: usize| {
                let server = &zk.servers[number];
                !server.is_running.get() || server.silent_since.get().is_some_and(|since| now - since >= limit)
            };
            match zk.leader.get() {
                Some(leader) => {
                    let followers = (0..zk.servers.len()).filter(|number| !is_gone(*number)).count();
                    if is_gone(leader) || followers <= zk.servers.len() / 2 {
                        self.lose_leader();
                        election = None;
                        continue;
                    }
                    self.let_join(now, limit);
                }
                None if !zk.has_majority() => election = None,
                None => {
                    let at = *election.get_or_insert_with(|| now + self.election_time());
                    if now >= at {
                        let running = (0..zk.servers.len()).filter(|number| zk.servers[*number].responds());
                        if let Some(leader) = running.max_by_key(|number| zk.servers[*number].applied.get()) {
                            self.elect(leader);
                            self.join(leader);
                        }
                        election = None;
                    }
                }
            }
        }
    }

    /// Lets servers join that are there again, and drops those that are silent for too long.
    fn let_join(self, now: u64, limit: u64) {
        let zk = self.0.get();
        for (number, server) in zk.servers.iter().enumerate() {
            let silent = server.silent_since.get();
            if server.serves.get() && silent.is_some_and(|since| now - since >= limit) {
                server.serves.set(false);
                self.give(server, 0, Work::StepDown);
            } else if !server.serves.get() && server.responds() {
                // the last ones to come after an election are in step at once
                self.join(number);
            }
        }
    }

    fn election_time(self) -> u64 {
        let zk = self.0.get();
        if zk.servers.len() == 1 {
            return 0;
        }
        let (least, spread) = ELECTION;
        nanoseconds(least) + zk.dice.borrow_mut().next_u64() % nanoseconds(spread)
    }
}
