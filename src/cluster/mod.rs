//! Servers, however they come to life: one handle over child processes and containers.
//!
//! A cluster knows its own [`Spec`] and nothing of plans, faults or clients. Whatever it started is gone when it is
//! stopped or dropped; what a killed harness left behind is found by [`leftovers`].

#[cfg(feature = "docker")]
mod docker;
mod etcd;
mod hand;
pub mod leftovers;
mod local;
mod ready;
mod redis;
mod runtime;
mod server;
#[cfg(feature = "docker")]
mod sidecar;
mod zk;

pub use hand::{Act, Done, Hand};
pub use runtime::{Choice, Chosen, choose, image_present};
pub use server::{SERVERS, Server, Serving, server_of};
#[cfg(feature = "docker")]
pub use sidecar::Sidecar;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinHandle;

use crate::limits::CLUSTER_READY;
use crate::wall_clock::WallClock;

/// What to start.
#[derive(Clone)]
pub struct Spec {
    pub server: &'static dyn Server,
    pub nodes: u32,
    /// What clients will ask for; server settings follow from it.
    pub lease: Duration,
    /// The run's name: folders, containers and networks carry it.
    pub run: String,
    /// A folder for each server's configuration and log, `<logs>/n1/server.log`.
    pub logs: PathBuf,
    /// The first port of local servers; free ports are looked for when it is not given.
    pub port_base: Option<u16>,
    /// By server: the wall clock it is to have; empty where they all have the machine's.
    pub clocks: Vec<Arc<WallClock>>,
}

/// A server that was started.
#[derive(Debug, Clone)]
pub struct Node {
    /// `n1`, `n2`, …
    pub name: String,
    /// Where it serves clients.
    pub address: SocketAddr,
    pub log: PathBuf,
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
    #[error("no free ports between {} and {} for {wanted} servers", range.start, range.end)]
    NoPorts { wanted: usize, range: std::ops::Range<u16> },
    #[error("could not write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{node} does not run, so it cannot be paused")]
    Gone { node: String },
    #[error("the container engine: {0}")]
    Engine(String),
    /// Nothing on this machine can start the servers.
    #[error("{0}")]
    Nothing(String),
}

enum Running {
    Local(local::Processes),
    #[cfg(feature = "docker")]
    Docker(docker::Containers),
}

/// Servers that serve.
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub version: String,
    census: Census,
    running: Arc<AsyncMutex<Running>>,
    hand: Hand,
    keeping: JoinHandle<()>,
}

impl Cluster {
    /// Starts the servers and waits until every one of them serves and knows a leader.
    pub async fn start(spec: &Spec, chosen: &Chosen) -> Result<Self, ClusterError> {
        let (nodes, mut running) = match chosen {
            Chosen::Local => {
                let (nodes, processes) = local::start(spec).await?;
                (nodes, Running::Local(processes))
            }
            #[cfg(feature = "docker")]
            Chosen::Docker { image } => {
                let (nodes, containers) = docker::start(spec, image).await?;
                (nodes, Running::Docker(containers))
            }
            #[cfg(not(feature = "docker"))]
            Chosen::Docker { .. } => return Err(ClusterError::Engine("this harness was built without docker".into())),
        };
        let version = match ready::wait(spec.server, &nodes, &mut running, CLUSTER_READY).await {
            Ok(version) => version,
            Err(error) => {
                running.stop().await;
                return Err(error);
            }
        };
        Ok(Self::in_hand(spec.server, nodes, version, running))
    }

    fn in_hand(server: &'static dyn Server, nodes: Vec<Node>, version: String, running: Running) -> Self {
        let (sender, addresses) = watch::channel(nodes.iter().map(|node| node.address).collect());
        let census = Census {
            server,
            names: nodes.iter().map(|node| node.name.clone()).collect(),
            addresses,
        };
        let running = Arc::new(AsyncMutex::new(running));
        let (hand, keeping) = hand::keep(&running, sender, census.clone());
        Self {
            nodes,
            version,
            census,
            running,
            hand,
            keeping,
        }
    }

    /// The census of this cluster, to be taken while it runs.
    pub fn census(&self) -> Census {
        self.census.clone()
    }

    /// A hand on its servers.
    pub fn hand(&self) -> Hand {
        self.hand.clone()
    }

    /// Where its servers serve clients now, by node.
    pub fn addresses(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.census.addresses.clone()
    }

    /// Stops every server and removes what they left. Orders that were not carried out yet are of no use any more.
    pub async fn stop(self) {
        self.keeping.abort();
        let _ = self.keeping.await;
        if let Some(running) = Arc::into_inner(self.running) {
            running.into_inner().stop().await;
        }
    }
}

/// Asks servers what they are.
#[derive(Clone)]
pub struct Census {
    server: &'static dyn Server,
    names: Vec<String>,
    addresses: watch::Receiver<Vec<SocketAddr>>,
}

impl Census {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.borrow().clone()
    }

    /// Each server's role now, `None` for one that does not serve.
    pub async fn roles(&self) -> Vec<(String, Option<Serving>)> {
        let mut roles = Vec::new();
        for (name, address) in self.names.iter().zip(self.addresses()) {
            roles.push((name.clone(), ready::ask(self.server, address).await.ok()));
        }
        roles
    }
}

impl Running {
    /// How a server ended, if one did.
    async fn ended(&mut self, node: usize) -> Option<String> {
        match self {
            Self::Local(processes) => processes.ended(node),
            #[cfg(feature = "docker")]
            Self::Docker(containers) => containers.ended(node).await,
        }
    }

    async fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        match self {
            Self::Local(processes) => {
                processes.kill(node).await;
                Ok(())
            }
            #[cfg(feature = "docker")]
            Self::Docker(containers) => containers.kill(node).await,
        }
    }

    /// Starts a server again; where it serves, if that may have changed.
    async fn start(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        match self {
            Self::Local(processes) => processes.start(node).await.map(|()| None),
            #[cfg(feature = "docker")]
            Self::Docker(containers) => containers.start(node).await.map(Some),
        }
    }

    async fn pause(&mut self, node: usize) -> Result<(), ClusterError> {
        match self {
            Self::Local(processes) => processes.pause(node),
            #[cfg(feature = "docker")]
            Self::Docker(containers) => containers.pause(node).await,
        }
    }

    async fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        match self {
            Self::Local(processes) => {
                processes.resume(node);
                Ok(())
            }
            #[cfg(feature = "docker")]
            Self::Docker(containers) => containers.resume(node).await,
        }
    }

    async fn stop(self) {
        match self {
            Self::Local(processes) => processes.stop().await,
            #[cfg(feature = "docker")]
            Self::Docker(containers) => containers.stop().await,
        }
    }
}
