//! Servers parted from each other, a Redis that fails over, and a lock on several masters.

use crate::command::{Answer, Harness, on_runtimes, run_on};

/// etcd grants no shorter lease than two seconds, and ZooKeeper needs half of that to notice. Then it elects, which took up to 5.4 s
/// on a busy machine.
const SHORT: &str = "--lease 2s --time 20s --window 7s --seed 5eed";

fn stands(runtime: &str, backend: &str, kind: &str) -> Answer {
    stands_in(runtime, backend, kind, SHORT)
}

fn stands_in(runtime: &str, backend: &str, kind: &str, plan: &str) -> Answer {
    let words = format!("--backend {backend} --fault partition={kind} {plan}");
    let answer = run_on(runtime, &words);
    answer.assert_exit(0);
    answer.assert_verdict("HL001", "holds");
    answer.assert_a_window_had_effect();
    let cut_off = answer.window_sum("dropped_packets") + answer.window_sum("held_connects");
    assert!(cut_off > 0, "{:#}", answer.diagnosis["effect"]);
    assert!(
        answer.window_sum("links") >= 4,
        "one server and the two others, both ways"
    );
    answer
}

fn assert_another_leads(answer: &Answer) {
    let acquires = answer.acquires_under_faults();
    assert!(acquires > 0, "{:#}", answer.diagnosis["effect"]);
}

fn a_zookeeper_queue_stands_a_leader_that_is_cut_off_from_the_other_servers(runtime: &str) {
    let answer = stands(runtime, "zk", "leader");
    let title = answer.windows()[0]["title"].as_str().unwrap();
    assert!(title.contains("(leader)"), "{title}");
    assert_another_leads(&answer);
}

fn an_etcd_mutex_stands_a_leader_that_is_cut_off_from_the_other_servers(runtime: &str) {
    assert_another_leads(&stands(runtime, "etcd", "leader"));
}

/// NATS elects within 4 to 9 s, and later on a busy machine.
fn a_nats_key_stands_a_leader_that_is_cut_off_from_the_other_servers(runtime: &str) {
    let plan = "--lease 1s --time 45s --window 24s --seed 5eed";
    assert_another_leads(&stands_in(runtime, "nats", "leader", plan));
}

#[test]
fn redis_has_no_servers_to_part() {
    Harness::new().assert_says(
        "run --backend redis --fault partition=leader --dry-run",
        2,
        &["failover"],
    );
}

/// Every holder works on while its lock moves to a server that does not have it.
fn a_redis_that_fails_over_without_its_last_writes_has_two_holders(runtime: &str) {
    let words = "--backend redis --fault failover --lease 1s --time 14s --seed 5eed";
    let answer = run_on(runtime, words);
    answer.assert_violates("HL001");
    assert_ne!(answer.verdict("HL007"), "violated", "{:#}", answer.finding("HL007"));
    let violation = &answer.finding("HL001")["violations"][0];
    assert!(violation["window"].is_u64(), "{violation:#}");
    // the replica missed something, and the old master follows
    answer.assert_counted(&["servers_promoted", "held_bytes", "servers_back"]);
}

fn a_redis_that_fails_over_with_all_its_writes_keeps_its_locks(runtime: &str) {
    let words = "--backend redis --fault failover=clean --lease 1s --time 14s --seed 5eed";
    let answer = run_on(runtime, words);
    answer.assert_exit(0);
    answer.assert_counted(&["servers_promoted"]);
}

fn a_redlock_stands_the_end_of_one_master_of_five(runtime: &str) {
    let words = "--backend redis --recipe redlock --fault server-pause=one --lease 1s --time 14s --seed 5eed";
    let answer = run_on(runtime, words);
    answer.assert_exit(0);
    assert_eq!(answer.diagnosis["run"]["nodes"], 5);
    // a majority is seen
    answer.assert_verdict("HL007", "holds");
    assert!(answer.acquires_under_faults() > 0, "four masters are enough");
}

fn servers_can_be_parted_from_each_other(runtime: &str) {
    stands(runtime, "etcd", "minority");
}

on_runtimes! {
    real:
        a_redis_that_fails_over_without_its_last_writes_has_two_holders;
    docker:
        servers_can_be_parted_from_each_other;
    models:
        a_redlock_stands_the_end_of_one_master_of_five
        a_redis_that_fails_over_with_all_its_writes_keeps_its_locks;
    nightly:
        a_zookeeper_queue_stands_a_leader_that_is_cut_off_from_the_other_servers
        an_etcd_mutex_stands_a_leader_that_is_cut_off_from_the_other_servers
        a_nats_key_stands_a_leader_that_is_cut_off_from_the_other_servers;
    nightly_docker:
        a_redis_that_fails_over_without_its_last_writes_has_two_holders;
}
