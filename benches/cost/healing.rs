//! The heal of a link that held bytes back: the time until all of them are out, beside a plain relay that carries the same bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_proxy::{Behaviour, Flow, Link, LinkControl, Proxy, Slice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::relays::plain_relay;
use super::{median, row, runtime};

/// The time by which a heal may exceed the plain relay.
const HEAL_LIMIT_MS: f64 = 10.0;
const TIMES: usize = 5;
/// The time for which a fault is on before it ends.
const FAULT: Duration = Duration::from_millis(500);

/// The flow of a fault, and the flow that stays when it ends.
struct Heal {
    what: String,
    before: Flow,
    after: Flow,
    chunks: usize,
    bytes: usize,
}

pub fn healing() {
    let pass = Flow::PASS;
    let millisecond = Flow::delayed(Duration::from_millis(1));
    let never = Flow::delayed(Duration::from_secs(20));
    let sliced = Flow::sliced(Slice::of(1));
    let slow = Flow::slowed;
    let held = [10, 100, 1000].map(|chunks| Heal {
        what: format!("{chunks} chunks held"),
        before: Flow::FREEZE,
        after: pass,
        chunks,
        bytes: 50,
    });
    let of_100_kb = [
        ("slices of 1 B end", sliced, pass),
        ("slices end, 1 ms stays", sliced.join(millisecond), millisecond),
        ("2 kB/s become 100 MB/s", slow(2000), slow(100_000_000)),
        ("2 kB/s end, 1 ms stays", slow(2000).join(millisecond), millisecond),
        ("20 s become 1 ms", never, millisecond),
        ("20 s end", never, pass),
    ];
    let in_one_chunk = of_100_kb.map(|(what, before, after)| Heal {
        what: format!("100 kB, {what}"),
        before,
        after,
        chunks: 1,
        bytes: 100_000,
    });
    for heal in held.iter().chain(&in_one_chunk) {
        runtime().block_on(measure(heal));
    }
    runtime().block_on(recovery());
}

async fn measure(heal: &Heal) {
    let (mut links, mut relays) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        links.push(through_link(heal).await);
        relays.push(through_relay(heal).await);
    }
    let (link, relay) = (median(links), median(relays));
    let what = format!("heal: {}: all out after, plain relay {relay:.1} ms", heal.what);
    row(&what, link, "ms", Some((relay + HEAL_LIMIT_MS, true)));
}

async fn ends(listen: std::net::SocketAddr, server: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listen).await.expect("it listens");
    client.set_nodelay(true).expect("a socket option");
    (client, server.accept().await.expect("it dials").0)
}

async fn send(client: &mut TcpStream, heal: &Heal) {
    for _ in 0..heal.chunks {
        client.write_all(&vec![1; heal.bytes]).await.expect("sent");
        tokio::task::yield_now().await;
    }
}

async fn receive(server: &mut TcpStream, mut left: usize) {
    let mut buffer = vec![0; 65_536];
    while left > 0 {
        left -= server.read(&mut buffer).await.expect("it arrives");
    }
}

async fn through_relay(heal: &Heal) -> f64 {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let relay = plain_relay(server.local_addr().expect("bound"));
    let (mut client, mut server) = ends(relay, &server).await;
    let started = Instant::now();
    tokio::join!(send(&mut client, heal), receive(&mut server, heal.chunks * heal.bytes));
    started.elapsed().as_secs_f64() * 1e3
}

async fn through_link(heal: &Heal) -> f64 {
    let (_proxy, link, server) = linked().await;
    let (mut client, mut server) = ends(link.listen(), &server).await;
    link.apply(1, Behaviour::both(heal.before));
    send(&mut client, heal).await;
    tokio::time::sleep(FAULT).await;
    let arrived = link.counts().bytes as usize;
    let mut before = vec![0; arrived];
    server.read_exact(&mut before).await.expect("what passed so far");
    let started = Instant::now();
    link.apply(1, Behaviour::both(heal.after));
    receive(&mut server, heal.chunks * heal.bytes - arrived).await;
    started.elapsed().as_secs_f64() * 1e3
}

async fn linked() -> (Proxy, Arc<Link>, TcpListener) {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let proxy = Proxy::start().expect("a proxy");
    let link = proxy.link("c0->n1".into(), server.local_addr().expect("bound"), 1);
    (proxy, link.expect("a link"), server)
}

/// Measures a sender that does not pause: its one-way delay in the second after a partition of 1.5 s.
async fn recovery() {
    for rate in [200, 2_000, 10_000] {
        let (_proxy, link, server) = linked().await;
        let (mut client, mut server) = ends(link.listen(), &server).await;
        let began = Instant::now();
        let sending = tokio::spawn(async move {
            let mut sent = 0;
            while began.elapsed() < Duration::from_secs(4) {
                while f64::from(sent) < began.elapsed().as_secs_f64() * f64::from(rate) {
                    let stamp = began.elapsed().as_nanos() as u64;
                    let mut message = [0; 100];
                    message[..8].copy_from_slice(&stamp.to_be_bytes());
                    client.write_all(&message).await.expect("sent");
                    sent += 1;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let faults = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            link.apply(1, Behaviour::STALL);
            tokio::time::sleep(Duration::from_millis(1500)).await;
            link.heal(1);
        };
        let delays = async {
            let mut delays = Vec::new();
            let mut message = [0; 100];
            while server.read_exact(&mut message).await.is_ok() {
                let stamp = u64::from_be_bytes(message[..8].try_into().expect("8 bytes"));
                if stamp > 3_000_000_000 {
                    delays.push((began.elapsed().as_nanos() as u64 - stamp) as f64 / 1e6);
                }
            }
            delays
        };
        let ((), delays) = tokio::join!(faults, delays);
        sending.await.expect("it sends");
        let what = format!("{rate} messages/s, from 1 s after a partition: one-way delay");
        row(&what, median(delays), "ms", Some((HEAL_LIMIT_MS, true)));
    }
}
