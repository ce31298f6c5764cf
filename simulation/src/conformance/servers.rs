//! Real servers on loopback for the tests of this crate. Each ends with its handle.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness_workloads::nats::{api, lone_answer, lone_request};
use harness_workloads::protocol::OpenRequest;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The most looks at a server that starts: for a minute, since several may start on a busy machine.
const LOOKS: u32 = 1200;
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// The time in which it must answer.
const ANSWER: Duration = Duration::from_millis(500);

/// One running server.
pub(super) struct RealServer {
    pub address: SocketAddr,
    child: Child,
    data: TempDir,
}

impl RealServer {
    /// Starts a program with the arguments that `arguments` makes of a port and of the folder in which it runs, and waits until it answers;
    /// `None`: it is not installed.
    async fn start(
        program: &str,
        arguments: impl FnOnce(u16, &Path) -> Vec<String>,
        is_ready: impl Fn(TcpStream) -> bool,
    ) -> Option<Self> {
        let data = TempDir::new().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let started = Command::new(program)
            .args(arguments(free.port(), data.path()))
            .current_dir(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let missing = |error: &std::io::Error| eprintln!("skipped: {program} is needed for this test ({error})");
        let server = RealServer {
            address: free,
            child: started.inspect_err(missing).ok()?,
            data,
        };
        server.until_ready(is_ready).await;
        Some(server)
    }

    /// Waits until it answers.
    pub async fn until_ready(&self, is_ready: impl Fn(TcpStream) -> bool) {
        for _ in 0..LOOKS {
            if let Ok(stream) = TcpStream::connect(self.address) {
                // another process may have taken the port, and say nothing
                stream.set_read_timeout(Some(ANSWER)).unwrap();
                if is_ready(stream) {
                    return;
                }
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        panic!(
            "the server at {} does not answer; its data is in {:?}",
            self.address, self.data
        );
    }

    pub fn pause(&self, paused: bool) {
        let signal = if paused { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the `open` request of a client of these servers.
pub(super) fn open_request(backend: &str, servers: &[SocketAddr], lease: Duration) -> OpenRequest {
    let endpoints = servers.iter().map(SocketAddr::to_string).collect();
    OpenRequest::plain(backend, endpoints, lease)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Starts a server of this program, `redis-server` or `valkey-server`. A replica has the data that its master had at that time.
pub(super) async fn redis(program: &str, master: Option<SocketAddr>) -> Option<RealServer> {
    let (command, what) = match master {
        None => ("SET in-step yes", "OK"),
        Some(_) => ("GET in-step", "yes"),
    };
    let arguments = |port: u16, _: &Path| {
        let fixed = "--bind 127.0.0.1 --appendonly no --daemonize no --protected-mode no --repl-diskless-sync-delay 0";
        let follows = master.map(|master| format!("--replicaof {} {}", master.ip(), master.port()));
        let mut arguments = words(&format!("{fixed} --port {port} {}", follows.unwrap_or_default()));
        arguments.extend(["--save".into(), String::new()]);
        arguments
    };
    RealServer::start(program, arguments, |stream| redis_says(stream, command, what)).await
}

/// Whether a Redis server gives this answer to a command.
pub(super) fn redis_says(stream: TcpStream, command: &str, what: &str) -> bool {
    says(stream, &format!("{command}\r\nQUIT\r\n"), what)
}

/// Whether a server gives this answer to a question, before it ends the connection.
fn says(mut stream: TcpStream, question: &str, what: &str) -> bool {
    let mut answer = Vec::new();
    stream.write_all(question.as_bytes()).is_ok()
        && stream.read_to_end(&mut answer).is_ok()
        && String::from_utf8_lossy(&answer).contains(what)
}

const ZOOKEEPER_JAR: &str = "/usr/share/java/zookeeper.jar";

/// Starts one server alone, with this tick.
pub(super) async fn zookeeper(tick: Duration) -> Option<RealServer> {
    if !Path::new(ZOOKEEPER_JAR).exists() {
        eprintln!("skipped: {ZOOKEEPER_JAR} is needed for this test (apt-get install libzookeeper-java libslf4j-java)");
        return None;
    }
    let arguments = |port: u16, folder: &Path| {
        let text = format!(
            "tickTime={}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\nmaxClientCnxns=0\nforceSync=no\nmaxSessionTimeout=60000\n",
            tick.as_millis(),
            folder.join("data").display(),
        );
        std::fs::write(folder.join("zoo.cfg"), text).unwrap();
        words(&format!(
            "-Xms32m -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
             -cp {ZOOKEEPER_JAR}:/usr/share/java/slf4j-simple.jar \
             org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg"
        ))
    };
    RealServer::start("java", arguments, |stream| says(stream, "srvr", "Mode: ")).await
}

/// Starts one member alone, with the timing of the servers of a run.
pub(super) async fn etcd() -> Option<RealServer> {
    let arguments = |port: u16, _: &Path| {
        words(&format!(
            "--name n1 --data-dir data --heartbeat-interval 100 --election-timeout 1000 \
             --log-level error --logger zap \
             --listen-client-urls http://127.0.0.1:{port} --advertise-client-urls http://127.0.0.1:{port} \
             --listen-peer-urls http://127.0.0.1:0 --initial-advertise-peer-urls http://127.0.0.1:1 \
             --initial-cluster n1=http://127.0.0.1:1"
        ))
    };
    let question = "POST /v3/maintenance/status HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\n\
                    Content-Length: 2\r\nConnection: close\r\n\r\n{}";
    let knows_leader = |stream| says(stream, question, "\"leader\"");
    RealServer::start("etcd", arguments, knows_leader).await
}

/// Starts one server alone, with JetStream.
pub(super) async fn nats() -> Option<RealServer> {
    let fixed = "--addr 127.0.0.1 --jetstream --store_dir data";
    let arguments = |port: u16, _: &Path| words(&format!("{fixed} --port {port}"));
    RealServer::start("nats-server", arguments, nats_is_ready).await
}

/// Whether JetStream answers.
fn nats_is_ready(mut stream: TcpStream) -> bool {
    let question = lone_request(&api::stream_names(), None, "_INBOX.ready");
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    if stream.write_all(&question).is_err() {
        return false;
    }
    while let Ok(length) = stream.read(&mut part)
        && length > 0
    {
        answer.extend_from_slice(&part[..length]);
        if let Ok(Some(_)) = lone_answer(&answer) {
            return true;
        }
    }
    false
}
