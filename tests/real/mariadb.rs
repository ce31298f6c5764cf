//! Locks on MariaDB under each family of faults, the locks that break there, and a release that does not compare.

use crate::command::{Answer, Harness, run_on};

fn plays(recipe: &str, fault: &str) -> Answer {
    let words = format!("--backend mariadb --recipe {recipe} --fault {fault}");
    run_on("local", &format!("{words} --lease 1s --time 14s --seed 5eed"))
}

/// One fault of each family that a careful client withstands.
fn withstands(recipe: &str) {
    for fault in ["server-kill", "server-pause", "partition", "kill-holder"] {
        let answer = plays(recipe, fault);
        answer.assert_exit(0);
        assert_eq!(answer.verdict("HL001"), "holds", "{recipe} {fault}");
        answer.assert_all_windows_had_effect();
    }
}

#[test]
fn two_who_read_that_a_row_is_free_both_write_it() {
    let words = "--backend mariadb --recipe mysql-row-lease-read-write --clients 10";
    let answer = run_on(
        "local",
        &format!("{words} --fault none --lease 1s --time 8s --stop-on-violation --seed 5eed"),
    );
    answer.assert_violates("HL001");
}

#[test]
fn it_is_not_simulated_and_says_so() {
    Harness::new().assert_says(
        "run --runtime simulated --backend mariadb",
        2,
        &["models of ZooKeeper, etcd, Redis, Valkey and NATS"],
    );
}

mod nightly {
    use super::*;

    #[test]
    fn a_careful_lock_of_a_session_withstands_what_happens_to_its_server_and_its_holder() {
        withstands("mysql-get-lock");
    }

    #[test]
    fn a_careful_lease_withstands_what_happens_to_its_server_and_its_holder() {
        withstands("mysql-row-lease");
    }

    #[test]
    fn a_release_that_does_not_compare_frees_the_next_holders_lease() {
        let words = "--backend mariadb --recipe mysql-row-lease-no-compare --holder naive";
        let plan = "--fault partition=holder --clients 10 --hold 100ms --lease 1s --time 14s --seed 16";
        let answer = run_on("local", &format!("{words} {plan}"));
        answer.assert_violates("HL001");
        assert_eq!(answer.verdict("HL003"), "holds", "tokens would have saved the data");
    }

    /// A grant whose reply is lost is found among the replies that say no.
    #[test]
    fn a_reply_that_grants_is_told_from_one_that_does_not() {
        for (recipe, message) in [("mysql-get-lock", "GET_LOCK"), ("mysql-row-lease", "INSERT")] {
            let answer = plays(recipe, &format!("drop-reply={message}:accepted:3"));
            answer.assert_stands_all_windows();
        }
    }
}
