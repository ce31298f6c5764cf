//! Every fault, biting: it leaves its own trace in the evidence, and a lock that is careful stands it.

use crate::command::{Answer, Harness};

/// What a fault must have counted as evidence.
fn has_effect(backend: &str, fault: &str, counter: &str) -> Answer {
    let words = format!("--runtime local --backend {backend} --fault {fault} --lease 1s --time 14s --seed b17e");
    let answer = Harness::new().run(&words);
    answer.assert_exit(0);
    assert!(
        answer.window_sum(counter) > 0,
        "{fault} on {backend}: {:#}",
        answer.diagnosis["effect"]
    );
    answer
}

#[test]
fn latency_delays() {
    let answer = has_effect("redis", "latency=40ms+10ms", "delayed_bytes");
    let slowest = answer.diagnosis["latency"]["max_ns"].as_u64().unwrap();
    assert!(
        slowest > 60_000_000,
        "a round trip takes two delays, less the jitter: {slowest} ns"
    );
}

#[test]
fn slow_delays() {
    has_effect("redis", "slow=2k", "delayed_bytes");
}

#[test]
fn reset_resets() {
    has_effect("zk", "reset", "resets");
}

#[test]
fn lost_packets_delay_what_they_carry() {
    has_effect("redis", "loss=20%", "delayed_bytes");
}

#[test]
fn bursts_delay() {
    let answer = has_effect("redis", "bursts=40ms", "delayed_bytes");
    let windows = answer.diagnosis["effect"]["windows"].as_array().unwrap();
    let delayed_less = |window: &serde_json::Value| {
        let count = |name: &str| window["evidence"][name].as_u64().unwrap();
        count("delayed_bytes") < count("bytes")
    };
    assert!(
        windows.iter().all(delayed_less),
        "between the bursts nothing is delayed: {windows:#?}"
    );
}

#[test]
fn a_bottleneck_delays() {
    has_effect("redis", "bottleneck=20k", "delayed_bytes");
}

#[test]
fn idle_connections_are_forgotten() {
    has_effect("redis", "forget-idle=20ms", "resets");
}

#[test]
fn flaky_cuts_connections_in_the_middle() {
    has_effect("redis", "flaky=2000", "resets");
}

#[test]
fn latency_and_reset_together_heal_one_by_one() {
    let answer = has_effect("redis", "latency=20ms,reset=500ms", "resets");
    let windows = answer.diagnosis["effect"]["windows"].as_array().unwrap();
    assert!(
        windows
            .iter()
            .all(|window| window["heal_ns"].is_u64() && window["had_effect"] == true),
        "{windows:#?}"
    );
}

#[test]
fn a_partition_drops_packets() {
    has_effect("redis", "partition=holder", "dropped_packets");
}

#[test]
fn a_partition_of_the_only_server_must_stop_every_acquire() {
    // that none succeeds is no reason to doubt the pass
    has_effect("redis", "partition=server", "dropped_packets");
}

#[test]
fn every_kind_of_partition_drops_packets_or_leaves_connects_unanswered() {
    for kind in ["client", "server", "half", "to-server", "to-client"] {
        // so many that some surely speak to the server that is cut off
        let clients = if kind == "server" { 20 } else { 5 };
        let words = format!(
            "--runtime local --backend zk --fault partition={kind} --lease 1s --time 12s --seed b17e --clients {clients}"
        );
        let answer = Harness::new().run(&words);
        answer.assert_exit(0);
        let (with_effect, all) = answer.windows_with_effect();
        assert!(
            with_effect == all && with_effect > 0,
            "partition={kind}: {with_effect} of {all} had an effect"
        );
    }
}

#[test]
fn no_fault_is_a_choice_and_leaves_no_trace() {
    let answer = Harness::new().run("--runtime local --backend redis --fault none --lease 1s --time 7s");
    answer.assert_exit(0);
    assert_eq!(answer.diagnosis["effect"]["windows"].as_array().map(Vec::len), Some(0));
    assert!(answer.diagnosis["acquires"].as_u64() > Some(50));
}
