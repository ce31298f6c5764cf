//! The server software of a product: its configuration, start and readiness poll.
//!
//! Each backend fills in one [`ServerSoftware`]; all of it is text and pure functions. The runtimes start the servers and poll
//! them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use harness_tls::Authority;
use harness_workloads::Login;
use nix::sys::signal::Signal;

use super::membership::Membership;
use super::peering::{NodeAddress, Peering};
use super::programs::{find_on_machine, program_in};
use super::ready::ServerProbe;
use super::{BoxFuture, ClusterError, ClusterSpec, Endpoints};
use crate::clock::GroundClock;
use crate::limits::SERVER_WORK;

/// The configuration of one node, from which its command line and files follow.
#[derive(Debug, Clone, Default)]
pub struct NodeSetup {
    /// The nodes of the cluster, this one included.
    pub nodes: Vec<NodeAddress>,
    /// The index of this node in `nodes`.
    pub me: usize,
    /// The address to listen on.
    pub bind: String,
    /// An empty folder for this node alone.
    pub data: PathBuf,
    /// The lease of clients; tick and timeout settings follow from it.
    pub lease: Duration,
    /// Whether it syncs before it acknowledges, as in production: the disk, or its content for another version, is the subject of
    /// the run. Otherwise it is as fast as it can be.
    pub syncs: bool,
    /// The proxies between the nodes, if servers may not connect directly; see [`PeerProxies`](super::PeerProxies).
    pub peer_proxies: Vec<SocketAddr>,
    /// The login; `None` if everyone may do everything.
    pub login: Option<Arc<Login>>,
    /// Its TLS for clients, without plain text; `None` for plain text.
    pub tls: Option<Arc<Authority>>,
    /// Whether servers may leave its cluster and join it while it runs: some products must be configured for that.
    pub replaceable: bool,
    /// Whether it joins a running cluster, as a new member without data.
    pub joins: bool,
    /// Whether its time is that of a world, in which nothing is random.
    pub in_virtual_time: bool,
    /// The folder with its programs, if their version is not that of this machine's.
    pub programs: Option<PathBuf>,
}

impl NodeSetup {
    /// Returns the setup of one of these nodes, which listens at its own address, with no proxies, no login and no TLS.
    pub fn plain(nodes: Vec<NodeAddress>, me: usize, data: PathBuf, lease: Duration) -> Self {
        Self {
            bind: nodes[me].host.clone(),
            nodes,
            me,
            data,
            lease,
            ..Self::default()
        }
    }

    /// Returns the setup of one of so many nodes, in a test: on loopback, at these ports plus its number.
    #[cfg(test)]
    pub fn of_test(nodes: u32, ports: &[u16], me: usize) -> Self {
        let ports_of = |number: u32| ports.iter().map(|port| port + number as u16).collect();
        let node = |number| NodeAddress::new(number, "127.0.0.1", ports_of(number));
        let lease = Duration::from_secs(2);
        Self::plain((1..=nodes).map(node).collect(), me, "/tmp/run/n".into(), lease)
    }

    /// Returns the path of one of its programs.
    pub fn find_program(&self, program: &str) -> Option<PathBuf> {
        match &self.programs {
            Some(folder) => program_in(folder, program),
            None => find_on_machine(program),
        }
    }

    /// Returns the path of one of its programs or of this machine's, or the name if neither exists.
    pub fn program(&self, name: &str) -> PathBuf {
        self.find_program(name)
            .or_else(|| find_on_machine(name))
            .unwrap_or_else(|| name.into())
    }

    pub fn me(&self) -> &NodeAddress {
        &self.nodes[self.me]
    }

    /// Returns the proxy by which it dials another node, if there is one; with [`Peering::Dialled`].
    pub fn proxy_before(&self, other: usize) -> Option<SocketAddr> {
        let before_mine = self.me * (self.nodes.len() - 1);
        let before_other = other - usize::from(other > self.me);
        self.peer_proxies.get(before_mine + before_other).copied()
    }

    /// Returns its own proxy, if there is one.
    pub fn peer_proxy(&self) -> Option<SocketAddr> {
        self.peer_proxies.get(self.me).copied()
    }
}

impl ClusterSpec {
    /// Returns the spec of plain servers: no proxies between them, no login and no TLS.
    pub fn plain(
        software: &'static ServerSoftware,
        nodes: u32,
        lease: Duration,
        (run, logs): (String, PathBuf),
        start_limit: Duration,
    ) -> Self {
        Self {
            software,
            nodes,
            lease,
            run,
            logs,
            port_base: None,
            start_limit,
            clocks: Vec::new(),
            disks: Vec::new(),
            own_disks: false,
            replaceable: false,
            version: None,
            upgrade: None,
            peer_proxies: None,
            login: None,
            tls: None,
            on_wait: Arc::new(|_| {}),
        }
    }

    /// Returns the setup of one of these nodes with its data in `data`.
    pub(super) fn setup(&self, nodes: &[NodeAddress], me: usize, data: PathBuf, proxies: &[SocketAddr]) -> NodeSetup {
        NodeSetup {
            syncs: self.syncs(),
            peer_proxies: proxies.to_vec(),
            login: self.login.clone(),
            tls: self.tls.as_ref().map(|tls| tls.authority()),
            replaceable: self.replaceable,
            programs: self.version.as_ref().and_then(|version| version.programs.clone()),
            ..NodeSetup::plain(nodes.to_vec(), me, data, self.lease)
        }
    }
}

/// A program with its arguments and files.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Paths inside the data folder, and contents. Their file names belong in [`ServerSoftware::files`].
    pub files: Vec<(String, String)>,
    /// Files that no other user may read, and that no folder of a run has.
    pub secrets: Vec<(String, String)>,
}

/// The settings of a container of the official image, in place of a configuration file.
#[derive(Debug, Clone, Default)]
pub struct ContainerSpec {
    pub env: Vec<(String, String)>,
    /// Empty: the image's own command.
    pub command: Vec<String>,
    /// Whole paths in the container, and contents.
    pub files: Vec<(String, String)>,
}

/// The servers of one product.
pub struct ServerSoftware {
    /// The backend's name: `zk`, `etcd`, `redis`.
    pub backend: &'static str,
    /// The product's name in reports and messages: `ZooKeeper`.
    pub product: &'static str,
    /// The default number of servers of a cluster.
    pub nodes: u32,
    /// The ports that a server listens on in a container, if they are fixed; the first serves clients. As a local process it
    /// listens on the same number of ports.
    pub ports: &'static [u16],
    /// Whether a killed server knows its locks after its next start.
    pub keeps_data: bool,
    /// The signal of `server-kill`.
    pub kill: KillSignal,
    /// The signal at the end of a run for a local server that would otherwise leave objects in the kernel; SIGKILL follows.
    pub stop: Option<Signal>,
    /// The images, `name:tag`, of its containers: the official one first, which `scripts/provide` reads from the same file, then
    /// the one that `images/build.sh` makes if no registry can be reached. Empty if it has no container.
    pub images: &'static [&'static str],
    /// The packages to install if [`ServerSoftware::missing`] finds a program missing.
    pub install_hint: &'static str,
    /// The files of a node that a run keeps beside its log: the names of [`Launch::files`].
    pub files: &'static [&'static str],
    /// The connections between its servers, which determine its peer partitions.
    pub peering: Peering,
    /// Returns the programs that this machine lacks for a local process.
    pub missing: &'static (dyn Fn() -> Vec<String> + Sync),
    /// The local process of a node.
    pub launch: &'static (dyn Fn(&NodeSetup) -> Launch + Sync),
    /// Whether its containers work with the capabilities and within the limits of [`super::confinement`]: the needs of a
    /// description's image are not known.
    pub confined: bool,
    /// The container of a node.
    pub container: &'static (dyn Fn(&NodeSetup) -> ContainerSpec + Sync),
    pub probe: &'static ServerProbe,
    pub guard: LoginGuard,
    /// Connects to a server once, before clients reach it, if the first connection takes so much longer than any other that a
    /// client with a short lease would give it up.
    pub first_connection: Option<FirstConnection>,
    /// The commands with which a server leaves its cluster permanently and a new one joins in its place, if known.
    pub membership: Option<&'static dyn Membership>,
    /// The data of a server with which another version starts. The error has the reason for which it does not, as the end of a
    /// sentence.
    pub upgrade: Result<&'static KeptData, &'static str>,
    /// Whether its configuration uses [`NodeSetup::tls`].
    pub speaks_tls: bool,
}

impl ServerSoftware {
    /// Prepares servers that serve before clients reach them.
    pub async fn prepare(&self, servers: Endpoints) -> Result<(), ClusterError> {
        let unprepared = |why| ClusterError::Unprepared {
            product: self.product,
            why,
        };
        if let Some(connect) = self.first_connection {
            let connected = servers.nodes().iter().map(|address| async move {
                let connected = connect(*address).await;
                connected.map_err(|why| unprepared(format!("the first connection to {address} failed: {why}")))
            });
            try_join_all(connected).await?;
        }
        let (LoginGuard::ByCommand(tell), Some(login)) = (&self.guard, servers.login()) else {
            return Ok(());
        };
        let told = GroundClock::Real.answer_within(SERVER_WORK, tell(servers, login)).await;
        told.map_err(|why| unprepared(format!("the login could not be created: {why}")))
    }
}

/// The data of a server with which another version of the product continues.
#[derive(Debug)]
pub struct KeptData {
    /// All folders of the data in a container.
    pub folders: &'static [&'static str],
    /// Returns the programs that a folder lacks.
    pub missing: fn(&Path) -> Vec<String>,
}

/// Connects to a server and disconnects. The error is the end of a sentence.
pub type FirstConnection = fn(SocketAddr) -> BoxFuture<'static, Result<(), String>>;

/// The way in which servers come to require a login.
pub enum LoginGuard {
    /// None is known.
    Unknown,
    /// By their configuration: [`NodeSetup::login`].
    FromStart,
    /// By one command, when they serve and before anyone else reaches them, within [`SERVER_WORK`]. Its effect outlasts their
    /// end. The error is a sentence.
    ByCommand(&'static LoginCommand),
}

/// Makes servers without a login require this one.
pub type LoginCommand = dyn Fn(Endpoints, Arc<Login>) -> BoxFuture<'static, Result<(), String>> + Sync;

/// The signal that kills a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillSignal {
    /// SIGKILL, at any moment of its work.
    Kill,
    /// SIGTERM, so that it ends in order; SIGKILL if it does not.
    Terminate,
}
