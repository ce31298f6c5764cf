//! The recipes for NATS against a fake cluster, in virtual time.

use std::time::Duration;

use super::fake::FakeNats;
use super::{held_value, read_value};
use crate::backend_id::BackendId;
use crate::client::LockError;
use crate::recipe::Policy;
use crate::testing::{
    CallFault, LEASE, all_exclude_and_hand_over, in_virtual_time, late_grants_are_none, only_careful_holders_doubt,
    sleep, wait,
};

const KEY: &str = "nats-key-revision";

#[test]
fn every_recipe_excludes_and_hands_over() {
    all_exclude_and_hand_over(FakeNats::default, &[BackendId::Nats]);
}

#[test]
fn a_release_leaves_a_marker_where_the_recipe_is_named_after_it() {
    for recipe in BackendId::Nats.recipes() {
        in_virtual_time(FakeNats::default(), async |nats| {
            let (mut lock, _) = nats.holder(recipe.name).await;
            lock.release("l").await.unwrap();
            assert_eq!(nats.is_marked(), recipe.name == "nats-key-marker", "{}", recipe.name);
        });
    }
}

#[test]
fn a_holder_renews_for_as_long_as_it_holds_and_its_value_has_owner_and_token() {
    in_virtual_time(FakeNats::default(), async |nats| {
        let (mut lock, signals) = nats.careful(KEY);
        let grant = lock.acquire(&wait(0)).await.unwrap();
        sleep(10_000).await;
        assert!(signals.lost().is_empty());
        let value = nats.value().unwrap();
        assert_eq!(read_value(&value), (grant.owner.as_deref().unwrap(), grant.token));
        lock.release("l").await.unwrap();
        assert_eq!(nats.value(), None);
    });
}

#[test]
fn a_value_is_read_as_it_was_written() {
    assert_eq!(read_value(&held_value("a1", 41)), ("a1", Some(41)));
    assert_eq!(read_value("a1"), ("a1", None));
    assert_eq!(read_value("host one"), ("host one", None));
}

#[test]
fn a_holder_that_is_cut_off_raises_lost_before_its_lease_ends_if_it_is_careful() {
    only_careful_holders_doubt(FakeNats::default, KEY, "lease ran out", |nats, is_cut| {
        nats.set_down(is_cut);
    });
}

#[test]
fn a_renewal_whose_answer_was_lost_is_found_and_is_no_loss() {
    for then in [0, LEASE.as_millis() as u64 * 4] {
        in_virtual_time(FakeNats::default(), async |nats| {
            let (mut lock, signals) = nats.holder(KEY).await;
            nats.fail("put", CallFault::LoseReply);
            sleep(LEASE.as_millis() as u64 / 3 + 10 + then).await;
            assert!(signals.lost().is_empty());
            lock.release("l").await.unwrap();
            assert_eq!(nats.value(), None);
        });
    }
}

#[test]
fn a_create_whose_answer_was_lost_is_read_back() {
    in_virtual_time(FakeNats::default(), async |nats| {
        let (mut lock, _) = nats.careful(KEY);
        nats.fail("put", CallFault::LoseReply);
        let grant = lock.acquire(&wait(0)).await.unwrap();
        assert_eq!(nats.value(), grant.owner);
        lock.release("l").await.unwrap();
    });
}

#[test]
fn a_create_that_cannot_be_read_back_is_unknown_and_removed_before_the_next_acquire() {
    in_virtual_time(FakeNats::default(), async |nats| {
        let (mut lock, _) = nats.careful(KEY);
        nats.fail("put", CallFault::LoseReply);
        // the second is that of the read back
        let mut reads = [CallFault::LateReply(Duration::ZERO), CallFault::LoseRequest].into_iter();
        reads.by_ref().for_each(|fault| nats.fail("read", fault));
        assert!(matches!(lock.acquire(&wait(0)).await, Err(LockError::Unknown(_))));
        let left = nats.value();
        assert!(left.is_some());
        let grant = lock.acquire(&wait(0)).await.unwrap();
        assert!(grant.token == Some(2) && nats.value() != left);
    });
}

#[test]
fn a_create_that_never_arrived_is_unknown() {
    in_virtual_time(FakeNats::default(), async |nats| {
        let (mut lock, _) = nats.careful(KEY);
        nats.fail("put", CallFault::LoseRequest);
        assert!(matches!(lock.acquire(&wait(0)).await, Err(LockError::Unknown(_))));
    });
}

#[test]
fn a_grant_that_comes_after_its_validity_is_no_grant() {
    let is_free = |nats: &FakeNats| nats.value().is_none();
    late_grants_are_none(FakeNats::default(), KEY, ["put", "remove"], is_free);
}

#[test]
fn a_release_whose_answer_was_lost_is_done_once() {
    for (recipe, call) in [(KEY, "remove"), ("nats-key-marker", "mark_deleted")] {
        in_virtual_time(FakeNats::default(), async |nats| {
            let (mut lock, _) = nats.holder(recipe).await;
            nats.fail(call, CallFault::LoseReply);
            assert_eq!(lock.release("l").await, Ok(()), "{recipe}");
        });
    }
}

#[test]
fn a_late_release_without_a_revision_frees_the_next_holders_lock() {
    for (recipe, freed) in [(KEY, false), ("nats-key-marker", false), ("nats-key-no-revision", true)] {
        in_virtual_time(FakeNats::default(), async |nats| {
            let (mut late, _) = nats.holder_of(recipe, Policy::Naive).await;
            nats.set_down(true);
            tokio::time::sleep(LEASE * 2).await;
            nats.set_down(false);
            let (_next, _) = nats.holder(recipe).await;
            assert_eq!(late.release("l").await.is_ok(), freed, "{recipe}");
            assert_eq!(nats.value().is_none(), freed, "{recipe}");
        });
    }
}

#[test]
fn two_who_read_that_a_key_is_free_both_take_it_without_an_expected_revision() {
    for (recipe, both) in [(KEY, false), ("nats-key-put", true)] {
        in_virtual_time(FakeNats::default(), async |nats| {
            assert_eq!(nats.race(recipe).await, [true, both], "{recipe}");
        });
    }
}
