//! Servers in a world ([`SimulatedRedis`]): each has the model of one server, and a replica follows its master over a link.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::model::{RedisKeyEvent, RedisModel, RedisOutcome};
use super::request::{RedisCommand, RedisEffect, RedisMessage, RedisRequest};
use crate::network::{ClientSide, LinkLatency, Port, ServerSide, SimulatedLink};
use crate::world::{Kept, SimulatedProcess, World, nanoseconds};

/// The period in which a master looks for expired keys: `hz 10`, the default.
const CRON: Duration = Duration::from_millis(100);
/// The period in which a replica without its master tries to connect: `replicationCron`, once a second.
const RECONNECT: Duration = Duration::from_secs(1);
/// The clock may be set while the cron waits, so it never waits longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The number of a replica as a client of its master: no client of the harness has one so large.
const REPLICA: u32 = u32::MAX;

/// A change of a key on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisKeyChange {
    /// The number of the server, from 0.
    pub server: usize,
    pub key: String,
    pub event: RedisKeyEvent,
}

type RedisChangeHook = Rc<dyn Fn(&RedisKeyChange)>;

/// Redis servers. The handle is a number, and `Send`.
#[derive(Clone, Copy)]
pub struct SimulatedRedis(pub(super) Kept<RedisCluster>);

pub(super) struct RedisCluster {
    pub servers: Vec<SimulatedRedisServer>,
    /// The server to which each address leads: another one after a redirection.
    addresses: RefCell<Vec<usize>>,
    hook: RefCell<Option<RedisChangeHook>>,
}

pub(super) struct SimulatedRedisServer {
    pub process: SimulatedProcess,
    pub port: Port<RedisRequest, RedisMessage>,
    pub model: RefCell<RedisModel>,
    /// Whether it runs; also while it is stopped.
    pub is_running: Cell<bool>,
    /// The master that it follows, and the link to each other server.
    pub master: Cell<Option<usize>>,
    links: RefCell<BTreeMap<usize, SimulatedLink>>,
    /// Connections by number, and those of replicas.
    pub connections: RefCell<BTreeMap<u64, ServerSide<RedisRequest, RedisMessage>>>,
    pub replicas: RefCell<Vec<u64>>,
}

impl SimulatedRedis {
    /// Starts `count` independent servers, named `n1`, `n2`, …
    pub fn start(world: World, count: usize) -> Self {
        let server = |number: usize| SimulatedRedisServer {
            process: world.process(&format!("n{}", number + 1)),
            port: Port::new(world),
            model: RefCell::default(),
            is_running: Cell::new(false),
            master: Cell::new(None),
            links: RefCell::default(),
            connections: RefCell::default(),
            replicas: RefCell::default(),
        };
        let cluster = SimulatedRedis(world.keep(RedisCluster {
            servers: (0..count).map(server).collect(),
            addresses: RefCell::new((0..count).collect()),
            hook: RefCell::default(),
        }));
        for number in 0..count {
            cluster.run(number, Duration::ZERO);
        }
        cluster
    }

    /// `master` or `replica`.
    pub fn role(self, server: usize) -> &'static str {
        if self.0.get().servers[server].model.borrow().is_replica() {
            "replica"
        } else {
            "master"
        }
    }

    /// Returns how many changes a server has seen. A replica with as many as its master is in step.
    pub fn offset(self, server: usize) -> u64 {
        self.0.get().servers[server].model.borrow().offset()
    }

    /// Returns the keys of a server, expired or not.
    pub fn keys(self, server: usize) -> Vec<String> {
        self.0.get().servers[server].model.borrow().keys()
    }

    /// Returns the value of a key as a server has it, expired or not.
    pub fn value(self, server: usize, key: &str) -> Option<String> {
        let cluster = self.0.get();
        let snapshot = cluster.servers[server].model.borrow().snapshot();
        snapshot.into_iter().find_map(|effect| match effect {
            RedisEffect::Set { key: stored, value, .. } if stored == key => Some(value),
            _ => None,
        })
    }

    /// Calls `hook` with every change of a key on every server, in place of an earlier hook.
    pub fn on_change(self, hook: impl Fn(&RedisKeyChange) + 'static) {
        drop(self.0.get().hook.replace(Some(Rc::new(hook))));
    }

    /// Lets a server take the data of its master, and then its changes, a log behind: `REPLICAOF master`.
    pub fn follow(self, server: usize, master: usize) {
        let cluster = self.0.get();
        let replica = &cluster.servers[server];
        replica.master.set(Some(master));
        replica.model.borrow_mut().set_replica(true);
        let link = self.link_between(server, master);
        let following = async move { self.replicate(server, master, link).await };
        replica.process.spawn(following).detach();
    }

    /// Makes a replica a master, with its data: `REPLICAOF NO ONE`.
    pub fn promote(self, server: usize) {
        let cluster = self.0.get();
        cluster.servers[server].master.set(None);
        cluster.servers[server].model.borrow_mut().set_replica(false);
    }

    /// Leads the connections that clients make to the address of one server to another one, as a proxy in front of both would.
    pub fn redirect(self, address: usize, server: usize) {
        self.0.get().addresses.borrow_mut()[address] = server;
    }

    /// Returns the link over which a server follows another one; faults may be put on it.
    pub fn link_between(self, server: usize, master: usize) -> SimulatedLink {
        let cluster = self.0.get();
        let mut links = cluster.servers[server].links.borrow_mut();
        *links.entry(master).or_insert_with(|| {
            let name = format!("n{}->n{}", server + 1, master + 1);
            SimulatedLink::new(self.0.world(), &name, REPLICA, LinkLatency::default())
        })
    }

    /// Returns the address for clients of the server behind an address.
    pub(super) fn port(self, address: usize) -> Port<RedisRequest, RedisMessage> {
        let cluster = self.0.get();
        let server = cluster.addresses.borrow()[address];
        cluster.servers[server].port
    }

    /// Follows a master until the server is promoted, or follows another one.
    async fn replicate(self, server: usize, master: usize, link: SimulatedLink) {
        let world = self.0.world();
        let follows = || self.0.get().servers[server].master.get() == Some(master);
        while follows() {
            let port = self.0.get().servers[master].port;
            if let Ok(connection) = link.connect(port).await {
                let command = RedisCommand::Psync;
                connection.send(RedisRequest { number: 1, command });
                self.take_log(server, &connection, &follows).await;
            }
            world.sleep(RECONNECT).await;
        }
    }

    async fn take_log(
        self,
        server: usize,
        connection: &ClientSide<RedisRequest, RedisMessage>,
        follows: &impl Fn() -> bool,
    ) {
        while let Ok(message) = connection.receive().await {
            if !follows() {
                return;
            }
            let cluster = self.0.get();
            let model = &cluster.servers[server].model;
            match message {
                RedisMessage::Snapshot(snapshot, offset) => model.borrow_mut().load(&snapshot, offset),
                RedisMessage::Effect(effect) => {
                    let out = model.borrow_mut().apply(&effect);
                    cluster.spread(server, out);
                }
                RedisMessage::Reply { .. } | RedisMessage::Published { .. } => {}
            }
        }
    }
}

impl RedisCluster {
    pub fn tell(&self, change: &RedisKeyChange) {
        let hook = self.hook.borrow().clone();
        if let Some(hook) = hook {
            hook(change);
        }
    }

    pub fn execute(&self, server: usize, connection: u64, request: &RedisRequest) {
        let own = &self.servers[server];
        if request.command == RedisCommand::Psync {
            own.replicas.borrow_mut().push(connection);
            let (snapshot, offset) = {
                let model = own.model.borrow();
                (model.snapshot(), model.offset())
            };
            return own.send(connection, RedisMessage::Snapshot(snapshot, offset));
        }
        let now = wall_ms(own.process);
        let (value, out) = own.model.borrow_mut().execute(now, connection, &request.command);
        let name = request.command.name();
        own.send(
            connection,
            RedisMessage::Reply {
                number: request.number,
                name,
                value,
            },
        );
        self.spread(server, out);
    }

    /// Passes the outcome of a command on to subscribers, replicas and the hook.
    pub fn spread(&self, server: usize, out: RedisOutcome) {
        let own = &self.servers[server];
        for (connection, channel, message) in out.published {
            own.send(connection, RedisMessage::Published { channel, message });
        }
        for effect in out.effects {
            for replica in &*own.replicas.borrow() {
                own.send(*replica, RedisMessage::Effect(effect.clone()));
            }
        }
        for (key, event) in out.changes {
            self.tell(&RedisKeyChange { server, key, event });
        }
    }
}

impl SimulatedRedisServer {
    /// Returns the time at which the cron has something to do, since the beginning of the world.
    pub fn next_cron(&self, world: World) -> Option<Duration> {
        let deadline = Duration::from_millis(self.model.borrow().next_deadline()?);
        let now = Duration::from_nanos(world.clock_ns());
        let due = Duration::from_nanos(self.process.clock_at(deadline)).min(now + LONGEST_WAIT);
        let turns = nanoseconds(due) / nanoseconds(CRON) + 1;
        Some(CRON * u32::try_from(turns).unwrap_or(u32::MAX))
    }

    fn send(&self, connection: u64, message: RedisMessage) {
        if let Some(connection) = self.connections.borrow().get(&connection) {
            connection.send(message);
        }
    }
}

/// Returns the wall clock of a server's machine, in milliseconds since 1970.
pub(super) fn wall_ms(process: SimulatedProcess) -> u64 {
    u64::try_from(process.wall_clock().as_millis()).unwrap_or(u64::MAX)
}
