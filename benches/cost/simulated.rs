//! What a simulated experiment costs: 100 grants of five clients under windows of three faults, recorded and checked, on one core.

use super::{harness, row};

/// Experiments a minute that a hunt is to make, by backend and recipe.
const GOALS: [(&str, &str, f64); 3] = [
    ("zk", "zk-predecessor-watch", 30_000.0),
    ("redis", "redis-set-px-lua", 40_000.0),
    ("etcd", "etcd-mutex", 15_000.0),
];
const EXPERIMENTS: u32 = 2_000;

pub fn experiments() {
    for (backend, recipe, goal) in GOALS {
        let one = a_minute(backend, recipe, 1);
        row(
            &format!("{recipe}: simulated experiments a minute"),
            one,
            "",
            Some((goal, false)),
        );
        let two = a_minute(backend, recipe, 2);
        row(
            &format!("{recipe}: with two jobs, times"),
            two / one,
            "",
            Some((1.8, false)),
        );
    }
}

fn a_minute(backend: &str, recipe: &str, jobs: u32) -> f64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let words = format!(
        "hunt --runtime simulated --backend {backend} --recipe {recipe} --fault partition,latency,kill-holder --lease 2s \
         --set clients=5 --set locks=1 --set hold=10ms --set wait=10s --set grants=100 --experiments {EXPERIMENTS} \
         --until end --jobs {jobs} --seed 1 --json -q"
    );
    let output = harness(&words)
        .current_dir(folder.path())
        .output()
        .expect("harness runs");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a record");
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    number(&record["counts"]["experiments"]) / number(&record["took_ms"]) * 60_000.0
}
