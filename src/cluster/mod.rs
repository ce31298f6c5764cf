//! A cluster of servers: one handle over child processes (the local runtime) and containers (docker).
//!
//! A cluster knows its [`ClusterSpec`] and nothing about plans, faults, clients or products: [`ServerSoftware`], which `backends`
//! fills in, has the differences between products. Stopping or dropping a cluster removes all that it started; [`leftovers`]
//! finds the rest of a killed harness.

mod attached;
#[cfg(feature = "docker")]
mod confinement;
#[cfg(feature = "docker")]
mod container_request;
mod control;
#[cfg(feature = "docker")]
mod docker;
#[cfg(feature = "docker")]
mod docker_network;
mod endpoints;
#[cfg(feature = "docker")]
mod engine;
pub mod image_name;
pub mod leftovers;
mod local;
mod membership;
mod outages;
mod peering;
mod process_tree;
mod programs;
mod queries;
mod ready;
mod replacement;
mod replicas;
mod replication;
mod runtime;
#[cfg(feature = "docker")]
mod sidecar;
mod software;
mod streams;
mod tls;
mod upgrade;
pub mod versions;
mod volumes;
mod written;

pub use attached::{AttachedServers, NodeCommands, ServersObey, look_up};
pub use control::{CommandOutcome, NodeControl};
pub use endpoints::{Endpoints, EndpointsReceiver, ObservedEndpoint, ServerAccess, ServerTurns, first_answer};
pub use local::{CONFIGURATION, free_address, lines_of_no_space};
pub use membership::{ClusterMember, Membership, NotRemoved};
pub use outages::NodeCommand;
pub use peering::{NodeAddress, PeerProxies, Peering};
pub use programs::{find_on_machine, find_program, lacks, missing_program};
pub use queries::{ProductQueries, ServerQueries};
pub use ready::{ProbedServer, Readiness, ServerProbe, Serving, probe_by_bytes};
pub use replication::Replication;
pub use runtime::{AskedServers, Runtime, RuntimeChoice, RuntimeRequest, choose, image_present};
#[cfg(feature = "docker")]
pub use sidecar::Sidecar;
pub use software::{ContainerSpec, KeptData, KillSignal, Launch, LoginGuard, NodeSetup, ServerSoftware};
pub use streams::{ByteStream, Dialer, ReachedServers};
pub use tls::{CONTAINER_FOLDER, RunTls, ServerTlsPaths};
pub use versions::{AskedVersion, OtherVersion};
pub use written::{NotWritten, write_file, write_secret};

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use harness_tls::TlsRelay;
use harness_workloads::Login;
use tokio::sync::{Mutex as AsyncMutex, watch};

use crate::clock::RunningTask;
use crate::disks::DiskGate;
use crate::wall_clock::WallClock;

/// The configuration of a cluster.
#[derive(Clone)]
pub struct ClusterSpec {
    pub software: &'static ServerSoftware,
    pub nodes: u32,
    /// The lease of clients; server settings follow from it.
    pub lease: Duration,
    /// The run's name, in the names of folders, containers and networks.
    pub run: String,
    /// A folder for each node's configuration and log, `<logs>/n1/server.log`.
    pub logs: PathBuf,
    /// The first port of local servers; by default they get free ports.
    pub port_base: Option<u16>,
    /// Time for all of them to serve. A three-server ensemble needs one to three seconds.
    pub start_limit: Duration,
    /// The wall clocks of the servers; empty if all have the machine's.
    pub clocks: Vec<Arc<WallClock>>,
    /// The disk gates of the servers; empty if no fault is on disks. Behind a gate servers sync before they acknowledge, as in
    /// production; without, they are as fast as they can be.
    pub disks: Vec<Arc<DiskGate>>,
    /// Each server has a file system of its own, which can lose power or be filled; they have gates, too.
    pub own_disks: bool,
    /// Servers may leave the cluster and join it while it runs.
    pub replaceable: bool,
    /// The version with which servers begin; `None` for that of the image, or of this machine's programs.
    pub version: Option<AskedVersion>,
    /// The image or the folder to which servers are upgraded, if they are ([`OtherVersion::provided`]).
    pub upgrade: Option<OtherVersion>,
    /// The proxies between the servers. Without them servers connect directly. Servers of a product that replicates are a primary
    /// and its replicas with proxies, and independent of each other without.
    pub peer_proxies: Option<Arc<dyn PeerProxies>>,
    /// The login; `None` if everyone may do everything.
    pub login: Option<Arc<Login>>,
    /// The TLS of servers and clients; `None` for plain text.
    pub tls: Option<Arc<RunTls>>,
    /// Receives the subject of a wait while the servers start, in words.
    pub on_wait: Arc<dyn Fn(String) + Send + Sync>,
}

impl ClusterSpec {
    /// Opens a proxy for each of `nodes`, if the spec has proxies.
    fn open_peer_proxies(&self, listen: IpAddr, nodes: &[NodeAddress]) -> Result<Vec<SocketAddr>, ClusterError> {
        let Some(proxies) = &self.peer_proxies else {
            return Ok(Vec::new());
        };
        let opened = proxies.open(self.software.peering, listen, nodes);
        opened.map_err(|why| ClusterError::PeerProxies { listen, why })
    }

    /// Reports the address of a server to the proxies.
    fn found(&self, node: usize, address: SocketAddr) {
        if let Some(proxies) = &self.peer_proxies {
            proxies.found(node, address);
        }
    }

    /// Returns the login for the first readiness polls.
    fn first_login(&self, runtime: &Runtime) -> Option<Arc<Login>> {
        let later = matches!(self.software.guard, LoginGuard::ByCommand(_)) && !matches!(runtime, Runtime::Attached(_));
        self.login.clone().filter(|_| !later)
    }

    /// Returns the node that is the primary at first, if the others are its replicas.
    fn primary(&self) -> Option<usize> {
        (self.peer_proxies.is_some() && matches!(self.software.peering, Peering::Replication(_))).then_some(0)
    }
}

/// A server that was started.
#[derive(Debug, Clone)]
pub struct Node {
    /// `n1`, `n2`, …
    pub name: String,
    /// The address for clients.
    pub address: SocketAddr,
    pub log: PathBuf,
    /// The proxy through which it reaches its peers, if there is one.
    pub peer_proxy: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("{product} did not become ready within {}s\n  {node}: {why}", after.as_secs())]
    NotReady {
        product: &'static str,
        node: String,
        why: String,
        after: Duration,
    },
    #[error("could not start {node} of {product}: {why}")]
    Start {
        product: &'static str,
        node: String,
        why: String,
    },
    #[error("{node} of {product} ended while it was starting: {why}\n  log: {}", log.display())]
    Ended {
        product: &'static str,
        node: String,
        why: String,
        log: PathBuf,
    },
    #[error(
        "port {port} for {node} is taken: {why}\nhint: `harness doctor` shows what an earlier run left; or choose another --port-base"
    )]
    PortTaken { port: u16, node: String, why: String },
    #[error("no free ports between {} and {} for {wanted} servers: {why}", range.start, range.end)]
    NoPorts {
        wanted: usize,
        range: std::ops::Range<u16>,
        why: std::io::Error,
    },
    #[error(
        "could not open proxies between the servers at {listen}: {why}\nhint: partitions between servers need an address of this machine that they can dial; --runtime local has one"
    )]
    PeerProxies { listen: IpAddr, why: std::io::Error },
    #[error("the servers of {product} are running and not ready for clients: {why}")]
    Unprepared { product: &'static str, why: String },
    #[error("{node} refused to {what}: {why}")]
    Disobeyed {
        node: String,
        what: &'static str,
        why: String,
    },
    #[error("{node} could not {what}: {why}")]
    Unchanged {
        node: String,
        what: &'static str,
        why: String,
    },
    #[error(transparent)]
    Write(#[from] NotWritten),
    #[error("{node} does not run, so it cannot be paused")]
    Gone { node: String },
    #[error("the container engine: {0}")]
    Engine(String),
    #[error("the run was interrupted while the servers started")]
    Interrupted,
    /// Nothing on this machine can start the servers.
    #[error("{0}")]
    Nothing(String),
}

/// The future of a method of a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub const NO_DISKS: &str = "these servers are not on file systems of their own";
pub const NO_OTHER_VERSION: &str = "there is no other version of these servers";

/// Returns the error of a runtime whose servers do not support a command.
fn not_here<T>(why: &str) -> Result<T, ClusterError> {
    Err(ClusterError::Nothing(why.to_owned()))
}

/// The running nodes of a cluster, as their runtime acts on them. Nodes are numbered from 0.
#[async_trait]
pub trait RunningNodes: Send {
    /// Returns the time between two checks whether the servers still run; those of the container engine are expensive.
    fn look_every(&self) -> Duration {
        Duration::from_secs(3600)
    }

    /// Returns the way in which a server ended, if it did and that can be seen.
    async fn ended(&mut self, _node: usize) -> Option<String> {
        None
    }

    async fn kill(&mut self, node: usize) -> Result<(), ClusterError>;

    /// Called when all of them serve for the first time.
    fn have_begun(&mut self) -> Result<(), ClusterError> {
        Ok(())
    }

    /// Removes the unsynced writes of a killed server. Only with [`ClusterSpec::own_disks`].
    async fn cut_power(&mut self, _node: usize) -> Result<(), ClusterError> {
        not_here(NO_DISKS)
    }

    /// Leaves no free block on the file system of a server. Only with [`ClusterSpec::own_disks`].
    async fn fill_disk(&mut self, _node: usize) -> Result<(), ClusterError> {
        not_here(NO_DISKS)
    }

    /// Frees those blocks, and counts the server's log lines about writes that failed in the meantime.
    async fn free_disk(&mut self, _node: usize) -> Result<(), ClusterError> {
        not_here(NO_DISKS)
    }

    /// Starts a server again that ended for lack of space, and counts that; does nothing to one that runs.
    async fn recover(&mut self, _node: usize) -> Result<(), ClusterError> {
        Ok(())
    }

    /// Starts a server again; returns its address if that may have changed.
    async fn start(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError>;

    /// Starts a server without data in the place of a killed one, to join the others; returns its address if that may have
    /// changed. Only with [`ClusterSpec::replaceable`].
    async fn start_new(&mut self, _node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        not_here("these servers cannot be replaced")
    }

    /// Ends a server in order and starts it from the other version, on its data; returns its address if that may have changed.
    /// Only with [`ClusterSpec::upgrade`].
    async fn upgrade(&mut self, _node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        not_here(NO_OTHER_VERSION)
    }

    async fn pause(&mut self, node: usize) -> Result<(), ClusterError>;

    async fn resume(&mut self, node: usize) -> Result<(), ClusterError>;

    /// Stops every server and removes its files.
    async fn stop(self: Box<Self>);
}

/// The parts of a cluster, on any runtime.
pub struct ClusterParts {
    pub nodes: Vec<Node>,
    pub version: String,
    /// The node that is the primary at first, if the others are its replicas.
    pub primary: Option<usize>,
    /// The login; `None` if the servers need none.
    pub login: Option<Arc<Login>>,
    /// Their TLS.
    pub tls: Option<Arc<RunTls>>,
    /// The relays of the nodes, whose addresses are those of the relays; empty if servers read plain text.
    pub relays: Vec<TlsRelay>,
    pub running: Box<dyn RunningNodes>,
    pub queries: Arc<dyn ServerQueries>,
    /// The way to them without links, and the clock for waits.
    pub reach: ReachedServers,
}

/// Nodes that a runtime started.
struct StartedNodes {
    nodes: Vec<Node>,
    /// The same nodes in their own configuration.
    members: Vec<NodeAddress>,
    running: Box<dyn RunningNodes>,
}

/// Returns the nodes for the first readiness polls, by this machine's sockets.
pub fn probed(nodes: &[Node], members: &[NodeAddress], login: Option<&Arc<Login>>) -> Vec<ProbedServer> {
    let members: Arc<[NodeAddress]> = members.into();
    let server = |(me, node): (usize, &Node)| ProbedServer {
        nodes: Arc::clone(&members),
        me,
        address: node.address,
        login: login.cloned(),
        reach: ReachedServers::REAL,
        log: node.log.clone(),
        peers_by_proxy: node.peer_proxy.is_some(),
        first: true,
        keys: OnceLock::new(),
    };
    nodes.iter().enumerate().map(server).collect()
}

/// The reason for which a command has no simulated servers.
const NO_SIMULATION: &str =
    "this command starts real servers, and simulated ones serve no sockets\nhint: --runtime local or --runtime docker";

/// A cluster of servers that serve.
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub version: String,
    running: Arc<AsyncMutex<Box<dyn RunningNodes>>>,
    control: NodeControl,
    tls: Option<Arc<RunTls>>,
    executor: RunningTask,
}

impl Cluster {
    /// Starts the servers and waits until every one of them serves and knows a leader, or until `interrupt` turns `true`:
    /// then they are stopped, and the error is [`ClusterError::Interrupted`].
    pub async fn start(
        spec: &ClusterSpec,
        runtime: &Runtime,
        mut interrupt: watch::Receiver<bool>,
    ) -> Result<Self, ClusterError> {
        spec.refuse_replicas(runtime)?;
        let StartedNodes {
            mut nodes,
            members,
            mut running,
        } = match runtime {
            Runtime::Local => local::start(spec).await?,
            Runtime::Attached(attached) => attached::start(spec, attached).await?,
            Runtime::Simulated | Runtime::Virtual => return Err(ClusterError::Nothing(NO_SIMULATION.to_owned())),
            #[cfg(feature = "docker")]
            Runtime::Docker { image } => docker::start(spec, image).await?,
            #[cfg(not(feature = "docker"))]
            Runtime::Docker { .. } => return Err(ClusterError::Engine("this harness was built without docker".into())),
        };
        let ready = async {
            let relays = match &spec.tls {
                Some(tls) => tls.open_relays(&mut nodes).map_err(ClusterError::Nothing)?,
                None => Vec::new(),
            };
            let servers = probed(&nodes, &members, spec.first_login(runtime).as_ref());
            let version = tokio::select! {
                biased;
                ready = ready::wait(spec, &nodes, &servers, &mut *running) => ready,
                Ok(_) = interrupt.wait_for(|wanted| *wanted) => Err(ClusterError::Interrupted),
            }?;
            if !matches!(runtime, Runtime::Attached(_)) {
                let addresses = nodes.iter().map(|node| node.address).collect();
                let servers = Endpoints::new(addresses, spec.primary()).with_login(spec.login.clone());
                spec.software.prepare(servers).await?;
            }
            running.have_begun()?;
            Ok::<_, ClusterError>((relays, spec.checked(version)?))
        };
        let (relays, version) = match ready.await {
            Ok(ready) => ready,
            Err(error) => {
                running.stop().await;
                return Err(error);
            }
        };
        let servers = probed(&nodes, &members, spec.login.as_ref());
        Ok(Self::assemble(ClusterParts {
            nodes,
            version,
            primary: spec.primary(),
            login: spec.login.clone(),
            tls: spec.tls.clone(),
            relays,
            running,
            queries: Arc::new(ProductQueries {
                software: spec.software,
                servers,
            }),
            reach: ReachedServers::REAL,
        }))
    }

    /// Assembles a cluster of servers that serve.
    pub fn assemble(parts: ClusterParts) -> Self {
        let nodes = parts.nodes;
        let addresses = nodes.iter().map(|node| node.address).collect();
        let endpoints = Endpoints::new(addresses, parts.primary);
        let endpoints = endpoints.with_login(parts.login).reached_by(parts.reach);
        let running = Arc::new(AsyncMutex::new(parts.running));
        let (control, executor) = control::spawn(&running, endpoints, parts.queries, nodes.clone(), parts.relays);
        Self {
            nodes,
            version: parts.version,
            running,
            control,
            tls: parts.tls,
            executor,
        }
    }

    /// Returns the control of its nodes.
    pub fn control(&self) -> NodeControl {
        self.control.clone()
    }

    /// Returns the current endpoints of its nodes.
    pub fn endpoints(&self) -> EndpointsReceiver {
        self.control.watch_endpoints()
    }

    /// Returns the address of each node for the others and clients, if servers announce one.
    pub fn announced(&self) -> Vec<SocketAddr> {
        self.nodes.iter().filter_map(|node| node.peer_proxy).collect()
    }

    /// Returns the login, or `None` if they need none.
    pub fn login(&self) -> Option<Arc<Login>> {
        self.control.endpoints().login()
    }

    /// Returns their TLS, or `None` if they read plain text.
    pub fn tls(&self) -> Option<&RunTls> {
        self.tls.as_deref()
    }

    /// Stops every server and removes its files. Queued commands are discarded.
    pub async fn stop(self) {
        self.executor.end().await;
        if let Some(running) = Arc::into_inner(self.running) {
            running.into_inner().stop().await;
        }
    }
}
