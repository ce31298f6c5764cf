//! The recipes for SQL servers against a fake one, in virtual time.

use std::time::Duration;

use super::fake::FakeSql;
use crate::backend_id::BackendId;
use crate::client::LockError;
use crate::recipe::Policy;
use crate::testing::{
    CallFault, LEASE, all_exclude_and_hand_over, in_virtual_time, late_grants_are_none, only_careful_holders_doubt,
    refused_releases_are_repeated, sleep, wait,
};

const OF_SESSIONS: [&str; 4] = ["pg-advisory", "pg-advisory-xact", "pg-skip-locked", "mysql-get-lock"];
const ROW_LEASES: [&str; 2] = ["pg-row-lease", "mysql-row-lease"];

#[test]
fn every_recipe_excludes_and_hands_over() {
    all_exclude_and_hand_over(FakeSql::default, &[BackendId::Postgres, BackendId::Mariadb]);
}

#[test]
fn the_end_of_its_connection_is_told_by_a_careful_holder_and_not_by_a_naive_one() {
    for recipe in OF_SESSIONS {
        for (policy, told) in [(Policy::Careful, 1), (Policy::Naive, 0)] {
            in_virtual_time(FakeSql::default(), async |sql| {
                let (mut lock, signals) = sql.holder_of(recipe, policy).await;
                sleep(60_000).await;
                assert!(signals.lost().is_empty(), "{recipe} has no lease");
                sql.restart();
                sleep(10).await;
                assert_eq!(signals.lost().len(), told, "{recipe} {policy}");
                assert!(matches!(lock.release("l").await, Err(LockError::Refused(_))));
                lock.acquire(&wait(100)).await.unwrap();
            });
        }
    }
}

#[test]
fn a_lock_whose_answer_was_lost_is_unknown_and_ends_with_its_connection() {
    for recipe in OF_SESSIONS {
        in_virtual_time(FakeSql::default(), async |sql| {
            let (mut lock, _) = sql.careful(recipe);
            sql.fail("lock", CallFault::LoseReply);
            assert!(matches!(lock.acquire(&wait(100)).await, Err(LockError::Unknown(_))));
            let (mut other, _) = sql.careful(recipe);
            other.acquire(&wait(0)).await.unwrap();
        });
    }
}

#[test]
fn a_lease_whose_answer_was_lost_is_unknown_and_ended_before_the_next_acquire() {
    for recipe in ROW_LEASES {
        in_virtual_time(FakeSql::default(), async |sql| {
            let (mut lock, _) = sql.careful(recipe);
            sql.fail("take_lease", CallFault::LoseReply);
            assert!(matches!(lock.acquire(&wait(0)).await, Err(LockError::Unknown(_))));
            let left = sql.owner();
            assert!(left.is_some());
            let grant = lock.acquire(&wait(0)).await.unwrap();
            assert_eq!((grant.token, grant.owner), (Some(2), sql.owner()));
            assert_ne!(sql.owner(), left);
        });
    }
}

#[test]
fn a_careful_client_raises_lost_before_its_lease_ends_and_a_naive_one_does_not() {
    for recipe in ROW_LEASES {
        only_careful_holders_doubt(FakeSql::default, recipe, "validity ended", |_, _| {});
    }
}

#[test]
fn a_grant_that_comes_after_its_validity_is_no_grant() {
    let is_free = |sql: &FakeSql| sql.owner().is_none();
    late_grants_are_none(FakeSql::default(), "pg-row-lease", ["take_lease", "end_lease"], is_free);
}

#[test]
fn a_release_without_a_comparison_frees_the_next_holders_lease() {
    for (recipe, freed) in [
        ("pg-row-lease", false),
        ("pg-row-lease-no-compare", true),
        ("mysql-row-lease", false),
        ("mysql-row-lease-no-compare", true),
    ] {
        in_virtual_time(FakeSql::default(), async |sql| {
            let (mut late, _) = sql.holder_of(recipe, Policy::Naive).await;
            tokio::time::sleep(LEASE + Duration::from_millis(10)).await;
            let (_next, _) = sql.holder(recipe).await;
            assert_eq!(late.release("l").await.is_ok(), freed, "{recipe}");
            assert_eq!(sql.owner().is_none(), freed, "{recipe}");
        });
    }
}

#[test]
fn a_release_that_was_refused_is_not_taken_for_one_that_was_done() {
    in_virtual_time(FakeSql::default(), async |sql| {
        let (mut late, _) = sql.holder_of("pg-row-lease-no-compare", Policy::Naive).await;
        tokio::time::sleep(LEASE + Duration::from_millis(10)).await;
        let (mut lock, _) = sql.holder("pg-row-lease").await;
        late.release("l").await.unwrap();
        sql.fail("end_lease", CallFault::Refuse);
        assert_eq!(lock.release("l").await, Err(LockError::NOT_HELD));
    });
}

#[test]
fn a_release_that_is_refused_at_once_is_repeated_after_a_pause() {
    let pause = Duration::from_millis(20);
    refused_releases_are_repeated(FakeSql::default(), "pg-row-lease", "end_lease", pause);
}

#[test]
fn two_who_read_that_a_lease_is_free_both_take_it_without_a_comparison() {
    for (recipe, both) in [
        ("pg-row-lease", false),
        ("pg-row-lease-read-write", true),
        ("mysql-row-lease", false),
        ("mysql-row-lease-read-write", true),
    ] {
        in_virtual_time(FakeSql::default(), async |sql| {
            assert_eq!(sql.race(recipe).await, [true, both], "{recipe}");
        });
    }
}
