//! What an idle connection costs in memory: through the proxy, and through a plain relay.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use harness_proxy::Proxy;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::relays::plain_relay;
use super::row;

/// As many connections, or as the limit of descriptors allows.
const CONNECTIONS: u64 = 10_000;
/// Descriptors of one connection: its two ends, and what the proxy has of it.
const DESCRIPTORS: u64 = 4;
/// Descriptors for everything else.
const OTHERS: u64 = 500;

pub fn idle_connections() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("Linux has this limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to the hard limit it may be raised");
    let count = CONNECTIONS.min(most.saturating_sub(OTHERS) / DESCRIPTORS) as usize;
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = server.local_addr().expect("bound");
    let relay = bytes_each(plain_relay(address), &server, count);
    let proxy = Proxy::start().expect("a proxy");
    let link = proxy.link("c0->n1".into(), address, 1).expect("a link");
    let ours = bytes_each(link.listen(), &server, count);
    let what = format!("{count} idle connections: memory of each, beside a plain relay");
    row(&what, ours, "B", Some((relay, true)));
}

/// What the process needs for each more of so many connections, each of which carried a byte both ways.
fn bytes_each(listen: SocketAddr, server: &TcpListener, count: usize) -> f64 {
    let mut ends = Vec::with_capacity(count);
    let before = resident();
    for _ in 0..count {
        let mut client = TcpStream::connect(listen).expect("it listens");
        let (mut accepted, _) = server.accept().expect("it dials");
        client.write_all(b"?").expect("sent");
        accepted.read_exact(&mut [0]).expect("it arrives");
        accepted.write_all(b"!").expect("sent");
        client.read_exact(&mut [0]).expect("it arrives");
        ends.push((client, accepted));
    }
    (resident() - before) / count as f64
}

/// Bytes of this process that are in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("a size");
    kilobytes.parse::<f64>().expect("a number") * 1024.0
}
