//! The etcd recipes against a fake cluster, in virtual time.

use super::fake::FakeEtcd;
use super::*;
use crate::backend_id::BackendId;
use crate::client::LockError;
use crate::recipe::Policy;
use crate::testing::{
    CallFault, LEASE, all_exclude_and_hand_over, in_virtual_time, only_careful_holders_doubt, sleep, start, wait,
};

#[test]
fn a_prefix_ends_before_its_successor() {
    assert_eq!(prefix_end("harness/l0/"), b"harness/l00");
}

#[test]
fn every_recipe_excludes_and_hands_over() {
    all_exclude_and_hand_over(FakeEtcd::new, &[BackendId::Etcd]);
}

#[test]
fn a_lost_create_finds_its_own_key() {
    in_virtual_time(FakeEtcd::new(), async |etcd| {
        let (mut lock, _) = etcd.careful("etcd-mutex");
        etcd.fail("create", CallFault::LoseReply);
        lock.acquire(&wait(500)).await.unwrap();
        assert_eq!(etcd.keys().len(), 1);
    });
}

#[test]
fn a_careful_client_takes_a_new_lease_after_a_call_without_an_answer() {
    for (policy, is_new) in [(Policy::Careful, true), (Policy::Naive, false)] {
        for recipe in BackendId::Etcd.recipes() {
            in_virtual_time(FakeEtcd::new(), async |etcd| {
                let (mut lock, _) = etcd.client_of(recipe.name, policy);
                let first = lock.acquire(&wait(500)).await.unwrap();
                for call in ["delete", "unlock", "resign"] {
                    etcd.fail(call, CallFault::LoseReply);
                }
                lock.release("l").await.unwrap();
                etcd.mend();
                let second = lock.acquire(&wait(500)).await.unwrap();
                assert_eq!(first.owner != second.owner, is_new, "{} {policy:?}", recipe.name);
                sleep(10).await;
                assert_eq!(etcd.leases(), 1, "{} {policy:?}: an old one is revoked", recipe.name);
                lock.release("l").await.unwrap();
                let third = lock.acquire(&wait(500)).await.unwrap();
                assert_eq!(second.owner, third.owner, "{} {policy:?}", recipe.name);
            });
        }
    }
}

#[test]
fn what_a_release_that_was_surely_not_done_leaves_is_not_granted_again() {
    for recipe in BackendId::Etcd.recipes() {
        in_virtual_time(FakeEtcd::new(), async |etcd| {
            let (mut lock, _) = etcd.careful(recipe.name);
            let first = lock.acquire(&wait(500)).await.unwrap();
            for call in ["delete", "unlock", "resign"] {
                etcd.fail(call, CallFault::Refuse);
            }
            assert!(
                matches!(lock.release("l").await, Err(LockError::Refused(_))),
                "{}",
                recipe.name
            );
            assert_eq!(etcd.keys().len(), 1, "{}: it is there still", recipe.name);
            etcd.mend();
            let second = lock.acquire(&wait(500)).await.unwrap();
            assert!(first.token < second.token, "{}: {first:?} {second:?}", recipe.name);
            assert_eq!(etcd.keys().len(), 1, "{}", recipe.name);
        });
    }
}

/// The first create is done late: the client may not answer that it has no key on the server because the second was refused.
#[test]
fn a_create_without_an_answer_stays_unknown_when_the_next_is_refused() {
    for recipe in ["etcd-mutex", "etcd-queue"] {
        in_virtual_time(FakeEtcd::new(), async |etcd| {
            let (mut lock, _) = etcd.careful(recipe);
            etcd.fail("create", CallFault::LoseReply);
            etcd.fail("create", CallFault::Refuse);
            let answer = lock.acquire(&wait(500)).await;
            assert!(matches!(answer, Err(LockError::Unknown(_))), "{recipe}: {answer:?}");
            lock.acquire(&wait(500)).await.unwrap();
            assert_eq!(etcd.keys().len(), 1, "{recipe}: the key of the unknown acquire is gone");
        });
    }
}

/// A create that was sent twice may be done once more after the key was deleted.
#[test]
fn a_client_that_gives_up_after_a_call_without_an_answer_ends_its_lease() {
    in_virtual_time(FakeEtcd::new(), async |etcd| {
        let (_holder, _) = etcd.holder("etcd-mutex").await;
        let (mut waiter, _) = etcd.careful("etcd-mutex");
        etcd.fail("create", CallFault::LoseReply);
        assert_eq!(waiter.acquire(&wait(300)).await, Err(LockError::TIMEOUT));
        assert_eq!(
            (etcd.leases(), etcd.keys().len()),
            (1, 1),
            "what is left is the holder's"
        );
        etcd.fail("create", CallFault::LoseReply);
        etcd.fail("revoke", CallFault::LoseRequest);
        etcd.fail("revoke", CallFault::Refuse);
        let answer = waiter.acquire(&wait(300)).await;
        assert!(matches!(answer, Err(LockError::Unknown(_))), "{answer:?}");
    });
}

#[test]
fn a_waiter_whose_key_went_with_its_lease_is_refused_by_the_mutex_and_granted_by_an_old_server() {
    for (recipe, granted) in [("etcd-mutex", false), ("etcd-lock-rpc", true)] {
        in_virtual_time(FakeEtcd::new(), async |etcd| {
            let (mut holder, _) = etcd.holder(recipe).await;
            let held = etcd.keys();
            let waiting = start(etcd.careful(recipe).0, wait(60_000));
            sleep(100).await;
            let own = etcd.keys().into_iter().find(|key| !held.contains(key)).unwrap();
            etcd.remove(&own);
            holder.release("l").await.unwrap();
            let outcome = waiting.await.unwrap().1;
            assert_eq!(outcome.is_ok(), granted, "{recipe}: {outcome:?}");
            assert!(
                outcome.is_err() || outcome.unwrap().token.is_none(),
                "a phantom has no token"
            );
        });
    }
}

#[test]
fn a_careful_holder_that_cannot_renew_stops_before_the_lease_is_over_and_a_naive_one_does_not() {
    only_careful_holders_doubt(
        FakeEtcd::new,
        "etcd-mutex",
        "lease ran out",
        |etcd, is_cut| match is_cut {
            true => etcd.fail_times(100, "keep-alive", &CallFault::Silence),
            false => etcd.mend(),
        },
    );
}

#[test]
fn a_careful_client_raises_lost_when_the_server_ends_its_lease() {
    in_virtual_time(FakeEtcd::new(), async |etcd| {
        let (mut lock, signals) = etcd.careful("etcd-mutex");
        let owner = lock.acquire(&wait(0)).await.unwrap().owner.unwrap();
        etcd.end_lease(i64::from_str_radix(owner.trim_start_matches("0x"), 16).unwrap());
        sleep(1_000).await;
        assert_eq!(signals.lost().len(), 1);
        assert!(matches!(lock.release("l").await, Err(LockError::Refused(_))));
        lock.acquire(&wait(0)).await.unwrap();
    });
}

#[test]
fn a_delete_that_stays_unknown_is_repeated_before_the_next_acquire() {
    in_virtual_time(FakeEtcd::new(), async |etcd| {
        let (mut lock, _) = etcd.holder("etcd-mutex").await;
        etcd.fail_times(100, "delete", &CallFault::LoseRequest);
        assert!(matches!(lock.release("l").await, Err(LockError::Unknown(_))));
        assert_eq!(etcd.keys().len(), 1);
        while lock.acquire(&wait(0)).await.is_err() {}
        assert_eq!(etcd.keys().len(), 1);
        lock.release("l").await.unwrap();
        assert!(etcd.keys().is_empty());
    });
}

#[test]
fn a_key_that_a_release_left_ends_with_its_lease_while_its_client_rests() {
    for (policy, ends) in [(Policy::Careful, true), (Policy::Naive, false)] {
        for fault in [CallFault::LoseRequest, CallFault::Refuse] {
            in_virtual_time(FakeEtcd::new(), async |etcd| {
                let (mut lock, _) = etcd.holder_of("etcd-mutex", policy).await;
                etcd.fail_times(100, "delete", &fault);
                etcd.fail("revoke", CallFault::LoseRequest);
                assert!(lock.release("l").await.is_err());
                sleep(10).await;
                etcd.mend();
                sleep(10_000).await;
                let (mut other, _) = etcd.careful("etcd-mutex");
                assert_eq!(other.acquire(&wait(0)).await.is_ok(), ends, "{policy:?}");
            });
        }
    }
}

#[test]
fn one_release_wakes_one_waiter_of_a_mutex_and_one_a_process_of_a_queue() {
    for (recipe, foreign) in [("etcd-mutex", "harness/l/foreign"), ("etcd-queue", "harness/l/lock")] {
        in_virtual_time(FakeEtcd::new(), async |etcd| {
            // the holder queues elsewhere: its process is not that of the waiters
            etcd.grant_lease(LEASE * 100).await.unwrap();
            etcd.create(foreign, "", 0xa0).await.unwrap();
            let logs = etcd.waiters(recipe, 5).await;
            etcd.remove(foreign);
            sleep(100).await;
            let woken: usize = logs.iter().map(|signals| signals.woken().len()).sum();
            assert_eq!(woken, 1, "{recipe}");
        });
    }
}

#[test]
fn a_queue_does_not_delete_the_key_of_its_successor() {
    in_virtual_time(FakeEtcd::new(), async |etcd| {
        let (mut lock, _) = etcd.holder_of("etcd-queue", Policy::Naive).await;
        etcd.remove("harness/l/lock");
        let successor = etcd.grant_lease(LEASE * 10).await.unwrap();
        etcd.create("harness/l/lock", "", successor.id).await.unwrap();
        assert!(matches!(lock.release("l").await, Err(LockError::Refused(_))));
        assert_eq!(etcd.keys(), ["harness/l/lock"]);
    });
}

#[test]
fn a_hold_of_the_queue_ends_by_itself_when_it_lasts_too_long() {
    in_virtual_time(FakeEtcd::new(), async |etcd| {
        let (_lock, signals) = etcd.holder("etcd-queue").await;
        sleep(100_000).await;
        assert_eq!(signals.lost()[0], "held too long");
        assert!(etcd.keys().is_empty());
    });
}

#[test]
fn a_key_that_an_unknown_release_left_is_deleted_before_its_client_queues_in_the_process() {
    in_virtual_time(FakeEtcd::new(), async |etcd| {
        let (mut first, _) = etcd.holder("etcd-queue").await;
        etcd.fail_times(100, "delete", &CallFault::LoseRequest);
        assert!(matches!(first.release("l").await, Err(LockError::Unknown(_))));
        etcd.mend();
        // another client of the process is at the head of the line, and the key does not belong to it
        let (second, _) = etcd.careful("etcd-queue");
        let second = start(second, wait(60_000));
        sleep(100).await;
        assert_eq!(etcd.keys().len(), 1);
        drop(start(first, wait(60_000)));
        sleep(100).await;
        assert!(second.is_finished(), "it waits for its neighbour, which waits for it");
    });
}

#[test]
fn an_answer_that_was_longer_on_its_way_than_the_lease_is_believed_by_a_naive_client_alone() {
    for (policy, is_its_own) in [(Policy::Careful, true), (Policy::Naive, false)] {
        in_virtual_time(FakeEtcd::new(), async |etcd| {
            etcd.grant_lease(LEASE * 100).await.unwrap();
            etcd.create("harness/l/foreign", "", 0xa0).await.unwrap();
            let waiting = start(etcd.client_of("etcd-lock-rpc", policy).0, wait(60_000));
            sleep(100).await;
            etcd.fail_times(100, "keep-alive", &CallFault::Silence);
            sleep(3 * LEASE.as_millis() as u64).await;
            // its key went with the lease, if not before
            for key in etcd.keys() {
                etcd.remove(&key);
            }
            let grant = waiting.await.unwrap().1.unwrap();
            assert_eq!(grant.token.is_some(), is_its_own, "{policy}: a phantom has no token");
        });
    }
}
