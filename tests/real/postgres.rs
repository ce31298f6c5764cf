//! Locks on PostgreSQL: those that a transaction pooler breaks, those that it does not, and a release without a comparison.

use crate::command::{on_runtimes, rows};
use crate::outcome::comes_out;

fn pooled(runtime: &str, words: &str, outcome: &str) {
    let plan = "--backend postgres --fault pooler --hold 50ms --lease 1s --seed 1";
    comes_out(runtime, &format!("{plan} {words}"), outcome);
}

rows! {
    pooled:
        // the pooler assigns the session that became free last: a client that rested gets the session of the new holder
        a_lock_of_a_session_is_shared_behind_a_transaction_pooler(
            "--recipe pg-advisory --think 20ms --time 20s --stop-on-violation", "1, HL001 violated, pooled_transactions")
        a_lock_of_a_transaction_is_its_clients_behind_a_transaction_pooler(
            "--recipe pg-advisory-xact --time 10s", "0, HL001 holds, pooled_transactions")
}

rows! {
    comes_out:
        // tokens would have saved the data
        a_release_that_does_not_compare_frees_the_next_holders_lease(
            "--backend postgres --recipe pg-row-lease-no-compare --holder naive --fault partition=holder \
             --clients 10 --hold 100ms --lease 1s --time 14s --seed 16",
            "1, HL001 violated, HL003 holds")
        // the old primary follows
        a_postgres_that_fails_over_with_all_its_writes_keeps_its_leases(
            "--backend postgres --fault failover=clean --lease 1s --time 14s --seed 5eed", "0, servers_promoted, servers_back")
        // A standby without the last writes grants the lease of a holder that continues, and may repeat its token. It
        // lacks some writes, and the old primary follows.
        a_postgres_that_fails_over_without_its_last_writes_has_two_holders(
            "--backend postgres --fault failover --hold 100ms --lease 1s --window 4s --time 12s --seed 5eed",
            "1, HL001 violated, HL007 not violated, servers_promoted, held_bytes, servers_back")
}

on_runtimes! {
    real:
        a_lock_of_a_session_is_shared_behind_a_transaction_pooler;
    nightly:
        a_lock_of_a_transaction_is_its_clients_behind_a_transaction_pooler
        a_release_that_does_not_compare_frees_the_next_holders_lease
        a_postgres_that_fails_over_with_all_its_writes_keeps_its_leases
        a_postgres_that_fails_over_without_its_last_writes_has_two_holders;
}
