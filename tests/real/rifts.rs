//! Partitions between servers, a Redis that fails over, and a lock on several masters.

use crate::command::{Answer, on_runtimes};
use crate::outcome::comes_out;

/// A careful holder that is cut off gives up 450 ms before the end of this lease: on a busy machine timers came 414 ms late. ZooKeeper
/// needs half of the lease to notice, and its election took up to 5.4 s there; etcd gives leases their whole time again after one.
const SHORT: &str = "--lease 3s --time 22s --window 9s --seed 5eed";

fn stands(runtime: &str, backend: &str, kind: &str) -> Answer {
    stands_in(runtime, backend, kind, SHORT)
}

fn stands_in(runtime: &str, backend: &str, kind: &str, plan: &str) -> Answer {
    let words = format!("--backend {backend} --fault partition={kind} {plan}");
    // one server and the other two, in both directions
    let answer = comes_out(runtime, &words, "0, HL001 holds, a window, links > 3");
    let cut_off = answer.window_sum("dropped_packets") + answer.window_sum("held_connects");
    assert!(cut_off > 0, "{:#}", answer.diagnosis["effect"]);
    answer
}

fn a_zookeeper_queue_stands_a_leader_that_is_cut_off_from_the_other_servers(runtime: &str) {
    let answer = stands(runtime, "zk", "leader");
    let title = answer.windows()[0]["title"].as_str().unwrap();
    assert!(title.contains("(leader)"), "{title}");
    answer.assert_is("acquires");
}

fn an_etcd_mutex_stands_a_leader_that_is_cut_off_from_the_other_servers(runtime: &str) {
    stands(runtime, "etcd", "leader").assert_is("acquires");
}

/// NATS elects within 4 to 9 s, and later on a busy machine.
fn a_nats_key_stands_a_leader_that_is_cut_off_from_the_other_servers(runtime: &str) {
    let plan = "--lease 3s --time 45s --window 24s --seed 5eed";
    stands_in(runtime, "nats", "leader", plan).assert_is("acquires");
}

/// Every holder continues while its lock moves to a server that does not have it.
fn a_redis_that_fails_over_without_its_last_writes_has_two_holders(runtime: &str) {
    // on a busy machine the promotion takes longer than a careful holder believes in a lease of a second
    let words = "--backend redis --fault failover --lease 3s --window 4s --time 15s --seed 5eed";
    // the replica lacks some writes, and the old master follows
    let outcome = "1, HL001 violated, HL007 not violated, servers_promoted, held_bytes, servers_back";
    let answer = comes_out(runtime, words, outcome);
    let violation = &answer.finding("HL001")["violations"][0];
    assert!(violation["window"].is_u64(), "{violation:#}");
}

on_runtimes! {
    real:
        a_redis_that_fails_over_without_its_last_writes_has_two_holders;
    docker:
        servers_can_be_parted_from_each_other = stands("etcd", "minority");
    models:
        // four masters are enough, and form a majority
        a_redlock_stands_the_end_of_one_master_of_five = comes_out(
            "--backend redis --recipe redlock --fault server-pause=one --lease 1s --time 14s --seed 5eed",
            "0, HL007 holds, acquires")
        a_redis_that_fails_over_with_all_its_writes_keeps_its_locks = comes_out(
            "--backend redis --fault failover=clean --lease 1s --time 14s --seed 5eed", "0, servers_promoted");
    nightly:
        a_zookeeper_queue_stands_a_leader_that_is_cut_off_from_the_other_servers
        an_etcd_mutex_stands_a_leader_that_is_cut_off_from_the_other_servers
        a_nats_key_stands_a_leader_that_is_cut_off_from_the_other_servers;
    nightly_docker:
        a_redis_that_fails_over_without_its_last_writes_has_two_holders;
}
