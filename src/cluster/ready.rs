//! Readiness of servers, and the wait for it: by polls, not by a count of seconds or by logs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use harness_workloads::Login;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use super::peering::NodeAddress;
use super::streams::ReachedServers;
use super::{BoxFuture, ClusterError, ClusterSpec, Node, RunningNodes};
use crate::limits::{LOG_TAIL_LINES, PROBE, READY_POLL};

/// The state that a server reports when it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// The product's own word: `leader`, `follower`, `master`, `replica`, ….
    pub role: String,
    /// Whether it leads by that role: a fault that targets the leader targets this server.
    pub leads: bool,
    pub version: String,
}

impl Serving {
    pub fn new(role: &str, leads: bool, version: &str) -> Self {
        Self {
            role: role.to_owned(),
            leads,
            version: version.to_owned(),
        }
    }
}

/// A server's answer to a readiness poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Serving(Serving),
    /// It answers and does not serve yet, for this reason.
    NotYet(String),
    /// The answer is not complete; read on.
    Unfinished,
}

/// Finds out whether a server serves; the error has the reason if not. It has timeouts of its own.
pub type ServerProbe = dyn Fn(ProbedServer) -> BoxFuture<'static, Result<Serving, String>> + Sync;

/// A server that is polled for its readiness.
#[derive(Debug, Clone)]
pub struct ProbedServer {
    /// The nodes of the cluster, this one included.
    pub nodes: Arc<[NodeAddress]>,
    /// The index of this node in `nodes`.
    pub me: usize,
    /// The address for clients.
    pub address: SocketAddr,
    /// The login for the poll; `None` if it needs none.
    pub login: Option<Arc<Login>>,
    pub reach: ReachedServers,
    pub log: PathBuf,
    /// Whether its connections from and to its peers pass proxies.
    pub peers_by_proxy: bool,
    /// Whether it was started for the first time, so that its log has no lines of an earlier start.
    pub first: bool,
    /// The prefix of the keys of the locks; empty until clients report it, which is after servers serve.
    pub keys: OnceLock<String>,
}

impl ProbedServer {
    /// Receives the prefix of the keys of the locks. Runs that use the same servers have the same lock.
    pub fn set_key_prefix(&self, keys: &str) {
        self.keys.get_or_init(|| keys.to_owned());
    }
}

/// Waits until every node serves; returns their version.
pub async fn wait(
    spec: &ClusterSpec,
    nodes: &[Node],
    servers: &[ProbedServer],
    running: &mut dyn RunningNodes,
) -> Result<String, ClusterError> {
    let (software, within) = (spec.software, spec.start_limit);
    let deadline = Instant::now() + within;
    let (mut version, mut told) = (String::new(), String::new());
    for (node, server) in nodes.iter().zip(servers) {
        loop {
            match (software.probe)(server.clone()).await {
                Ok(serving) => {
                    version = serving.version;
                    break;
                }
                Err(why) => {
                    for (other, started) in nodes.iter().enumerate() {
                        if let Some(end) = running.ended(other).await {
                            return Err(ended(software.product, started, &end));
                        }
                    }
                    if Instant::now() >= deadline {
                        return Err(not_ready(software.product, node, &why, within));
                    }
                    let waiting = format!(
                        "{} does not serve yet: {}",
                        node.name,
                        why.lines().next().unwrap_or_default()
                    );
                    if waiting != told {
                        (spec.on_wait)(waiting.clone());
                        told = waiting;
                    }
                }
            }
            sleep(READY_POLL).await;
        }
    }
    Ok(version)
}

/// Probes a server by bytes, over its client port. `question` returns the bytes to send to it; `answer` reads all bytes answered so far,
/// and whether the server has closed the connection.
pub async fn probe_by_bytes(
    server: ProbedServer,
    question: fn(&ProbedServer) -> Vec<u8>,
    answer: fn(&[u8], bool) -> Readiness,
) -> Result<Serving, String> {
    let asked = converse(&server, question, answer);
    server.reach.clock.answer_within(PROBE, asked).await
}

async fn converse(
    server: &ProbedServer,
    question: fn(&ProbedServer) -> Vec<u8>,
    answer: fn(&[u8], bool) -> Readiness,
) -> Result<Serving, String> {
    let mut stream = server.reach.connect(server.address).await?;
    let asked = stream.write_all(&question(server)).await;
    asked.map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    loop {
        let read = stream.read_buf(&mut bytes).await.map_err(|error| error.to_string())?;
        match answer(&bytes, read == 0) {
            Readiness::Serving(serving) => return Ok(serving),
            Readiness::NotYet(why) => return Err(why),
            Readiness::Unfinished if read == 0 => return Err("it closed the connection".into()),
            Readiness::Unfinished => {}
        }
    }
}

fn not_ready(product: &'static str, node: &Node, why: &str, after: Duration) -> ClusterError {
    let tail = log_tail(&node.log).map(|tail| format!("\n  {tail}"));
    let why = format!("{why}   ({}){}", node.log.display(), tail.unwrap_or_default());
    ClusterError::NotReady {
        product,
        node: node.name.clone(),
        why,
        after,
    }
}

fn ended(product: &'static str, node: &Node, how: &str) -> ClusterError {
    let why = log_tail(&node.log).unwrap_or_else(|| how.to_owned());
    ClusterError::Ended {
        product,
        node: node.name.clone(),
        why,
        log: node.log.clone(),
    }
}

/// Returns the line of a server's log about a taken address if there is one, and otherwise its last lines.
pub fn log_tail(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned();
    let is_taken = |line: &&str| line.to_lowercase().contains("address already in use");
    if let Some(line) = text.lines().find(is_taken) {
        return Some(line.trim().to_owned());
    }
    Some(tail(&text)).filter(|tail| !tail.is_empty())
}

/// Returns the last lines of an output, without empty ones.
pub fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_names_a_taken_port_is_found_in_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("server.log");
        std::fs::write(
            &log,
            "start\nbind: Address already in use (port 2181)\n\tat x\n\tat y\n\tat z\n",
        )
        .unwrap();
        assert_eq!(log_tail(&log).unwrap(), "bind: Address already in use (port 2181)");
        std::fs::write(&log, "a\nb\nc\nd\n").unwrap();
        assert_eq!(log_tail(&log).unwrap(), "b\n  c\n  d");
    }
}
