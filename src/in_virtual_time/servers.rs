//! Servers in virtual time ([`FamilyServers`]): the machine's own programs as families, killed, paused and started again at exact moments.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_simulation::{Kept, SimulatedTask, World};
use nix::sys::signal::Signal;
use tokio::process::Command;

use super::disk::ServerDisk;
use super::family::Family;
use super::machine::{FamilyPlace, WorldMachine, serve};
use super::network::{BytePort, START};
use super::routes::{Router, as_client, port_of, undisturbed};
use super::startup::execute_static;
use super::streams::FamilyStream;
use super::wall_clock::FamilyClock;
use crate::clock::GroundClock;
use crate::cluster::leftovers::claim::empty;
use crate::cluster::{
    ByteStream, ClusterError, Dialer, NO_DISKS, NO_OTHER_VERSION, NodeAddress, NodeSetup, NotWritten, OtherVersion,
    Peering, ReachedServers, RunningNodes, ServerSoftware, lines_of_no_space, write_file,
};
use crate::disks::DiskGate;
use crate::limits::IN_ORDER;
use crate::run::RunSpec;
use crate::simulated::{address_of, address_of_server, server_at};

/// The time between two checks whether servers have ended in order.
const END_POLL: Duration = Duration::from_millis(10);
/// The address of harness on connections that it makes itself.
const OBSERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 1);

/// One server, through all its starts.
struct FamilyServer {
    name: String,
    setup: RefCell<NodeSetup>,
    log: PathBuf,
    ports: ServerPorts,
    clock: Arc<FamilyClock>,
    disk: Rc<ServerDisk>,
    /// The length of its log when its disk became full.
    logged: Cell<u64>,
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
    /// Removes its data, so that it joins the others as a new member.
    fn forget_data(&self) -> Result<(), ClusterError> {
        let mut setup = self.setup.borrow_mut();
        setup.joins = true;
        self.disk.forget();
        empty(&setup.data, None).map_err(NotWritten::at(&setup.data))?;
        Ok(())
    }

    /// Accepts connections at the ports at which it listens by now.
    fn serve(&self, machine: &Rc<WorldMachine>, family: &Rc<Family>) {
        for (number, port) in &self.ports {
            let mut serving = self.serving.borrow_mut();
            if !serving.contains_key(number) && family.listens(*number) {
                let server = self.setup.borrow().me as u32;
                let serves = serve(Rc::clone(machine), Rc::clone(family), port.listen(), (server, *number));
                serving.insert(*number, machine.world.spawn(serves));
            }
        }
    }
}

/// The servers of a run.
pub struct FamilyServers {
    machine: Rc<WorldMachine>,
    software: &'static ServerSoftware,
    servers: Vec<Rc<FamilyServer>>,
    upgrade: Option<OtherVersion>,
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
    /// Makes the servers of a run at these ports, and starts none.
    pub fn new(machine: Rc<WorldMachine>, spec: &RunSpec, ports: &[ServerPorts]) -> Self {
        let (config, logs, version) = (&spec.config, spec.folder.nodes(), spec.choice.version.as_ref());
        let (software, upgrade) = (config.backend.software, spec.choice.upgrade.clone());
        let address = |me: usize| {
            let host = address_of_server(me as u32);
            NodeAddress::new(me as u32 + 1, host, software.ports.to_vec())
        };
        let nodes: Vec<NodeAddress> = (0..ports.len()).map(address).collect();
        let folder = |me: usize| machine.folder().join(&nodes[me].name);
        let kept = |me: usize| spec.plan.own_disks.then(|| folder(me).with_extension("synced"));
        let server = |(me, ports): (usize, &ServerPorts)| FamilyServer {
            name: nodes[me].name.clone(),
            setup: RefCell::new(NodeSetup {
                peer_proxies: peers(spec),
                programs: version.and_then(|version| version.programs.clone()),
                in_virtual_time: true,
                replaceable: spec.plan.replaces_servers,
                syncs: spec.plan.gates_disks || upgrade.is_some(),
                ..NodeSetup::plain(nodes.clone(), me, folder(me), config.lease)
            }),
            log: logs.join(&nodes[me].name).join("server.log"),
            ports: ports.clone(),
            clock: Arc::new(FamilyClock::new(machine.world)),
            disk: Rc::new(ServerDisk::new(folder(me), kept(me))),
            logged: Cell::new(0),
            family: RefCell::default(),
            serving: RefCell::default(),
        };
        let servers = ports.iter().enumerate().map(server).map(Rc::new).collect();
        Self {
            machine,
            software,
            servers,
            upgrade,
            dialled: Cell::new(0),
        }
    }

    /// Returns the servers as their configurations name them.
    pub fn addresses(&self) -> Vec<NodeAddress> {
        let nodes = |server: &Rc<FamilyServer>| server.setup.borrow().nodes.clone();
        self.servers.first().map(nodes).unwrap_or_default()
    }

    pub fn log(&self, server: usize) -> PathBuf {
        self.servers[server].log.clone()
    }

    pub fn clocks(&self) -> Vec<Arc<FamilyClock>> {
        self.servers.iter().map(|server| Arc::clone(&server.clock)).collect()
    }

    /// Returns their disks, for faults.
    pub fn gates(&self) -> Vec<Arc<DiskGate>> {
        self.servers
            .iter()
            .map(|server| Arc::clone(&server.disk.gate))
            .collect()
    }

    /// Called when all of them serve for the first time: syncs their disks.
    pub fn have_begun(&self) -> Result<(), ClusterError> {
        for server in &self.servers {
            let synced = server.disk.sync();
            synced.map_err(NotWritten::at(&server.setup.borrow().data))?;
        }
        Ok(())
    }

    /// Starts a server, which may not serve yet.
    pub fn start(&self, number: usize) -> Result<(), ClusterError> {
        let server = &self.servers[number];
        let setup = server.setup.borrow();
        let launch = (self.software.launch)(&setup);
        fs::create_dir_all(&setup.data).map_err(NotWritten::at(&setup.data))?;
        let files = launch.files.iter().chain(&launch.secrets);
        // one that is started again finds its files as it left them
        let missing = files.map(|(name, contents)| (setup.data.join(name), contents));
        let missing: Vec<_> = missing.filter(|(path, _)| !path.exists()).collect();
        for (path, contents) in &missing {
            write_file(path, contents)?;
        }
        // its disk has them before it starts, as that of a machine on which it is installed
        if !missing.is_empty() {
            server.disk.sync().map_err(NotWritten::at(&setup.data))?;
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
        command.args(arguments).envs(launch.env).current_dir(&setup.data);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let started = self.machine.begin(command, self.place(number as u32));
        let started = started.map_err(|error| ClusterError::Start {
            product: self.software.product,
            node: server.name.clone(),
            why: format!("{}: {error}", launch.program.display()),
        });
        let family = started?.family;
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
        let machine = Rc::downgrade(&self.machine);
        let server = &self.servers[number as usize];
        let listening = Rc::downgrade(server);
        FamilyPlace {
            name: format!("server {}", server.name),
            short: server.name.clone(),
            clock: Arc::clone(&server.clock),
            address: address_of_server(number),
            router,
            disk: Some(Rc::clone(&server.disk)),
            awaits_processor: false,
            on_listen: Box::new(move |family| {
                if let (Some(server), Some(machine)) = (listening.upgrade(), machine.upgrade()) {
                    server.serve(&machine, family);
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

    /// Whether a server has ended, or was not started.
    fn is_over(&self, server: usize) -> bool {
        self.family(server).is_none_or(|family| family.is_over())
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
pub fn reached(servers: FamilyServersHandle) -> ReachedServers {
    let dial: Dialer = Arc::new(move |address| {
        Box::pin(async move {
            let stream = servers.get().dial(address)?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    });
    ReachedServers {
        dial: Some(dial),
        clock: GroundClock::Virtual(servers.world()),
    }
}

/// The servers of a world, for their cluster.
pub struct FamilyNodes {
    pub servers: FamilyServersHandle,
}

impl FamilyNodes {
    fn server(&self, node: usize) -> Rc<FamilyServer> {
        Rc::clone(&self.servers.get().servers[node])
    }

    /// Sends servers the signal that ends them in order, and waits until they have ended, for a limited time.
    async fn end_in_order(&self, nodes: Range<usize>, signal: Signal) {
        let servers = self.servers;
        let families = nodes.clone().filter_map(|node| servers.get().family(node));
        families.for_each(|family| family.take_signal(signal));
        let is_over = || nodes.clone().all(|node| servers.get().is_over(node));
        let mut left = IN_ORDER;
        while !is_over() && !left.is_zero() {
            servers.world().sleep(END_POLL).await;
            left = left.saturating_sub(END_POLL);
        }
    }
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
        let servers = self.servers;
        servers.get().kill(node);
        servers.world().sleep(START).await;
        servers.get().start(node).map(|()| None)
    }

    /// Starts the other version in the same folder.
    async fn upgrade(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        let Some(OtherVersion::Folder(programs)) = self.servers.get().upgrade.clone() else {
            return Err(ClusterError::Nothing(NO_OTHER_VERSION.to_owned()));
        };
        self.end_in_order(node..node + 1, Signal::SIGTERM).await;
        self.servers.get().servers[node].setup.borrow_mut().programs = Some(programs);
        self.start(node).await
    }

    /// Starts a server in the folder of the previous one, emptied.
    async fn start_new(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        self.server(node).forget_data()?;
        self.start(node).await
    }

    async fn cut_power(&mut self, node: usize) -> Result<(), ClusterError> {
        let server = self.server(node);
        let disobeyed = |why: String| ClusterError::Disobeyed {
            node: server.name.clone(),
            what: "lose what it did not sync",
            why,
        };
        let lost = server.disk.cut_power().map_err(|error| disobeyed(error.to_string()))?;
        let lost = lost.ok_or_else(|| disobeyed(NO_DISKS.to_owned()))?;
        server.disk.gate.losses().files += lost;
        Ok(())
    }

    async fn fill_disk(&mut self, node: usize) -> Result<(), ClusterError> {
        let server = self.server(node);
        server.disk.fill(true);
        server.logged.set(fs::metadata(&server.log).map_or(0, |log| log.len()));
        Ok(())
    }

    async fn free_disk(&mut self, node: usize) -> Result<(), ClusterError> {
        let server = self.server(node);
        let disk = &server.disk;
        disk.gate.losses().full += u64::from(disk.is_full());
        disk.gate.losses().refused += lines_of_no_space(&server.log, server.logged.get());
        disk.fill(false);
        Ok(())
    }

    async fn recover(&mut self, node: usize) -> Result<(), ClusterError> {
        if !self.servers.get().is_over(node) {
            return Ok(());
        }
        self.server(node).disk.gate.losses().ended += 1;
        self.start(node).await.map(drop)
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
        let known = self.servers.try_get();
        let known = known.map(|servers| (0..servers.servers.len(), servers.software.stop));
        let Some((nodes, signal)) = known else { return };
        if let Some(signal) = signal {
            self.end_in_order(nodes.clone(), signal).await;
        }
        if let Some(servers) = self.servers.try_get() {
            nodes.for_each(|node| servers.kill(node));
        }
    }
}
