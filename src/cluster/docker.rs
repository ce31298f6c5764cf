//! The docker runtime: containers through testcontainers, on a network of the run's own.
//!
//! testcontainers has no reaper, so every container and network has a label with its run and its harness, by which leftovers are
//! found. Addresses are the containers' own: mapped ports change on every restart.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use testcontainers::bollard::errors::Error as BollardError;
use testcontainers::bollard::query_parameters::KillContainerOptionsBuilder;
use testcontainers::core::logs::LogFrame;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};
use tokio::time::{sleep, timeout};

use super::confinement::confine;
use super::container_request;
use super::docker_network::Network;
use super::engine::{engine, engine_failed, remove_container, rename, start_container};
use super::peering::NodeAddress;
use super::software::{KillSignal, NodeSetup};
use super::{
    ClusterError, ClusterSpec, NO_OTHER_VERSION, Node, NotWritten, OtherVersion, RunningNodes, StartedNodes, not_here,
};
use crate::limits::{IN_ORDER, READY_POLL};

const NO_DISKS: &str = "a full disk and the loss of unsynced data need a file system for each server, and containers have none\n\
     hint: --runtime local";

type Container = ContainerAsync<GenericImage>;

/// The containers of a run, in the order of their nodes, and their network.
pub struct Containers {
    spec: ClusterSpec,
    containers: Vec<Container>,
    /// The image of each node's next container.
    images: Vec<String>,
    /// The setup of each node.
    setups: Vec<NodeSetup>,
    network: Network,
}

/// Starts every server of `spec` at the same time, since a quorum needs them all.
pub async fn start(spec: &ClusterSpec, image: &str) -> Result<StartedNodes, ClusterError> {
    if spec.own_disks {
        return Err(ClusterError::Nothing(NO_DISKS.to_owned()));
    }
    let network = Network::create(spec).await?;
    let addresses = addresses(spec, &network.name);
    let peer_proxies = match spec.peer_proxies {
        None => Vec::new(),
        // the address of this machine for containers
        Some(_) => spec.open_peer_proxies(network.gateway().await?, &addresses)?,
    };
    let mut starting = Vec::new();
    let mut setups = Vec::new();
    for me in 0..addresses.len() {
        let setup = NodeSetup {
            bind: "0.0.0.0".into(),
            ..spec.setup(&addresses, me, PathBuf::from("/data"), &peer_proxies)
        };
        setups.push(setup.clone());
        starting.push(start_one(spec, setup, image, &network.name, None));
    }
    let mut started = Vec::new();
    let mut failed = None;
    for one in join_all(starting).await {
        match one {
            Ok(one) => started.push(one),
            Err(error) => failed = Some(error),
        }
    }
    let (nodes, containers) = started.into_iter().unzip();
    let containers = Containers {
        spec: spec.clone(),
        containers,
        images: vec![image.to_owned(); setups.len()],
        setups,
        network,
    };
    match failed {
        None => Ok(StartedNodes {
            nodes,
            members: addresses,
            running: Box::new(containers),
        }),
        Some(error) => {
            Box::new(containers).stop().await;
            Err(error)
        }
    }
}

/// Starts the container of one server. `data_of` is the container that has its data, if there is one.
async fn start_one(
    spec: &ClusterSpec,
    setup: NodeSetup,
    image: &str,
    network: &str,
    data_of: Option<String>,
) -> Result<(Node, Container), ClusterError> {
    let node = setup.me().name.clone();
    let failed = |why: String| ClusterError::Start {
        product: spec.software.product,
        node: node.clone(),
        why,
    };
    let log = spec.logs.join(&node).join("server.log");
    let output = log_file(&log, setup.joins || data_of.is_some())?;
    let given = (spec.software.container)(&setup);
    let confined = spec.software.confined;
    let (kept, run) = (spec.upgrade.as_ref().and(spec.software.upgrade.ok()), spec.run.clone());
    let (clock, disk) = (spec.clocks.get(setup.me), spec.disks.get(setup.me));
    let request = container_request::request(image, given, clock.map(AsRef::as_ref), disk.map(AsRef::as_ref));
    let request = request.await.map_err(failed)?;
    let request = request
        .with_network(network)
        .with_host_config_modifier(move |host| {
            host.publish_all_ports = Some(false);
            if confined {
                confine(host);
            }
            if let Some(kept) = kept {
                container_request::keep_data(host, kept, data_of.as_deref(), &run);
            }
        })
        .with_log_consumer(move |frame: &LogFrame| {
            let _ = output.lock().map(|mut file| file.write_all(frame.bytes()));
        });
    let started = start_container(request, &setup.me().host, &spec.run).await;
    let container = started.map_err(failed)?;
    let address = container.get_bridge_ip_address().await;
    let address = address.map_err(|error| failed(error.to_string()))?;
    let address = SocketAddr::new(address, setup.me().ports[0]);
    spec.found(setup.me, address);
    Ok((
        Node {
            name: node,
            address,
            log,
            peer_proxy: setup.peer_proxy(),
        },
        container,
    ))
}

/// Opens a log. `goes_on` keeps its content.
fn log_file(path: &Path, goes_on: bool) -> Result<Mutex<File>, NotWritten> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let opened = folder.and_then(|()| match goes_on {
        true => OpenOptions::new().append(true).create(true).open(path),
        false => File::create(path),
    });
    opened.map(Mutex::new).map_err(NotWritten::at(path))
}

fn addresses(spec: &ClusterSpec, network: &str) -> Vec<NodeAddress> {
    let member = |number| NodeAddress::new(number, format!("{network}-n{number}"), spec.software.ports.to_vec());
    (1..=spec.nodes).map(member).collect()
}

#[async_trait]
impl RunningNodes for Containers {
    fn look_every(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Returns `None` if the engine does not answer: the server may run.
    async fn ended(&mut self, node: usize) -> Option<String> {
        let inspected = engine().await.ok()?.inspect_container(self.id(node), None).await;
        match inspected {
            Ok(container) => {
                let state = container.state.filter(|state| state.running != Some(true))?;
                let code = format!("exit status {}", state.exit_code.unwrap_or_default());
                Some(match state.oom_killed {
                    Some(true) => format!("out of memory, {code}"),
                    _ => code,
                })
            }
            Err(BollardError::DockerResponseServerError { status_code: 404, .. }) => {
                Some("its container was removed".into())
            }
            Err(_) => None,
        }
    }

    async fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        self.end(node, self.spec.software.kill).await
    }

    /// Starts a container of the other image, under the name of the previous one and with its data.
    async fn upgrade(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        let Some(OtherVersion::Image(image)) = self.spec.upgrade.clone() else {
            return not_here(NO_OTHER_VERSION);
        };
        self.end(node, KillSignal::Terminate).await?;
        let before = self.id(node).to_owned();
        rename(&before, &format!("{}-before", self.setups[node].me().host)).await?;
        self.images[node] = image;
        let started = self.start_container(node, Some(before)).await?;
        Ok(Some(started))
    }

    /// Starts the container, to which the engine may give another address.
    async fn start(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        let container = &self.containers[node];
        container.start().await.map_err(engine_failed)?;
        let address = container.get_bridge_ip_address().await.map_err(engine_failed)?;
        // the port is the same in every container
        let address = SocketAddr::new(address, self.spec.software.ports[0]);
        self.spec.found(node, address);
        Ok(Some(address))
    }

    /// Starts a new container, under the name of the previous one.
    async fn start_new(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        remove_container(self.id(node)).await.map_err(ClusterError::Engine)?;
        self.setups[node].joins = true;
        let started = self.start_container(node, None).await?;
        Ok(Some(started))
    }

    async fn pause(&mut self, node: usize) -> Result<(), ClusterError> {
        self.containers[node].pause().await.map_err(engine_failed)
    }

    async fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        self.containers[node].unpause().await.map_err(engine_failed)
    }

    /// Removes the containers, all at once, and then their network.
    async fn stop(self: Box<Self>) {
        join_all(self.containers.into_iter().map(Container::rm)).await;
        self.network.remove().await;
    }
}

impl Containers {
    /// Starts another container of a node, removes the previous one, and returns the address at which it serves. `data_of` is the
    /// container with its data.
    async fn start_container(&mut self, node: usize, data_of: Option<String>) -> Result<SocketAddr, ClusterError> {
        let (setup, image) = (self.setups[node].clone(), &self.images[node]);
        let (started, container) = start_one(&self.spec, setup, image, &self.network.name, data_of).await?;
        let before = std::mem::replace(&mut self.containers[node], container);
        // data that the new one uses stay
        let removed = remove_container(before.id()).await;
        removed.map_err(ClusterError::Engine)?;
        Ok(started.address)
    }

    /// Ends a server.
    async fn end(&mut self, node: usize, signal: KillSignal) -> Result<(), ClusterError> {
        if signal == KillSignal::Terminate {
            self.signal(node, "SIGTERM").await?;
            let ended = async {
                while self.ended(node).await.is_none() {
                    sleep(READY_POLL).await;
                }
            };
            if timeout(IN_ORDER, ended).await.is_ok() {
                return Ok(());
            }
        }
        self.signal(node, "SIGKILL").await
    }

    fn id(&self, node: usize) -> &str {
        self.containers[node].id()
    }

    async fn signal(&self, node: usize, signal: &str) -> Result<(), ClusterError> {
        let options = KillContainerOptionsBuilder::new().signal(signal).build();
        let killed = engine().await?.kill_container(self.id(node), Some(options)).await;
        killed.map_err(engine_failed)
    }
}
