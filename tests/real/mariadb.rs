//! Locks on MariaDB under each family of faults, the locks that break there, and a release without a comparison.

use crate::command::{on_runtimes, rows};
use crate::outcome::comes_out;

const PLAN: &str = "--lease 1s --time 14s --seed 5eed";

/// Asserts that a careful client withstands one fault of each family.
fn withstands(runtime: &str, recipe: &str) {
    for fault in ["server-kill", "server-pause", "partition", "kill-holder"] {
        let words = format!("--backend mariadb --recipe {recipe} --fault {fault} {PLAN}");
        comes_out(runtime, &words, "0, HL001 holds, all windows");
    }
}

/// A lost reply that grants is distinguished from those that refuse.
fn a_reply_that_grants_is_told_from_one_that_does_not(runtime: &str) {
    for (recipe, message) in [("mysql-get-lock", "GET_LOCK"), ("mysql-row-lease", "INSERT")] {
        let fault = format!("drop-reply={message}:accepted:3");
        let words = format!("--backend mariadb --recipe {recipe} --fault {fault} {PLAN}");
        comes_out(runtime, &words, "0, all windows");
    }
}

rows! {
    withstands:
        a_careful_lock_of_a_session_withstands_what_happens_to_its_server_and_its_holder("mysql-get-lock")
        a_careful_lease_withstands_what_happens_to_its_server_and_its_holder("mysql-row-lease")
}

rows! {
    comes_out:
        two_who_read_that_a_row_is_free_both_write_it(
            "--backend mariadb --recipe mysql-row-lease-read-write --clients 10 --fault none --lease 1s --time 8s --stop-on-violation \
             --seed 5eed",
            "1, HL001 violated")
        // tokens would have saved the data
        a_release_that_does_not_compare_frees_the_next_holders_lease(
            "--backend mariadb --recipe mysql-row-lease-no-compare --holder naive --fault partition=holder \
             --clients 10 --hold 100ms --lease 1s --time 14s --seed 16",
            "1, HL001 violated, HL003 holds")
}

on_runtimes! {
    real:
        two_who_read_that_a_row_is_free_both_write_it;
    nightly:
        a_careful_lock_of_a_session_withstands_what_happens_to_its_server_and_its_holder
        a_careful_lease_withstands_what_happens_to_its_server_and_its_holder
        a_release_that_does_not_compare_frees_the_next_holders_lease
        a_reply_that_grants_is_told_from_one_that_does_not;
}
