//! Servers in virtual time ([`FamilyServers`]): the machine's own programs as families, killed, paused and started again at exact moments.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_simulation::{Kept, SimulatedTask, World};
use tokio::process::Command;

use super::family::Family;
use super::machine::{FamilyPlace, WorldMachine, serve};
use super::network::{BytePort, START};
use super::routes::{Router, address_of_server, as_client, port_of, undisturbed};
use super::startup::execute_static;
use super::streams::FamilyStream;
use super::wall_clock::FamilyClock;
use crate::clock::GroundClock;
use crate::cluster::{
    ByteStream, ClusterError, Dialer, NodeAddress, NodeSetup, NotWritten, Peering, ReachedServers, RunningNodes,
    ServerSoftware, write_file,
};
use crate::run::RunSpec;

/// The longest time that a server has to end in order.
const IN_ORDER: Duration = Duration::from_secs(5);
/// The address of harness on connections that it makes itself.
const OBSERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 1);

/// Returns the address of a server at a port.
pub fn address_of(server: usize, port: u16) -> SocketAddr {
    SocketAddr::from((address_of_server(server as u32), port))
}

/// Returns the server at an address.
pub fn server_at(address: SocketAddr) -> Option<usize> {
    match address {
        SocketAddr::V4(address) => match address.ip().octets() {
            [10, 0, 0, number] => usize::from(number).checked_sub(1),
            _ => None,
        },
        SocketAddr::V6(_) => None,
    }
}

/// One server, through all its starts.
struct FamilyServer {
    name: String,
    setup: NodeSetup,
    log: PathBuf,
    ports: ServerPorts,
    clock: Arc<FamilyClock>,
    family: RefCell<Option<Rc<Family>>>,
    /// By port: the task that accepts connections, once it listens there.
    serving: RefCell<BTreeMap<u16, SimulatedTask>>,
}

/// The ports of a server with their numbers; the first serves clients.
pub type ServerPorts = Vec<(u16, BytePort)>;

/// Makes the ports of a server of this software.
pub fn ports_of(world: World, software: &ServerSoftware) -> ServerPorts {
    let first = BytePort::new(world);
    let ports = software.ports.iter().enumerate();
    let port = |(place, number): (usize, &u16)| (*number, if place == 0 { first } else { first.beside() });
    ports.map(port).collect()
}

impl FamilyServer {
    /// Accepts connections at the ports at which it listens by now.
    fn serve(&self, world: World, machine: &Rc<WorldMachine>, family: &Rc<Family>) {
        for (number, port) in &self.ports {
            let mut serving = self.serving.borrow_mut();
            if !serving.contains_key(number) && family.listens(*number) {
                let server = self.setup.me as u32;
                let serves = serve(Rc::clone(machine), Rc::clone(family), port.listen(), (server, *number));
                serving.insert(*number, world.spawn(serves));
            }
        }
    }
}

/// The servers of a run.
pub struct FamilyServers {
    world: World,
    machine: Rc<WorldMachine>,
    software: &'static ServerSoftware,
    servers: Vec<Rc<FamilyServer>>,
    dialled: Cell<u64>,
}

/// Returns, by server, the address by which it knows its peers, or they know it, where the configuration of servers names one; see
/// [`Peering`]. There are no proxies between servers.
pub fn peers(spec: &RunSpec) -> Vec<SocketAddr> {
    let software = spec.config.backend.software;
    let address = |server| address_of(server, software.ports[0]);
    match software.peering {
        Peering::Announced(_) => (0..spec.config.nodes as usize).map(address).collect(),
        Peering::Replication(_) if spec.plan.replicas > 0 => vec![address(1), address(0)],
        _ => Vec::new(),
    }
}

impl FamilyServers {
    /// Makes the servers of a run at these ports, and starts none. `epoch` is the reading of the wall clocks when the clock of the world
    /// is 0.
    pub fn new(world: World, machine: Rc<WorldMachine>, spec: &RunSpec, ports: &[ServerPorts], epoch: i64) -> Self {
        let (config, logs, version) = (&spec.config, spec.folder.nodes(), spec.choice.version.as_ref());
        let software = config.backend.software;
        let address = |me: usize| {
            let host = address_of_server(me as u32);
            NodeAddress::new(me as u32 + 1, host, software.ports.to_vec())
        };
        let nodes: Vec<NodeAddress> = (0..ports.len()).map(address).collect();
        let server = |(me, ports): (usize, &ServerPorts)| FamilyServer {
            name: nodes[me].name.clone(),
            setup: NodeSetup {
                peer_proxies: peers(spec),
                programs: version.and_then(|version| version.programs.clone()),
                ..NodeSetup::plain(nodes.clone(), me, machine.folder().join(&nodes[me].name), config.lease)
            },
            log: logs.join(&nodes[me].name).join("server.log"),
            ports: ports.clone(),
            clock: Arc::new(FamilyClock::new(epoch)),
            family: RefCell::default(),
            serving: RefCell::default(),
        };
        let servers = ports.iter().enumerate().map(server).map(Rc::new).collect();
        Self {
            world,
            machine,
            software,
            servers,
            dialled: Cell::new(0),
        }
    }

    pub fn log(&self, server: usize) -> PathBuf {
        self.servers[server].log.clone()
    }

    pub fn clocks(&self) -> Vec<Arc<FamilyClock>> {
        self.servers.iter().map(|server| Arc::clone(&server.clock)).collect()
    }

    /// Starts a server, which may not serve yet.
    pub fn start(&self, number: usize) -> Result<(), ClusterError> {
        let server = &self.servers[number];
        let launch = (self.software.launch)(&server.setup);
        fs::create_dir_all(&server.setup.data).map_err(NotWritten::at(&server.setup.data))?;
        for (name, contents) in launch.files.iter().chain(&launch.secrets) {
            let path = server.setup.data.join(name);
            // one that is started again finds its files as it left them
            if !path.exists() {
                write_file(&path, contents)?;
            }
        }
        if let Some(folder) = server.log.parent() {
            fs::create_dir_all(folder).map_err(NotWritten::at(folder))?;
        }
        let log = File::options().create(true).append(true).open(&server.log);
        let log = log.map_err(NotWritten::at(&server.log))?;
        let errors = log.try_clone().map_err(NotWritten::at(&server.log))?;
        let (mut program, mut arguments) = (launch.program.display().to_string(), launch.args);
        execute_static(&mut program, &mut arguments);
        let mut command = Command::new(program);
        command.args(arguments).envs(launch.env).current_dir(&server.setup.data);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let name = format!("server {}", server.name);
        let started = self
            .machine
            .begin(
                (&name, &server.name),
                command,
                Arc::clone(&server.clock),
                self.place(number as u32),
            )
            .map_err(|error| ClusterError::Start {
                product: self.software.product,
                node: server.name.clone(),
                why: format!("{}: {error}", launch.program.display()),
            })?;
        let family = started.family;
        *server.family.borrow_mut() = Some(Rc::clone(&family));
        family.step();
        Ok(())
    }

    /// Returns the place of a server in the network: it reaches itself and all others.
    fn place(&self, number: u32) -> FamilyPlace {
        let machine = Rc::downgrade(&self.machine);
        let ports: Vec<ServerPorts> = self.servers.iter().map(|server| server.ports.clone()).collect();
        let announced = matches!(self.software.peering, Peering::Announced(_));
        let router: Router = Rc::new(move |to| {
            let machine = machine.upgrade()?;
            let server = match to.ip().is_loopback() {
                true => number as usize,
                false => server_at(to.into())?,
            };
            let ports = ports.get(server)?;
            let (port, (_, at)) = ports.iter().enumerate().find(|(_, (number, _))| *number == to.port())?;
            // an announced address, which faults act on, is that of the first port
            let by = if announced && port > 0 {
                undisturbed(number)
            } else {
                as_client(number)
            };
            let route = machine.routes.get((by, server as u32))?;
            Some((route, *at))
        });
        let (world, machine) = (self.world, Rc::downgrade(&self.machine));
        let server = Rc::downgrade(&self.servers[number as usize]);
        FamilyPlace {
            address: address_of_server(number),
            router,
            awaits_processor: false,
            on_listen: Box::new(move |family| {
                if let (Some(server), Some(machine)) = (server.upgrade(), machine.upgrade()) {
                    server.serve(world, &machine, family);
                }
            }),
        }
    }

    fn family(&self, server: usize) -> Option<Rc<Family>> {
        self.servers.get(server)?.family.borrow().clone()
    }

    fn kill(&self, server: usize) {
        if let Some(family) = self.family(server) {
            family.kill();
        }
        let serving = std::mem::take(&mut *self.servers[server].serving.borrow_mut());
        drop(serving);
    }

    /// Sends each server the signal that ends it in order. Returns whether there is one.
    fn end_in_order(&self) -> bool {
        let Some(signal) = self.software.stop else { return false };
        let families = (0..self.servers.len()).filter_map(|server| self.family(server));
        families.for_each(|family| family.take_signal(signal));
        true
    }

    /// Connects to a server, past the links of clients.
    fn dial(&self, address: SocketAddr) -> Result<FamilyStream, String> {
        let server = server_at(address).ok_or("no server has this address")?;
        let family = self.family(server).ok_or("it was not started")?;
        let number = self.dialled.get();
        self.dialled.set(number + 1);
        let from = SocketAddrV4::new(OBSERVER, port_of(number));
        FamilyStream::open(&family, |on_said| {
            self.machine.dial(&family, address.port(), from, on_said)
        })
    }
}

/// A handle of the servers, which is `Send`.
pub type FamilyServersHandle = Kept<FamilyServers>;

/// Returns the access to the servers of a world, past the links of clients.
pub fn reached(world: World, servers: FamilyServersHandle) -> ReachedServers {
    let dial: Dialer = Arc::new(move |address| {
        Box::pin(async move {
            let stream = servers.get().dial(address)?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    });
    ReachedServers {
        dial: Some(dial),
        clock: GroundClock::Virtual(world),
    }
}

/// The servers of a world, for their cluster.
pub struct FamilyNodes {
    pub world: World,
    pub servers: FamilyServersHandle,
}

#[async_trait]
impl RunningNodes for FamilyNodes {
    fn look_every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn ended(&mut self, node: usize) -> Option<String> {
        self.servers.get().family(node).and_then(|family| family.ended())
    }

    async fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        self.servers.get().kill(node);
        Ok(())
    }

    async fn start(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        let (world, servers) = (self.world, self.servers);
        servers.get().kill(node);
        world.sleep(START).await;
        servers.get().start(node).map(|()| None)
    }

    async fn pause(&mut self, node: usize) -> Result<(), ClusterError> {
        let servers = self.servers.get();
        let Some(family) = servers.family(node).filter(|family| !family.is_over()) else {
            let node = servers.servers[node].name.clone();
            return Err(ClusterError::Gone { node });
        };
        family.stop();
        Ok(())
    }

    async fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        if let Some(family) = self.servers.get().family(node) {
            family.go_on();
        }
        Ok(())
    }

    async fn stop(self: Box<Self>) {
        let (world, servers) = (self.world, self.servers);
        let ends = servers.try_get().is_some_and(|servers| servers.end_in_order());
        if ends {
            world.sleep(IN_ORDER).await;
        }
        if let Some(servers) = servers.try_get() {
            (0..servers.servers.len()).for_each(|server| servers.kill(server));
        }
    }
}
