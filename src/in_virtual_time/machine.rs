//! The machine of a world ([`WorldMachine`]): the folder of a run in virtual time, its families of processes, and the sockets between them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use harness_proxy::Direction;
use harness_simulation::network::{ConnectionEnding, LinkLatency, PortEvent, PortListener, ServerSide, SimulatedLink};
use harness_simulation::{Kept, SimulatedTask, World};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, recv, socket};
use rand::Rng;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::SetOnce;

use super::disk::ServerDisk;
use super::ends::{EndNumber, FamilySaid, OnSaid, close};
use super::family::{Family, FamilyProgress, OnNetwork};
use super::fork_server::{ClientProgram, ForkServer, WantedFork};
use super::library;
use super::memory::stay_on_one_processor;
use super::network::{ByteHook, BytePort, Chunk};
use super::page::{GREETING, connection};
use super::processes::FamilyProcesses;
use super::routes::{ByteWay, Router, WorldRoutes, address_of_client, as_itself, port_of};
use super::startup::{
    FIRST_NUMBER, FamilyLot, FamilyPlot, STARTUP_SEED, StartedProcess, family_path, show_startup, start_process,
};
use super::wall_clock::FamilyClock;
use crate::cluster::leftovers::claim::Claim;
use crate::run::ChildError;

/// The number of processes that a family may number.
const NUMBERS: u32 = 4096;

/// The place of a family in its world: its names, its clock, its disk, and its network.
pub struct FamilyPlace {
    /// `client c0`, `server n1`.
    pub name: String,
    /// `c0`, `n1`.
    pub short: String,
    pub clock: Arc<FamilyClock>,
    pub address: Ipv4Addr,
    pub router: Router,
    /// The disk of a server's files.
    pub disk: Option<Rc<ServerDisk>>,
    /// Whether it waits for a processor when a message arrives.
    pub awaits_processor: bool,
    /// Called when it may have begun to listen.
    pub on_listen: OnNetwork,
}

impl FamilyPlace {
    /// Returns the place of a client, to which nobody connects.
    pub fn of_client(name: String, short: String, clock: Arc<FamilyClock>, address: Ipv4Addr, router: Router) -> Self {
        Self {
            name,
            short,
            clock,
            address,
            router,
            disk: None,
            awaits_processor: true,
            on_listen: Box::new(|_| {}),
        }
    }
}

/// The real resources of a run.
pub struct WorldMachine {
    pub world: World,
    seed: u64,
    /// Whether the order of threads is drawn.
    threads_by_seed: bool,
    claim: Claim,
    /// The runtime that starts processes.
    runtime: Handle,
    /// The processor on which they run, if on one alone.
    processor: Option<usize>,
    begun: Cell<u32>,
    fork_server: Arc<ForkServer>,
    pub routes: WorldRoutes,
    families: RefCell<Vec<std::rc::Weak<Family>>>,
    /// The error that ends the run: the first one.
    pub failed: Arc<SetOnce<String>>,
    /// Makes the names of sockets differ from those of other runs; nothing in the world sees it.
    mark: u64,
}

impl WorldMachine {
    /// Makes the folder of a run. The error is a sentence.
    pub fn lay_out(
        world: World,
        (seed, threads_by_seed): (u64, bool),
        runtime: Handle,
        fork_server: Arc<ForkServer>,
    ) -> Result<Self, String> {
        let claim = library::claim()?;
        Ok(Self {
            world,
            seed,
            threads_by_seed,
            claim,
            runtime,
            processor: stay_on_one_processor(),
            begun: Cell::new(0),
            fork_server,
            routes: WorldRoutes::default(),
            families: RefCell::default(),
            failed: Arc::default(),
            mark: rand::random(),
        })
    }

    pub fn folder(&self) -> &Path {
        self.claim.folder()
    }

    /// Starts a program as a family. Harness waits for it, and takes its output, from its first step on.
    pub fn begin(self: &Rc<Self>, command: Command, place: FamilyPlace) -> io::Result<StartedFamily> {
        let lot = self.lot(&place, false);
        self.start(command, place, lot)
    }

    /// Starts a client as a family, or has the fork server fork it. The threads of a fork are in the order of the fork server, and so not
    /// in a drawn one.
    pub fn begin_client(
        self: &Rc<Self>,
        client: &ClientProgram<'_>,
        place: FamilyPlace,
    ) -> Result<StartedFamily, ChildError> {
        let failed = |error: io::Error| client.command.failed(&error);
        let forks = client.forks && !self.threads_by_seed;
        let lot = self.lot(&place, forks);
        if forks {
            let plot = lot.lay_out().map_err(failed)?;
            let forked = self.fork_server.fork(&WantedFork {
                client,
                epoch: place.clock.epoch,
                page: &plot.page,
                path: &lot.path,
                runtime: &self.runtime,
                processor: self.processor,
            });
            if let Some(process) = forked {
                return self.family(process, plot, place, lot).map_err(failed);
            }
        }
        let command = client.command.command(client.log)?;
        self.start(command, place, lot).map_err(failed)
    }

    fn start(self: &Rc<Self>, command: Command, place: FamilyPlace, lot: FamilyLot) -> io::Result<StartedFamily> {
        let plot = lot.lay_out()?;
        let page = &plot.page;
        // a program may read a clock before its first step
        if lot.startup.is_some() {
            show_startup(page, place.clock.epoch);
        } else {
            page.now.store(self.world.clock_ns(), SeqCst);
            page.paced_at.store(self.world.clock_ns().max(1), SeqCst);
            place.clock.show_to(page);
        }
        if let Some(disk) = &place.disk {
            disk.show_to(page);
        }
        let own = (self.claim.folder(), &*lot.path, page);
        let process = start_process(command, own, self.processor, &self.runtime)?;
        self.family(process, plot, place, lot)
    }

    /// Returns the lot of the next family: its path, its address and its seeds.
    fn lot(&self, place: &FamilyPlace, has_startup: bool) -> FamilyLot {
        let (short, number) = (&place.short, self.begun.get());
        self.begun.set(number + 1);
        let mut dice = self.world.dice(&format!("family {short} {number}"));
        let seed = dice.next_u64() ^ self.seed;
        FamilyLot {
            path: family_path(self.claim.folder(), short, number),
            first_seed: if has_startup { STARTUP_SEED } else { seed },
            startup: has_startup.then_some(seed),
            address: place.address,
            numbers: FIRST_NUMBER + number * NUMBERS,
            order: if self.threads_by_seed { dice.next_u64() | 1 } else { 0 },
            dice,
        }
    }

    fn family(
        self: &Rc<Self>,
        process: StartedProcess,
        plot: FamilyPlot,
        place: FamilyPlace,
        lot: FamilyLot,
    ) -> io::Result<StartedFamily> {
        let FamilyPlot { page, dialled } = plot;
        let processes = FamilyProcesses::of(process.first, process.program, page);
        let (input, output) = (process.input, process.output);
        for pipe in input.iter().chain(&output) {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(io::Error::from)?;
            // as far as the kernel permits it
            let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(1 << 20));
        }
        let failed = Arc::clone(&self.failed);
        let own = OwnPorts {
            machine: Rc::downgrade(self),
            address: place.address,
            number: as_itself(self.begun.get()),
            dialled: RefCell::default(),
        };
        let family = Rc::new(Family {
            world: self.world,
            name: place.name,
            path: lot.path,
            processes,
            clock: place.clock,
            disk: place.disk,
            startup: Cell::new(lot.startup),
            processor: place.awaits_processor.then_some(RefCell::new(lot.dice)),
            on_network: Box::new(move |family| {
                (place.on_listen)(family);
                take_dialled(family, &dialled, |to| {
                    (place.router)(to).or_else(|| own.way(family, to))
                });
            }),
            on_hindrance: Box::new(move |why| drop(failed.set(why))),
            progress: FamilyProgress::default(),
        });
        self.families.borrow_mut().push(Rc::downgrade(&family));
        Ok(StartedFamily { family, input, output })
    }

    /// Returns the processes of the running program with this name, its first one first.
    pub fn processes_of(&self, name: &str) -> Option<Vec<u32>> {
        let mut families = self.families().into_iter();
        let family = families.rfind(|family| family.name == name && !family.is_over())?;
        Some(family.pids())
    }

    /// Kills all families that still run.
    pub fn end(&self) {
        self.families().iter().for_each(Family::kill);
    }

    fn families(&self) -> Vec<Rc<Family>> {
        let families = self.families.borrow();
        families.iter().filter_map(std::rc::Weak::upgrade).collect()
    }

    /// Connects to a port on which a family listens; the error says why that is not possible now. `from` is the other end, as the family sees
    /// it.
    pub fn dial(&self, family: &Family, port: u16, from: SocketAddrV4, on_said: OnSaid) -> Result<EndNumber, String> {
        if family.is_over() {
            return Err("it does not run".to_owned());
        }
        let number = family.next_connection();
        let failed = |error: nix::Error| {
            family.set_connection(number, connection::CLOSED);
            error.desc().to_owned()
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let end = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(failed)?;
        let mut own = b"hvt".to_vec();
        own.extend(from.ip().octets());
        own.extend(from.port().to_be_bytes());
        own.extend(number.to_ne_bytes());
        own.extend(self.mark.to_ne_bytes());
        own.extend(family.path.as_os_str().as_encoded_bytes().iter().rev().take(5));
        bind(end.as_raw_fd(), &UnixAddr::new_abstract(&own).map_err(failed)?).map_err(failed)?;
        let at = family.path.with_extension(format!("{port:05}"));
        connect(end.as_raw_fd(), &UnixAddr::new(&at).map_err(failed)?).map_err(failed)?;
        Ok(family.add_end(end, Some(on_said), Some(number)))
    }
}

/// A family, and the pipes to its first process, where there are any.
pub struct StartedFamily {
    pub family: Rc<Family>,
    pub input: Option<OwnedFd>,
    pub output: Option<OwnedFd>,
}

/// The ports of a family at which it dials itself: a client may have a service of its own.
struct OwnPorts {
    machine: std::rc::Weak<WorldMachine>,
    address: Ipv4Addr,
    /// Its number among those that dial, and among servers.
    number: u32,
    dialled: RefCell<BTreeMap<u16, BytePort>>,
}

impl OwnPorts {
    /// Returns the route of a family to itself; `None`: it does not listen there.
    fn way(&self, family: &Rc<Family>, to: SocketAddrV4) -> Option<ByteWay> {
        let is_itself = to.ip().is_loopback() || *to.ip() == self.address;
        let machine = self
            .machine
            .upgrade()
            .filter(|_| is_itself && family.listens(to.port()))?;
        let world = machine.world;
        let ends = (self.number, self.number);
        let route = machine.routes.get(ends).unwrap_or_else(|| {
            let link = SimulatedLink::new(world, "loopback", self.number, LinkLatency::default());
            machine.routes.lay(ends, link, ByteHook::new(world, None))
        });
        let port = || {
            let port = BytePort::new(world);
            let ends = (self.number, to.port());
            let serves = serve(Rc::clone(&machine), Rc::clone(family), port.listen(), ends);
            world.spawn(serves).detach();
            port
        };
        let port = *self.dialled.borrow_mut().entry(to.port()).or_insert_with(port);
        Some((route, port))
    }
}

/// Accepts the connections that a family has dialled, and connects them to their servers.
fn take_dialled(family: &Rc<Family>, dialled: &UnixListener, router: impl Fn(SocketAddrV4) -> Option<ByteWay>) {
    while let Ok((end, _)) = dialled.accept() {
        let end = OwnedFd::from(end);
        let _ = fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        let mut greeting = [0u8; 10];
        let Ok(10) = recv(end.as_raw_fd(), &mut greeting, MsgFlags::MSG_PEEK) else {
            continue;
        };
        let [a, b, c, d, high, low, one, two, ..] = greeting;
        let to = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
        let number = u16::from_ne_bytes([one, two]);
        let (family, way) = (Rc::clone(family), router(to));
        family.world.spawn(find_way(family, end, number, way)).detach();
    }
}

async fn find_way(family: Rc<Family>, end: OwnedFd, number: u16, way: Option<ByteWay>) {
    let connected = match &way {
        None => None,
        Some((route, port)) => route.link.connect(*port).await.ok().map(|side| (side, route)),
    };
    if family.is_over() {
        return;
    }
    let Some((side, route)) = connected else {
        family.set_connection(number, connection::REFUSED);
        close(end);
        return family.wake();
    };
    let mut greeting = [0; GREETING];
    let _ = nix::unistd::read(&end, &mut greeting);
    family.set_connection(number, connection::OPEN);
    let side = Rc::new(side);
    let sending: Rc<RefCell<Option<_>>> = Rc::new(RefCell::new(Some(Rc::clone(&side))));
    let reading: Rc<RefCell<Option<SimulatedTask>>> = Rc::default();
    let (hook, ending) = (Rc::clone(&route.hook), Rc::clone(&reading));
    let on_said: OnSaid = Rc::new(move |said| match said {
        FamilySaid::Bytes(bytes) => {
            let side = sending.borrow().clone();
            if let Some(side) = side {
                hook.carry(side.number(), Direction::ToServer, bytes, |chunk| side.send(chunk));
            }
        }
        FamilySaid::End => {
            drop(sending.take());
            drop(ending.take());
        }
    });
    let own = family.add_end(end, Some(on_said), Some(number));
    let told = Rc::clone(&family);
    let task = family.world.spawn(async move {
        loop {
            match side.receive().await {
                Ok(chunk) => told.write(own, &chunk.bytes),
                Err(ending) => {
                    let became = match ending {
                        ConnectionEnding::Closed => connection::CLOSED,
                        ConnectionEnding::Reset => connection::RESET,
                    };
                    told.close(own, became);
                    return told.wake();
                }
            }
            told.wake();
        }
    });
    *reading.borrow_mut() = Some(task);
    family.wake();
}

/// Carries the bytes that come to the port of a server, to the family that is the server now.
pub async fn serve(
    machine: Rc<WorldMachine>,
    family: Rc<Family>,
    listener: PortListener<Chunk, Chunk>,
    (server, port): (u32, u16),
) {
    let mut ends: BTreeMap<u64, EndNumber> = BTreeMap::new();
    loop {
        match listener.next().await {
            PortEvent::Opened(side) => {
                let number = side.number();
                if let Some(end) = open(&machine, &family, side, (server, port)) {
                    ends.insert(number, end);
                }
            }
            PortEvent::Message(number, chunk) => {
                if let Some(end) = ends.get(&number) {
                    family.write(*end, &chunk.bytes);
                }
            }
            PortEvent::Over(number) => {
                if let Some(end) = ends.remove(&number) {
                    family.close(end, connection::CLOSED);
                }
            }
        }
        family.step();
    }
}

fn open(
    machine: &Rc<WorldMachine>,
    family: &Rc<Family>,
    side: ServerSide<Chunk, Chunk>,
    (server, port): (u32, u16),
) -> Option<EndNumber> {
    let (client, number) = (side.client(), side.number());
    let route = machine.routes.get((client, server))?;
    let from = SocketAddrV4::new(address_of_client(client), port_of(number));
    let sending = RefCell::new(Some(side));
    let on_said: OnSaid = Rc::new(move |said| match said {
        FamilySaid::Bytes(bytes) => {
            if let Some(side) = &*sending.borrow() {
                route
                    .hook
                    .carry(number, Direction::ToClient, bytes, |chunk| side.send(chunk));
            }
        }
        FamilySaid::End => drop(sending.take()),
    });
    // where nobody listens the connection closes again
    machine.dial(family, port, from, on_said).ok()
}

/// A handle of the machine of a run, which is `Send`.
pub type KeptMachine = Kept<WorldMachine>;
