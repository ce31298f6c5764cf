//! Repeatable runs: the same in every process and build, and nothing left behind.

use harness_workloads::RecipeOptions;

use super::load::{Disturbance, run_as};
use crate::resident;

/// Hashes a trace by FNV-1a.
fn digest(trace: &str) -> u64 {
    trace.bytes().fold(0xcbf2_9ce4_8422_2325, |digest: u64, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn trace(recipe: &str, seed: u64, disturbance: Disturbance) -> String {
    let options = RecipeOptions::named(recipe).unwrap();
    run_as(options, seed, disturbance).trace.take()
}

/// Digests of whole traces. One that changes means that stored runs do not repeat any more: a change of the models or of a recipe may
/// do that, a change of the machine, the build or a dependency must not.
const GOLDEN: [(&str, Disturbance, u64); 7] = [
    ("etcd-mutex", Disturbance::Partitions, 9_245_629_835_275_401_644),
    ("etcd-lock-rpc", Disturbance::Servers, 14_658_656_291_954_192_649),
    ("nats-key-revision", Disturbance::Servers, 6_954_726_866_096_936_721),
    ("redis-pubsub", Disturbance::None, 11_555_190_209_015_324_352),
    ("redis-watchdog", Disturbance::Partitions, 11_849_576_888_261_248_929),
    (
        "zk-predecessor-watch",
        Disturbance::Partitions,
        17_520_986_075_143_444_971,
    ),
    ("zk-parent-watch", Disturbance::Servers, 10_413_051_945_248_434_735),
];

#[test]
fn a_seed_leaves_the_trace_that_it_has_always_left() {
    let now = GOLDEN.map(|(recipe, disturbance, _)| (recipe, digest(&trace(recipe, 1, disturbance))));
    assert_eq!(now, GOLDEN.map(|(recipe, _, digest)| (recipe, digest)));
}

#[test]
fn fifty_seeds_leave_fifty_traces() {
    for recipe in [
        "etcd-mutex",
        "nats-key-marker",
        "redis-watchdog",
        "zk-predecessor-watch",
    ] {
        let mut digests: Vec<u64> = (0..50)
            .map(|seed| digest(&trace(recipe, seed, Disturbance::None)))
            .collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 50, "{recipe}");
    }
}

/// A cycle of references in a model would keep all of an experiment: tens of kilobytes.
#[test]
fn experiments_leave_no_memory_behind() {
    let run = |seed| {
        trace("redis-pubsub", seed, Disturbance::Partitions);
        trace("zk-predecessor-watch", seed, Disturbance::Servers);
        trace("etcd-lock-rpc", seed, Disturbance::Servers);
        trace("nats-key-revision", seed, Disturbance::Servers);
    };
    (0..15).for_each(run);
    let before = resident();
    (15..65).for_each(run);
    let grown = resident().saturating_sub(before);
    assert!(grown < 600, "{grown} KiB more after 200 experiments");
}
