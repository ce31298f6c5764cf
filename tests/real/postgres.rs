//! Locks on PostgreSQL: one that a transaction pooler breaks, and leases at a failover. The truth table has the others.

use crate::command::{on_runtimes, rows};
use crate::outcome::comes_out;

rows! {
    comes_out:
        // the pooler assigns the session that became free last: a client that rested gets the session of the new holder
        a_lock_of_a_session_is_shared_behind_a_transaction_pooler(
            "--backend postgres --fault pooler --hold 50ms --lease 1s --seed 1 --recipe pg-advisory --think 20ms --time 20s \
             --stop-on-violation",
            "1, HL001 violated, pooled_transactions")
        // the transaction keeps its session as long as it lasts
        a_lock_of_a_transaction_is_no_others_behind_a_transaction_pooler(
            "--backend postgres --fault pooler --hold 50ms --lease 1s --seed 1 --recipe pg-advisory-xact --time 10s",
            "0, HL001 holds, pooled_transactions")
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
        a_lock_of_a_transaction_is_no_others_behind_a_transaction_pooler
        a_postgres_that_fails_over_with_all_its_writes_keeps_its_leases
        a_postgres_that_fails_over_without_its_last_writes_has_two_holders;
}
