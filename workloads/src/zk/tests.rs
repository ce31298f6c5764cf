//! The ZooKeeper recipes against a fake ensemble, in virtual time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::fake::FakeZk;
use super::*;
use crate::client::LockError;
use crate::protocol::{AcquireRequest, FailReason, LockSignalKind};
use crate::recipe::{Policy, RecipeOptions};
use crate::session::zk::ConnectionState;
use crate::testing::{CallFault, LEASE, in_virtual_time, options, sleep, start, wait};

const QUEUE: &str = "zk-predecessor-watch";

#[test]
fn a_sequence_is_the_number_at_the_end() {
    assert_eq!(sequence_of("lock-0000000003"), Some(3));
    assert_eq!(sequence_of("5f2c9a-lock-0000000042"), Some(42));
    assert_eq!(sequence_of("lock--2147483647"), Some(-2147483647));
    assert_eq!(sequence_of("n_0000000007"), Some(7));
    assert_eq!(sequence_of("lock-"), None);
    assert_eq!(sequence_of("lock-3"), None);
    assert_eq!(sequence_of("lock-00000000042"), None);
    assert_eq!(sequence_of("lock-000000004x"), None);
    assert_eq!(sequence_of("0000000042"), Some(42));
    assert_eq!(sequence_of("lock-9999999999"), None);
}

#[test]
fn an_owner_is_named_like_an_ephemeral_owner() {
    assert_eq!(owner_name(0x100_0a1b_2c3d_0001), "0x1000a1b2c3d0001");
    for session in [0, 1, 0xf, 0x10, i64::MAX, -1] {
        assert_eq!(owner_name(session), format!("0x{session:x}"));
    }
}

#[test]
fn order_is_by_sequence_and_never_by_guid() {
    let names = [
        "aaaa-lock-0000000007",
        "ffff-lock-0000000002",
        "lock-0000000005",
        "other",
    ]
    .map(str::to_owned);
    let ahead = queue_lock::ahead_of("aaaa-lock-0000000007", names.to_vec()).unwrap();
    assert_eq!(ahead, ["ffff-lock-0000000002", "lock-0000000005"]);
    assert_eq!(queue_lock::ahead_of("gone-lock-0000000001", names.to_vec()), None);
}

#[test]
fn a_create_whose_reply_was_lost_is_found_by_its_guid() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.careful(QUEUE);
        zk.fail("create", CallFault::LoseReply);
        let grant = lock.acquire(&wait(500)).await.unwrap();
        assert_eq!(grant.token, Some(1), "the one node there is was adopted");
        assert_eq!(zk.contenders().len(), 1);
        lock.release("l").await.unwrap();
        assert!(zk.contenders().is_empty());
    });
}

#[test]
fn a_create_whose_request_was_lost_is_sent_again() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.careful(QUEUE);
        zk.fail("create", CallFault::LoseRequest);
        lock.acquire(&wait(500)).await.unwrap();
        assert_eq!(zk.contenders().len(), 1);
    });
}

#[test]
fn without_a_guid_the_orphan_stays_and_its_client_queues_after_it() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.client_with(RecipeOptions {
            guid: false,
            ..options(QUEUE, Policy::Careful)
        });
        zk.fail("create", CallFault::LoseReply);
        assert!(matches!(lock.acquire(&wait(500)).await, Err(LockError::Unknown(_))));
        assert_eq!(lock.acquire(&wait(500)).await, Err(LockError::TIMEOUT));
        assert_eq!(
            zk.contenders(),
            ["/harness/l/lock-0000000000"],
            "the orphan has the lock, and no client holds it"
        );
    });
}

#[test]
fn a_predecessor_that_is_gone_already_means_to_list_again() {
    in_virtual_time(FakeZk::default(), async |zk| {
        zk.add("/harness/l/lock-0000000000", 99);
        let (mut lock, signals) = zk.careful(QUEUE);
        assert_eq!(lock.acquire(&wait(0)).await, Err(LockError::BUSY));
        zk.first("exists", |zk| assert!(zk.remove("/harness/l/lock-0000000000")));
        lock.acquire(&wait(500)).await.unwrap();
        assert!(signals.woken().is_empty(), "nothing was waited for");
    });
}

#[test]
fn a_predecessor_that_died_waiting_wakes_and_does_not_give_the_lock() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut holder, _) = zk.holder(QUEUE).await;
        let dying = start(zk.careful(QUEUE).0, wait(60_000));
        sleep(10).await;
        let (third, signals) = zk.careful(QUEUE);
        let third = start(third, wait(5_000));
        sleep(10).await;
        zk.expire(2);
        sleep(10).await;
        assert_eq!(signals.woken().len(), 1);
        assert!(!third.is_finished(), "it was woken, and waits on");
        assert!(dying.await.unwrap().1.is_err());
        holder.release("l").await.unwrap();
        assert!(third.await.unwrap().1.is_ok());
        assert_eq!(signals.woken().len(), 2);
    });
}

#[test]
fn one_release_wakes_one_waiter_of_a_predecessor_watch_and_all_of_a_parent_watch() {
    for (recipe, woken) in [
        (QUEUE, 1),
        ("zk-parent-watch", 5),
        ("zk-single-node", 5),
        ("zk-polling", 0),
    ] {
        in_virtual_time(FakeZk::default(), async |zk| {
            let (mut holder, _) = zk.holder(recipe).await;
            let logs = zk.waiters(recipe, 5).await;
            let count = || logs.iter().map(|signals| signals.woken().len()).sum::<usize>();
            let before = count();
            holder.release("l").await.unwrap();
            sleep(100).await;
            assert_eq!(count() - before, woken, "{recipe}");
        });
    }
}

#[test]
fn a_careful_client_raises_lost_on_a_disconnection_and_a_naive_one_does_not() {
    for (policy, told) in [
        (Policy::Careful, vec!["Disconnected".to_owned()]),
        (Policy::Naive, vec![]),
    ] {
        in_virtual_time(FakeZk::default(), async |zk| {
            let (_lock, signals) = zk.holder_of(QUEUE, policy).await;
            zk.set_connection(1, ConnectionState::Disconnected);
            sleep(1).await;
            assert_eq!(signals.lost(), told, "{policy}");
        });
    }
}

#[test]
fn a_disconnection_that_is_over_before_the_client_looks_raises_lost_as_well() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, signals) = zk.holder(QUEUE).await;
        zk.set_connection(1, ConnectionState::Disconnected);
        zk.set_connection(1, ConnectionState::Connected);
        sleep(1).await;
        assert_eq!(signals.lost(), ["Disconnected"]);
        // the node is there still: it is no hold any more, and must not be in the way
        lock.acquire(&wait(500)).await.unwrap();
        assert_eq!(zk.contenders().len(), 1);
    });
}

#[test]
fn a_careful_holder_without_proof_of_life_stops_before_the_session_can_end() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (_lock, signals) = zk.holder(QUEUE).await;
        let held = zk.now();
        zk.fail("exists", CallFault::Silence);
        sleep(10_000).await;
        let lost = signals.of(LockSignalKind::Lost);
        assert_eq!(lost.len(), 1);
        assert!(lost[0].1.starts_with("no proof of life"), "{}", lost[0].1);
        let after = lost[0].0 - held;
        assert!(after < LEASE * 7 / 10 && after > LEASE / 2, "{after:?}");
    });
}

#[test]
fn an_idle_hold_lasts_as_long_as_the_session_is_proven_alive() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, signals) = zk.holder(QUEUE).await;
        sleep(60_000).await;
        assert!(signals.lost().is_empty());
        lock.release("l").await.unwrap();
        sleep(60_000).await;
        assert!(signals.lost().is_empty(), "nothing is lost after a release");
    });
}

#[test]
fn a_grant_that_came_with_a_disconnection_is_looked_at_again() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, signals) = zk.careful(QUEUE);
        zk.first("list", |zk| {
            zk.set_connection(1, ConnectionState::Disconnected);
            zk.set_connection(1, ConnectionState::Connected);
        });
        lock.acquire(&wait(500)).await.unwrap();
        sleep(100).await;
        assert!(signals.lost().is_empty(), "the break was before the grant, not in it");
    });
}

#[test]
fn a_delete_whose_reply_was_lost_is_a_release() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.holder(QUEUE).await;
        zk.fail("delete", CallFault::LoseReply);
        assert_eq!(lock.release("l").await, Ok(()));
    });
}

/// A careful client's session ends, since a client that rests would keep the node by it.
#[test]
fn a_node_that_could_not_be_deleted_goes_with_the_session_or_before_the_next_acquire() {
    for (policy, left) in [(Policy::Careful, 0), (Policy::Naive, 1)] {
        in_virtual_time(FakeZk::default(), async |zk| {
            let (mut lock, _) = zk.holder_of(QUEUE, policy).await;
            zk.fail("delete", CallFault::LoseRequest);
            zk.first("exists", |zk| zk.set_connection(1, ConnectionState::Disconnected));
            for call in ["delete", "exists", "sync"] {
                zk.fail_times(200, call, &CallFault::LoseRequest);
            }
            assert!(matches!(lock.release("l").await, Err(LockError::Unknown(_))));
            zk.mend();
            sleep(10_000).await;
            assert_eq!(zk.contenders().len(), left, "{policy:?}");
            lock.acquire(&wait(0)).await.unwrap();
            assert_eq!(zk.contenders().len(), 1, "{policy:?}: only the new one");
        });
    }
}

#[test]
fn a_holder_whose_session_expired_does_not_release_and_comes_back_with_a_new_one() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, signals) = zk.holder(QUEUE).await;
        zk.expire(1);
        assert!(matches!(
            lock.release("l").await,
            Err(LockError::Refused(FailReason::NotHeld(_)))
        ));
        let grant = lock.acquire(&wait(0)).await.unwrap();
        assert_eq!(grant.owner.as_deref(), Some("0x2"));
        assert!(signals.lost().len() <= 1);
    });
}

#[test]
fn a_session_that_is_over_before_its_connection_says_so_is_replaced() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.careful(QUEUE);
        lock.open().await.unwrap();
        zk.fail("create", CallFault::Over);
        assert!(lock.acquire(&wait(0)).await.is_err());
        assert_eq!(lock.acquire(&wait(0)).await.unwrap().owner.as_deref(), Some("0x2"));
    });
}

#[test]
fn a_waiter_that_gives_up_leaves_no_node() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (_holder, _) = zk.holder(QUEUE).await;
        let (mut waiter, _) = zk.careful(QUEUE);
        let called = zk.now();
        assert_eq!(waiter.acquire(&wait(300)).await, Err(LockError::TIMEOUT));
        assert!(zk.now() - called < Duration::from_millis(310));
        assert_eq!(zk.contenders().len(), 1);
    });
}

#[test]
fn readers_hold_together_and_a_writer_waits_for_all_of_them() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let mode = |mode: &str, ms| AcquireRequest {
            mode: Some(mode.into()),
            ..wait(ms)
        };
        let (mut one, _) = zk.careful("zk-read-write");
        let (mut two, _) = zk.careful("zk-read-write");
        one.acquire(&mode("read", 0)).await.unwrap();
        two.acquire(&mode("read", 0)).await.unwrap();
        let writer = start(zk.careful("zk-read-write").0, mode("write", 5_000));
        sleep(10).await;
        let (mut late, _) = zk.careful("zk-read-write");
        assert_eq!(
            late.acquire(&mode("read", 0)).await,
            Err(LockError::BUSY),
            "a writer is ahead"
        );
        one.release("l").await.unwrap();
        sleep(10).await;
        assert!(!writer.is_finished());
        two.release("l").await.unwrap();
        assert!(writer.await.unwrap().1.is_ok());
    });
}

#[test]
fn a_single_node_of_ones_own_is_adopted_after_a_lost_reply() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.careful("zk-single-node");
        zk.fail("create", CallFault::LoseReply);
        lock.acquire(&wait(500)).await.unwrap();
        assert_eq!(zk.contenders(), ["/harness/l/lock"]);
    });
}

#[test]
fn a_repeated_release_of_a_single_node_spares_the_successors() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.holder("zk-single-node").await;
        zk.fail("delete", CallFault::LoseReply);
        zk.first("exists", |zk| drop(zk.add("/harness/l/lock", 99)));
        assert_eq!(lock.release("l").await, Ok(()));
        assert_eq!(zk.contenders(), ["/harness/l/lock"], "the successor's");
    });
}

#[test]
fn a_reentrant_lock_is_released_with_its_last_count() {
    in_virtual_time(FakeZk::default(), async |zk| {
        let (mut lock, _) = zk.client_with(RecipeOptions {
            reentrant: true,
            ..options(QUEUE, Policy::Careful)
        });
        let first = lock.acquire(&wait(0)).await.unwrap();
        assert_eq!(lock.acquire(&wait(0)).await.unwrap(), first);
        lock.release("l").await.unwrap();
        assert_eq!(zk.contenders().len(), 1);
        lock.release("l").await.unwrap();
        assert!(zk.contenders().is_empty());
        assert_eq!(lock.release("l").await, Err(LockError::NOT_HELD));
    });
}

/// The server of a new connection may not have applied the leader's changes of the old one.
#[test]
fn a_careful_client_looks_at_what_an_unanswered_call_has_done_after_a_sync_and_a_naive_one_at_once() {
    for (policy, syncs) in [(Policy::Careful, true), (Policy::Naive, false)] {
        for (recipe, unanswered) in [(QUEUE, "create"), (QUEUE, "delete"), ("zk-single-node", "delete")] {
            in_virtual_time(FakeZk::default(), async |zk| {
                let (mut lock, _) = zk.client_of(recipe, policy);
                let asked = Rc::new(Cell::new(false));
                let noted = asked.clone();
                zk.first("sync", move |_| noted.set(true));
                zk.fail(unanswered, CallFault::LoseReply);
                lock.acquire(&wait(500)).await.unwrap();
                lock.release("l").await.unwrap();
                assert_eq!(asked.get(), syncs, "{recipe} {unanswered} {policy:?}");
            });
        }
    }
}
