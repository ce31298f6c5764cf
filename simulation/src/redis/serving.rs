//! The task of a server: it takes requests and looks for expired keys; and how it is killed and started.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use harness_workloads::{Constructor, LockClient, RecipeOptions, SignalSink};

use super::model::RedisKeyEvent;
use super::request::{RedisMessage, RedisRequest};
use super::server::{RedisKeyChange, SimulatedRedis, wall_ms};
use super::session::RedisRoutes;
use crate::network::{PortEvent, PortListener};
use crate::servers::{ClientPlace, SimulatedServers};
use crate::world::{SimulatedProcess, WorldSleep, nanoseconds};

/// How long a server takes to start.
const START: Duration = Duration::from_millis(20);

impl SimulatedServers for SimulatedRedis {
    fn count(&self) -> usize {
        self.0.get().servers.len()
    }

    fn process(&self, server: usize) -> SimulatedProcess {
        self.0.get().servers[server].process
    }

    fn is_running(&self, server: usize) -> bool {
        self.0.get().servers[server].is_running.get()
    }

    fn kill(&self, server: usize) {
        let cluster = self.0.get();
        let killed = &cluster.servers[server];
        killed.is_running.set(false);
        killed.process.kill();
        killed.replicas.borrow_mut().clear();
        drop(killed.connections.take());
    }

    /// Empty, it is as a server without persistence. It is a master, unless it follows one.
    fn restart(&self, server: usize, keeps_data: bool) {
        let cluster = self.0.get();
        let started = &cluster.servers[server];
        if started.is_running.get() {
            self.kill(server);
        }
        let lost: Vec<String> = if keeps_data {
            Vec::new()
        } else {
            started.model.borrow().keys()
        };
        started.model.borrow_mut().restart(keeps_data);
        for key in lost {
            let event = RedisKeyEvent::Deleted;
            cluster.tell(&RedisKeyChange { server, key, event });
        }
        self.run(server, START);
        if let Some(master) = started.master.get() {
            self.follow(server, master);
        }
    }

    fn client(&self, options: RecipeOptions, place: ClientPlace, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Redis(make, compare) = options.recipe.constructor else {
            panic!("{} is for another store", options.recipe.name);
        };
        let ClientPlace { process, links, lease } = place;
        let routes = RedisRoutes::new(*self, links, process, lease, compare);
        options.build(make, Rc::new(routes), signals, lease)
    }
}

impl SimulatedRedis {
    pub(super) fn run(self, server: usize, after: Duration) {
        let cluster = self.0.get();
        let started = &cluster.servers[server];
        started.is_running.set(true);
        let listening = started.port.listen_after(after, || {});
        let serving = async move { self.serve(server, listening.await).await };
        started.process.spawn(serving).detach();
    }

    async fn serve(self, server: usize, listener: PortListener<RedisRequest, RedisMessage>) {
        let world = self.0.world();
        let cluster = self.0.get();
        let own = &cluster.servers[server];
        let mut cron = None;
        loop {
            WorldSleep::set(&mut cron, world, own.next_cron(world).map(nanoseconds));
            let event = poll_fn(|task| {
                if let Poll::Ready(event) = listener.poll_next(task) {
                    return Poll::Ready(Some(event));
                }
                match &mut cron {
                    Some(sleep) => Pin::new(sleep).poll(task).map(|()| None),
                    None => Poll::Pending,
                }
            });
            match event.await {
                Some(PortEvent::Opened(connection)) => {
                    own.connections.borrow_mut().insert(connection.number(), connection);
                }
                Some(PortEvent::Message(connection, request)) => cluster.execute(server, connection, &request),
                Some(PortEvent::Over(connection)) => {
                    own.model.borrow_mut().disconnected(connection);
                    own.replicas.borrow_mut().retain(|replica| *replica != connection);
                    let closed = own.connections.borrow_mut().remove(&connection);
                    drop(closed);
                }
                None => {
                    let out = own.model.borrow_mut().expire_due(wall_ms(own.process));
                    cluster.spread(server, out);
                }
            }
        }
    }
}
