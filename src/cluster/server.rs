//! What the cluster must know of a backend's servers: how they are configured, started, and asked whether they serve.
//!
//! One file a backend implements [`Server`]; all of it is pure text. Starting and asking is done by the runtimes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::outlets::Peering;

/// One server as its own and its peers' configuration name it.
#[derive(Debug, Clone)]
pub struct Member {
    /// `n1`, `n2`, …
    pub name: String,
    /// From 1.
    pub number: u32,
    /// A name or an address that its peers can reach.
    pub host: String,
    /// The ports it listens on, as many as [`Server::ports`] asks for; the first serves clients.
    pub ports: Vec<u16>,
}

/// What a server is told.
#[derive(Debug, Clone)]
pub struct Setup {
    pub members: Vec<Member>,
    /// Which of `members` this server is.
    pub me: usize,
    /// The address to listen on.
    pub bind: String,
    /// An empty folder of its own.
    pub data: PathBuf,
    /// The lease that clients will ask for; tick and timeout settings follow from it.
    pub lease: Duration,
    /// Where its way out to its peers is, if it is not to dial them itself; see [`Server::peering`].
    pub outlet: Option<SocketAddr>,
}

impl Setup {
    pub fn me(&self) -> &Member {
        &self.members[self.me]
    }
}

/// A program with its arguments, and the files it wants to find.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Paths inside the data folder, and contents.
    pub files: Vec<(String, String)>,
}

/// A container of the official image: what it is given in place of a configuration file.
#[derive(Debug, Clone, Default)]
pub struct Container {
    pub env: Vec<(String, String)>,
    pub command: Vec<String>,
}

/// What a server said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// `leader`, `follower`, `master`, `replica`.
    pub role: String,
    pub version: String,
}

/// A server's answer to the question whether it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Serving(Serving),
    /// It is there and does not serve yet; why.
    NotYet(String),
    /// The answer is not complete; read on.
    Unfinished,
}

pub trait Server: Sync {
    /// `zk`, `etcd`, `redis`.
    fn backend(&self) -> &'static str;

    /// The product's name, for people.
    fn product(&self) -> &'static str;

    /// Servers of a cluster unless told otherwise.
    fn nodes(&self) -> u32;

    /// How many ports one server listens on.
    fn ports(&self) -> usize;

    /// Its ports in a container, where they are fixed.
    fn container_ports(&self) -> Vec<u16>;

    /// What is missing on this machine to start it as a local process; empty when nothing is.
    fn missing(&self) -> Vec<String>;

    /// What to install when something is missing.
    fn install_hint(&self) -> &'static str;

    /// How its servers reach each other, which is how they can be parted.
    fn peering(&self) -> Peering;

    fn launch(&self, setup: &Setup) -> Launch;

    /// The official image, `name:tag`.
    fn image(&self) -> &'static str;

    fn container(&self, setup: &Setup) -> Container;

    /// Bytes to send to the client port in order to ask whether it serves.
    fn question(&self, at: &str) -> Vec<u8>;

    fn answer(&self, bytes: &[u8], closed: bool) -> Answer;
}

/// Every backend whose servers can be started.
pub const SERVERS: &[&dyn Server] = &[&super::zk::ZooKeeper, &super::etcd::Etcd, &super::redis::Redis];

pub fn server_of(backend: &str) -> Option<&'static dyn Server> {
    SERVERS.iter().copied().find(|server| server.backend() == backend)
}

/// Where `program` is in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}
