//! The task of a server: it takes messages and does the work that is due; and how it is killed and started.

use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use harness_workloads::{Constructor, LockClient, RecipeOptions, SignalSink};

use super::cluster::SimulatedNats;
use super::request::{NatsCall, NatsMessage};
use super::server::BUCKET;
use super::session::NatsRoutes;
use crate::network::{PortEvent, PortListener};
use crate::servers::{ClientPlace, SimulatedServers};
use crate::world::{SimulatedProcess, WorldSleep};

/// How long a server takes to start, up to where it serves: 15 to 20 ms were measured of 2.9.10.
const START: Duration = Duration::from_millis(20);
/// The time after a start in which it does not report that it knows no leader: `startupThreshold`, `isGroupLeaderless` in
/// `server/jetstream_cluster.go`.
const RETICENT: u64 = 10_000_000_000;

impl SimulatedServers for SimulatedNats {
    fn count(&self) -> usize {
        self.0.get().servers.len()
    }

    fn process(&self, server: usize) -> SimulatedProcess {
        self.0.get().servers[server].process
    }

    fn is_running(&self, server: usize) -> bool {
        self.0.get().servers[server].is_running.get()
    }

    /// Returns the server that leads the bucket.
    fn leader(&self) -> Option<usize> {
        self.0.get().groups[BUCKET].leader.get()
    }

    /// Kills a server. The changes that it has applied stay on its disk.
    fn kill(&self, server: usize) {
        let nats = self.0.get();
        let killed = &nats.servers[server];
        killed.is_running.set(false);
        killed.process.kill();
        killed.work.clear();
        killed.leaders.iter().for_each(|leader| leader.set(None));
        drop(killed.connections.take());
        // one that is alone leads when it is back
        for group in nats.groups.iter().filter(|_| nats.servers.len() > 1) {
            group.leader.set(group.leader.get().filter(|leader| *leader != server));
        }
    }

    fn restart(&self, server: usize, _: bool) {
        if self.is_running(server) {
            self.kill(server);
        }
        self.run(server, START);
    }

    fn client(&self, options: RecipeOptions, place: ClientPlace, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Nats(make) = options.recipe.constructor else {
            panic!("{} is for another store", options.recipe.name);
        };
        let ClientPlace { process, links, lease } = place;
        let routes = NatsRoutes::to(*self, links, process, lease);
        options.build(make, Rc::new(routes), signals, lease)
    }
}

impl SimulatedNats {
    pub(super) fn run(self, server: usize, after: Duration) {
        let nats = self.0.get();
        let started = &nats.servers[server];
        let begins = move || {
            let nats = self.0.get();
            let own = &nats.servers[server];
            own.is_running.set(true);
            own.reticent_until.set(self.clock() + RETICENT);
            for (leader, group) in own.leaders.iter().zip(&nats.groups) {
                leader.set(group.leader.get());
            }
            self.catch_up(server, nats.committed.get());
        };
        let listening = started.port.listen_after(after, begins);
        started.is_running.set(after.is_zero());
        let serving = async move { self.serve(server, listening.await).await };
        started.process.spawn(serving).detach();
    }

    async fn serve(self, server: usize, listener: PortListener<NatsCall, NatsMessage>) {
        let mut timer = None;
        loop {
            let due = self.do_what_is_due(server);
            WorldSleep::set(&mut timer, self.0.world(), due);
            let nats = self.0.get();
            let own = &nats.servers[server];
            let hear = |task: &Context<'_>| *own.alarm.borrow_mut() = Some(task.waker().clone());
            let event = listener.next_or_woken(timer.as_mut(), hear).await;
            match event {
                Some(PortEvent::Opened(side)) => {
                    side.send(NatsMessage::Info);
                    own.connections.borrow_mut().insert(side.number(), side);
                }
                Some(PortEvent::Message(connection, call)) => self.take(server, connection, call),
                Some(PortEvent::Over(connection)) => {
                    let closed = own.connections.borrow_mut().remove(&connection);
                    drop(closed);
                }
                None => {}
            }
        }
    }

    /// Does the work that is due, and returns the time of more.
    fn do_what_is_due(self, server: usize) -> Option<u64> {
        let nats = self.0.get();
        let own = &nats.servers[server];
        while let Some(work) = own.work.take_due(self.clock()) {
            self.perform(&nats, server, work);
        }
        let looked = own.bucket.borrow_mut().expire(own.wall_ns());
        if looked && nats.groups[BUCKET].leader.get() == Some(server) {
            self.show(server, true);
        }
        let age_look = own.bucket.borrow().looks_at();
        let age_look = age_look.map(|at| own.process.clock_at(Duration::from_nanos(at)));
        let work = own.work.next_at();
        work.into_iter().chain(age_look).min()
    }
}
