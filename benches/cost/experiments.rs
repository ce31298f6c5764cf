//! The cost of an experiment of a hunt: on models, on one core and on two; and of real servers and clients in virtual time, beside the same
//! hunt in real time.

use super::{harness, row};

/// Experiments a minute that a hunt on models must make, by backend and recipe: 100 grants of five clients under windows of three faults,
/// recorded and checked.
const ON_MODELS: [(&str, &str, f64); 3] = [
    ("zk", "zk-predecessor-watch", 30_000.0),
    ("redis", "redis-set-px-lua", 40_000.0),
    ("etcd", "etcd-mutex", 15_000.0),
];
/// The same in virtual time, of a hunt that draws its scenarios, by backend and client.
const IN_VIRTUAL_TIME: [(&str, &str, f64); 3] = [
    ("redis", "redis-py", 100.0),
    ("zk", "kazoo-lock", 25.0),
    ("etcd", "aetcd", 10.0),
];

pub fn on_models() {
    for (backend, recipe, goal) in ON_MODELS {
        let hunt = format!(
            "--runtime simulated --backend {backend} --recipe {recipe} --fault partition,latency,kill-holder --lease 2s \
             --set clients=5 --set locks=1 --set hold=10ms --set wait=10s --set grants=100 --experiments 2000"
        );
        let one = a_minute(&hunt, 1).expect("a model is a part of harness");
        let what = format!("{recipe}: simulated experiments a minute");
        row(&what, one, "", Some((goal, false)));
        let two = a_minute(&hunt, 2).expect("as before");
        let what = format!("{recipe}: with two jobs, times");
        row(&what, two / one, "", Some((1.8, false)));
    }
}

pub fn in_virtual_time() {
    for (backend, client, goal) in IN_VIRTUAL_TIME {
        let hunt = |runtime, experiments| {
            let words =
                format!("--runtime {runtime} --backend {backend} --client {client} --experiments {experiments}");
            a_minute(&words, 1)
        };
        let (Some(fast), Some(real)) = (hunt("virtual", 20), hunt("local", 3)) else {
            println!(
                "{client}: not measured: it is not installed (`harness adapters {client}`), or its servers are not"
            );
            continue;
        };
        let what = format!("{client}: experiments a minute in virtual time");
        row(&what, fast, "", Some((goal, false)));
        let what = format!("{client}: times as many as in real time");
        row(&what, fast / real, "", None);
    }
}

/// Returns the experiments a minute of a hunt; `None`: it could not be made.
fn a_minute(hunt: &str, jobs: u32) -> Option<f64> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let words = format!("hunt {hunt} --until end --jobs {jobs} --seed 1 --json -q");
    let output = harness(&words)
        .current_dir(folder.path())
        .output()
        .expect("harness runs");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    Some(number(&record["counts"]["experiments"]) / number(&record["took_ms"]) * 60_000.0)
}
