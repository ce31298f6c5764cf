//! Disks that are slow for one server, full, or lose unsynced writes: the effects on clients, elections and locks.
//!
//! A disk can be filled, or can lose unsynced writes, only if it is a file system of its own, which only root can
//! mount: `make test` runs these as root.

use super::stores;
use crate::command::{Answer, Harness, assert_has, on_runtimes, run_on};
use crate::outcome::comes_out;

fn assert_every_window_delayed_syncs(answer: &Answer) {
    answer.assert_all_windows_had_effect();
    for window in answer.windows() {
        assert!(window["evidence"]["syncs_delayed"].as_u64() > Some(0), "{window:#}");
        assert_eq!(window["evidence"]["disks_slowed"], 1, "{window:#}");
    }
}

/// The leader waits for its sync; the others elect another leader, and clients continue there.
fn a_zookeeper_queue_stands_a_leader_that_waits_for_its_disk(runtime: &str) {
    // a client of that leader holds one lock all the while
    let words = "--backend zk --locks 4 --fault slow-disk --lease 1s --time 14s --seed 5eed";
    // another leader grants locks
    let answer = comes_out(runtime, words, "0, acquires");
    assert_every_window_delayed_syncs(&answer);
    for window in answer.windows() {
        assert_has(window["title"].as_str().unwrap(), &["(leader): each sync takes"]);
        assert_eq!(window["targets"].as_array().map(Vec::len), Some(1));
    }
}

fn every_window_delays_syncs(runtime: &str, words: &str, outcome: &str) {
    assert_every_window_delayed_syncs(&comes_out(runtime, words, outcome));
}

/// A commit waits for the log, and so does the client of the commit.
fn a_postgres_waits_for_its_log_in_every_session(runtime: &str) {
    let words = "--backend postgres --fault slow-disk=one:300ms --lease 1s --time 14s --seed 5eed";
    let answer = run_on(runtime, words);
    assert!(answer.exit == 0 || answer.exit == 3, "{}", answer.stderr);
    assert_every_window_delayed_syncs(&answer);
    answer.assert_verdict("HL001", "holds");
}

/// A lock service without data on disk waits for no disk, and a pass under a slow one would mean nothing.
fn a_server_that_never_syncs_shows_no_effect_of_a_slow_disk(runtime: &str) {
    let words = format!("--runtime {runtime} --time 24s --fault slow-disk=one --seed 1");
    let answer = stores::run(&stores::store(), &words, "");
    answer.assert_is("3, effects = 0, windows, syncs_delayed = 0");
    assert_has(
        answer.diagnosis["effect"]["hint"].as_str().unwrap(),
        &["synced nothing"],
    );
}

/// An append-only file that is synced each second lacks up to a second of grants after a power cut. A kill alone loses
/// nothing: the kernel has the written data. On a busy machine the server may not have written it yet: it does not wait for a sync.
fn a_redis_that_lost_its_last_second_has_two_holders_and_one_that_kept_it_has_not(runtime: &str) {
    let plan = "--backend redis --recipe redis-set-px-lua --lease 2s --hold 1s --locks 6 --clients 12 --seed 1";
    // a kill may come at a moment without a hold of the last second; the first kill that meets one ends the run
    let words = format!("{plan} --time 90s --stop-on-violation --fault server-kill=one:200ms:lost");
    comes_out(runtime, &words, "1, HL001 violated, servers_killed");
    // the slow disk makes the server keep its log
    let words = format!("{plan} --time 30s --fault server-kill=one:200ms:kept,slow-disk=one:1ms");
    comes_out(runtime, &words, "HL001 holds, files_set_back = 0, servers_killed");
}

/// A Redis that cannot write its log refuses writes, and continues by itself when it can.
fn a_redis_refuses_writes_on_a_full_disk_and_loses_no_lock(runtime: &str) {
    let harness = Harness::new();
    let plan = "--fault disk-full --lease 1s --window 2500ms --time 9s --seed 5eed";
    let answer = harness.run(&format!(
        "--runtime {runtime} --backend redis --recipe redis-set-px-lua {plan}"
    ));
    answer.assert_is("0, a window, no_space_lines, servers_ended = 0");
    let log = std::fs::read_to_string(harness.results().join("latest/nodes/n1/server.log")).unwrap();
    assert_has(&log, &["Redis can write again"]);
}

fn a_container_has_no_file_system_of_its_own_to_lose_or_to_fill(runtime: &str) {
    for fault in ["server-kill=leader:lost", "disk-full"] {
        Harness::new().assert_says(
            &format!("run --backend zk --runtime {runtime} --fault {fault}"),
            4,
            &["hint: --runtime local"],
        );
    }
}

on_runtimes! {
    real:
        // A server that syncs in the background still answers; it syncs its append-only file.
        a_redis_syncs_its_log_where_the_disk_is_what_the_run_is_about = every_window_delays_syncs(
            "--backend redis --fault slow-disk --lease 1s --window 2500ms --time 9s --seed 5eed", "0")
        // The grant of a hold in the lost second depends on chance, and is not asserted. One of six locks is written to all the time, so
        // that the log is rarely synced at a power cut; of five cuts in one run, at least one has an effect on a slow machine, too. One on
        // which a server starts slowly has fewer.
        a_redis_that_lost_its_power_has_its_files_as_they_were_synced = comes_out(
            "--backend redis --locks 6 --clients 12 --lease 1s --window 1500ms --time 20s --fault server-kill=one:200ms:lost --seed 1",
            "servers_killed > 1, servers_back = servers_killed, files_set_back")
        a_redis_refuses_writes_on_a_full_disk_and_loses_no_lock;
    docker:
        a_container_has_no_file_system_of_its_own_to_lose_or_to_fill;
    virtual_time:
        a_redis_that_lost_its_last_second_has_two_holders_and_one_that_kept_it_has_not
        // Without long holds: see `docs/disks.md` for the effect of etcd before 3.4.31 on them.
        an_etcd_mutex_goes_on_elsewhere_while_the_leader_waits_for_its_disk = every_window_delays_syncs(
            "--backend etcd --fault slow-disk=leader:200ms --lease 2s --time 15s --seed 5eed", "0");
    nightly:
        // etcd ends when its database cannot grow. The fault causes that end: the others elect another leader, and the
        // server starts again at the heal.
        an_etcd_leader_ends_on_a_full_disk_and_is_there_again_when_it_has_space = comes_out(
            "--backend etcd --locks 4 --fault disk-full --lease 2s --time 20s --seed 5eed",
            "0, disks_filled = windows, no_space_lines, servers_ended, servers_back = windows")
        a_zookeeper_queue_stands_a_leader_that_waits_for_its_disk
        a_postgres_waits_for_its_log_in_every_session
        a_server_that_never_syncs_shows_no_effect_of_a_slow_disk
        // A majority synced each write before it was acknowledged.
        an_etcd_that_lost_the_power_of_all_its_servers_lost_no_lock = comes_out(
            "--backend etcd --fault server-kill=all:lost --lease 2s --time 30s --seed 1",
            "0, servers_back = servers_killed, servers_killed > 2")
        a_zookeeper_of_which_each_server_lost_its_power_in_turn_lost_no_lock = comes_out(
            "--backend zk --fault server-restart=lost --lease 1s --time 20s --seed 1", "0, servers_back = servers_killed");
    nightly_docker:
        a_zookeeper_queue_stands_a_leader_that_waits_for_its_disk;
}
