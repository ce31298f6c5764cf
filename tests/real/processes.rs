//! Faults on processes: clients stopped past their lease or killed, servers killed, paused and restarted; and their
//! effects on locks.

use serde_json::Value;

use crate::command::{Harness, on_runtimes, processes_of};
use crate::outcome::comes_out;

/// Short enough for a test; every window is longer than the lease.
const SHORT: &str = "--lease 1s --window 2500ms --time 9s --seed 5eed";
/// Three servers on a busy machine elect again if their time limits, which are parts of the lease, are shorter.
const ELECTION: &str = "--lease 4s --window 8s --time 26s --seed 5eed";

fn a_paused_holder_believes_too_long_and_tokens_save_the_data(runtime: &str) {
    let words = format!("--backend zk --recipe zk-predecessor-watch --fault pause-holder {SHORT}");
    let outcome = "1, HL001 stale-holder, HL003 holds, all windows, stopped_ms > 1000, holders";
    let answer = comes_out(runtime, &words, outcome);
    assert!(answer.finding("HL003")["figures"]["stale_writes_refused"].as_f64() > Some(0.0));
}

fn a_stopped_holder_writes_once_when_it_continues(runtime: &str) {
    let harness = Harness::new();
    let words = format!("--backend redis --fault pause-holder --runtime {runtime} {SHORT}");
    harness.run(&words).assert_all_windows_had_effect();
    let (mut stopped, mut windows, mut writes) = (None, 0, 0);
    for line in harness.latest_lines() {
        match (line["f"].as_str(), line["phase"].as_str()) {
            (Some("pause-holder"), Some("start")) => {
                stopped = line["targets"][0].as_str().map(str::to_owned);
                (windows, writes) = (windows + 1, 0);
            }
            (Some("pause-holder"), Some("heal")) => stopped = None,
            (Some("write"), _) if line["type"] == "invoke" => {
                let client = format!("c{}", line["client"]);
                writes += u32::from(stopped.as_deref() == Some(&client));
                assert!(writes <= 1, "{line}");
            }
            _ => {}
        }
    }
    assert!(windows > 0 && stopped.is_none());
}

fn all_clients_of_a_killed_process_die_and_come_back(runtime: &str) {
    let harness = Harness::new();
    let words =
        "--backend redis --clients 6 --per-process 3 --fault kill --lease 1s --window 2500ms --time 9s --seed 5eed";
    let answer = harness.run(&format!("--runtime {runtime} {words}"));
    answer.assert_is("0, all windows");
    let has_three = |window: &Value| window["targets"].as_array().map(Vec::len) == Some(3);
    assert!(answer.windows().iter().all(has_three));
    assert_eq!(answer.diagnosis["clients"], 6);
    let history = harness.latest_history();
    assert!(history.matches(r#""f":"died""#).count() >= 3, "each of the three died");
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());
}

fn a_queue_stands_the_end_of_its_leader(runtime: &str, backend: &str) {
    let words = format!("--backend {backend} --fault server-kill=leader {ELECTION}");
    // the observer withstands it, too
    let outcome = "0, all windows, servers_killed, servers_back = servers_killed, HL007 holds";
    let answer = comes_out(runtime, &words, outcome);
    assert!(answer.windows().iter().all(|window| {
        let title = window["title"].as_str().unwrap_or_default();
        title.contains("(leader)") && window["targets"].as_array().map(Vec::len) == Some(1)
    }));
}

fn soon(runtime: &str, words: &str, outcome: &str) {
    comes_out(runtime, &format!("{words} {SHORT}"), outcome);
}

on_runtimes! {
    real:
        a_stopped_holder_writes_once_when_it_continues
        all_clients_of_a_killed_process_die_and_come_back
        // A server without persistence loses the lock that its holder still has. A slow restart may end after the hold;
        // the first one that does not ends the run.
        a_redis_that_comes_back_empty_has_two_holders = comes_out(
            "--backend redis --fault server-restart --hold 1500ms --clients 3 --lease 2s --window 2500ms --time 60s --seed 5eed \
             --stop-on-violation",
            "1, HL001 violated, HL007 holds, servers_back");
    docker:
        a_restarted_server_serves_again = soon(
            "--backend redis --fault server-restart", "all windows, HL007 holds, HL005 holds, servers_back = servers_killed");
    models:
        a_dead_holder_without_a_lease_is_never_replaced = comes_out(
            "--backend redis --recipe redis-setnx --fault kill-holder --lease 1s --time 14s --seed 5eed",
            "1, HL005 violated, HL001 holds")
        an_etcd_mutex_stands_the_end_of_its_leader = a_queue_stands_the_end_of_its_leader("etcd")
        a_paused_holder_believes_too_long_and_tokens_save_the_data
        a_holder_that_is_not_paused_past_its_lease_proves_nothing = comes_out(
            "--backend zk --fault pause-holder --lease 2s --window 500ms --time 16s --seed 5eed", "3, HL001 holds, effects = 0")
        a_lock_without_a_lease_stands_a_paused_holder = soon(
            "--backend redis --recipe redis-setnx --fault pause-holder", "0, all windows, HL001 holds")
        a_lock_without_a_lease_stands_a_pause_of_any_client = soon(
            "--backend redis --recipe redis-setnx --fault pause", "0, all windows, clients_stopped, stopped_ms > 1000")
        a_paused_waiter_does_no_harm_to_a_queue = soon(
            "--backend zk --nodes 1 --fault pause-waiter", "0, all windows, clients_stopped")
        a_dead_holder_is_replaced_where_the_lock_has_a_lease = soon(
            "--backend zk --recipe zk-predecessor-watch --fault kill-holder",
            "0, all windows, clients_killed = windows, holders = windows")
        a_zookeeper_queue_stands_the_end_of_its_leader = a_queue_stands_the_end_of_its_leader("zk")
        a_paused_leader_is_another_leaders_chance = comes_out(
            "--backend zk --fault server-pause=leader --lease 1s --time 20s --window 6s --seed 5eed",
            "0, all windows, servers_paused")
        servers_restarted_one_by_one_all_come_back = comes_out(
            &format!("--backend etcd --fault server-restart {ELECTION}"),
            "0, all windows, servers_killed > 2, servers_back = servers_killed")
        paused_servers_go_on_and_several_faults_fit_a_run = soon(
            "--backend redis --fault server-pause,kill", "0, all windows, servers_paused");
    nightly_docker:
        a_zookeeper_queue_stands_the_end_of_its_leader = a_queue_stands_the_end_of_its_leader("zk")
        paused_servers_go_on_and_several_faults_fit_a_run = soon(
            "--backend redis --fault server-pause,kill", "0, all windows, servers_paused");
}
