//! A load of clients that take a lock in turns: a trace, and how often two held the lock at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Behaviour;
use harness_simulation::etcd::SimulatedEtcd;
use harness_simulation::nats::SimulatedNats;
use harness_simulation::network::SimulatedLink;
use harness_simulation::redis::SimulatedRedis;
use harness_simulation::zk::SimulatedZk;
use harness_simulation::{ClientPlace, SimulatedProcess, SimulatedServers, SimulatedTask, World};
use harness_workloads::protocol::{AcquireRequest, LockSignalKind};
use harness_workloads::{BackendId, LockClient, LockError, RecipeOptions, SignalSink};
use rand::Rng;

const CLIENTS: u32 = 5;
pub const GRANTS: u32 = 100;
const LEASE: Duration = Duration::from_secs(2);
/// Of stores whose servers elect a leader.
const SERVERS: usize = 3;
/// No experiment takes longer, in virtual time.
const LIMIT: Duration = Duration::from_secs(600);

/// The disturbance of links or servers while the clients run.
#[derive(Clone, Copy, PartialEq)]
pub enum Disturbance {
    None,
    /// One client after the other is cut off, for up to two leases.
    Partitions,
    /// One server after the other is killed and started again, or stopped.
    Servers,
}

/// Runs a recipe on simulated servers of its store.
pub fn run_as(options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    World::run(seed, async move |world: World| match options.recipe.backend {
        BackendId::Zk => {
            let zk = SimulatedZk::start(world, SERVERS, LEASE / 10);
            play(world, zk, options, disturbance).await
        }
        BackendId::Etcd => {
            let etcd = SimulatedEtcd::start(world, SERVERS);
            play(world, etcd, options, disturbance).await
        }
        BackendId::Redis | BackendId::Valkey => {
            let redis = SimulatedRedis::start(world, options.recipe.servers.unwrap_or(1) as usize);
            play(world, redis, options, disturbance).await
        }
        BackendId::Nats => {
            let nats = SimulatedNats::start(world, SERVERS);
            play(world, nats, options, disturbance).await
        }
        other => unreachable!("{other} has no model"),
    })
}

/// Clients of a recipe take its lock in turns on servers of their world.
async fn play(
    world: World,
    servers: impl SimulatedServers + Copy + 'static,
    options: RecipeOptions,
    disturbance: Disturbance,
) -> Rc<Journal> {
    let links_of = |client| SimulatedLink::of_client(world, client, servers.count());
    let ways: Vec<_> = (0..CLIENTS).map(links_of).collect();
    let _partitioning = disturb(world, disturbance, ways.clone());
    let disturbing = disturb_servers(world, servers);
    let _disturbing = (disturbance == Disturbance::Servers).then(|| world.spawn(disturbing));
    let make: MakeClient = Rc::new(move |process, number, signals| {
        let place = ClientPlace {
            process,
            links: ways[number as usize].clone(),
            lease: LEASE,
        };
        servers.client(options, place, signals)
    });
    take_turns(world, make).await
}

fn disturb(world: World, disturbance: Disturbance, links: Vec<Vec<SimulatedLink>>) -> Option<SimulatedTask> {
    let partitioning = async move {
        let mut dice = world.dice("partitions");
        loop {
            let client = &links[dice.next_u64() as usize % links.len()];
            client.iter().for_each(|link| link.apply(1, Behaviour::STALL));
            world.sleep(Duration::from_millis(dice.next_u64() % 4_000)).await;
            client.iter().for_each(|link| link.heal(1));
            world.sleep(Duration::from_millis(dice.next_u64() % 200)).await;
        }
    };
    (disturbance == Disturbance::Partitions).then(|| world.spawn(partitioning))
}

/// Kills a server and starts it again, or stops it: for less than the others notice, or for more.
async fn disturb_servers(world: World, servers: impl SimulatedServers) {
    let mut dice = world.dice("servers");
    loop {
        world.sleep(Duration::from_millis(dice.next_u64() % 4_000)).await;
        // the leader as often as all others
        let any = dice.next_u64() as usize % servers.count();
        let leader = servers.leader().filter(|_| dice.next_u64().is_multiple_of(2));
        let server = leader.unwrap_or(any);
        let time = Duration::from_millis(dice.next_u64() % 5_000);
        if dice.next_u64().is_multiple_of(2) {
            servers.kill(server);
            world.sleep(time).await;
            servers.restart(server, true);
        } else {
            servers.process(server).stop();
            world.sleep(time).await;
            servers.process(server).go_on();
        }
    }
}

/// The grants, overlaps and losses of all clients, and a trace.
#[derive(Default)]
pub struct Journal {
    pub trace: RefCell<String>,
    holders: RefCell<BTreeSet<u32>>,
    pub grants: Cell<u32>,
    pub overlaps: Cell<u32>,
    pub losses: Cell<u32>,
}

impl Journal {
    fn write(&self, world: World, client: u32, what: &str) {
        writeln!(self.trace.borrow_mut(), "{} c{client} {what}", world.now_ns()).unwrap();
    }

    fn holds(&self, client: u32) {
        let mut holders = self.holders.borrow_mut();
        holders.insert(client);
        if holders.len() > 1 {
            self.overlaps.set(self.overlaps.get() + 1);
        }
        self.grants.set(self.grants.get() + 1);
    }

    fn ends(&self, client: u32) {
        self.holders.borrow_mut().remove(&client);
    }
}

/// Makes a client that runs in a process.
type MakeClient = Rc<dyn Fn(SimulatedProcess, u32, SignalSink) -> Box<dyn LockClient>>;

/// Runs the clients until there were enough grants. A client that still believes at the time of its release holds until then.
async fn take_turns(world: World, make: MakeClient) -> Rc<Journal> {
    let journal = Rc::new(Journal::default());
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let process = world.process(&format!("c{number}"));
        let (make, journal) = (make.clone(), journal.clone());
        clients.push(process.spawn(client(world, process, number, make, journal)));
    }
    while journal.grants.get() < GRANTS && world.now() < LIMIT {
        world.sleep(Duration::from_millis(10)).await;
    }
    drop(clients);
    journal
}

/// Draws 5 to 15 ms, and one in ten of up to two leases: longer than a client may believe that is cut off.
fn hold(dice: &mut impl Rng) -> Duration {
    match dice.next_u64() % 10 {
        0 => Duration::from_millis(dice.next_u64() % 4_000),
        _ => Duration::from_micros(5_000 + dice.next_u64() % 10_000),
    }
}

async fn client(world: World, process: SimulatedProcess, number: u32, make: MakeClient, journal: Rc<Journal>) {
    let heard = journal.clone();
    let signals = SignalSink::new(
        number,
        process.host(),
        Rc::new(move |signal| {
            heard.write(world, number, &format!("{:?} {}", signal.f, signal.cause));
            if signal.f == LockSignalKind::Lost {
                heard.losses.set(heard.losses.get() + 1);
                heard.ends(number);
            }
        }),
    );
    let mut lock = make(process, number, signals);
    let mut dice = world.dice(&format!("load {number}"));
    while let Err(error) = lock.open().await {
        journal.write(world, number, &format!("open: {error:?}"));
        world.sleep(Duration::from_millis(100)).await;
    }
    let wanted = AcquireRequest {
        lock: "l0".into(),
        wait_ms: 5_000,
        ..AcquireRequest::default()
    };
    loop {
        match lock.acquire(&wanted).await {
            Ok(grant) => {
                journal.holds(number);
                journal.write(world, number, &format!("holds {:?} {:?}", grant.token, grant.owner));
                world.sleep(hold(&mut dice)).await;
                journal.ends(number);
                journal.write(world, number, "releases");
                let released = lock.release("l0").await;
                journal.write(world, number, &format!("released {released:?}"));
            }
            Err(LockError::Refused(reason)) => journal.write(world, number, &format!("refused {reason}")),
            Err(LockError::Unknown(reason)) => journal.write(world, number, &format!("unknown {reason}")),
        }
        world.sleep(Duration::from_millis(1 + dice.next_u64() % 20)).await;
    }
}
