//! Simulated etcd members that are killed, stopped and elected, with their leases, reads, watches and lock service afterwards.

use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Behaviour;
use harness_simulation::etcd::SimulatedEtcd;
use harness_simulation::network::SimulatedLink;
use harness_simulation::{SimulatedServers, World};
use harness_workloads::SessionError;
use harness_workloads::etcd::EtcdSession;

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(2);

/// A client whose first link leads to this member, and its links; no call of it is given up soon.
struct TestedClient {
    session: Rc<dyn EtcdSession>,
    links: Vec<SimulatedLink>,
}

fn client(world: World, etcd: SimulatedEtcd, number: u32, lease: Duration) -> TestedClient {
    let links = SimulatedLink::of_client(world, number, etcd.count());
    let process = world.process(&format!("c{number}"));
    TestedClient {
        session: Rc::new(etcd.session(links.clone(), process, lease)),
        links,
    }
}

/// Waits for the end of the key; returns its time, in whole milliseconds since the beginning.
async fn end_of(world: World, etcd: SimulatedEtcd, session: &dyn EtcdSession, key: &str) -> u128 {
    let mut watch = session.watch(key, etcd.revision() + 1).await.unwrap();
    while !watch.next().await.unwrap().contains(&true) {}
    world.now().as_millis()
}

#[test]
fn a_new_leader_is_elected_in_one_to_two_seconds_and_gives_every_lease_its_time_again() {
    for seed in 0..20 {
        World::run(seed, async |world: World| {
            let etcd = SimulatedEtcd::start(world, 3);
            let TestedClient { session, links } = client(world, etcd, 0, 30 * LEASE);
            // it talks to a member that stays
            links[0].apply(1, Behaviour::STALL);
            let lease = session.grant_lease(LEASE).await.unwrap();
            assert_eq!(lease.ttl, LEASE);
            session.create("k", "", lease.id).await.unwrap();
            let killed_at = world.now();
            etcd.kill(0);
            while etcd.leader().is_none() {
                world.sleep(MS).await;
            }
            let election = world.now() - killed_at;
            assert!(
                (1000..2100).contains(&election.as_millis()),
                "seed {seed}: {election:?}"
            );
            let elected_at = world.now().as_millis();
            let gone_at = end_of(world, etcd, &*session, "k").await;
            // its time, an election timeout, and a look every half second
            let after = gone_at - elected_at;
            assert!((3000..3600).contains(&after), "seed {seed}: {after} ms");
        });
    }
}

#[test]
fn a_read_sees_what_was_written_through_another_member_before_it() {
    World::run(1, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 3);
        let (one, other) = (client(world, etcd, 0, LEASE), client(world, etcd, 1, LEASE));
        // the second client is on another member
        other.links[0].apply(1, Behaviour::STALL);
        let _ = other.session.get("k").await;
        for _ in 0..200 {
            one.session.create("k", "", 0).await.unwrap();
            assert!(other.session.get("k").await.unwrap().is_some());
            other.session.delete("k").await.unwrap();
            assert!(one.session.get("k").await.unwrap().is_none());
        }
    });
}

#[test]
fn without_a_majority_nothing_is_written_and_what_was_asked_for_happens_when_it_is_back() {
    World::run(1, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 3);
        let patient = client(world, etcd, 1, 30 * LEASE);
        let TestedClient { session, links } = client(world, etcd, 0, LEASE);
        links[1..].iter().for_each(|link| link.apply(1, Behaviour::STALL));
        let mut watch = patient.session.watch("k", 0).await.unwrap();
        etcd.process(1).stop();
        etcd.process(2).stop();
        let created = session.create("k", "", 0).await;
        assert!(matches!(created, Err(SessionError::Indefinite(_))), "{created:?}");
        // the leader steps down, and later ends what needs one
        let ended = world.now();
        assert!(matches!(watch.next().await, Err(SessionError::Lost(_))));
        assert!(world.now() - ended < Duration::from_secs(7));
        assert_eq!(etcd.believed_leader(0), None);
        for member in [1, 2] {
            etcd.process(member).go_on();
        }
        world.sleep(Duration::from_secs(3)).await;
        links[1..].iter().for_each(|link| link.heal(1));
        let found = loop {
            if let Ok(found) = session.get("k").await {
                break found;
            }
        };
        assert!(found.is_some(), "the leader had it in its log");
    });
}

#[test]
fn a_renewal_through_a_member_that_does_not_lead_reaches_the_leader_that_comes() {
    World::run(1, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 3);
        let TestedClient { session, links } = client(world, etcd, 0, 30 * LEASE);
        links[0].apply(1, Behaviour::STALL);
        let lease = session.grant_lease(10 * LEASE).await.unwrap();
        assert_eq!(session.keep_alive(lease.id).await, Ok(Some(10 * LEASE)));
        etcd.kill(0);
        let asked = world.now();
        assert_eq!(session.keep_alive(lease.id).await, Ok(Some(10 * LEASE)));
        assert!(world.now() - asked > Duration::from_millis(900));
        assert_eq!(session.keep_alive(lease.id + 1).await, Ok(None));
    });
}

#[test]
fn the_lock_service_of_3_4_answers_a_waiter_whose_lease_has_ended() {
    World::run(1, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 1);
        let holder = client(world, etcd, 0, 30 * LEASE).session;
        let waiter = client(world, etcd, 1, 30 * LEASE).session;
        let lease = holder.grant_lease(30 * LEASE).await.unwrap();
        let held = holder.lock("l", lease.id, LEASE).await.unwrap();
        // nobody renews it
        let short = waiter.grant_lease(LEASE).await.unwrap();
        let releasing = async move {
            world.sleep(2 * LEASE).await;
            holder.unlock(&held).await.unwrap();
        };
        world.spawn(releasing).detach();
        waiter.lock("l", short.id, 10 * LEASE).await.unwrap();
    });
}

/// A client on a stopped member goes to another one, with the same lease and so the same key: when the first member goes on, it hears
/// that the client is gone, and deletes the key.
#[test]
fn the_lock_service_of_a_member_that_was_stopped_deletes_the_key_of_the_next_call() {
    World::run(1, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 3);
        let holder = client(world, etcd, 0, 30 * LEASE);
        let waiter = client(world, etcd, 1, LEASE);
        let lease = holder.session.grant_lease(30 * LEASE).await.unwrap();
        let held = holder.session.lock("l", lease.id, LEASE).await.unwrap();
        // the waiter is on the second member
        waiter.links[0].apply(1, Behaviour::STALL);
        let _ = waiter.session.get("k").await;
        let own = waiter.session.grant_lease(30 * LEASE).await.unwrap();
        let stopping = async move {
            world.sleep(20 * MS).await;
            etcd.process(1).stop();
        };
        world.spawn(stopping).detach();
        let given_up = waiter.session.lock("l", own.id, 100 * MS).await;
        assert!(matches!(given_up, Err(SessionError::Indefinite(_))), "{given_up:?}");
        holder.session.unlock(&held).await.unwrap();
        let key = waiter.session.lock("l", own.id, LEASE).await.unwrap();
        assert!(holder.session.get(&key).await.unwrap().is_some(), "it holds the lock");
        etcd.process(1).go_on();
        world.sleep(100 * MS).await;
        assert!(
            holder.session.get(&key).await.unwrap().is_none(),
            "and it does not any more"
        );
    });
}
