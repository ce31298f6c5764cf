//! The machine of the tests: waits, free ports, plain requests, programs, containers, and servers that tests start themselves.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use harness::backends;
use harness::cluster::{Cluster, ClusterSpec, Runtime, find_program};
use harness_workloads::BackendId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Limit of all waits of tests, longer than a busy machine needs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Tries until it succeeds. A test that waits too long fails with the error of the last attempt.
pub fn until_ok<T, E: Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(why) => assert!(begun.elapsed() < LIMIT, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until this is true.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    until_ok(|| done().then_some(()).ok_or_else(|| format!("{what} takes too long")));
}

/// Returns an address of this machine at which no process listens.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address")
}

/// Returns the answer of a server until it closes the connection.
pub fn ask(server: impl ToSocketAddrs, question: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(question)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns the whole answer to an HTTP request. `head` is the line of the request, and at least one header.
pub fn http(server: impl ToSocketAddrs, head: &str, body: &str) -> io::Result<String> {
    let length = body.len();
    let request = format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    ask(server, request.as_bytes())
}

/// Returns all the output of a program.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the standard output of a command that must succeed.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the output of `docker`; blanks divide its words.
pub fn docker(words: &str) -> String {
    let output = Command::new("docker").args(words.split_whitespace()).output();
    let output = output.expect("docker can be started");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A container or an image of a test, which is removed when this is dropped.
pub enum MadeByDocker {
    Container(String),
    Image(String),
}

impl MadeByDocker {
    pub fn name(&self) -> &str {
        let (Self::Container(name) | Self::Image(name)) = self;
        name
    }
}

impl Drop for MadeByDocker {
    fn drop(&mut self) {
        docker(&match self {
            // with the volumes that its image declares
            Self::Container(name) => format!("rm --force --volumes {name}"),
            Self::Image(name) => format!("rmi --force {name}"),
        });
    }
}

/// Copies these files of the repository into a folder of their own.
pub fn copy_of(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let copy = folder.path().join(file);
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(file), copy).unwrap();
    }
    folder
}

/// Writes a shell script that can be run.
pub fn write_program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Returns the names in a folder, sorted.
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Returns the ids of all processes.
pub fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("Linux has /proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns a file of a process, such as `cmdline`; empty if the process has ended.
pub fn of_process(pid: u32, file: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap();
}

/// Whether a program is in the `PATH`, with a line on stderr if it is not.
pub fn is_on_path(program: &str) -> bool {
    let is_here = find_program(program).is_some();
    if !is_here {
        eprintln!("skipped: there is no {program}");
    }
    is_here
}

/// Whether no Valkey is installed here, with a line on stderr: Debian 12 has none.
pub fn has_no_valkey() -> bool {
    let is_missing = !(backends::of(BackendId::Valkey).software.missing)().is_empty();
    if is_missing {
        eprintln!("skipped: there is no valkey-server (`make servers` puts one into target/servers)");
    }
    is_missing
}

/// Returns servers of harness with the defaults of a run, with their logs in this folder.
pub fn plain_servers(backend: BackendId, nodes: u32, lease: Duration, logs: &Path) -> ClusterSpec {
    let place = (format!("test-{}", std::process::id()), logs.to_owned());
    ClusterSpec::plain(backends::of(backend).software, nodes, lease, place, LIMIT)
}

/// Starts these servers, and waits until they serve.
pub async fn serving(spec: &ClusterSpec) -> Cluster {
    let (_kept, interrupt) = tokio::sync::watch::channel(false);
    let cluster = Cluster::start(spec, &Runtime::Local, interrupt).await;
    cluster.unwrap_or_else(|error| panic!("{error}"))
}

/// One server of a backend, which is stopped when this is dropped.
pub struct OneServer {
    pub runtime: tokio::runtime::Runtime,
    pub address: SocketAddr,
    cluster: Option<Cluster>,
    _folder: tempfile::TempDir,
}

impl OneServer {
    pub fn start(backend: BackendId) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        let folder = tempfile::tempdir().expect("a temporary folder");
        // its sessions outlive any pause of a busy machine, so that no client needs pings: a tap counts none
        let spec = plain_servers(backend, 1, Duration::from_secs(60), folder.path());
        let cluster = runtime.block_on(serving(&spec));
        Self {
            runtime,
            address: cluster.nodes[0].address,
            cluster: Some(cluster),
            _folder: folder,
        }
    }
}

impl Drop for OneServer {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            self.runtime.block_on(cluster.stop());
        }
    }
}

/// A process that is killed when this is dropped.
pub struct KilledAtDrop(pub Child);

impl Drop for KilledAtDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the first line of a pipe from a child.
pub fn first_line(pipe: &mut Option<impl Read>) -> String {
    let mut line = String::new();
    let pipe = pipe.as_mut().expect("it is piped");
    BufReader::new(pipe).read_line(&mut line).expect("it is text");
    line
}

/// A server that a test started, not harness.
pub struct OwnServer {
    pub child: KilledAtDrop,
    pub address: SocketAddr,
}

impl OwnServer {
    /// Starts a server and waits until it listens there.
    pub fn start(command: &mut Command, address: SocketAddr) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let child = KilledAtDrop(child);
        let server = Self { child, address };
        until(&format!("{command:?}"), || TcpStream::connect(address).is_ok());
        server
    }

    /// Starts a Redis with these options and without data on disk.
    pub fn redis(options: &[&str]) -> Self {
        let address = free_address();
        let port = address.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
        Self::start(command.args(options), address)
    }
}
