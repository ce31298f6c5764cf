//! Locks on PostgreSQL and MariaDB: a transaction pooler, failovers, lost replies, and a lock that breaks without a fault. The truth
//! table has each family of faults.

use crate::command::on_runtimes;
use crate::outcome::comes_out;

on_runtimes! {
    real:
        // the pooler assigns the session that became free last: a client that rested gets the session of the new holder
        a_lock_of_a_session_is_shared_behind_a_transaction_pooler = comes_out(
            "--backend postgres --fault pooler --hold 50ms --lease 1s --seed 1 --recipe pg-advisory --think 20ms --time 20s \
             --stop-on-violation",
            "1, HL001 violated, pooled_transactions")
        two_who_read_that_a_row_is_free_both_write_it = comes_out(
            "--backend mariadb --recipe mysql-row-lease-read-write --clients 10 --fault none --lease 1s --time 40s --stop-on-violation \
             --seed 5eed",
            "1, HL001 violated");
    nightly:
        // a lost reply that grants is distinguished from those that refuse
        a_reply_that_grants_a_named_lock_is_told_from_one_that_does_not = comes_out(
            "--backend mariadb --recipe mysql-get-lock --fault drop-reply=GET_LOCK:accepted:3 --lease 1s --time 14s --seed 5eed",
            "0, all windows")
        a_reply_that_grants_a_row_is_told_from_one_that_does_not = comes_out(
            "--backend mariadb --recipe mysql-row-lease --fault drop-reply=INSERT:accepted:3 --lease 1s --time 14s --seed 5eed",
            "0, all windows")
        // the transaction keeps its session as long as it lasts
        a_lock_of_a_transaction_is_no_others_behind_a_transaction_pooler = comes_out(
            "--backend postgres --fault pooler --hold 50ms --lease 1s --seed 1 --recipe pg-advisory-xact --time 10s",
            "0, HL001 holds, pooled_transactions")
        // the old primary follows
        a_postgres_that_fails_over_with_all_its_writes_keeps_its_leases = comes_out(
            "--backend postgres --fault failover=clean --lease 1s --time 14s --seed 5eed", "0, servers_promoted, servers_back")
        // A standby without the last writes grants the lease of a holder that continues, and may repeat its token. It
        // lacks some writes, and the old primary follows.
        a_postgres_that_fails_over_without_its_last_writes_has_two_holders = comes_out(
            "--backend postgres --fault failover --hold 100ms --lease 1s --window 4s --time 12s --seed 5eed",
            "1, HL001 violated, HL007 not violated, servers_promoted, held_bytes, servers_back");
}
