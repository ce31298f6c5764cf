//! Attached servers, which harness did not start: it polls them, clients reach them, and only the user's commands stop or start
//! them.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::leftovers::claim::Claim;
use super::leftovers::outages::ClaimedOutage;
use super::peering::NodeAddress;
use super::{ClusterError, ClusterSpec, Node, RunningNodes, StartedNodes, write_file};
use crate::limits::{LOG_TAIL_LINES, PROBE, READY_POLL};
use crate::process;

/// Time for a command of the user to end.
const COMMAND: Duration = Duration::from_secs(60);
/// The placeholder for the number of the node in a command.
const NODE: &str = "{node}";
/// Time for the lookup of a server's name.
const LOOK_UP: Duration = Duration::from_secs(5);

/// Attached servers, with the commands that act on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedServers {
    /// `HOST:PORT` of each, in the order of their nodes.
    pub servers: Vec<String>,
    pub commands: NodeCommands,
}

/// The user's shell commands that act on one server. `{node}` in them is the number of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeCommands {
    pub kill: Option<String>,
    pub start: Option<String>,
    pub pause: Option<String>,
    pub resume: Option<String>,
}

/// The acts that the user's commands support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServersObey {
    /// They can be killed and started again.
    pub kill: bool,
    /// They can be paused and resumed.
    pub pause: bool,
}

impl NodeCommands {
    pub fn obey(&self) -> ServersObey {
        ServersObey {
            kill: self.kill.is_some() && self.start.is_some(),
            pause: self.pause.is_some() && self.resume.is_some(),
        }
    }
}

/// Resolves the addresses of servers. The error is a sentence.
pub async fn look_up(servers: &[String]) -> Result<Vec<SocketAddr>, String> {
    let mut addresses = Vec::new();
    for server in servers {
        let found = timeout(LOOK_UP, lookup_host(server)).await;
        let found =
            found.map_err(|_| format!("the name of {server} was not looked up within {}s", LOOK_UP.as_secs()))?;
        let found = found.map_err(|error| format!("{server}: {error}"))?;
        let address = reachable(found.collect()).await;
        addresses.push(address.ok_or_else(|| format!("{server}: its name has no address"))?);
    }
    Ok(addresses)
}

/// Returns the first of a server's addresses that accepts a connection, or else the first: `localhost` may be `::1` before `127.0.0.1`,
/// where its server listens alone.
async fn reachable(found: Vec<SocketAddr>) -> Option<SocketAddr> {
    if found.len() > 1 {
        for address in &found {
            if let Ok(Ok(_)) = timeout(PROBE, TcpStream::connect(address)).await {
                return Some(*address);
            }
        }
    }
    found.into_iter().next()
}

/// Returns the servers as a running cluster.
pub(super) async fn start(spec: &ClusterSpec, attached: &AttachedServers) -> Result<StartedNodes, ClusterError> {
    let addresses = look_up(&attached.servers).await.map_err(ClusterError::Nothing)?;
    let member = |(number, address): (u32, &SocketAddr)| NodeAddress::new(number, address.ip(), vec![address.port()]);
    let members: Vec<NodeAddress> = (1..).zip(&addresses).map(member).collect();
    let mut nodes = Vec::new();
    for (member, address) in members.iter().zip(&addresses) {
        let log = spec.logs.join(&member.name).join("server.log");
        let note = format!("# {address} was running before the run: its log is not in this folder\n");
        write_file(&log, &note)?;
        nodes.push(Node {
            name: member.name.clone(),
            address: *address,
            log,
            peer_proxy: None,
        });
    }
    let obey = attached.commands.obey();
    let claim = match obey.kill || obey.pause {
        true => Some(Claim::make(&spec.run)?),
        false => None,
    };
    let servers = attached.servers.iter().zip(&nodes);
    let servers = servers.map(|(server, node)| (server.clone(), node.log.clone()));
    let orders = Orders {
        claim,
        commands: attached.commands.clone(),
        servers: servers.collect(),
        out: Mutex::new(vec![Outage::default(); nodes.len()]),
    };
    Ok(StartedNodes {
        nodes,
        members,
        running: Box::new(AttachedNodes(Arc::new(orders))),
    })
}

/// The acts on a server that are not undone.
#[derive(Debug, Clone, Copy, Default)]
struct Outage {
    killed: bool,
    paused: bool,
}

/// Executes the user's commands, and records which of them must be undone.
struct Orders {
    commands: NodeCommands,
    /// `HOST:PORT` of each node, and the log of its commands.
    servers: Vec<(String, PathBuf)>,
    out: Mutex<Vec<Outage>>,
    /// The claim with the outages, for `harness doctor`; `None` without commands.
    claim: Option<Claim>,
}

impl Orders {
    fn note(&self, node: usize, change: impl FnOnce(&mut Outage)) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut out[node]);
        let Some(claim) = &self.claim else { return };
        let outages = out.iter().enumerate();
        let noted = outages.filter_map(|(node, outage)| self.claimed(node, *outage));
        let noted: Vec<_> = noted.collect();
        if let Err(error) = ClaimedOutage::note(claim, &noted) {
            eprintln!("warning: {error}");
        }
    }

    /// Returns the entry of the claim about a server that is out.
    fn claimed(&self, node: usize, outage: Outage) -> Option<ClaimedOutage> {
        let undo = match outage {
            Outage { killed: true, .. } => self.commands.start.as_deref(),
            Outage { paused: true, .. } => self.commands.resume.as_deref(),
            _ => None,
        };
        Some(ClaimedOutage {
            undo: undo?.replace(NODE, &(node + 1).to_string()),
            ..self.about(node)
        })
    }

    fn about(&self, node: usize) -> ClaimedOutage {
        ClaimedOutage {
            node: node as u32 + 1,
            server: self.servers[node].0.clone(),
            undo: String::new(),
        }
    }

    fn kill(&self, node: usize) -> Result<(), ClusterError> {
        // before the command, which may succeed and report a failure
        self.note(node, |outage| outage.killed = true);
        self.carry_out(node, "be killed", self.commands.kill.as_deref())
    }

    fn start(&self, node: usize) -> Result<(), ClusterError> {
        self.carry_out(node, "start", self.commands.start.as_deref())?;
        self.note(node, |outage| *outage = Outage::default());
        Ok(())
    }

    fn pause(&self, node: usize) -> Result<(), ClusterError> {
        self.note(node, |outage| outage.paused = true);
        self.carry_out(node, "pause", self.commands.pause.as_deref())
    }

    fn resume(&self, node: usize) -> Result<(), ClusterError> {
        self.carry_out(node, "resume", self.commands.resume.as_deref())?;
        self.note(node, |outage| outage.paused = false);
        Ok(())
    }

    /// Undoes all outages; prints the errors.
    fn undo(&self) {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (node, outage) in out.into_iter().enumerate() {
            let undone = match outage {
                Outage { killed: true, .. } => self.start(node),
                Outage { paused: true, .. } => self.resume(node),
                _ => Ok(()),
            };
            if let Err(error) = undone {
                eprintln!("warning: {error}");
            }
        }
    }

    /// Runs a command of the user to its end; its output goes to the log.
    fn carry_out(&self, node: usize, what: &'static str, command: Option<&str>) -> Result<(), ClusterError> {
        let (server, log) = &self.servers[node];
        let number = (node + 1).to_string();
        let refused = |why: String| ClusterError::Disobeyed {
            node: format!("n{number} ({server})"),
            what,
            why,
        };
        let command = command.ok_or_else(|| refused("there is no command for it".into()))?;
        let command = command.replace(NODE, &number);
        let open = || File::options().append(true).create(true).open(log);
        let failed = |error: std::io::Error| refused(format!("`{command}`: {error}"));
        let mut output = open().map_err(failed)?;
        let _ = writeln!(output, "$ {command}");
        let errors = output.try_clone().map_err(failed)?;
        process::may_stay_without_mark();
        let mut shell = self.about(node).command(&command);
        shell.stdout(output).stderr(errors).process_group(0);
        let mut child = shell.spawn().map_err(failed)?;
        process::leave_to_its_handle(child.id());
        let end = Instant::now() + COMMAND;
        loop {
            match child.try_wait().map_err(failed)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(refused(format!("`{command}`: {status}{}", last_lines(log)))),
                None if Instant::now() >= end => {
                    kill_group(&child);
                    let _ = child.wait();
                    let within = COMMAND.as_secs();
                    return Err(refused(format!("`{command}` did not end within {within}s")));
                }
                None => std::thread::sleep(READY_POLL),
            }
        }
    }
}

/// Kills a command that leads a process group of its own, and all that it started in that group: a process that it left would act on
/// the server later.
fn kill_group(command: &Child) {
    if let Ok(group) = i32::try_from(command.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

fn last_lines(log: &PathBuf) -> String {
    let log = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().rev().take_while(|line| !line.starts_with("$ ")).collect();
    let last = lines.into_iter().take(LOG_TAIL_LINES).rev();
    last.map(|line| format!("\n  {line}")).collect()
}

struct AttachedNodes(Arc<Orders>);

impl AttachedNodes {
    async fn order(
        &self,
        node: usize,
        order: fn(&Orders, usize) -> Result<(), ClusterError>,
    ) -> Result<(), ClusterError> {
        let orders = Arc::clone(&self.0);
        let carried_out = spawn_blocking(move || order(&orders, node)).await;
        carried_out.unwrap_or_else(|error| Err(ClusterError::Nothing(error.to_string())))
    }
}

#[async_trait]
impl RunningNodes for AttachedNodes {
    // the end of a server that is no child cannot be seen: it may live without an answer

    async fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        self.order(node, Orders::kill).await
    }

    async fn start(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        self.order(node, Orders::start).await.map(|()| None)
    }

    async fn pause(&mut self, node: usize) -> Result<(), ClusterError> {
        self.order(node, Orders::pause).await
    }

    async fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        self.order(node, Orders::resume).await
    }

    /// Stops no server, and undoes the outages that a fault left.
    async fn stop(self: Box<Self>) {
        let _ = spawn_blocking(move || self.0.undo()).await;
    }
}

impl Drop for Orders {
    /// Undoes outages that are left when a run unwinds. Those that cannot be undone are left to `harness doctor`, with their claim.
    fn drop(&mut self) {
        self.undo();
        let out = self.out.get_mut().unwrap_or_else(PoisonError::into_inner);
        if out.iter().any(|outage| outage.killed || outage.paused)
            && let Some(claim) = self.claim.take()
        {
            claim.keep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(folder: &std::path::Path, commands: NodeCommands) -> Orders {
        Orders {
            commands,
            servers: (1..=2)
                .map(|number| (format!("host{number}:1"), folder.join(format!("n{number}.log"))))
                .collect(),
            out: Mutex::new(vec![Outage::default(); 2]),
            claim: None,
        }
    }

    fn commands(folder: &std::path::Path) -> NodeCommands {
        let command = |word: &str| {
            let notes = folder.join("notes");
            Some(format!(
                "echo {word} {{node}} $HARNESS_NODE $HARNESS_SERVER >> {}",
                notes.display()
            ))
        };
        NodeCommands {
            kill: command("kill"),
            start: command("start"),
            pause: command("pause"),
            resume: command("resume"),
        }
    }

    #[tokio::test]
    async fn of_several_addresses_of_a_server_one_that_accepts_connections_is_taken() {
        let listen = || std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (closed, server) = (listen(), listen());
        let addresses = [&closed, &server].map(|listener| listener.local_addr().unwrap());
        drop(closed);
        assert_eq!(reachable(addresses.to_vec()).await, Some(addresses[1]));
        drop(server);
        assert_eq!(reachable(addresses.to_vec()).await, Some(addresses[0]));
    }

    #[test]
    fn what_a_fault_left_undone_is_undone_at_the_end_and_only_that() {
        let folder = tempfile::tempdir().unwrap();
        let orders = orders(folder.path(), commands(folder.path()));
        orders.kill(0).unwrap();
        orders.start(0).unwrap();
        orders.kill(1).unwrap();
        orders.pause(0).unwrap();
        drop(orders);
        let notes = fs::read_to_string(folder.path().join("notes")).unwrap();
        let wanted = "kill 1 1 host1:1\nstart 1 1 host1:1\nkill 2 2 host2:1\npause 1 1 host1:1\nresume 1 1 host1:1\nstart 2 2 host2:1\n";
        assert_eq!(notes, wanted);
    }

    #[test]
    fn what_a_killed_harness_would_leave_out_is_noted_with_the_command_that_undoes_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut orders = orders(folder.path(), commands(folder.path()));
        let claim = Claim::make("test-outages").unwrap();
        let noted = claim.folder().to_owned();
        orders.claim = Some(claim);
        orders.kill(1).unwrap();
        let out = ClaimedOutage::noted_in(&noted).unwrap();
        assert_eq!((out.len(), out[0].node, out[0].server.as_str()), (1, 2, "host2:1"));
        assert!(out[0].undo.contains("echo start 2"), "{out:?}");
        orders.start(1).unwrap();
        assert_eq!(ClaimedOutage::noted_in(&noted), Some(Vec::new()));
        orders.pause(0).unwrap();
        ClaimedOutage::noted_in(&noted).unwrap()[0].undo().unwrap();
        let notes = fs::read_to_string(folder.path().join("notes")).unwrap();
        assert!(notes.ends_with("resume 1 1 host1:1\n"), "{notes}");
    }

    #[test]
    fn what_cannot_be_undone_is_left_to_the_doctor() {
        let folder = tempfile::tempdir().unwrap();
        let given = NodeCommands {
            start: Some("exit 1".into()),
            ..commands(folder.path())
        };
        let mut orders = orders(folder.path(), given);
        let claim = Claim::make("test-outage-left").unwrap();
        let noted = claim.folder().to_owned();
        orders.claim = Some(claim);
        orders.kill(0).unwrap();
        drop(orders);
        assert_eq!(ClaimedOutage::noted_in(&noted).unwrap().len(), 1);
        fs::remove_dir_all(noted).unwrap();
    }

    #[test]
    fn a_command_is_killed_with_all_that_it_started() {
        use std::io::Read;
        use std::process::Stdio;

        let folder = tempfile::tempdir().unwrap();
        let mut shell = orders(folder.path(), NodeCommands::default())
            .about(0)
            .command("echo begun; sleep 67.25; true");
        shell.stdout(Stdio::piped()).process_group(0);
        let mut child = shell.spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 6]).unwrap();
        kill_group(&child);
        child.wait().unwrap();
        // the output ends when no process has it open
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }

    #[test]
    fn without_a_command_nothing_is_done_and_a_command_that_fails_is_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let given = NodeCommands {
            kill: Some("echo no such unit; exit 5".into()),
            ..NodeCommands::default()
        };
        let obey = given.obey();
        assert!(!obey.kill && !obey.pause, "{obey:?}");
        let orders = orders(folder.path(), given);
        let why = orders.pause(0).unwrap_err().to_string();
        assert!(why.contains("no command"), "{why}");
        let why = orders.kill(1).unwrap_err().to_string();
        assert!(
            why.contains("host2:1") && why.contains("exit status: 5") && why.contains("no such unit"),
            "{why}"
        );
        orders.note(0, |outage| *outage = Outage::default());
        orders.note(1, |outage| *outage = Outage::default());
    }
}
