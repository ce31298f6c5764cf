//! Faults: each has an effect with its own evidence, and a careful lock withstands it.

use crate::command::{Answer, on_runtimes, run_on};
use crate::outcome::comes_out;

/// Returns the options of a run on this runtime. A careful holder that is cut off gives up after 85 % of its lease: in real time, one that
/// is woken by the rest too late notices its end after another client has the lock.
fn plan(runtime: &str, on_models: &'static str) -> &'static str {
    match runtime {
        "simulated" => on_models,
        _ => "--lease 3s --window 4s --time 16s",
    }
}

/// Asserts that a fault counts this evidence.
fn has_effect(runtime: &str, backend: &str, fault: &str, counter: &str) -> Answer {
    let plan = plan(runtime, "--lease 1s --time 14s");
    let words = format!("--backend {backend} --fault {fault} {plan} --seed b17e");
    comes_out(runtime, &words, &format!("0, {counter}"))
}

fn latency_delays(runtime: &str) {
    let answer = has_effect(runtime, "redis", "latency=40ms+10ms", "delayed_bytes");
    let slowest = answer.diagnosis["latency"]["max_ns"].as_u64().unwrap();
    assert!(
        slowest > 60_000_000,
        "a round trip takes two delays, less the jitter: {slowest} ns"
    );
}

fn bursts_delay(runtime: &str) {
    let answer = has_effect(runtime, "redis", "bursts=40ms", "delayed_bytes");
    let windows = answer.windows();
    let delayed_less = |window: &serde_json::Value| {
        let count = |name: &str| window["evidence"][name].as_u64().unwrap();
        count("delayed_bytes") < count("bytes")
    };
    assert!(
        windows.iter().all(delayed_less),
        "between the bursts nothing is delayed: {windows:#?}"
    );
}

fn latency_and_reset_together_heal_one_by_one(runtime: &str) {
    let answer = has_effect(runtime, "redis", "latency=20ms,reset=500ms", "resets");
    answer.assert_all_windows_had_effect();
    let windows = answer.windows();
    assert!(windows.iter().all(|window| window["heal_ns"].is_u64()), "{windows:#?}");
}

fn every_kind_of_partition_drops_packets_or_leaves_connects_unanswered(runtime: &str) {
    for kind in ["client", "server", "half", "to-server", "to-client"] {
        // enough clients that some are connected to the server that is cut off
        let clients = if kind == "server" { 20 } else { 5 };
        let plan = plan(runtime, "--lease 1s --time 12s");
        let words = format!("--backend zk --fault partition={kind} {plan} --clients {clients}");
        comes_out(runtime, &format!("{words} --seed b17e"), "0, all windows");
    }
}

fn no_fault_is_a_choice_and_leaves_no_trace(runtime: &str) {
    let answer = run_on(runtime, "--backend redis --fault none --lease 1s --time 7s");
    answer.assert_exit(0);
    assert_eq!(answer.windows().len(), 0);
    assert!(answer.diagnosis["acquires"].as_u64() > Some(50));
}

/// A fault's name, its options, and counters of which one shows its effect.
type Biting = (&'static str, &'static str, &'static [&'static str]);

/// Asserts that each of the faults has a window with an effect in one run of a careful lock.
fn all_of_them_bite(runtime: &str, faults: &[Biting], words: &str) {
    let list: Vec<&str> = faults.iter().map(|(_, fault, _)| *fault).collect();
    let list = list.join(",");
    let words = format!("--backend redis --fault {list} {words} --seed b17e");
    let answer = run_on(runtime, &words);
    answer.assert_exit(0);
    let windows = answer.windows();
    for (name, _, counters) in faults {
        let of_this: Vec<_> = windows.iter().filter(|window| window["fault"] == *name).collect();
        assert!(!of_this.is_empty(), "no window of {name}: {windows:#?}");
        let counted = |counter: &&str| {
            of_this
                .iter()
                .any(|window| window["evidence"][*counter].as_u64() > Some(0))
        };
        assert!(counters.iter().any(counted), "{name}: {of_this:#?}");
    }
}

fn all_of_the_network_bite_in_one_run(runtime: &str) {
    let faults = [
        ("latency", "latency=40ms+10ms", &["delayed_bytes"][..]),
        ("slow", "slow=2k", &["delayed_bytes"][..]),
        ("loss", "loss=20%", &["delayed_bytes"][..]),
        ("bursts", "bursts=40ms", &["delayed_bytes"][..]),
        ("bottleneck", "bottleneck=20k", &["delayed_bytes"][..]),
        ("forget-idle", "forget-idle=20ms", &["resets"][..]),
        ("flaky", "flaky=2000", &["resets"][..]),
        ("reset", "reset=500ms", &["resets"][..]),
        ("partition", "partition=holder", &["dropped_packets", "held_connects"]),
    ];
    all_of_them_bite(runtime, &faults, "--lease 3s --window 3s --time 26s");
}

fn all_on_messages_and_servers_bite_in_one_run(runtime: &str) {
    let faults = [
        ("drop-request", "drop-request=SET:2", &["messages_dropped"][..]),
        ("drop-reply", "drop-reply=SET:2", &["messages_dropped"][..]),
        ("delay-request", "delay-request=SET:2", &["messages_delayed"][..]),
        ("delay-reply", "delay-reply=SET:3", &["messages_delayed"][..]),
        ("kill-after", "kill-after=SET:2", &["clients_killed"][..]),
        ("server-pause", "server-pause", &["servers_paused"][..]),
    ];
    all_of_them_bite(runtime, &faults, "--lease 1s --window 1500ms --time 16s");
}

on_runtimes! {
    real:
        all_of_the_network_bite_in_one_run
        all_on_messages_and_servers_bite_in_one_run;
    models:
        latency_delays
        slow_delays = has_effect("redis", "slow=2k", "delayed_bytes")
        reset_resets = has_effect("zk", "reset", "resets")
        lost_packets_delay_what_they_carry = has_effect("redis", "loss=20%", "delayed_bytes")
        bursts_delay
        idle_connections_are_forgotten = has_effect("redis", "forget-idle=20ms", "resets")
        flaky_cuts_connections_in_the_middle = has_effect("redis", "flaky=2000", "resets")
        latency_and_reset_together_heal_one_by_one
        a_partition_drops_packets = has_effect("redis", "partition=holder", "dropped_packets")
        // a run without acquires under it is no reason for doubt
        a_partition_of_the_only_server_must_stop_every_acquire = has_effect("redis", "partition=server", "dropped_packets")
        every_kind_of_partition_drops_packets_or_leaves_connects_unanswered
        no_fault_is_a_choice_and_leaves_no_trace;
}
