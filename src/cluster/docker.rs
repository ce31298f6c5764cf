//! The docker runtime: containers through testcontainers, on a network of the run's own.
//!
//! testcontainers has no reaper, so every container and network carries a label that names its run and its harness;
//! what a killed harness left is found by it. Addresses are the containers' own: mapped ports change on every restart.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use testcontainers::bollard::Docker;
use testcontainers::bollard::errors::Error as BollardError;
use testcontainers::bollard::query_parameters::{
    KillContainerOptionsBuilder, ListContainersOptionsBuilder, ListNetworksOptionsBuilder,
    RemoveContainerOptionsBuilder, RenameContainerOptionsBuilder,
};
use testcontainers::core::client::docker_client_instance;
use testcontainers::core::logs::LogFrame;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt, TestcontainersError};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::confinement::confine;
use super::container_request;
use super::docker_network::Network;
use super::image_name::in_two_parts;
use super::leftovers::{Found, LeftAlone, Leftover, OWNER_LABEL, RUN_LABEL, Sight, engine_is_expected};
use super::local::IN_ORDER;
use super::software::{KillSignal, NodeAddress, NodeSetup};
use super::{BoxFuture, ClusterError, ClusterSpec, NO_OTHER_VERSION, Node, OtherVersion, RunningNodes, StartedNodes};
use crate::limits::READY_POLL;
use crate::process::Identity;

/// Time for the container engine to answer a question that costs it nothing.
const ENGINE: Duration = Duration::from_secs(5);
/// Time for an image to be pulled.
const IMAGE_PULL: Duration = Duration::from_secs(180);

const NO_DISKS: &str = "the disk of a server can be filled, or lose what was not synced, only where it is a file system of its own, and containers \
     have none\nhint: --runtime local";

type Container = ContainerAsync<GenericImage>;

/// The containers of a run, in the order of their nodes, and their network.
pub struct Containers {
    spec: ClusterSpec,
    containers: Vec<Container>,
    /// By node: what its next container is of.
    images: Vec<String>,
    /// By node: how it is set up.
    setups: Vec<NodeSetup>,
    /// The port that clients reach, the same in every container.
    port: u16,
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
        // where containers find this machine
        Some(_) => spec.open_peer_proxies(network.gateway().await?, &addresses)?,
    };
    let mut starting = JoinSet::new();
    let mut setups = Vec::new();
    for me in 0..addresses.len() {
        let setup = NodeSetup {
            nodes: addresses.clone(),
            me,
            bind: "0.0.0.0".into(),
            data: PathBuf::from("/data"),
            lease: spec.lease,
            syncs: spec.syncs(),
            peer_proxies: peer_proxies.clone(),
            login: spec.login.clone(),
            tls: spec.tls.as_ref().map(|tls| tls.authority()),
            replaceable: spec.replaceable,
            joins: false,
            programs: None,
        };
        setups.push(setup.clone());
        let (image, network) = (image.to_owned(), network.name.clone());
        starting.spawn(start_one(spec.clone(), setup, image, network, None));
    }
    let mut started = Vec::new();
    let mut failed = None;
    while let Some(one) = starting.join_next().await {
        match one.expect("starting a container does not panic") {
            Ok(one) => started.push(one),
            Err(error) => failed = Some(error),
        }
    }
    started.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let (nodes, containers) = started.into_iter().unzip();
    let port = spec.software.ports[0];
    let containers = Containers {
        spec: spec.clone(),
        containers,
        images: vec![image.to_owned(); setups.len()],
        setups,
        port,
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

/// `data_of`: the container that has the data of the server, where they are there already.
async fn start_one(
    spec: ClusterSpec,
    setup: NodeSetup,
    image: String,
    network: String,
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
    let request = container_request::request(&image, given, clock.map(AsRef::as_ref), disk.map(AsRef::as_ref));
    let request = request.await.map_err(failed)?;
    let request = request
        .with_container_name(&setup.me().host)
        .with_network(&network)
        .with_label(RUN_LABEL, &spec.run)
        .with_label(OWNER_LABEL, Identity::own().label())
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
    let container = match request.start().await {
        Ok(container) => container,
        Err(error) => {
            // a container that was made and could not be started is not testcontainers' to remove
            let _ = remove_container(&setup.me().host).await;
            return Err(failed(error.to_string()));
        }
    };
    let address = container
        .get_bridge_ip_address()
        .await
        .map_err(|error| failed(error.to_string()))?;
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

/// `goes_on`: with what is in it.
fn log_file(path: &PathBuf, goes_on: bool) -> Result<Mutex<File>, ClusterError> {
    let failed = |source| ClusterError::Write {
        path: path.clone(),
        source,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let opened = match goes_on {
        true => OpenOptions::new().append(true).create(true).open(path),
        false => File::create(path),
    };
    opened.map(Mutex::new).map_err(failed)
}

fn addresses(spec: &ClusterSpec, network: &str) -> Vec<NodeAddress> {
    let member = |number| NodeAddress {
        name: format!("n{number}"),
        number,
        host: format!("{network}-n{number}"),
        ports: spec.software.ports.to_vec(),
    };
    (1..=spec.nodes).map(member).collect()
}

impl RunningNodes for Containers {
    fn look_every(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// An engine that does not answer does not say that it did.
    fn ended(&mut self, node: usize) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move {
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
        })
    }

    fn kill(&mut self, node: usize) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(self.end(node, self.spec.software.kill))
    }

    /// A container of the other image, under the name of the one before and with its data.
    fn upgrade(&mut self, node: usize) -> BoxFuture<'_, Result<Option<SocketAddr>, ClusterError>> {
        Box::pin(async move {
            let Some(OtherVersion::Image(image)) = self.spec.upgrade.clone() else {
                return Err(ClusterError::Nothing(NO_OTHER_VERSION.to_owned()));
            };
            self.end(node, KillSignal::Terminate).await?;
            let before = self.id(node).to_owned();
            rename(&before, &format!("{}-before", self.setups[node].me().host)).await?;
            self.images[node] = image;
            let started = self.start_container(node, Some(before)).await?;
            Ok(Some(started))
        })
    }

    /// The engine may give the container another address.
    fn start(&mut self, node: usize) -> BoxFuture<'_, Result<Option<SocketAddr>, ClusterError>> {
        Box::pin(async move {
            let failed = |error: TestcontainersError| ClusterError::Engine(error.to_string());
            self.containers[node].start().await.map_err(failed)?;
            let address = self.containers[node].get_bridge_ip_address().await.map_err(failed)?;
            let address = SocketAddr::new(address, self.port);
            self.spec.found(node, address);
            Ok(Some(address))
        })
    }

    /// A container of its own, under the name of the one before.
    fn start_new(&mut self, node: usize) -> BoxFuture<'_, Result<Option<SocketAddr>, ClusterError>> {
        Box::pin(async move {
            remove_container(self.id(node)).await.map_err(ClusterError::Engine)?;
            self.setups[node].joins = true;
            let started = self.start_container(node, None).await?;
            Ok(Some(started))
        })
    }

    fn pause(&mut self, node: usize) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(async move {
            let paused = self.containers[node].pause().await;
            paused.map_err(|error| ClusterError::Engine(error.to_string()))
        })
    }

    fn resume(&mut self, node: usize) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(async move {
            let resumed = self.containers[node].unpause().await;
            resumed.map_err(|error| ClusterError::Engine(error.to_string()))
        })
    }

    /// Removes the containers, all at once, and then their network.
    fn stop(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut removing = JoinSet::new();
            for container in self.containers {
                removing.spawn(container.rm());
            }
            while removing.join_next().await.is_some() {}
            self.network.remove().await;
        })
    }
}

impl Containers {
    /// Starts another container of a node in place of the one that it has, and removes that; where it serves. `data_of`: the container
    /// whose data it has.
    async fn start_container(&mut self, node: usize, data_of: Option<String>) -> Result<SocketAddr, ClusterError> {
        let (spec, setup, image) = (self.spec.clone(), self.setups[node].clone(), self.images[node].clone());
        let (started, container) = start_one(spec, setup, image, self.network.name.clone(), data_of).await?;
        let before = std::mem::replace(&mut self.containers[node], container);
        // data that the new one has stay
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
        killed.map_err(|error| ClusterError::Engine(error.to_string()))
    }
}

/// The longest run's name within a name of the engine's. Containers are found by their names, a label of which may have 63
/// letters: this one, `harness-`, a process number and what the container is.
const RUN_LETTERS: usize = 35;
/// Its end, which tells runs of one minute apart, and is kept.
const RUN_END: usize = 5;

/// What the names of everything that this process makes for a run begin with: letters that the engine and name servers take.
pub fn engine_name(run: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' => letter,
        _ => '-',
    };
    let mut plain: String = run.chars().map(letter).collect();
    if plain.len() > RUN_LETTERS {
        plain.replace_range(RUN_LETTERS - RUN_END..plain.len() - RUN_END, "");
    }
    format!("harness-{plain}-{}", std::process::id())
}

/// The engine's client, if an engine answers.
pub async fn engine() -> Result<Docker, ClusterError> {
    let asked = async {
        let engine = docker_client_instance().await.map_err(|error| error.to_string())?;
        engine.ping().await.map_err(|error| error.to_string())?;
        Ok(engine)
    };
    timeout(ENGINE, asked)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {}s", ENGINE.as_secs())))
        .map_err(ClusterError::Engine)
}

pub async fn has_image(image: &str) -> bool {
    match engine().await {
        Ok(engine) => engine.inspect_image(image).await.is_ok(),
        Err(_) => false,
    }
}

/// What an image's name means now: the digest under which a registry has it, or the image's own where none does.
pub async fn digest(image: &str) -> Option<String> {
    let found = engine().await.ok()?.inspect_image(image).await.ok()?;
    let in_registry = found.repo_digests.unwrap_or_default().into_iter().next();
    in_registry.or(found.id)
}

/// Pulls an image. The error says why it could not.
pub async fn pull(image: &str) -> Result<(), String> {
    let (name, tag) = in_two_parts(image);
    match timeout(IMAGE_PULL, GenericImage::new(name, tag).pull_image()).await {
        Ok(pulled) => pulled.map(|_| ()).map_err(|error| error.to_string()),
        Err(_) => Err(format!("not there after {}s", IMAGE_PULL.as_secs())),
    }
}

/// Adds the containers and networks of runs whose harness is gone, and what cannot be known about them.
pub async fn leftovers(sight: Sight, found: &mut Found) {
    let engine = match engine().await {
        Ok(engine) => engine,
        Err(_) if !engine_is_expected() => return,
        Err(error) => {
            found.unknown.push(format!("containers and networks: {error}"));
            return;
        }
    };
    let filters: HashMap<String, Vec<String>> = [("label".to_owned(), vec![OWNER_LABEL.to_owned()])].into();
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    match engine.list_containers(Some(options)).await {
        Ok(containers) => {
            for container in containers {
                let id = container.id.unwrap_or_default();
                let run = orphaned(container.labels.as_ref(), sight, &mut found.left_alone);
                found.leftovers.extend(run.map(|run| Leftover::Container { run, id }));
            }
        }
        Err(error) => found.unknown.push(format!("containers: {error}")),
    }
    let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
    // a network goes only after the containers on it
    match engine.list_networks(Some(options)).await {
        Ok(networks) => {
            for network in networks {
                let id = network.id.unwrap_or_default();
                let run = orphaned(network.labels.as_ref(), sight, &mut found.left_alone);
                found.leftovers.extend(run.map(|run| Leftover::Network { run, id }));
            }
        }
        Err(error) => found.unknown.push(format!("networks: {error}")),
    }
}

/// The run of something whose harness is gone.
fn orphaned(labels: Option<&HashMap<String, String>>, sight: Sight, alone: &mut LeftAlone) -> Option<String> {
    let labels = labels?;
    let owner = Identity::from_label(labels.get(OWNER_LABEL)?)?;
    match sight.is_over(owner) {
        Some(true) => Some(labels.get(RUN_LABEL).cloned().unwrap_or_default()),
        Some(false) => None,
        None => {
            alone.out_of_sight += 1;
            None
        }
    }
}

/// Removes a container; one that another process removes at the same time is waited for.
pub async fn remove_container(id: &str) -> Result<(), String> {
    let engine = engine().await.map_err(|error| error.to_string())?;
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    let removed = match engine.remove_container(id, Some(options)).await {
        Err(BollardError::DockerResponseServerError { status_code: 409, .. }) => {
            let gone = async {
                while engine.inspect_container(id, None).await.is_ok() {
                    sleep(READY_POLL).await;
                }
            };
            return timeout(ENGINE, gone)
                .await
                .map_err(|_| "another process removes it, and it is still there".to_owned());
        }
        removed => removed,
    };
    or_gone(removed)
}

/// Gives a container another name.
async fn rename(id: &str, name: &str) -> Result<(), ClusterError> {
    let options = RenameContainerOptionsBuilder::new().name(name).build();
    let renamed = engine().await?.rename_container(id, options).await;
    renamed.map_err(|error| ClusterError::Engine(error.to_string()))
}

pub async fn remove_network(id: &str) -> Result<(), String> {
    let engine = engine().await.map_err(|error| error.to_string())?;
    or_gone(engine.remove_network(id).await)
}

/// What is not there any more counts as removed.
fn or_gone(removed: Result<(), BollardError>) -> Result<(), String> {
    match removed {
        Err(BollardError::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        removed => removed.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_engines_is_one_that_name_servers_take_however_many_faults_there_are() {
        let short = engine_name("20261121-1600-zk-none-de4a");
        assert!(short.starts_with("harness-20261121-1600-zk-none-de4a-"), "{short}");
        let long = engine_name("20261121-1600-zk-partition+kill+pause-holder+latency+clock-de4a");
        assert!(long.starts_with("harness-20261121-1600-zk-"), "{long}");
        assert!(long.contains("-de4a-"), "{long}");
        let pid = std::process::id().to_string().len();
        assert!(long.len() - pid + "4194304-toxiproxy".len() <= 63, "{long}");
        assert!(
            long.chars()
                .all(|letter| letter == '-' || letter.is_ascii_alphanumeric()),
            "{long}"
        );
    }
}
