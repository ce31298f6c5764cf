//! The memory of a connection: of an idle one, through the proxy and through a plain relay, and of one that holds back as many chunks as it
//! may.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use harness_proxy::{Behaviour, Flow, LinkControl, Proxy};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::relays::plain_relay;
use super::row;

/// Chunks of a byte each that a sender offers to a link that holds everything back, and the memory that the link may need for them.
const CHUNKS: usize = 30_000;
const HELD_LIMIT_MB: f64 = 4.0;
/// The time between two of them, so that the proxy reads each alone.
const PAUSE: Duration = Duration::from_micros(50);

/// The most connections; the limit of descriptors may allow fewer.
const CONNECTIONS: u64 = 10_000;
/// Descriptors of one connection: its two ends, and those of the proxy.
const DESCRIPTORS: u64 = 4;
/// Descriptors that stay free.
const SPARE: u64 = 100;

pub fn connections() {
    idle_connections();
    held_chunks();
}

fn idle_connections() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("Linux has this limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to the hard limit it may be raised");
    let count = CONNECTIONS.min(most.saturating_sub(descriptors() + SPARE) / DESCRIPTORS) as usize;
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = server.local_addr().expect("bound");
    let relay = bytes_each(plain_relay(address), &server, count);
    let proxy = Proxy::start().expect("a proxy");
    let link = proxy.link("c0->n1".into(), address, 1).expect("a link");
    let ours = bytes_each(link.listen(), &server, count);
    let what = format!("{count} idle connections: memory of each, beside a plain relay");
    row(&what, ours, "B", Some((relay, true)));
}

/// Measures the memory of one connection that holds back as many chunks as it may: a chunk of a byte must not cost as much as a large one.
fn held_chunks() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = Proxy::start().expect("a proxy");
    let link = proxy.link("c0->n1".into(), server.local_addr().expect("bound"), 1);
    let link = link.expect("a link");
    let mut client = TcpStream::connect(link.listen()).expect("it listens");
    client.set_nodelay(true).expect("a socket option");
    let _accepted = server.accept().expect("it dials");
    link.apply(1, Behaviour::both(Flow::delayed(Duration::from_secs(3600))));
    let before = resident();
    for _ in 0..CHUNKS {
        client.write_all(b"?").expect("sent");
        std::thread::sleep(PAUSE);
    }
    let held = (resident() - before) / 1e6;
    let what = format!("{CHUNKS} chunks of a byte, delayed: memory of the connection");
    row(&what, held, "MB", Some((HELD_LIMIT_MB, true)));
}

/// Returns the memory of each of so many connections, each of which carried a byte both ways.
fn bytes_each(listen: SocketAddr, server: &TcpListener, count: usize) -> f64 {
    let open = descriptors();
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
    let each = (resident() - before) / count as f64;
    drop(ends);
    // the other ends of the connections close when their tasks see it
    while descriptors() > open + SPARE {
        std::thread::sleep(Duration::from_millis(10));
    }
    each
}

/// Returns the number of descriptors that this process has open.
fn descriptors() -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").expect("Linux has this folder");
    open.count() as u64
}

/// Returns the bytes of this process that are in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("a size");
    kilobytes.parse::<f64>().expect("a number") * 1024.0
}
