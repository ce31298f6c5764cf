//! What harness costs, each figure beside its limit or a peer, measured in one run: `make bench`.
//!
//! The proxy is measured beside a direct connection and beside a plain relay (tokio's own `copy_bidirectional`); rounds
//! alternate, so that a noisy machine disturbs all three alike.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::faults::Protocol;
use harness::network::{Armed, Exchange, Fate, Meant, Proxy, Rule, Whose, Wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 20;
const PINGS: usize = 2_000;
/// Added to the median round trip of a PING.
const PROXY_LIMIT_US: f64 = 20.0;
/// What a tap adds to that.
const TAP_LIMIT_US: f64 = 5.0;
/// Acquire–release pairs a second, 20 clients on one Redis.
const PAIRS_LIMIT: f64 = 2_000.0;
/// From the end of an experiment to its verdict, for 20,000 operations.
const VERDICT_LIMIT_S: f64 = 1.0;

fn main() {
    // `cargo test --benches` and nextest call this to list tests; there are none
    if std::env::args().any(|word| word == "--list" || word == "--test") {
        return;
    }
    println!("{:<46} {:>12} {:>12}  ", "what", "measured", "limit");
    proxy();
    tap();
    throughput();
    for (runtime, limit) in [("local", 10.0), ("docker", 20.0)] {
        first_acquire(runtime, limit);
    }
}

fn row(what: &str, measured: f64, unit: &str, limit: Option<(f64, bool)>) {
    let (limit, word) = match limit {
        None => (String::new(), ""),
        Some((limit, at_most)) => {
            let kept = if at_most { measured <= limit } else { measured >= limit };
            let sign = if at_most { "≤" } else { "≥" };
            (format!("{sign} {limit:.0} {unit}"), if kept { "ok" } else { "OVER" })
        }
    };
    println!("{what:<46} {:>12} {limit:>12}  {word}", format!("{measured:.1} {unit}"));
}

struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("a free port")
            .local_addr()
            .expect("bound")
            .port();
        let child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--loglevel",
                "warning",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed: apt-get install redis-server");
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, port }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn proxy() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], redis.port));
    let built_in = Proxy::start().expect("a proxy");
    let link = built_in.link("c0->n1".into(), address, 1).expect("a link");
    let relay = plain_relay(address);
    let mut medians = [Vec::new(), Vec::new(), Vec::new()];
    let mut tails = [Vec::new(), Vec::new(), Vec::new()];
    runtime.block_on(async {
        for _ in 0..ROUNDS {
            for (way, target) in [address, relay, link.listen()].into_iter().enumerate() {
                let (p50, p99) = pings(target).await;
                medians[way].push(p50);
                tails[way].push(p99);
            }
        }
    });
    let [direct, plain, ours] = medians.map(median);
    let [direct_tail, plain_tail, our_tail] = tails.map(median);
    row("PING, direct: median round trip", direct, "µs", None);
    row("PING, plain relay: added to the median", plain - direct, "µs", None);
    row(
        "PING, built-in proxy: added to the median",
        ours - direct,
        "µs",
        Some((PROXY_LIMIT_US, true)),
    );
    row(
        "PING, built-in proxy beside the plain relay",
        (ours - direct) / (plain - direct),
        "×",
        None,
    );
    row(
        "PING, plain relay: added to the p99",
        plain_tail - direct_tail,
        "µs",
        None,
    );
    row(
        "PING, built-in proxy: added to the p99",
        our_tail - direct_tail,
        "µs",
        None,
    );
}

/// A link with a tap beside one without, and a rule on the former that never strikes.
fn tap() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], redis.port));
    let proxy = Proxy::start().expect("a proxy");
    let (notices, _heard) = tokio::sync::mpsc::channel(1);
    let exchange = Exchange::new(Protocol::Resp, 1, notices);
    let tapped = |name: &str| {
        let wire = Wire::new(&exchange, 0, name.into());
        proxy.tapped(name.into(), address, 1, wire).expect("a link")
    };
    let (plain, listening, ruled) = (
        proxy.link("c0->n1".into(), address, 1),
        tapped("c0->n2"),
        tapped("c0->n3"),
    );
    let plain = plain.expect("a link");
    let _armed = Armed::put(
        vec![ruled.clone()],
        1,
        Rule::new(Meant {
            message: Protocol::Resp.spoken("SET").expect("a command"),
            occurrence: 1,
            whose: Whose::Anyone,
            fate: Fate::DropReply,
            refuse: None,
        }),
    );
    let mut medians = [Vec::new(), Vec::new(), Vec::new()];
    runtime.block_on(async {
        for _ in 0..ROUNDS {
            for (way, link) in [&plain, &listening, &ruled].into_iter().enumerate() {
                medians[way].push(pings(link.listen()).await.0);
            }
        }
    });
    let [without, with, struck] = medians.map(median);
    let limit = Some((TAP_LIMIT_US, true));
    row("PING, a tap: added to the proxy's median", with - without, "µs", limit);
    row("PING, a tap and a rule: added to that", struck - without, "µs", limit);
}

/// The least that a relay can do, on a thread of its own as the proxy is.
fn plain_relay(upstream: std::net::SocketAddr) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket option");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(upstream).await.expect("redis is up");
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
    });
    address
}

/// The median and the 99th percentile of many round trips, in microseconds.
async fn pings(target: std::net::SocketAddr) -> (f64, f64) {
    let mut stream = TcpStream::connect(target).await.expect("the target is up");
    stream.set_nodelay(true).expect("a socket option");
    let mut answer = [0; 7];
    let mut took = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let sent = Instant::now();
        stream.write_all(b"PING\r\n").await.expect("sent");
        stream.read_exact(&mut answer).await.expect("answered");
        took.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    took.sort_by(f64::total_cmp);
    (took[PINGS / 2], took[PINGS * 99 / 100])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn harness(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
    command.args(words.split_whitespace());
    command
}

fn throughput() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let words =
        "run --runtime local --backend redis --clients 20 --locks 20 --hold 0ms --fault none --time 15s --json -q";
    let output = harness(words)
        .current_dir(folder.path())
        .output()
        .expect("harness runs");
    let diagnosis: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a diagnosis");
    let number = |name: &str| diagnosis[name].as_f64().expect("a number");
    let pairs = number("acquires") / (number("length_ns") / 1e9);
    row(
        "20 clients, 20 locks, Redis: pairs a second",
        pairs,
        "/s",
        Some((PAIRS_LIMIT, false)),
    );
    let per_20_000 = number("check_ns") / 1e9 / number("operations") * 20_000.0;
    let what = format!("read and decided {} operations: for 20,000", number("operations"));
    row(&what, per_20_000, "s", Some((VERDICT_LIMIT_S, true)));
}

/// From the command to the first acquire that was answered.
fn first_acquire(runtime: &str, limit: f64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let words = format!("run --runtime {runtime} --backend zk --fault none --time 30s -q");
    let started = Instant::now();
    let mut child = harness(&words)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let history = folder.path().join("results/latest/history.jsonl");
    let acquired = |text: String| text.contains(r#""type":"ok","f":"acquire""#);
    let seen = loop {
        if std::fs::read_to_string(&history).is_ok_and(acquired) {
            break true;
        }
        if child.try_wait().expect("a child").is_some() {
            break false;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let what = format!("zk {runtime}: from the command to an acquire");
    if seen {
        row(&what, started.elapsed().as_secs_f64(), "s", Some((limit, true)));
    } else {
        println!("{what:<46} {:>12}", "not here");
    }
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let _ = child.wait();
}
