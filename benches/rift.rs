//! The time until an ensemble has a new leader when the proxy cuts the old one off, beside the time of the same ensemble without a proxy,
//! whose leader is stopped: to the others both are a leader that has fallen silent.
//!
//! Rounds alternate, so that a noisy machine disturbs both alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::backends::{self, Backend};
use harness::cluster::{Cluster, ClusterSpec, NodeCommand, PeerProxies, Peering, Runtime};
use harness::run::PeerLinks;
use harness_proxy::{Behaviour, LinkFault};

const ROUNDS: usize = 8;
/// The cost that the proxy may have, as a multiple.
const LIMIT: f64 = 2.0;
const LEASE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// An ensemble, and the proxy between its servers if it has one.
struct Ensemble {
    cluster: Cluster,
    peers: Option<Arc<PeerLinks>>,
}

fn main() {
    // `cargo test --benches` and nextest call this to list tests; there are none
    if std::env::args().any(|word| word == "--list" || word == "--test") {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let elects = |backend: &&Backend| matches!(backend.software.peering, Peering::Socks);
    for backend in backends::all().filter(elects) {
        runtime.block_on(measure(backend));
    }
}

async fn measure(backend: &'static Backend) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let peers = PeerLinks::new(1).expect("a proxy");
    let direct = Ensemble::start(backend, folder.path(), None).await;
    let proxied = Ensemble::start(backend, folder.path(), Some(peers)).await;
    let (mut stopped, mut cut_off) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        stopped.push(direct.round().await);
        cut_off.push(proxied.round().await);
    }
    row(
        &format!("{backend}, no proxy, leader stopped: new leader after"),
        &stopped,
    );
    row(&format!("{backend}, proxy, leader cut off: new leader after"), &cut_off);
    let times = median(&cut_off) / median(&stopped);
    let word = if times <= LIMIT { "ok" } else { "OVER" };
    println!(
        "{:<52} {times:.2} ×   ≤ {LIMIT:.0} ×  {word}",
        format!("{backend}, beside each other")
    );
    direct.cluster.stop().await;
    proxied.cluster.stop().await;
}

impl Ensemble {
    async fn start(backend: &'static Backend, folder: &std::path::Path, peers: Option<Arc<PeerLinks>>) -> Self {
        let run = format!("bench-{backend}-{}", if peers.is_some() { "proxied" } else { "direct" });
        let place = (run.clone(), folder.join(&run));
        let spec = ClusterSpec {
            peer_proxies: peers.clone().map(|peers| peers as Arc<dyn PeerProxies>),
            ..ClusterSpec::plain(backend.software, 3, LEASE, place, Duration::from_secs(40))
        };
        let (_kept, interrupt) = tokio::sync::watch::channel(false);
        let cluster = Cluster::start(&spec, &Runtime::Local, interrupt).await;
        let cluster = cluster.unwrap_or_else(|error| panic!("{backend} does not start: {error}"));
        Self { cluster, peers }
    }

    /// Silences the leader; returns the time until another one leads and serves. Then waits until all is well again.
    async fn round(&self) -> f64 {
        let control = self.cluster.control();
        let old = control.leader(Duration::from_secs(10)).await.expect("a server leads");
        let started = Instant::now();
        let hold = match &self.peers {
            None => {
                let _ = control.order(old, NodeCommand::Pause).await;
                None
            }
            Some(peers) => {
                let links = peers
                    .links()
                    .into_iter()
                    .filter(|((from, to), _)| *from == old || *to == old);
                Some(LinkFault::apply(
                    links.map(|(_, link)| link).collect(),
                    1,
                    Behaviour::STALL,
                    false,
                ))
            }
        };
        let took = self.new_leader(old, started).await;
        drop(hold);
        if self.peers.is_none() {
            let _ = control.order(old, NodeCommand::Resume).await;
        }
        for node in 0..3 {
            assert!(
                control.serves(node, Duration::from_secs(30)).await,
                "everybody comes back"
            );
        }
        // elections that the heal may have started are over
        tokio::time::sleep(Duration::from_secs(1)).await;
        took
    }

    async fn new_leader(&self, old: u32, started: Instant) -> f64 {
        let control = self.cluster.control();
        loop {
            for node in (0..3).filter(|node| *node != old) {
                if control.serving(node).await.is_some_and(|serving| serving.role == "leader") {
                    return started.elapsed().as_secs_f64();
                }
            }
            assert!(started.elapsed() < Duration::from_secs(60), "no new leader");
            tokio::time::sleep(POLL).await;
        }
    }
}

fn row(what: &str, seconds: &[f64]) {
    let all: Vec<String> = seconds.iter().map(|seconds| format!("{seconds:.2}")).collect();
    println!("{what:<52} {:.2} s  ({})", median(seconds), all.join(" "));
}

fn median(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}
