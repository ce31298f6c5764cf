//! Locks that hold and locks that break, under the same plan, on every runtime.

use crate::command::{Answer, Harness, on_runtimes, processes_of, run_on};
use crate::machine::has_no_valkey;
use crate::outcome::comes_out;

/// A window longer than the lease and a recovery. A client notices the end of its lease after 85 % of it: one that is woken by the rest
/// too late, which is 450 ms, notices it after another client has the lock.
const PLAN: &str = "--lease 3s --window 5s --seed 5eed";

fn careful_holds_while_its_holder_is_cut_off(runtime: &str, backend: &str) {
    // a row for each backend tests its container, but Redis, whose container restarts in `processes`; several servers are in `rifts`
    let nodes = if runtime == "docker" { "--nodes 1" } else { "" };
    // A grant that comes too late for its client leaves the lock without a holder for a lease, and may leave a window without a target:
    // by night, when the machine is busy, there are two.
    let (time, windows) = match runtime {
        "local" => ("24s", "a window"),
        _ => ("15s", "all windows"),
    };
    // a polling observer sees holds of this length on a busy machine, too
    let words = format!("--backend {backend} --fault partition=holder --hold 60ms {PLAN} --time {time} {nodes}");
    let outcome = format!("0, HL001 holds, HL008 holds, HL007 holds, {windows}, dropped_packets");
    let answer = comes_out(runtime, words.trim(), &outcome);
    assert_eq!(answer.diagnosis["run"]["runtime"], runtime);
}

/// No heal resets connections with this seed.
const NAIVE: &str = "--lease 1s --hold 300ms --seed 16";

/// Asserts the violation of a naive client. `time` has enough windows that a late request meets a holder in one of them.
fn naive_is_caught(runtime: &str, backend: &str, recipe: &str, time: &str) -> Answer {
    let words = format!("--backend {backend} --recipe {recipe} --holder naive --fault partition=holder");
    let answer = run_on(runtime, &format!("{words} {NAIVE} --time {time}"));
    answer.assert_exit(1);
    // a release without a comparison also frees the locks of others
    let violations = answer.finding("HL001")["violations"].as_array().unwrap();
    let stale = violations.iter().find(|violation| violation["class"] == "stale-holder");
    let violation = stale.unwrap_or_else(|| panic!("{violations:#?}"));
    assert!(violation["window"].is_u64(), "{violation:#}");
    let overlap = &violation["overlap_ns"];
    assert!(overlap[1].as_u64() > overlap[0].as_u64());
    assert!(violation["figures"]["overlap_ms"].as_f64() > Some(0.0));
    assert!(violation["because"].as_array().unwrap().len() >= 3, "{violation:#}");
    // two holders lose updates
    answer.assert_verdict("HL008", "violated");
    let follows = answer.finding("HL008")["violations"][0]["follows"].as_str();
    assert!(follows.unwrap().starts_with("HL001"), "{follows:?}");
    answer
}

fn a_careful_valkey_lock_holds_while_its_holder_is_cut_off(runtime: &str) {
    if runtime != "local" || !has_no_valkey() {
        careful_holds_while_its_holder_is_cut_off(runtime, "valkey");
    }
}

fn a_naive_zookeeper_holder_is_caught_and_tokens_would_have_saved_it(runtime: &str) {
    let answer = naive_is_caught(runtime, "zk", "zk-predecessor-watch", "20s");
    answer.assert_verdict("HL003", "holds");
    assert!(answer.finding("HL003")["figures"]["stale_writes_refused"].as_f64() > Some(0.0));
    assert_eq!(answer.verdict("HL009"), "violated", "nobody told the holder");
}

fn a_naive_redis_holder_is_caught_and_frees_its_successors_lock(runtime: &str) {
    let answer = naive_is_caught(runtime, "redis", "redis-set-px-del", "32s");
    answer.assert_verdict("HL003", "not-applicable");
    answer.assert_verdict("HL007", "violated");
}

fn a_watch_on_the_parent_wakes_the_herd(runtime: &str) {
    let words = "--backend zk --recipe zk-parent-watch --clients 12 --fault none --lease 1s --time 8s";
    // a herd does not break exclusion
    let answer = comes_out(runtime, words, "1, HL001 holds, HL004 violated");
    let herd = answer.finding("HL004");
    assert_eq!(herd["figures"]["woken_max"], 11.0, "as many as wait: {herd:#}");
}

/// This lock promises all that the properties are about. An overloaded machine leaves HL010 undecided.
const EVERY_PROPERTY: &str = "0, HL001 holds, HL002 holds, HL003 holds, HL004 holds, HL005 holds, HL006 holds, \
                              HL007 holds, HL008 holds, HL009 holds, HL010 holds, HL011 holds";

fn a_watch_on_the_predecessor_wakes_one_and_every_property_holds(runtime: &str) {
    let words = "--backend zk --recipe zk-predecessor-watch --clients 12 --fault none --lease 1s --time 8s";
    let outcome = if runtime == "simulated" { EVERY_PROPERTY } else { "0" };
    let answer = comes_out(runtime, words, outcome);
    assert_eq!(answer.finding("HL004")["figures"]["woken_max"], 1.0);
}

fn everybody_gets_a_turn_one_at_a_time(runtime: &str) {
    for recipe in ["zk-polling", "zk-parent-watch", "zk-predecessor-watch"] {
        let words = format!("--backend zk --recipe {recipe} --clients 8 --each 1 --hold 300ms --time 60s");
        let words = format!("{words} --interval 100ms --herd-limit 8");
        let answer = comes_out(runtime, &words, "0, HL001 holds");
        assert_eq!(answer.diagnosis["acquires"], 8, "{recipe}");
        assert_eq!(answer.diagnosis["unfinished"], serde_json::Value::Null, "{recipe}");
    }
}

fn a_run_that_ends_before_everybody_had_a_turn_is_no_pass(runtime: &str) {
    let words = "--backend redis --clients 8 --each 1 --hold 1500ms --lease 4s --time 4s";
    let answer = comes_out(runtime, words, "3, HL001 holds");
    assert!(!answer.diagnosis["unfinished"].as_array().unwrap().is_empty());
}

fn locks_that_come_and_go_are_made_again_and_hold(runtime: &str) {
    let words = "--backend zk --nodes 1 --locks 4 --churn 400ms --lease 1s --time 9s --fault none";
    // tokens continue although sequence numbers restart
    let answer = comes_out(runtime, words, "0, HL001 holds, HL003 holds, HL006 holds");
    let note = answer.diagnosis["notes"].as_array().and_then(|notes| {
        let mut texts = notes.iter().filter_map(|note| note.as_str());
        texts.find(|text| text.contains("unused locks removed"))
    });
    let note = note.unwrap_or_else(|| panic!("{:#}", answer.diagnosis["notes"]));
    assert!(!note.starts_with("0 ") && !note.contains(" 0 of them"), "{note}");
}

/// `simulated.rs` proves the rest of `--stop-on-violation`.
fn a_run_on_a_broken_lock_ends_at_its_first_violation(runtime: &str) {
    let harness = Harness::new();
    let words = "--backend redis --recipe redis-set-px-del --holder naive --lease 1s --hold 300ms --seed 16 \
                 --fault partition=holder --time 120s --stop-on-violation";
    let answer = harness.run(&format!("--runtime {runtime} {words}"));
    answer.assert_violates("HL002");
    assert!(answer.finding("HL002")["violations"][0]["at_ns"].is_u64());
    let length_ns = answer.diagnosis["length_ns"].as_u64().expect("a length");
    // active faults heal first
    assert!(length_ns < 90_000_000_000, "it ended after {length_ns} ns");
    let why = answer.diagnosis["ended_early"].as_str().expect("it says so");
    assert!(why.contains("HL002"), "{why}");
    assert_eq!(answer.diagnosis["run"]["status"], "complete");
    assert_eq!(answer.diagnosis["partial"], serde_json::Value::Null);
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());
}

on_runtimes! {
    real:
        locks_that_come_and_go_are_made_again_and_hold
        a_nats_key_that_is_put_without_a_revision_has_two_holders = comes_out(
            "--backend nats --recipe nats-key-put --clients 10 --fault none --lease 1s --time 40s --stop-on-violation --seed 1",
            "1, HL001 violated");
    docker:
        a_careful_zookeeper_queue_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("zk")
        a_careful_etcd_mutex_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("etcd")
        a_careful_postgres_lease_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("postgres")
        a_careful_mariadb_lease_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("mariadb")
        a_careful_nats_key_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("nats");
    models:
        a_careful_etcd_mutex_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("etcd")
        a_careful_redis_lock_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("redis")
        a_careful_valkey_lock_holds_while_its_holder_is_cut_off
        a_naive_redis_holder_is_caught_and_frees_its_successors_lock
        a_naive_zookeeper_holder_is_caught_and_tokens_would_have_saved_it
        a_watch_on_the_parent_wakes_the_herd
        a_watch_on_the_predecessor_wakes_one_and_every_property_holds
        everybody_gets_a_turn_one_at_a_time
        a_run_that_ends_before_everybody_had_a_turn_is_no_pass;
    nightly:
        a_run_on_a_broken_lock_ends_at_its_first_violation
        a_careful_zookeeper_queue_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("zk")
        a_careful_postgres_lease_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("postgres")
        a_careful_mariadb_lease_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("mariadb")
        a_careful_nats_key_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("nats");
    nightly_docker:
        a_naive_zookeeper_holder_is_caught_and_tokens_would_have_saved_it
        a_careful_redis_lock_holds_while_its_holder_is_cut_off = careful_holds_while_its_holder_is_cut_off("redis")
        a_careful_valkey_lock_holds_while_its_holder_is_cut_off
        a_naive_redis_holder_is_caught_and_frees_its_successors_lock;
}
