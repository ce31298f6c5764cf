//! What the cluster must know of a product's servers: how they are configured, started, and asked whether they serve.
//!
//! Each backend fills in one [`ServerSoftware`]; all of it is text and pure functions. Starting servers and asking them is
//! done by the runtimes.

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
use super::ready::ReadinessQuestion;
use super::{BoxFuture, ClusterError, ClusterSpec, Endpoints};
use crate::clock::GroundClock;
use crate::limits::SERVER_BACK;

/// The configuration of one node, from which its command line and files follow.
#[derive(Debug, Clone)]
pub struct NodeSetup {
    /// Every node of the cluster, this one included.
    pub nodes: Vec<NodeAddress>,
    /// The index of this node in `nodes`.
    pub me: usize,
    /// The address to listen on.
    pub bind: String,
    /// An empty folder for this node alone.
    pub data: PathBuf,
    /// The lease that clients will ask for; tick and timeout settings follow from it.
    pub lease: Duration,
    /// Whether it is to sync what it acknowledges to its disk, as in production: the disk, or what is left there for another
    /// version, is what the run is about. Otherwise it is to be as fast as it can.
    pub syncs: bool,
    /// By node: the proxies between them, if servers may not dial each other directly; see [`PeerProxies`](super::PeerProxies).
    pub peer_proxies: Vec<SocketAddr>,
    /// Who may log in; `None`: everyone may do everything.
    pub login: Option<Arc<Login>>,
    /// With what it serves clients by TLS, and nobody else; `None`: in plain text.
    pub tls: Option<Arc<Authority>>,
    /// Whether servers may leave its cluster and join it while it runs: some products must be told from the start.
    pub replaceable: bool,
    /// Whether it joins a cluster that runs, as a new member without data.
    pub joins: bool,
    /// The folder with its programs, where they are of another version than those of this machine.
    pub programs: Option<PathBuf>,
}

impl NodeSetup {
    /// One of these nodes, which listens at its own address, with no proxies, no login and no TLS.
    pub fn plain(nodes: Vec<NodeAddress>, me: usize, data: PathBuf, lease: Duration) -> Self {
        Self {
            bind: nodes[me].host.clone(),
            nodes,
            me,
            data,
            lease,
            syncs: false,
            peer_proxies: Vec::new(),
            login: None,
            tls: None,
            replaceable: false,
            joins: false,
            programs: None,
        }
    }

    /// One of these nodes, in a test.
    #[cfg(test)]
    pub fn of_test(nodes: Vec<NodeAddress>, me: usize) -> Self {
        Self {
            bind: "127.0.0.1".into(),
            ..Self::plain(nodes, me, "/tmp/run/n".into(), Duration::from_secs(2))
        }
    }

    /// Where a program of it is.
    pub fn find_program(&self, program: &str) -> Option<PathBuf> {
        match &self.programs {
            Some(folder) => program_in(folder, program),
            None => find_on_machine(program),
        }
    }

    /// The same, or where this machine has it; its name where neither has.
    pub fn program(&self, name: &str) -> PathBuf {
        self.find_program(name)
            .or_else(|| find_on_machine(name))
            .unwrap_or_else(|| name.into())
    }

    pub fn me(&self) -> &NodeAddress {
        &self.nodes[self.me]
    }

    /// The proxy by which it dials another node, if there is one; with [`Peering::Dialled`].
    pub fn proxy_before(&self, other: usize) -> Option<SocketAddr> {
        let before_mine = self.me * (self.nodes.len() - 1);
        let before_other = other - usize::from(other > self.me);
        self.peer_proxies.get(before_mine + before_other).copied()
    }

    /// Its own proxy, if there is one.
    pub fn peer_proxy(&self) -> Option<SocketAddr> {
        self.peer_proxies.get(self.me).copied()
    }
}

impl ClusterSpec {
    /// Servers of which nothing special is asked: no proxies between them, no login and no TLS.
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

    /// How one of these nodes is set up that has its data in `data`.
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

/// A program with its arguments, and the files it wants to find.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Paths inside the data folder, and contents. Their file names belong in [`ServerSoftware::files`].
    pub files: Vec<(String, String)>,
    /// The same of files that no other user and no folder of a run may have.
    pub secrets: Vec<(String, String)>,
}

/// What a container of the official image is given in place of a configuration file.
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
    /// Servers of a cluster unless told otherwise.
    pub nodes: u32,
    /// The ports that a server listens on in a container, where they are fixed; the first serves clients. As a local process it
    /// listens on just as many.
    pub ports: &'static [u16],
    /// Whether a server that was killed knows its locks when it starts again.
    pub keeps_data: bool,
    /// What `server-kill` sends to it.
    pub kill: KillSignal,
    /// What a local server is sent at the end of a run where it would otherwise leave something in the kernel; SIGKILL follows.
    pub stop: Option<Signal>,
    /// The images, `name:tag`, that its containers may come from: the official one first, which `scripts/provide` reads from the
    /// same file, then the one that `images/build.sh` makes where no registry can be reached. Empty where it has no container.
    pub images: &'static [&'static str],
    /// What to install when [`ServerSoftware::missing`] finds something missing.
    pub install_hint: &'static str,
    /// The files, next to its log, that a run keeps of a node: the names of [`Launch::files`].
    pub files: &'static [&'static str],
    /// How its servers reach each other, which decides how they can be cut off from each other.
    pub peering: Peering,
    /// What this machine lacks to start it as a local process; empty when nothing is missing.
    pub missing: &'static (dyn Fn() -> Vec<String> + Sync),
    /// The local process of a node.
    pub launch: &'static (dyn Fn(&NodeSetup) -> Launch + Sync),
    /// Whether its containers do with the capabilities and within the limits of [`super::confinement`]: what a description's image
    /// needs is not known.
    pub confined: bool,
    /// The container of a node.
    pub container: &'static (dyn Fn(&NodeSetup) -> ContainerSpec + Sync),
    pub question: ReadinessQuestion,
    pub guard: LoginGuard,
    /// Connects to a server once, before clients are led to it, where the first connection takes so much longer than any other that
    /// a client with a short lease would give it up.
    pub first_connection: Option<FirstConnection>,
    /// How one of its servers leaves its cluster for good and a new one joins in its place; `None` where that is not known.
    pub membership: Option<&'static dyn Membership>,
    /// How one of its servers is started from another version on the data that it left. The error says why it is not, as the end of
    /// a sentence.
    pub upgrade: Result<&'static KeptData, &'static str>,
    /// Whether [`NodeSetup::tls`] is known to its configuration.
    pub speaks_tls: bool,
}

impl ServerSoftware {
    /// Has servers that serve do what must be done before clients are led to them.
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
        let (LoginGuard::Told(tell), Some(login)) = (&self.guard, servers.login()) else {
            return Ok(());
        };
        let told = GroundClock::Real.answer_within(SERVER_BACK, tell(servers, login)).await;
        told.map_err(|why| unprepared(format!("the login could not be created: {why}")))
    }
}

/// What is known of a product whose servers go on with the data of another version.
#[derive(Debug)]
pub struct KeptData {
    /// Where a container has all of it.
    pub folders: &'static [&'static str],
    /// What a folder of programs lacks; empty when nothing is missing.
    pub missing: fn(&Path) -> Vec<String>,
}

/// Connects to a server and leaves it again. The error is the end of a sentence.
pub type FirstConnection = fn(SocketAddr) -> BoxFuture<'static, Result<(), String>>;

/// How servers come to let in nobody but who logs in.
pub enum LoginGuard {
    /// It is not known how.
    Unknown,
    /// They start with it: [`NodeSetup::login`].
    FromStart,
    /// They are told once, when they serve and before anyone else is led to them, within [`SERVER_BACK`]. What they are told outlasts
    /// their end. The error is a sentence.
    Told(&'static TellLogin),
}

/// Has servers that let everyone in let in nobody but this login.
pub type TellLogin = dyn Fn(Endpoints, Arc<Login>) -> BoxFuture<'static, Result<(), String>> + Sync;

/// The signal that kills a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillSignal {
    /// SIGKILL, at any moment of its work.
    Kill,
    /// SIGTERM, so that it ends in order; SIGKILL where it does not.
    Terminate,
}
