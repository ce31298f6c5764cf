//! Simulated ZooKeeper, as a client sees it whose connection broke: the entries that its next server has applied, and `sync`.

use std::rc::Rc;
use std::time::Duration;

use harness_simulation::network::{LinkLatency, SimulatedLink};
use harness_simulation::zk::{SimulatedZk, ZkRoutes};
use harness_simulation::{SimulatedServers, World};
use harness_workloads::SessionError;
use harness_workloads::zk::{ConnectionState, ZkConnect, ZkSession};

const LEASE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);
/// Longer than a client waits for a server, and shorter than a session.
const PAUSE: Duration = Duration::from_millis(1000);

async fn session(world: World, zk: SimulatedZk) -> Rc<dyn ZkSession> {
    // it is nearer to each server than they are to each other
    let latency = LinkLatency {
        least: Duration::from_micros(5),
        most: Duration::from_micros(10),
    };
    let link = |server: usize| SimulatedLink::new(world, &format!("c0->n{server}"), 0, latency);
    let links = (1..=zk.count()).map(link).collect();
    let routes = ZkRoutes::new(zk, links, world.process("c0"), LEASE);
    routes.connect().await.expect("the servers take sessions")
}

/// Deletes a node while the leader stands still, and looks for it on the next connection, after a `sync` or without one. Returns whether it
/// seems to be there and is gone a moment later, though nobody deletes it again. (A delete that the leader reads after the session has gone
/// to another server is refused, and the node stays.)
fn seems_to_be_there(seed: u64, syncs: bool) -> bool {
    World::run(seed, async |world: World| {
        let zk = SimulatedZk::start(world, 3, TICK);
        let session = session(world, zk).await;
        session.create("/locks/l0").await.unwrap().unwrap();
        zk.process(0).stop();
        let going_on = async move {
            world.sleep(PAUSE).await;
            zk.process(0).go_on();
        };
        world.spawn(going_on).detach();
        let deleted = session.delete("/locks/l0").await;
        assert!(matches!(deleted, Err(SessionError::Indefinite(_))), "{deleted:?}");
        let mut connection = session.connection();
        let connected = connection.wait_for(|status| status.state == ConnectionState::Connected);
        connected.await.unwrap();
        if syncs {
            session.sync("/locks/l0").await.unwrap();
        }
        let found = session.exists("/locks/l0").await.unwrap();
        world.sleep(PAUSE).await;
        let later = session.exists("/locks/l0").await.unwrap();
        found.is_some() && later.is_none()
    })
}

#[test]
fn the_server_of_a_new_connection_may_not_have_applied_what_was_asked_for_on_the_old_one() {
    let stale = (0..50).filter(|seed| seems_to_be_there(*seed, false)).count();
    assert!((1..50).contains(&stale), "{stale} of 50");
}

#[test]
fn a_sync_waits_for_what_the_leader_did_of_an_older_connection() {
    assert!((0..50).all(|seed| !seems_to_be_there(seed, true)));
}
