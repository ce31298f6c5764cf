//! The time that each way to one Redis adds to a PING: on an idle machine, and beside busy processes.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BUILT_IN, DIRECT, PLAIN_RELAY, ROUNDS, SLEEPLESS, Ways, median, row, runtime};

/// The plan of a table's measurement. The effect of a scheduler on a thread depends on the thread's past and stays the same for seconds, so
/// every way is opened again and again.
#[derive(Clone, Copy)]
struct PingPlan {
    openings: usize,
    /// Rounds of each opening, in which the ways take turns.
    rounds: usize,
    /// PINGs of one way in one round.
    pings: usize,
}

const IDLE: PingPlan = PingPlan {
    openings: 15,
    rounds: 2,
    pings: 1000,
};
/// Each PING may take milliseconds.
const CROWDED: PingPlan = PingPlan {
    openings: 40,
    rounds: 2,
    pings: 200,
};
const FIGURES: [&str; 4] = ["p50", "p90", "mean", "p99"];
/// Sets of rounds that a ratio's interval is estimated from.
const RESAMPLED: usize = 200;
/// The most time that the proxy adds to a PING, as a ratio to that of a plain relay: on an idle machine, and beside three busy processes a
/// processor.
const BESIDE_A_RELAY: f64 = 1.0;
const BESIDE_A_RELAY_CROWDED: f64 = 1.3;
/// Connections that ask at once, and the PINGs of each.
const CONNECTIONS: usize = 64;
const PINGS_EACH: usize = 300;

pub fn proxy() {
    ping_table("idle", IDLE, BESIDE_A_RELAY);
    let load = Load::start();
    ping_table("crowded", CROWDED, BESIDE_A_RELAY_CROWDED);
    drop(load);
    let ways = Ways::open();
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
        let what = format!("{CONNECTIONS} connections, {name}: PINGs");
        row(&what, median(rate), "/s", None);
    }
    if ways.toxiproxy.is_none() {
        println!("{:<66} {:>12}", "Toxiproxy (toxiproxy-server in the PATH)", "not here");
    }
}

/// Prints the time that each way adds to a PING over the direct one, and the ratio of the built-in proxy's to a plain relay's, which is at
/// most `limit`.
fn ping_table(machine: &str, plan: PingPlan, limit: f64) {
    let mut names = Vec::new();
    let mut took: Vec<Vec<Vec<f64>>> = Vec::new();
    for _ in 0..plan.openings {
        let ways = Ways::open();
        names = ways.named.iter().map(|(name, _)| *name).collect();
        took.resize(names.len(), Vec::new());
        runtime().block_on(async {
            for _ in 0..plan.rounds {
                for (took, (_, target)) in took.iter_mut().zip(&ways.named) {
                    took.push(pings(*target, plan.pings).await);
                }
            }
        });
    }
    let title = format!("PING, {machine}: µs added to direct");
    let [p50, p90, mean, p99] = FIGURES;
    println!("{title:<66} {p50:>9} {p90:>9} {mean:>9} {p99:>9}");
    let every: Vec<usize> = (0..plan.openings * plan.rounds).collect();
    let direct = figures(&took[0], &every);
    for (name, took) in names.iter().zip(&took) {
        let mut values = figures(took, &every);
        if *name != DIRECT {
            values = added(values, direct);
        }
        let [p50, p90, mean, p99] = values;
        println!("{name:<66} {p50:>9.1} {p90:>9.1} {mean:>9.1} {p99:>9.1}");
    }
    let way = |wanted| names.iter().position(|name| *name == wanted);
    let [relay, built_in] = [PLAIN_RELAY, BUILT_IN].map(|name| &took[way(name).expect("it was measured")]);
    let ratios = resampled_ratios(&took[0], relay, built_in);
    for (figure, mut ratios) in FIGURES.into_iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        let [low, high] = [ratios.len() / 20, ratios.len() * 19 / 20].map(|place| ratios[place]);
        let what = format!("PING, {machine}, {figure}: added, to a plain relay's, {low:.2} to {high:.2}");
        row(&what, median(ratios), "x", (figure != p99).then_some((limit, true)));
    }
}

/// Returns the ratio of the built-in proxy's time to the relay's, for each figure, in sets of rounds that are drawn from all rounds: rounds
/// differ by more than the ways do.
fn resampled_ratios(direct: &[Vec<f64>], relay: &[Vec<f64>], built_in: &[Vec<f64>]) -> [Vec<f64>; 4] {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut ratios = [const { Vec::new() }; 4];
    for _ in 0..RESAMPLED {
        let rounds: Vec<usize> = direct.iter().map(|_| rng.random_range(0..direct.len())).collect();
        let [direct, relay, built_in] = [direct, relay, built_in].map(|took| figures(took, &rounds));
        let (relay, built_in) = (added(relay, direct), added(built_in, direct));
        for (which, ratios) in ratios.iter_mut().enumerate() {
            ratios.push(built_in[which] / relay[which]);
        }
    }
    ratios
}

/// Returns the [`FIGURES`] of all round trips in these rounds.
fn figures(took: &[Vec<f64>], rounds: &[usize]) -> [f64; 4] {
    let mut took: Vec<f64> = rounds.iter().flat_map(|round| &took[*round]).copied().collect();
    took.sort_by(f64::total_cmp);
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    let at = |percent: usize| took[took.len() * percent / 100];
    [at(50), at(90), mean, at(99)]
}

fn added(mut figures: [f64; 4], direct: [f64; 4]) -> [f64; 4] {
    for (figure, direct) in figures.iter_mut().zip(direct) {
        *figure -= direct;
    }
    figures
}

/// Computes until the bench ends: one that is killed leaves no load behind.
const BUSY: &str = "while kill -0 $PPID 2>/dev/null; do :; done";

/// Processes that never sleep, three for each processor.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = || Command::new("sh").args(["-c", BUSY]).spawn();
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

/// Returns the round trips of as many PINGs, in microseconds.
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

/// Returns the round trips a second of many connections at once.
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
