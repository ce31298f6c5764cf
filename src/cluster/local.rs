//! The local runtime: the machine's own programs as child processes on free ports of loopback, data in a temporary folder.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use nix::sys::signal::Signal;
use tokio::process::{Child, Command};
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::leftovers::claim::{self, Claim};
use super::peering::NodeAddress;
use super::software::{KillSignal, NodeSetup};
use super::volumes::Volumes;
use super::written::{NotWritten, write_file, write_secret};
use super::{
    ClusterError, ClusterSpec, NO_DISKS, NO_OTHER_VERSION, Node, OtherVersion, RunningNodes, StartedNodes, not_here,
    process_tree,
};
use crate::limits::IN_ORDER;
use crate::process;

/// The ports of servers, below the range from which the kernel takes ports for outgoing connections.
const SERVER_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The prefix of a server's file in the folder of a run, if the product does not name its files.
pub const CONFIGURATION: &str = "config-";

/// Server processes, in the order of their nodes.
pub struct Processes {
    spec: ClusterSpec,
    children: Vec<Child>,
    /// The setup of each node, and its log.
    setups: Vec<(NodeSetup, PathBuf)>,
    /// The length of each node's log when its disk was filled.
    logged: Vec<u64>,
    /// The file systems of the servers, if they have their own.
    volumes: Option<Volumes>,
    /// Removes the temporary folder when it is dropped.
    claim: Claim,
    _reserved: Vec<UnixListener>,
}

/// Starts every server of `spec` and returns at once; they may not serve yet.
pub async fn start(spec: &ClusterSpec) -> Result<StartedNodes, ClusterError> {
    let claim = Claim::make(&spec.run)?;
    let (addresses, reserved) = addresses(spec)?;
    let peer_proxies = spec.open_peer_proxies(Ipv4Addr::LOCALHOST.into(), &addresses)?;
    let volumes = match spec.own_disks {
        false => None,
        true => {
            let names = addresses.iter().map(|address| address.name.as_str());
            let made = Volumes::lay_out(claim.folder(), names).await;
            Some(made.map_err(ClusterError::Nothing)?)
        }
    };
    let mut nodes = Vec::new();
    let mut children = Vec::new();
    let mut setups = Vec::new();
    for (me, address) in addresses.iter().enumerate() {
        let data = claim.folder().join(&address.name);
        let setup = spec.setup(&addresses, me, data, &peer_proxies);
        let log = spec.logs.join(&address.name).join("server.log");
        spec.found(me, (Ipv4Addr::LOCALHOST, address.ports[0]).into());
        write_file(&log, "")?;
        lay_out(spec, &setup, &log, volumes.as_ref())?;
        children.push(run(spec, &setup, &log, volumes.as_ref()).await?);
        nodes.push(Node {
            name: address.name.clone(),
            address: (Ipv4Addr::LOCALHOST, address.ports[0]).into(),
            log: log.clone(),
            peer_proxy: setup.peer_proxy(),
        });
        setups.push((setup, log));
    }
    claim.note_servers(children.iter().filter_map(Child::id))?;
    Ok(StartedNodes {
        nodes,
        members: addresses,
        running: Box::new(Processes {
            spec: spec.clone(),
            children,
            logged: vec![0; setups.len()],
            setups,
            volumes,
            claim,
            _reserved: reserved,
        }),
    })
}

/// Returns the name under which a run keeps a file of a server: the file's own if it is known, otherwise with a prefix.
fn kept_as(spec: &ClusterSpec, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match spec.software.files.contains(&name) {
        true => name.to_owned(),
        false => format!("{CONFIGURATION}{name}"),
    }
}

/// Returns the path by which harness reaches the folder of a server.
fn data_folder(setup: &NodeSetup, volumes: Option<&Volumes>) -> PathBuf {
    volumes.map_or(setup.data.clone(), |volumes| volumes.seen_at(&setup.data))
}

/// Writes the files of a server.
fn lay_out(spec: &ClusterSpec, setup: &NodeSetup, log: &Path, volumes: Option<&Volumes>) -> Result<(), NotWritten> {
    let launch = (spec.software.launch)(setup);
    let data = data_folder(setup, volumes);
    for (name, contents) in &launch.files {
        let path = data.join(name);
        write_file(&path, contents)?;
        if let Some(folder) = log.parent() {
            write_file(&folder.join(kept_as(spec, name)), contents)?;
        }
    }
    for (name, contents) in &launch.secrets {
        write_secret(&data.join(name), contents)?;
    }
    let synced = || volumes.map_or(Ok(()), |volumes| block_in_place(|| volumes.sync(&setup.data)));
    let made = fs::create_dir_all(&data).and_then(|()| synced());
    made.map_err(NotWritten::at(&data))
}

/// Starts a server whose files exist.
async fn run(
    spec: &ClusterSpec,
    setup: &NodeSetup,
    log: &Path,
    volumes: Option<&Volumes>,
) -> Result<Child, ClusterError> {
    let failed = |why: String| ClusterError::Start {
        product: spec.software.product,
        node: setup.me().name.clone(),
        why,
    };
    let launch = (spec.software.launch)(setup);
    let output = File::options().append(true).open(log);
    let output = output.map_err(|error| failed(error.to_string()))?;
    let errors = output.try_clone().map_err(|error| failed(error.to_string()))?;
    let mut command_line = Vec::new();
    if let Some(disk) = spec.disks.get(setup.me) {
        command_line.extend(disk.command(disk.folder()));
    }
    command_line.push(launch.program.display().to_string());
    command_line.extend(launch.args);
    let mut command = match volumes {
        None => Command::new(&command_line[0]),
        Some(volumes) => volumes.inside(&setup.data, Path::new(&command_line[0])),
    };
    command.args(&command_line[1..]).envs(launch.env);
    if volumes.is_none() {
        command.current_dir(&setup.data);
    }
    if let Some(clock) = spec.clocks.get(setup.me) {
        command.envs(clock.environment(clock.folder()));
    }
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    process::spawn(command)
        .await
        .map_err(|error| failed(format!("{}: {error}", launch.program.display())))
}

/// Returns the addresses of the servers, and the reservations of their ports.
fn addresses(spec: &ClusterSpec) -> Result<(Vec<NodeAddress>, Vec<UnixListener>), ClusterError> {
    let per_node = spec.software.ports.len();
    let wanted = per_node * spec.nodes as usize;
    let (ports, reserved): (Vec<u16>, Vec<UnixListener>) = match spec.port_base {
        Some(base) => (fixed_ports(base, wanted, per_node)?, Vec::new()),
        None => {
            let found = free_ports(wanted).map_err(|why| ClusterError::NoPorts {
                wanted: spec.nodes as usize,
                range: SERVER_PORTS,
                why,
            })?;
            found.into_iter().unzip()
        }
    };
    let member = |(number, ports): (u32, &[u16])| NodeAddress::new(number, Ipv4Addr::LOCALHOST, ports.to_vec());
    Ok(((1..).zip(ports.chunks(per_node)).map(member).collect(), reserved))
}

fn fixed_ports(base: u16, wanted: usize, per_node: usize) -> Result<Vec<u16>, ClusterError> {
    let ports: Vec<u16> = (0..wanted).map(|offset| base.saturating_add(offset as u16)).collect();
    for (position, port) in ports.iter().enumerate() {
        if let Err(error) = bind(*port) {
            let node = format!("n{}", position / per_node + 1);
            return Err(ClusterError::PortTaken {
                port: *port,
                node,
                why: error.to_string(),
            });
        }
    }
    Ok(ports)
}

/// The number of ports that this process has tried so far.
static LOOKED_AT: Mutex<usize> = Mutex::new(0);

/// Returns ports that are free, found by listening on them, with their reservations: a port that was found is free until its server
/// listens. Runs that start at the same time begin their search at different ports, in several processes and in one.
fn free_ports(wanted: usize) -> std::io::Result<Vec<(u16, UnixListener)>> {
    let span = usize::from(SERVER_PORTS.end - SERVER_PORTS.start);
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    let start = std::process::id() as usize * 61 + *looked_at;
    let mut offsets = 0..span;
    let candidates = offsets
        .by_ref()
        .map(|offset| SERVER_PORTS.start + ((start + offset) % span) as u16);
    let mut last_error = None;
    let free = candidates.filter_map(|port| {
        let reserved = reserve(port).and_then(|reserved| bind(port).map(|_| (port, reserved)));
        reserved.map_err(|error| last_error = Some(error)).ok()
    });
    let found: Vec<(u16, UnixListener)> = free.take(wanted).collect();
    // with those that were taken: the next search begins after the last one that was found
    *looked_at += offsets.start;
    match last_error {
        Some(error) if found.len() < wanted => Err(error),
        _ => Ok(found),
    }
}

/// Reserves a port until the result is dropped: no other run that shares this network finds it free.
fn reserve(port: u16) -> std::io::Result<UnixListener> {
    let name = UnixAddress::from_abstract_name(format!("harness-port-{port}"))?;
    UnixListener::bind_addr(&name)
}

fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// Returns an address of loopback that was free just now, for a program that does not choose its own.
pub fn free_address() -> std::io::Result<SocketAddr> {
    bind(0)?.local_addr()
}

#[async_trait]
impl RunningNodes for Processes {
    fn look_every(&self) -> Duration {
        Duration::from_millis(200)
    }

    async fn ended(&mut self, node: usize) -> Option<String> {
        let status = self.children[node].try_wait().ok().flatten();
        status.map(|status| match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, code) => format!("exit status {}", code.unwrap_or_default()),
        })
    }

    async fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        self.end(node, self.spec.software.kill).await;
        Ok(())
    }

    /// Starts the other version in the same folder.
    async fn upgrade(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        let Some(OtherVersion::Folder(programs)) = self.spec.upgrade.clone() else {
            return not_here(NO_OTHER_VERSION);
        };
        self.end(node, KillSignal::Terminate).await;
        self.setups[node].0.programs = Some(programs);
        self.start(node).await
    }

    /// Syncs the disks. Servers that have served for minutes have on their disks the files of their start, also unsynced ones,
    /// such as the first snapshot of a ZooKeeper, without which it does not start again.
    fn have_begun(&mut self) -> Result<(), ClusterError> {
        let Some(volumes) = &self.volumes else {
            return Ok(());
        };
        for (setup, _) in &self.setups {
            volumes.sync(&setup.data).map_err(NotWritten::at(&setup.data))?;
        }
        Ok(())
    }

    async fn fill_disk(&mut self, node: usize) -> Result<(), ClusterError> {
        let filled = self.on_disk(node, "have a full disk", Volumes::fill);
        self.logged[node] = fs::metadata(&self.setups[node].1).map_or(0, |log| log.len());
        filled
    }

    async fn free_disk(&mut self, node: usize) -> Result<(), ClusterError> {
        let was_full = self.on_disk(node, "say whether its disk is full", Volumes::is_full);
        let freed = self.on_disk(node, "have space again", Volumes::free);
        if let Some(disk) = self.spec.disks.get(node) {
            disk.losses().full += u64::from(was_full.is_ok_and(|full| full));
            disk.losses().refused += lines_of_no_space(&self.setups[node].1, self.logged[node]);
        }
        freed
    }

    async fn recover(&mut self, node: usize) -> Result<(), ClusterError> {
        if self.ended(node).await.is_none() {
            return Ok(());
        }
        if let Some(disk) = self.spec.disks.get(node) {
            disk.losses().ended += 1;
        }
        self.start(node).await.map(drop)
    }

    async fn cut_power(&mut self, node: usize) -> Result<(), ClusterError> {
        let failed = |why| self.disobeyed(node, "lose what it did not sync", why);
        let volumes = self.volumes.as_ref().ok_or_else(|| failed(NO_DISKS.to_owned()))?;
        let lost = volumes.cut_power(&self.setups[node].0.me().name).await;
        let lost = lost.map_err(failed)?;
        if let Some(disk) = self.spec.disks.get(node) {
            disk.losses().files += lost;
        }
        Ok(())
    }

    /// Starts a server in the folder of the previous one, emptied.
    async fn start_new(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        let (setup, log) = &mut self.setups[node];
        setup.joins = true;
        let data = data_folder(setup, self.volumes.as_ref());
        claim::empty(&data, None).map_err(NotWritten::at(&data))?;
        lay_out(&self.spec, setup, log, self.volumes.as_ref())?;
        self.start(node).await
    }

    /// Starts a server on its data.
    async fn start(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        let (setup, log) = &self.setups[node];
        self.children[node] = run(&self.spec, setup, log, self.volumes.as_ref()).await?;
        self.claim.note_servers(self.children.iter().filter_map(Child::id))?;
        Ok(None)
    }

    async fn pause(&mut self, node: usize) -> Result<(), ClusterError> {
        let paused = process_tree::signal(&self.children[node], Signal::SIGSTOP);
        let node = || self.setups[node].0.me().name.clone();
        paused.then_some(()).ok_or_else(|| ClusterError::Gone { node: node() })
    }

    async fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        process_tree::signal(&self.children[node], Signal::SIGCONT);
        Ok(())
    }

    /// Ends every server; dropping the claim removes the temporary folder.
    async fn stop(mut self: Box<Self>) {
        if let Some(stop) = self.spec.software.stop {
            for child in &mut self.children {
                process::signal(child, stop);
                let _ = timeout(IN_ORDER, child.wait()).await;
            }
        }
        for child in &mut self.children {
            process_tree::signal(child, Signal::SIGKILL);
        }
        for child in &mut self.children {
            process_tree::end(child).await;
        }
    }
}

impl Processes {
    /// Ends a server, with its descendants.
    async fn end(&mut self, node: usize, signal: KillSignal) {
        let child = &mut self.children[node];
        if signal == KillSignal::Terminate {
            process::signal(child, Signal::SIGTERM);
            let _ = timeout(IN_ORDER, child.wait()).await;
        }
        process_tree::end(child).await;
    }

    /// Acts on the file system of a server. A busy disk takes seconds for it, in which harness itself continues.
    fn on_disk<T>(
        &self,
        node: usize,
        what: &'static str,
        act: impl Fn(&Volumes, &str) -> Result<T, String>,
    ) -> Result<T, ClusterError> {
        let name = &self.setups[node].0.me().name;
        let volumes = self.volumes.as_ref().ok_or_else(|| NO_DISKS.to_owned());
        let done = volumes.and_then(|volumes| block_in_place(|| act(volumes, name)));
        done.map_err(|why| self.disobeyed(node, what, why))
    }

    fn disobeyed(&self, node: usize, what: &'static str, why: String) -> ClusterError {
        let node = self.setups[node].0.me().name.clone();
        ClusterError::Disobeyed { node, what, why }
    }
}

/// The words of servers about a write without space, or without space for all of it: those of the C library and of Go, and those
/// of Redis.
const NO_SPACE: [&str; 2] = ["no space left on device", "short write"];

/// Returns the number of lines of a log, after its first bytes, about a write without space.
pub fn lines_of_no_space(log: &Path, after: u64) -> u64 {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(text.get(after as usize..).unwrap_or_default()).to_lowercase();
    let says_so = |line: &&str| NO_SPACE.iter().any(|words| line.contains(words));
    text.lines().filter(says_so).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_named_with_its_server() {
        let taken = free_ports(1).unwrap()[0].0;
        let _listener = bind(taken).unwrap();
        let error = fixed_ports(taken - 1, 3, 1).unwrap_err().to_string();
        assert!(error.contains(&format!("port {taken}")), "{error}");
        assert!(error.contains("in use"), "{error}");
    }

    #[test]
    fn a_write_without_space_is_told_of_in_the_words_of_several_servers() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("server.log");
        let before = "write: no space left on device, in a window before\n";
        let lines = "{\"error\":\"write /data/db: no space left on device\"}\nready\n\
                     java.io.IOException: No space left on device\n\
                     # Short write while writing to the AOF file: (nwritten=3, expected=90)\n";
        fs::write(&log, before.to_owned() + lines).unwrap();
        assert_eq!(lines_of_no_space(&log, before.len() as u64), 3);
        assert_eq!(lines_of_no_space(&log, 0), 4);
        assert_eq!(lines_of_no_space(&folder.path().join("none"), 7), 0);
    }

    #[test]
    fn free_ports_are_distinct_and_below_the_range_of_outgoing_connections() {
        let (last, _) = free_ports(1).unwrap().remove(0);
        // two of the next nine are taken, so that the search goes further
        let taken = (last + 1..last + 9).find_map(|port| bind(port).ok());
        let reserved = (last + 1..last + 9)
            .rev()
            .find_map(|port| Some((port, reserve(port).ok()?)));
        let (reserved, reservation) = reserved.unwrap();
        let mut ports: Vec<u16> = free_ports(9).unwrap().into_iter().map(|(port, _)| port).collect();
        ports.dedup();
        assert_eq!(ports.len(), 9);
        assert!(
            ports
                .iter()
                .all(|port| SERVER_PORTS.contains(port) && *port != reserved)
        );
        let for_another = free_ports(9).unwrap();
        assert!(
            for_another.iter().all(|(port, _)| !ports.contains(port)),
            "the first nine are not taken yet"
        );
        drop((taken, reservation));
    }
}
