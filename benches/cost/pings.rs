//! What each way to one Redis adds to a PING: on an idle machine, and beside busy processes.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BUILT_IN, PINGS, PLAIN_RELAY, ROUNDS, SLEEPLESS, Ways, median, row, runtime};

/// PINGs of one way in one round where other processes want the processors; each may take milliseconds.
const PINGS_CROWDED: usize = 200;
/// What the proxy may add to a PING, as a ratio to what a plain relay adds: on an idle machine, and beside three busy processes
/// a processor.
const BESIDE_A_RELAY: f64 = 1.0;
const BESIDE_A_RELAY_CROWDED: f64 = 1.3;
/// Connections that ask at once, and what each asks.
const CONNECTIONS: usize = 64;
const PINGS_EACH: usize = 300;

pub fn proxy() {
    let ways = Ways::open();
    ping_table(&ways, "idle", PINGS, BESIDE_A_RELAY);
    let load = Load::start();
    ping_table(&ways, "crowded", PINGS_CROWDED, BESIDE_A_RELAY_CROWDED);
    drop(load);
    let mut rates = vec![vec![]; ways.named.len()];
    runtime().block_on(async {
        for _ in 0..ROUNDS / 4 {
            for (rates, (name, target)) in rates.iter_mut().zip(&ways.named) {
                if *name != SLEEPLESS {
                    rates.push(many_pings(*target).await);
                }
            }
        }
    });
    let measured = |(rate, _): &(Vec<f64>, _)| !rate.is_empty();
    for (rate, (name, _)) in rates.into_iter().zip(&ways.named).filter(measured) {
        row(
            &format!("{CONNECTIONS} connections, {name}: PINGs"),
            median(rate),
            "/s",
            None,
        );
    }
    if ways.toxiproxy.is_none() {
        println!("{:<66} {:>12}", "Toxiproxy (toxiproxy-server in the PATH)", "not here");
    }
}

/// What each way adds to a PING over the direct one; for the built-in proxy beside `factor` times what a plain relay adds.
fn ping_table(ways: &Ways, machine: &str, count: usize, factor: f64) {
    let mut took = vec![Vec::new(); ways.named.len()];
    runtime().block_on(async {
        for _ in 0..ROUNDS {
            for (took, (_, target)) in took.iter_mut().zip(&ways.named) {
                took.extend(pings(*target, count).await);
            }
        }
    });
    let figures: Vec<[(&str, f64); 3]> = took.into_iter().map(figures).collect();
    let relay = ways.named.iter().position(|(name, _)| *name == PLAIN_RELAY);
    let relay = figures[relay.expect("it was measured")];
    for (way, (name, _)) in ways.named.iter().enumerate() {
        for (which, (figure, value)) in figures[way].into_iter().enumerate() {
            let direct = figures[0][which].1;
            if way == 0 {
                row(&format!("PING, {machine}, direct: {figure}"), value, "µs", None);
                continue;
            }
            let limit = (*name == BUILT_IN).then_some(((relay[which].1 - direct) * factor, true));
            row(
                &format!("PING, {machine}, {name}: added to the {figure}"),
                value - direct,
                "µs",
                limit,
            );
        }
    }
}

/// The figures of a table of round trips.
fn figures(mut took: Vec<f64>) -> [(&'static str, f64); 3] {
    took.sort_by(f64::total_cmp);
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    [
        ("p50", took[took.len() / 2]),
        ("p90", took[took.len() * 9 / 10]),
        ("mean", mean),
    ]
}

/// Processes that never sleep, three for each processor.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        let started = (0..3 * processors).map(|_| busy().expect("a shell can be started"));
        Self(started.collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Round trips of as many PINGs, in microseconds.
pub async fn pings(target: SocketAddr, count: usize) -> Vec<f64> {
    let mut stream = TcpStream::connect(target).await.expect("the target is up");
    stream.set_nodelay(true).expect("a socket option");
    let mut answer = [0; 7];
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let sent = Instant::now();
        stream.write_all(b"PING\r\n").await.expect("sent");
        stream.read_exact(&mut answer).await.expect("answered");
        took.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    took
}

/// Round trips a second of many connections at once.
async fn many_pings(target: SocketAddr) -> f64 {
    let started = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        asking.spawn(async move {
            let mut stream = TcpStream::connect(target).await.expect("the target is up");
            stream.set_nodelay(true).expect("a socket option");
            for _ in 0..PINGS_EACH {
                stream.write_all(b"PING\r\n").await.expect("sent");
                stream.read_exact(&mut [0; 7]).await.expect("answered");
            }
        });
    }
    asking.join_all().await;
    (CONNECTIONS * PINGS_EACH) as f64 / started.elapsed().as_secs_f64()
}
