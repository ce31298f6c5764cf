//! Locks on MariaDB: one that breaks without a fault, and lost replies. The truth table has each family of faults.

use crate::command::{on_runtimes, rows};
use crate::outcome::comes_out;

/// A lost reply that grants is distinguished from those that refuse.
fn a_reply_that_grants_is_told_from_one_that_does_not(runtime: &str) {
    for (recipe, message) in [("mysql-get-lock", "GET_LOCK"), ("mysql-row-lease", "INSERT")] {
        let fault = format!("drop-reply={message}:accepted:3");
        let words = format!("--backend mariadb --recipe {recipe} --fault {fault} --lease 1s --time 14s --seed 5eed");
        comes_out(runtime, &words, "0, all windows");
    }
}

rows! {
    comes_out:
        two_who_read_that_a_row_is_free_both_write_it(
            "--backend mariadb --recipe mysql-row-lease-read-write --clients 10 --fault none --lease 1s --time 40s --stop-on-violation \
             --seed 5eed",
            "1, HL001 violated")
}

on_runtimes! {
    real:
        two_who_read_that_a_row_is_free_both_write_it;
    nightly:
        a_reply_that_grants_is_told_from_one_that_does_not;
}
