//! Locks that others could have written (`tests/strangers`), a run of each: the correct ones hold, and their broken twins are
//! found. `tests/suites/strangers.toml` runs them at other lengths of holds, and under faults.

use crate::command::{Answer, Harness};

/// A lock, and what is asked of it.
type Stranger<'a> = (&'a str, &'a str);

fn run(lock: &str, arguments: &str, options: &str) -> Answer {
    let backend = if lock == "etcd_gateway" { "etcd" } else { "redis" };
    let client = format!(
        "python3 {}/tests/strangers/{lock}.py {arguments}",
        env!("CARGO_MANIFEST_DIR")
    );
    let harness = Harness::new();
    let words = format!("run --json --runtime local --backend {backend} --lease 2s --clients 4 {options} --client");
    Answer::of(harness.command(&words).arg(client).output().unwrap())
}

fn all_hold(strangers: &[Stranger<'_>]) {
    std::thread::scope(|scope| {
        for (lock, options) in strangers {
            scope.spawn(move || {
                let time = if options.contains("--time") { "" } else { "--time 9s" };
                let answer = run(lock, "", &format!("{time} --hold 50ms {options}"));
                assert_eq!(answer.exit, 0, "{lock}: {}\n{:#}", answer.stderr, answer.diagnosis);
            });
        }
    });
}

fn all_are_found(strangers: &[(&str, &str, &str)]) {
    std::thread::scope(|scope| {
        for (lock, options, property) in strangers {
            scope.spawn(move || {
                let answer = run(lock, "--broken", options);
                assert_eq!(answer.verdict(property), "violated", "{lock}: {:#}", answer.diagnosis);
            });
        }
    });
}

#[test]
fn locks_of_other_shapes_hold() {
    all_hold(&[
        ("hash_field", ""),
        ("queue_list", ""),
        ("read_write", ""),
        ("permits", ""),
    ]);
}

/// The fault lasts for longer than a lock may stand still.
const A_MINORITY_IS_AWAY: &str = "--nodes 3 --fault partition=server --window 14s --time 40s";

#[test]
fn leases_that_are_not_kept_are_found() {
    all_are_found(&[
        ("rewritten_value", "--time 16s --hold 3s", "HL001"),
        ("exits_on_doubt", "--time 16s --hold 3s", "HL001"),
        ("late_reply", "--time 16s --hold 500ms", "HL001"),
        ("over_http", "--time 9s --hold 100ms", "HL010"),
        ("hash_field", "--time 9s --hold 100ms", "HL007"),
    ]);
}

#[test]
fn releases_tokens_and_queues_that_are_wrong_are_found() {
    all_are_found(&[
        ("counter_tokens", "--time 9s --hold 100ms", "HL003"),
        ("try_lock", "--time 9s --tries 100", "HL011"),
        ("queue_list", "--time 16s --hold 50ms --starvation-bound 6s", "HL006"),
        ("etcd_gateway", "--time 16s --hold 400ms --wait 500ms", "HL005"),
    ]);
}

/// What one application of many does shows a defect, and nothing in the same lock without it.
#[test]
fn locks_that_another_application_would_break_are_found() {
    let (again, twice) = ("--broken again", "--broken twice");
    let until_found = "--time 30s --hold 100ms --odd-turns 40 --stop-on-violation";
    std::thread::scope(|scope| {
        for (defect, options, property, verdict) in [
            ("", "--time 9s --hold 100ms --odd-turns 40", "HL002", "holds"),
            (again, until_found, "HL002", "violated"),
            (again, "--time 9s --hold 100ms", "HL002", "holds"),
            (twice, until_found, "HL001", "violated"),
            (twice, "--time 9s --hold 100ms", "HL001", "holds"),
        ] {
            scope.spawn(move || {
                let answer = run("other_uses", defect, options);
                assert_eq!(
                    answer.verdict(property),
                    verdict,
                    "{defect} {options}: {:#}",
                    answer.diagnosis
                );
            });
        }
    });
}

mod nightly {
    use super::*;

    #[test]
    fn locks_that_are_slow_and_loud_hold() {
        all_hold(&[("noisy", ""), ("slow_and_wordy", "--time 12s")]);
    }

    #[test]
    fn a_lock_on_a_majority_goes_on_while_one_server_is_away() {
        all_hold(&[("quorum", A_MINORITY_IS_AWAY)]);
    }

    #[test]
    fn locks_with_names_of_their_own_hold() {
        all_hold(&[
            ("own_key", ""),
            ("own_owner", ""),
            ("counter_tokens", ""),
            ("rewritten_value", ""),
        ]);
    }

    #[test]
    fn locks_of_other_manners_hold() {
        all_hold(&[
            ("exits_on_doubt", ""),
            ("late_reply", ""),
            ("over_http", ""),
            ("try_lock", "--tries 100"),
            ("etcd_gateway", ""),
        ]);
    }

    #[test]
    fn two_owners_are_found() {
        all_are_found(&[
            ("own_key", "--time 12s --hold 400ms --wait 300ms", "HL007"),
            ("own_owner", "--time 12s --hold 400ms", "HL001"),
            ("noisy", "--time 16s --hold 3s", "HL001"),
            ("slow_and_wordy", "--time 16s --hold 3s", "HL001"),
            ("read_write", "--time 9s --hold 100ms", "HL001"),
            ("permits", "--time 9s --hold 100ms", "HL001"),
        ]);
    }

    #[test]
    fn a_lock_that_needs_every_server_is_found_while_one_is_away() {
        all_are_found(&[("quorum", A_MINORITY_IS_AWAY, "HL005")]);
    }
}
