//! The recipes for Redis and Valkey against fake servers, in virtual time.

use std::time::Duration;

use super::fake::FakeRedis;
use crate::backend_id::BackendId;
use crate::client::LockError;
use crate::protocol::LockSignalKind;
use crate::recipe::Policy;
use crate::testing::{
    CallFault, LEASE, all_exclude_and_hand_over, in_virtual_time, late_grants_are_none, only_careful_holders_doubt,
    refused_releases_are_repeated, sleep, start, wait,
};

const LUA: &str = "redis-set-px-lua";
const IFEQ: &str = "valkey-ifeq";
/// Those that renew, by a script and by a command.
const RENEWED: [(&str, &str); 2] = [("redis-watchdog", "RENEW"), (IFEQ, "SET IFEQ")];

#[test]
fn every_recipe_excludes_and_hands_over() {
    all_exclude_and_hand_over(|| FakeRedis::new(5), &[BackendId::Redis, BackendId::Valkey]);
}

#[test]
fn an_uncontended_pair_costs_two_round_trips() {
    for (recipe, release) in [(LUA, "EVALSHA"), (IFEQ, "DELIFEQ")] {
        in_virtual_time(FakeRedis::new(1), async |redis| {
            let (mut lock, _) = redis.holder(recipe).await;
            lock.release("l").await.unwrap();
            assert_eq!(redis.commands(), ["SET", release]);
        });
    }
}

#[test]
fn a_late_release_frees_the_successor_with_del_and_not_where_it_compares() {
    let successor = || Some("successor".to_owned());
    for (recipe, left) in [("redis-set-px-del", None), (LUA, successor()), (IFEQ, successor())] {
        in_virtual_time(FakeRedis::new(1), async |redis| {
            let (mut lock, _) = redis.holder_of(recipe, Policy::Naive).await;
            redis.set("successor");
            let released = lock.release("l").await;
            assert_eq!(released.is_ok(), left.is_none(), "{recipe}");
            assert_eq!(redis.value(), left, "{recipe}");
        });
    }
}

#[test]
fn the_comparison_before_del_is_no_comparison_when_del_is_late() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, _) = redis.holder_of("redis-set-px-get-del", Policy::Naive).await;
        redis.fail("GET", CallFault::LateReply(LEASE));
        let releasing = tokio::task::spawn_local(async move { lock.release("l").await });
        sleep(100).await;
        redis.set("successor");
        releasing.await.unwrap().unwrap();
        assert_eq!(redis.value(), None, "the successor's lock was deleted");
    });
}

#[test]
fn a_careful_client_raises_lost_when_its_validity_ends_and_a_naive_one_does_not() {
    only_careful_holders_doubt(|| FakeRedis::new(1), LUA, "validity ended", |_, _| {});
}

#[test]
fn a_grant_that_comes_after_its_validity_is_no_grant() {
    let is_free = |redis: &FakeRedis| redis.value().is_none();
    late_grants_are_none(FakeRedis::new(1), LUA, ["SET", "EVALSHA"], is_free);
}

#[test]
fn a_set_whose_reply_was_lost_is_read_back_and_never_sent_in_vain() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, signals) = redis.careful(LUA);
        let called = redis.now();
        redis.fail("SET", CallFault::LoseReply);
        let grant = lock.acquire(&wait(500)).await.unwrap();
        assert_eq!(grant.owner, redis.value());
        sleep(10_000).await;
        assert!(
            signals.of(LockSignalKind::Lost)[0].0 <= called + LEASE * 9 / 10,
            "validity counts from the lost SET"
        );
    });
}

#[test]
fn a_set_that_stays_unknown_is_info_and_deleted_before_the_next_acquire() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, _) = redis.careful(LUA);
        redis.fail("SET", CallFault::LoseReply);
        redis.fail("GET", CallFault::LoseRequest);
        redis.fail("EVALSHA", CallFault::LoseRequest);
        assert!(matches!(lock.acquire(&wait(0)).await, Err(LockError::Unknown(_))));
        assert!(redis.value().is_some());
        lock.acquire(&wait(0)).await.unwrap();
    });
}

#[test]
fn a_lost_expire_locks_for_ever_and_so_does_a_lost_reply_to_setnx_which_never_reads_back() {
    for (recipe, command, fault) in [
        ("redis-setnx", "SET", CallFault::LoseReply),
        ("redis-setnx-expire", "PEXPIRE", CallFault::LoseRequest),
    ] {
        in_virtual_time(FakeRedis::new(1), async |redis| {
            let (mut lock, _) = redis.careful(recipe);
            redis.fail(command, fault);
            assert!(matches!(lock.acquire(&wait(500)).await, Err(LockError::Unknown(_))));
            assert_eq!(lock.acquire(&wait(60_000)).await, Err(LockError::TIMEOUT));
        });
    }
}

#[test]
fn a_release_whose_reply_was_lost_is_a_release_while_the_lease_lasts() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, _) = redis.holder(LUA).await;
        redis.fail("EVALSHA", CallFault::LoseReply);
        assert_eq!(lock.release("l").await, Ok(()));
    });
}

#[test]
fn a_release_that_was_refused_is_not_taken_for_one_that_was_done() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, _) = redis.holder(LUA).await;
        redis.set("of another client");
        redis.fail("EVALSHA", CallFault::Refuse);
        assert_eq!(lock.release("l").await, Err(LockError::NOT_HELD));
    });
}

#[test]
fn a_release_that_is_refused_at_once_is_repeated_after_a_pause() {
    refused_releases_are_repeated(FakeRedis::new(1), LUA, "EVALSHA", Duration::from_millis(10));
}

#[test]
fn a_plain_del_is_never_repeated() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, _) = redis.holder("redis-set-px-del").await;
        redis.fail("DEL", CallFault::LoseReply);
        assert!(matches!(lock.release("l").await, Err(LockError::Unknown(_))));
        assert_eq!(redis.commands().iter().filter(|command| **command == "DEL").count(), 1);
    });
}

#[test]
fn a_watchdog_holds_for_as_long_as_it_can_renew() {
    for (recipe, renewal) in RENEWED {
        in_virtual_time(FakeRedis::new(1), async |redis| {
            let (mut lock, signals) = redis.careful(recipe);
            let grant = lock.acquire(&wait(0)).await.unwrap();
            sleep(60_000).await;
            assert!(signals.lost().is_empty());
            assert_eq!(redis.value(), grant.owner);
            let sent = redis.commands();
            assert!(
                sent.len() > 60 && sent[1..].iter().all(|command| *command == renewal),
                "{sent:?}"
            );
            redis.set("another client");
            sleep(1_000).await;
            assert_eq!(signals.lost(), ["renewal failed: key gone"]);
        });
    }
}

#[test]
fn a_watchdog_that_cannot_renew_raises_lost_before_the_lease_is_over() {
    for (recipe, _) in RENEWED {
        only_careful_holders_doubt(
            || FakeRedis::new(1),
            recipe,
            "lease ran out",
            |redis, is_cut| {
                redis.set_down(0, is_cut);
            },
        );
    }
}

#[test]
fn a_message_wakes_every_subscriber() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut holder, _) = redis.holder("redis-pubsub").await;
        let logs = redis.waiters("redis-pubsub", 4).await;
        sleep(100).await;
        holder.release("l").await.unwrap();
        sleep(10).await;
        assert!(logs.iter().all(|signals| signals.woken().len() == 1));
    });
}

#[test]
fn getset_takes_over_what_has_passed_its_deadline_and_only_once() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        redis.set("1000:long ago");
        let (mut one, _) = redis.careful("redis-getset");
        let (mut two, _) = redis.careful("redis-getset");
        one.acquire(&wait(0)).await.unwrap();
        assert_eq!(two.acquire(&wait(0)).await, Err(LockError::BUSY));
    });
}

#[test]
fn redlock_needs_a_majority_and_no_more() {
    in_virtual_time(FakeRedis::new(5), async |redis| {
        let (mut lock, _) = redis.careful("redlock");
        lock.open().await.unwrap();
        redis.set_down(3, true);
        redis.set_down(4, true);
        lock.acquire(&wait(0)).await.unwrap();
        lock.release("l").await.unwrap();
        redis.set_down(2, true);
        assert!(lock.acquire(&wait(300)).await.is_err());
        sleep(1).await;
        assert_eq!(redis.value(), None, "the minority is deleted again");
    });
}

#[test]
fn redlock_counts_its_validity_from_before_the_first_set() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, signals) = redis.careful("redlock");
        let called = redis.now();
        redis.fail("SET", CallFault::LateReply(Duration::from_millis(500)));
        lock.acquire(&wait(0)).await.unwrap();
        sleep(10_000).await;
        assert!(signals.of(LockSignalKind::Lost)[0].0 <= called + LEASE * 9 / 10);
    });
}

#[test]
fn redlock_has_a_value_for_each_attempt_so_that_a_late_delete_of_one_does_not_meet_the_next() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (lock, _) = redis.careful("redlock");
        redis.fail("SET", CallFault::LoseReply);
        redis.fail("EVALSHA", CallFault::LoseRequest);
        let waiting = start(lock, wait(60_000));
        sleep(100).await;
        let first = redis.value().expect("it was done, and its reply was lost");
        let granted = waiting.await.unwrap().1.unwrap();
        assert_eq!(granted.owner, redis.value());
        assert_ne!(granted.owner, Some(first));
    });
}

#[test]
fn redlock_does_not_know_what_becomes_of_a_set_without_an_answer() {
    in_virtual_time(FakeRedis::new(1), async |redis| {
        let (mut lock, _) = redis.careful("redlock");
        redis.set("another's");
        assert_eq!(lock.acquire(&wait(0)).await, Err(LockError::BUSY));
        redis.fail("SET", CallFault::LoseRequest);
        let answer = lock.acquire(&wait(0)).await;
        assert!(matches!(answer, Err(LockError::Unknown(_))), "{answer:?}");
    });
}
