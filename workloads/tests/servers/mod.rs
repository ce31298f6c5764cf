//! Real servers on loopback for the tests, and links to them that can be stalled. Servers end with their handle.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time in which a cluster must come up on a loaded machine.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// A running cluster.
pub struct Servers {
    pub endpoints: Vec<String>,
    children: Vec<Child>,
    _data: TempDir,
}

impl Servers {
    /// Waits until each of them gives the expected answer to a question.
    fn once_ready(ports: &[u16], children: Vec<Child>, data: TempDir, (question, expected): (&str, &str)) -> Self {
        let servers = Servers {
            endpoints: ports.iter().map(|port| format!("127.0.0.1:{port}")).collect(),
            children,
            _data: data,
        };
        let began = Instant::now();
        let is_ready = |endpoint: &String| ask(endpoint, question).contains(expected);
        while !servers.endpoints.iter().all(is_ready) {
            assert!(
                began.elapsed() < READY_LIMIT,
                "the servers {:?} did not come up",
                servers.endpoints
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        servers
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ports that the servers of one test process may take, and from where on: a separate block for each, so that processes
/// that start side by side do not see the same port free. Harness looks for its servers' ports above these.
const BLOCK: u16 = 40;
const FIRST: u16 = 12_000;
const BLOCKS: u16 = 150;

/// Returns the first port of this process's block. The block is its own as long as it listens on a socket of that name, which ends with it.
fn first_port() -> u16 {
    static OWN: OnceLock<(u16, UnixListener)> = OnceLock::new();
    let claim = |block: u16| {
        let name = UnixAddress::from_abstract_name(format!("harness-test-ports-{block}")).unwrap();
        Some((block, UnixListener::bind_addr(&name).ok()?))
    };
    let blocks = || (0..BLOCKS).map(|more| ((std::process::id() + u32::from(more)) % u32::from(BLOCKS)) as u16);
    let (block, _) = OWN.get_or_init(|| blocks().find_map(claim).expect("fewer tests run at once"));
    FIRST + BLOCK * block
}

/// Free ports, below those that outgoing connections take, each given to one cluster only.
fn ports(count: usize) -> Vec<u16> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let first = first_port();
    let free = |port: &u16| StdListener::bind(("127.0.0.1", *port)).is_ok();
    let fresh = std::iter::repeat_with(|| first + GIVEN.fetch_add(1, Ordering::Relaxed));
    fresh
        .take_while(|port| *port < first + BLOCK)
        .filter(free)
        .take(count)
        .collect()
}

/// Starts a program with these words, which blanks divide, and with `more` as they are.
fn start(program: &str, hint: &str, words: &str, more: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).args(more);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} is needed for this test: {error}; install it with `{hint}`"))
}

/// Sends a question to a server, and reads until it closes or is silent.
fn ask(endpoint: &str, question: &str) -> String {
    let Ok(mut stream) = StdStream::connect(endpoint) else {
        return String::new();
    };
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut answer = Vec::new();
    let _ = stream.write_all(question.as_bytes());
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn redis(count: usize) -> Servers {
    of_redis("redis-server", count)
}

/// Starts servers of Valkey; `None`: there is none here. Debian 12 has no package of it.
pub fn valkey(count: usize) -> Option<Servers> {
    let program = "valkey-server";
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    match found {
        Ok(_) => Some(of_redis(program, count)),
        Err(error) => {
            eprintln!("skipped: {program} is needed for this test ({error})");
            None
        }
    }
}

/// Servers of a program that has the settings of Redis.
fn of_redis(program: &str, count: usize) -> Servers {
    let data = TempDir::new().unwrap();
    let ports = ports(count);
    let folder = data.path().display();
    let run = |port: &u16| {
        let words = format!("--port {port} --bind 127.0.0.1 --appendonly no --protected-mode no --dir {folder}");
        start(program, "apt-get install redis-server", &words, &["--save", ""])
    };
    let children = ports.iter().map(run).collect();
    Servers::once_ready(&ports, children, data, ("PING\r\nQUIT\r\n", "PONG"))
}

pub fn nats() -> Servers {
    let data = TempDir::new().unwrap();
    let ports = ports(1);
    let words = format!("-a 127.0.0.1 -p {} -js -sd {}", ports[0], data.path().display());
    let children = vec![start("nats-server", "apt-get install nats-server", &words, &[])];
    let asks = "CONNECT {}\r\nSUB i 1\r\nPUB $JS.API.INFO i 0\r\n\r\n";
    Servers::once_ready(&ports, children, data, (asks, "\nMSG i 1 "))
}

pub fn etcd() -> Servers {
    let data = TempDir::new().unwrap();
    let ports = ports(6);
    let (clients, peers) = ports.split_at(3);
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let members: Vec<_> = peers
        .iter()
        .enumerate()
        .map(|(i, port)| format!("e{i}={}", url(port)))
        .collect();
    let run = |i: usize| {
        let (client, peer) = (url(&clients[i]), url(&peers[i]));
        let words = format!(
            "--name e{i} --data-dir {} --listen-client-urls {client} --advertise-client-urls {client} \
             --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster {} \
             --initial-cluster-state new --heartbeat-interval 100 --election-timeout 1000 --log-level warn",
            data.path().join(format!("e{i}")).display(),
            members.join(","),
        );
        start("etcd", "apt-get install etcd-server", &words, &[])
    };
    let children = (0..3).map(run).collect();
    let status = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    Servers::once_ready(clients, children, data, (status, "\"leader\""))
}

pub fn zookeeper() -> Servers {
    let data = TempDir::new().unwrap();
    let ports = ports(9);
    let members: Vec<_> = (0..3)
        .map(|i| format!("server.{}=127.0.0.1:{}:{}", i + 1, ports[3 + i], ports[6 + i]))
        .collect();
    let run = |i: usize| {
        let home = data.path().join(format!("z{i}"));
        fs::create_dir_all(home.join("data")).unwrap();
        fs::write(home.join("data/myid"), (i + 1).to_string()).unwrap();
        let config = format!(
            "tickTime=200\ninitLimit=20\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\n4lw.commands.whitelist=*\nstandaloneEnabled=false\nforceSync=no\n{}\n",
            home.join("data").display(),
            ports[i],
            members.join("\n"),
        );
        fs::write(home.join("zoo.cfg"), config).unwrap();
        let words = format!(
            "-Xms16m -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.cnxTimeout=1000 \
             -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
             org.apache.zookeeper.server.quorum.QuorumPeerMain {}",
            home.join("zoo.cfg").display(),
        );
        let hint = "apt-get install libzookeeper-java libslf4j-java default-jre-headless";
        start("java", hint, &words, &[])
    };
    let jar = "/usr/share/java/zookeeper.jar";
    assert!(
        fs::exists(jar).unwrap(),
        "{jar} is needed for this test; install it with `apt-get install libzookeeper-java`"
    );
    let children = (0..3).map(run).collect();
    Servers::once_ready(&ports[..3], children, data, ("srvr", "Mode: "))
}

/// Makes the data and becomes the server. PostgreSQL refuses to run as root, and Debian keeps it out of PATH.
const POSTGRES: &str = r#"PATH=$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' :)
as=
if [ "$(id -u)" = 0 ]; then chown nobody .; as="setpriv --reuid=nobody --clear-groups"; fi
$as initdb -A trust -U postgres --no-sync -D data && exec $as postgres -D data -p "$0" -c listen_addresses=127.0.0.1 \
  -c unix_socket_directories= -c dynamic_shared_memory_type=mmap
"#;

pub fn postgres() -> Servers {
    // a start-up message
    let hello = "\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    of_script(POSTGRES, "apt-get install postgresql", (hello, "server_version"))
}

/// Makes the data and becomes the server. MariaDB refuses to run as root, and Debian keeps it out of PATH.
const MARIADB: &str = r#"PATH=$PATH:/usr/sbin
as=
if [ "$(id -u)" = 0 ]; then chown nobody .; as="setpriv --reuid=nobody --clear-groups"; fi
$as mkdir tmp && export TMPDIR=$PWD/tmp
$as mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal --skip-test-db \
  --skip-name-resolve --debug-no-sync && exec $as mariadbd --no-defaults --datadir="$PWD/data" --port="$0" \
  --bind-address=127.0.0.1 --socket= --pid-file="$PWD/pid" --skip-name-resolve --debug-no-sync --max-connections=600
"#;

pub fn mariadb() -> Servers {
    // it greets each client that connects
    of_script(MARIADB, "apt-get install mariadb-server", ("", "MariaDB"))
}

/// Starts one server, which a script of the shell becomes in a folder of its own.
fn of_script(script: &str, hint: &str, ready: (&str, &str)) -> Servers {
    let data = TempDir::new().unwrap();
    let ports = ports(1);
    let script = format!("cd {} && chmod o+x . && {script}", data.path().display());
    let children = vec![start("sh", hint, "-c", &[&script, &ports[0].to_string()])];
    Servers::once_ready(&ports, children, data, ready)
}

/// A link to a server that forwards bytes, or holds them back.
#[derive(Clone)]
pub struct StallableLinks {
    pub endpoints: Vec<String>,
    stalled: Rc<Cell<bool>>,
}

impl StallableLinks {
    /// Opens one link a server. Wants a `LocalSet`.
    pub async fn to(servers: &Servers) -> Self {
        let stalled = Rc::new(Cell::new(false));
        let mut endpoints = Vec::new();
        for server in &servers.endpoints {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            endpoints.push(listener.local_addr().unwrap().to_string());
            tokio::task::spawn_local(accept(listener, server.clone(), stalled.clone()));
        }
        StallableLinks { endpoints, stalled }
    }

    pub fn stall(&self, stalled: bool) {
        self.stalled.set(stalled);
    }
}

async fn flow(stalled: &Cell<bool>) {
    while stalled.get() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn accept(listener: TcpListener, server: String, stalled: Rc<Cell<bool>>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, stalled) = (server.clone(), stalled.clone());
        tokio::task::spawn_local(async move {
            flow(&stalled).await;
            let Ok(upstream) = TcpStream::connect(server).await else {
                return;
            };
            client.set_nodelay(true).unwrap();
            upstream.set_nodelay(true).unwrap();
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), upstream.into_split());
            tokio::join!(
                pump(from_client, to_server, &stalled),
                pump(from_server, to_client, &stalled)
            );
        });
    }
}

async fn pump(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, stalled: &Cell<bool>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        flow(stalled).await;
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
