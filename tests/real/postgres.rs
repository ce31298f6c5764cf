//! Locks on PostgreSQL: what breaks behind a transaction pooler and what does not, and a release that does not compare.

use crate::command::{Answer, Harness, run_on};

fn pooled(recipe: &str, time: &str) -> Answer {
    let words = "--backend postgres --fault pooler --hold 50ms --lease 1s --seed 1";
    let answer = run_on("local", &format!("{words} --recipe {recipe} {time}"));
    answer.assert_counted(&["pooled_transactions"]);
    answer
}

#[test]
fn a_lock_of_a_session_is_shared_behind_a_transaction_pooler() {
    // the pooler gives a transaction the session that became free last: to a client that rested, the session of the new holder
    let answer = pooled("pg-advisory", "--think 20ms --time 20s --stop-on-violation");
    answer.assert_violates("HL001");
}

#[test]
fn a_postgres_that_could_not_fail_over_says_so() {
    for (words, hint) in [
        ("--runtime local --auth", "leave --auth out"),
        ("--runtime docker", "--runtime local"),
    ] {
        let words = format!("run {words} --backend postgres --fault failover --time 20s");
        Harness::new().assert_says(&words, 4, &[hint]);
    }
}

mod nightly {
    use super::*;

    #[test]
    fn a_lock_of_a_transaction_is_its_clients_behind_a_transaction_pooler() {
        let answer = pooled("pg-advisory-xact", "--time 10s");
        answer.assert_exit(0);
        answer.assert_verdict("HL001", "holds");
    }

    #[test]
    fn a_release_that_does_not_compare_frees_the_next_holders_lease() {
        let words = "--backend postgres --recipe pg-row-lease-no-compare --holder naive --fault partition=holder";
        let plan = "--clients 10 --hold 100ms --lease 1s --time 14s --seed 16";
        let answer = run_on("local", &format!("{words} {plan}"));
        answer.assert_violates("HL001");
        assert_eq!(answer.verdict("HL003"), "holds", "tokens would have saved the data");
    }

    #[test]
    fn a_postgres_that_fails_over_with_all_its_writes_keeps_its_leases() {
        let words = "--backend postgres --fault failover=clean --lease 1s --time 14s --seed 5eed";
        let answer = run_on("local", words);
        answer.assert_exit(0);
        // the old primary follows
        answer.assert_counted(&["servers_promoted", "servers_back"]);
    }

    /// A standby without the last writes grants the lease of a holder that works on, and may give its token again.
    #[test]
    fn a_postgres_that_fails_over_without_its_last_writes_has_two_holders() {
        let words = "--backend postgres --fault failover --hold 100ms --lease 1s --window 4s --time 12s --seed 5eed";
        let answer = run_on("local", words);
        answer.assert_violates("HL001");
        assert_ne!(answer.verdict("HL007"), "violated", "{:#}", answer.finding("HL007"));
        // the standby missed something, and the old primary follows
        answer.assert_counted(&["servers_promoted", "held_bytes", "servers_back"]);
    }
}
