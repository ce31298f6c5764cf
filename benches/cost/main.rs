//! The costs of harness, each figure beside its limit or a peer, measured in one run: `make bench`.
//!
//! The proxy is measured beside a direct connection, beside the least that a relay can add (one that never sleeps), beside
//! a plain relay (tokio's own `copy_bidirectional`) and, where there is one, beside a Toxiproxy; rounds alternate, so that a
//! noisy machine disturbs them all alike. `cargo bench --profile dist --bench cost -- pings simulated` measures these parts alone.

mod elections;
mod experiments;
mod healing;
mod memory;
mod pings;
mod relays;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::client_role::{ANYONE, LABELS};
use harness::faults::Protocol;
use harness_proxy::api::{Api, ApiToken};
use harness_proxy::{
    ActiveRule, Behaviour, Link, LinkFault, LinkTap, MessageAction, MessageRule, MessageRuleSpec, Proxy, TapHub,
};
use pings::pings;
use relays::{plain_relay, sleepless_relay};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 20;
const PINGS: usize = 2_000;
/// The time that a tap may add to the median round trip of a PING.
const TAP_LIMIT_US: f64 = 5.0;
const DIRECT: &str = "direct";
const PLAIN_RELAY: &str = "plain relay";
const BUILT_IN: &str = "built-in proxy";
/// The relay that serves one connection after the other.
const SLEEPLESS: &str = "relay that never sleeps";
/// The time from the first to the last link of a partition.
const PARTITION_LIMIT_MS: f64 = 5.0;
/// Acquire–release pairs a second, 20 clients on one Redis.
const PAIRS_LIMIT: f64 = 2_000.0;
/// The time from the end of an experiment to its verdict, for 20,000 operations.
const VERDICT_LIMIT_S: f64 = 1.0;
/// The parts of the benchmark, in their order.
const PARTS: [(&str, fn()); 10] = [
    ("pings", pings::proxy),
    ("healing", healing::healing),
    ("memory", memory::connections),
    ("tap", tap),
    ("partition", partition),
    ("throughput", throughput),
    ("simulated", experiments::on_models),
    ("virtual", experiments::in_virtual_time),
    ("start", first_acquires),
    ("elections", elections::elections),
];

fn main() {
    // `cargo test --benches` and nextest call this to list tests; there are none
    if std::env::args().any(|word| word == "--list" || word == "--test") {
        return;
    }
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("{:<66} {:>12} {:>12}  ", "what", "measured", "limit");
    for (part, measure) in PARTS {
        if asked.is_empty() || asked.iter().any(|word| word == part) {
            measure();
        }
    }
}

fn first_acquires() {
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
            (format!("{sign} {limit} {unit}"), if kept { "ok" } else { "OVER" })
        }
    };
    println!("{what:<66} {:>12} {limit:>12}  {word}", format!("{measured:.1} {unit}"));
}

/// A server of this machine, which is killed when this is dropped.
struct BenchServer {
    child: Child,
    address: SocketAddr,
}

impl BenchServer {
    /// Starts a program on a free port; `None` where it is not installed.
    fn start(program: &str, words: &[&str]) -> Option<Self> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let mut command = Command::new(program);
        command.args(words).args(["--port", &address.port().to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Self { child, address })
    }

    fn redis() -> Self {
        let words = ["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"];
        Self::start("redis-server", &words).expect("redis-server is installed: apt-get install redis-server")
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The ways to one Redis that are measured beside each other; the others are measured against the first.
struct Ways {
    named: Vec<(&'static str, SocketAddr)>,
    toxiproxy: Option<BenchServer>,
    _redis: BenchServer,
    _link: Arc<Link>,
    _api: Api,
    _proxy: Proxy,
}

impl Ways {
    fn open() -> Self {
        let redis = BenchServer::redis();
        let address = redis.address;
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let proxy = Proxy::start().expect("a proxy");
        let link = proxy.link("c0->n1".into(), address, 1).expect("a link");
        let api = Api::serve(&proxy, Vec::new(), (anywhere, ApiToken::default()), 1, Box::new(|_| {})).expect("an API");
        let mut named = vec![
            (DIRECT, address),
            (SLEEPLESS, sleepless_relay(address)),
            (PLAIN_RELAY, plain_relay(address)),
            (BUILT_IN, link.listen()),
            (
                "built-in proxy, latency toxic of 0 ms",
                made(api.address(), address, true),
            ),
        ];
        let toxiproxy = BenchServer::start("toxiproxy-server", &["--host", "127.0.0.1"]);
        if let Some(toxiproxy) = &toxiproxy {
            let api = toxiproxy.address;
            named.push(("Toxiproxy", made(api, address, false)));
            named.push(("Toxiproxy, latency toxic of 0 ms", made(api, address, true)));
        }
        Self {
            named,
            toxiproxy,
            _redis: redis,
            _link: link,
            _api: api,
            _proxy: proxy,
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// Makes a proxy through Toxiproxy's API, with a toxic that does nothing if `poisoned`.
fn made(api: SocketAddr, upstream: SocketAddr, poisoned: bool) -> SocketAddr {
    let name = if poisoned { "poisoned" } else { "plain" };
    let body = format!(r#"{{"name":"{name}","listen":"127.0.0.1:0","upstream":"{upstream}"}}"#);
    let made = post(api, "/proxies", &body);
    for stream in ["upstream", "downstream"].iter().filter(|_| poisoned) {
        let toxic = format!(r#"{{"type":"latency","stream":"{stream}","attributes":{{"latency":0}}}}"#);
        post(api, &format!("/proxies/{name}/toxics"), &toxic);
    }
    let listen = made["listen"].as_str().and_then(|listen| listen.parse().ok());
    listen.expect("it listens")
}

fn post(api: SocketAddr, path: &str, body: &str) -> serde_json::Value {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(api).expect("the API answers");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(body).expect("JSON")
}

/// Measures how long it takes until the last of all links of 100 clients and 5 servers stands still, each with a connection.
fn partition() {
    let took = runtime().block_on(async {
        let proxy = Proxy::start().expect("a proxy");
        let (mut links, mut streams) = (Vec::new(), Vec::new());
        for server in 0..5 {
            let address = echo().await;
            for client in 0..100 {
                let link = proxy.link(format!("c{client}->n{server}"), address, 1).expect("a link");
                let mut stream = TcpStream::connect(link.listen()).await.expect("the link takes it");
                stream.write_all(b"x").await.expect("sent");
                stream.read_exact(&mut [0]).await.expect("echoed");
                links.push(link);
                streams.push(stream);
            }
        }
        let mut took = Vec::new();
        for layer in 0..20 {
            let links = links.clone();
            let put = Instant::now();
            let hold = LinkFault::apply(links, layer, Behaviour::STALL, false);
            took.push(put.elapsed().as_secs_f64() * 1e3);
            held(&hold, &mut streams).await;
            drop(hold);
            for stream in &mut streams {
                stream.read_exact(&mut [0]).await.expect("healed");
            }
        }
        took
    });
    let what = "partition of 100 clients and 5 servers: first to last link";
    row(what, median(took), "ms", Some((PARTITION_LIMIT_MS, true)));
}

async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

/// Sees that every connection is held.
async fn held(hold: &LinkFault, streams: &mut [TcpStream]) {
    for stream in &mut *streams {
        stream.write_all(b"y").await.expect("sent");
    }
    while hold.counts().held_bytes < streams.len() as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(hold.counts().bytes, 0, "nothing passes a partition");
}

/// Measures a link with a tap beside one without, with a rule on the former that never matches.
fn tap() {
    let redis = BenchServer::redis();
    let runtime = runtime();
    let address = redis.address;
    let proxy = Proxy::start().expect("a proxy");
    let (notices, _heard) = tokio::sync::mpsc::channel(1);
    let exchange = TapHub::new(Protocol::Resp, LABELS, 1, notices);
    let tapped = |name: &str| {
        let wire = LinkTap::new(&exchange, 0, name.into());
        proxy.tapped(name.into(), address, 1, wire).expect("a link")
    };
    let (plain, listening, ruled) = (
        proxy.link("c0->n1".into(), address, 1),
        tapped("c0->n2"),
        tapped("c0->n3"),
    );
    let plain = plain.expect("a link");
    let _armed = ActiveRule::apply(
        vec![ruled.clone()],
        1,
        MessageRule::new(MessageRuleSpec {
            message: Protocol::Resp.spoken("SET").expect("a command"),
            occurrence: 1,
            whose: ANYONE,
            action: MessageAction::DropReply,
            accepted: false,
            refuse: None,
        }),
    );
    let mut medians = [Vec::new(), Vec::new(), Vec::new()];
    runtime.block_on(async {
        for _ in 0..ROUNDS {
            for (way, link) in [&plain, &listening, &ruled].into_iter().enumerate() {
                medians[way].push(median(pings(link.listen(), PINGS).await));
            }
        }
    });
    let [without, with, struck] = medians.map(median);
    let limit = Some((TAP_LIMIT_US, true));
    row("PING, a tap: added to the proxy's median", with - without, "µs", limit);
    row("PING, a tap and a rule: added to that", struck - without, "µs", limit);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

fn harness(words: &str) -> Command {
    // the binary of the profile that this was built with
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
    let what = "20 clients, 20 locks, Redis: pairs a second";
    row(what, pairs, "/s", Some((PAIRS_LIMIT, false)));
    let per_20_000 = number("check_ns") / 1e9 / number("operations") * 20_000.0;
    let what = format!("read and decided {} operations: for 20,000", number("operations"));
    row(&what, per_20_000, "s", Some((VERDICT_LIMIT_S, true)));
}

/// Measures the time from the command to the first acquire that was answered.
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
        println!("{what:<66} {:>12}", "not here");
    }
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let _ = child.wait();
}
