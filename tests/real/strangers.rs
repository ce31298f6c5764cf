//! Strangers: locks that others could have written (`tests/strangers`), a run of each. The correct ones hold, and their
//! broken twins are found. `tests/suites/strangers.toml` runs them with other holds, and under faults.

use crate::command::{Answer, Harness, on_runtimes};

/// A lock, and its options.
type Stranger<'a> = (&'a str, &'a str);

fn run(runtime: &str, lock: &str, arguments: &str, options: &str) -> Answer {
    let backend = match lock {
        "etcd_gateway" => "etcd",
        "nats_bucket" => "nats",
        _ => "redis",
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/strangers");
    Harness::new().run(&format!(
        "--runtime {runtime} --backend {backend} --lease 2s --clients 4 {options} \
         --client 'python3 {folder}/{lock}.py {arguments}'"
    ))
}

/// Calls `check` with each row, in parallel if runs mostly wait.
fn with_each<T: Sync>(runtime: &str, rows: &[T], check: impl Fn(&T) + Sync) {
    if runtime == "virtual" {
        return rows.iter().for_each(check);
    }
    std::thread::scope(|scope| {
        for row in rows {
            scope.spawn(|| check(row));
        }
    });
}

fn all_hold(runtime: &str, strangers: &[Stranger<'_>]) {
    with_each(runtime, strangers, |(lock, options)| {
        let time = if options.contains("--time") { "" } else { "--time 9s" };
        run(runtime, lock, "", &format!("{time} --hold 50ms {options}")).assert_exit(0);
    });
}

fn all_are_found(runtime: &str, strangers: &[(&str, &str, &str)]) {
    with_each(runtime, strangers, |(lock, options, property)| {
        let answer = run(runtime, lock, "--broken", options);
        assert_eq!(answer.verdict(property), "violated", "{lock}: {:#}", answer.diagnosis);
    });
}

/// Each client has a server of its own, with which it speaks over a port.
fn a_lock_behind_a_service_holds_and_its_twin_is_found(runtime: &str) {
    all_hold(runtime, &[("over_http", "--grants 60")]);
    all_are_found(runtime, &[("over_http", "--time 9s --hold 100ms --grants 60", "HL010")]);
}

/// NATS elects within 4 to 9 s. The client's contract has the name of the bucket, by which its leader is found.
fn a_lock_in_a_bucket_of_its_own_stands_the_end_of_the_leader(runtime: &str) {
    let options = "--fault server-kill=leader --window 12s --time 30s --hold 50ms";
    run(runtime, "nats_bucket", "", options).assert_is("0, a window");
}

/// The fault lasts for longer than the progress bound.
const A_MINORITY_IS_AWAY: &str = "--nodes 3 --fault partition=server --window 14s --time 40s";
const LONGER_THAN_ITS_LEASE: &str = "--time 16s --hold 3s --stop-on-violation";

/// A defect of `other_uses`, the options of a run, a property, and its verdict.
type OtherUse<'a> = (&'a str, &'a str, &'a str, &'a str);

fn other_uses(runtime: &str, rows: &[OtherUse<'_>]) {
    with_each(runtime, rows, |(defect, options, property, verdict)| {
        let answer = run(runtime, "other_uses", defect, options);
        let about = format!("{defect} {options}");
        assert_eq!(answer.verdict(property), *verdict, "{about}: {:#}", answer.diagnosis);
    });
}

on_runtimes! {
    real:
        locks_of_other_shapes_hold = all_hold(&[("hash_field", ""), ("queue_list", ""), ("permits", "")]);
    virtual_time:
        a_lock_behind_a_service_holds_and_its_twin_is_found
        leases_that_are_not_kept_are_found = all_are_found(&[
            ("rewritten_value", LONGER_THAN_ITS_LEASE, "HL001"),
            ("late_reply", "--time 16s --hold 500ms --stop-on-violation", "HL001"),
            ("hash_field", "--time 9s --hold 100ms --stop-on-violation", "HL007")])
        // One unusual call shows a defect, and shows nothing in the same lock without it.
        a_lock_that_another_application_would_break_is_found = other_uses(&[
            ("", "--time 9s --hold 100ms --grants 40 --odd-turns 40", "HL002", "holds"),
            ("--broken again", "--time 90s --hold 100ms --odd-turns 80 --stop-on-violation", "HL002", "violated"),
            ("--broken again", "--time 9s --hold 100ms --grants 40", "HL002", "holds")])
        tokens_tries_and_queues_that_are_wrong_are_found = all_are_found(&[
            ("counter_tokens", "--time 9s --hold 100ms --stop-on-violation", "HL003"),
            ("try_lock", "--time 9s --tries 100 --think 50ms", "HL011"),
            ("queue_list", "--time 16s --hold 50ms --starvation-bound 6s --stop-on-violation", "HL006")])
        a_wait_that_leaves_its_request_behind_is_found = all_are_found(&[
            ("etcd_gateway", "--nodes 1 --time 16s --hold 400ms --wait 500ms --progress-bound 4s", "HL005")]);
    nightly:
        locks_of_other_manners_hold = all_hold(&[
            ("exits_on_doubt", ""), ("late_reply", ""), ("read_write", ""), ("try_lock", "--tries 100"), ("etcd_gateway", ""),
            ("nats_bucket", "")])
        a_lock_in_a_bucket_of_its_own_stands_the_end_of_the_leader
        locks_with_names_of_their_own_hold = all_hold(&[
            ("own_key", ""), ("own_owner", ""), ("counter_tokens", ""), ("rewritten_value", "")])
        locks_that_are_slow_and_loud_hold = all_hold(&[("noisy", ""), ("slow_and_wordy", "--time 12s")])
        a_lock_on_a_majority_goes_on_while_one_server_is_away = all_hold(&[("quorum", A_MINORITY_IS_AWAY)])
        // a lock may stand still for two leases longer than its bound, if acquires were cut off
        a_lock_that_needs_every_server_is_found_while_one_is_away = all_are_found(&[
            ("quorum", "--nodes 3 --fault partition=server --window 14s --time 40s --progress-bound 4s", "HL005")])
        two_owners_are_found = all_are_found(&[
            ("own_key", "--time 12s --hold 400ms --wait 300ms", "HL007"),
            ("own_owner", "--time 12s --hold 400ms", "HL001"),
            ("nats_bucket", "--time 12s --hold 400ms", "HL001"),
            ("read_write", "--time 9s --hold 100ms", "HL001"),
            ("permits", "--time 9s --hold 100ms", "HL001")])
        leases_that_are_not_kept_are_found_in_clients_of_other_manners = all_are_found(&[
            ("exits_on_doubt", LONGER_THAN_ITS_LEASE, "HL001"),
            ("noisy", LONGER_THAN_ITS_LEASE, "HL001"),
            ("slow_and_wordy", LONGER_THAN_ITS_LEASE, "HL001")])
        // it violates several properties, and another one first
        a_second_release_that_another_application_makes_is_found = other_uses(&[
            ("--broken twice", "--time 30s --hold 100ms --odd-turns 80", "HL001", "violated"),
            ("--broken twice", "--time 9s --hold 100ms", "HL001", "holds")]);
}
