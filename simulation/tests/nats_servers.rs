//! Simulated NATS servers that are killed, stopped and elected, with their writes, reads and ages afterwards.

use std::rc::Rc;
use std::time::Duration;

use harness_simulation::nats::{NatsRoutes, SimulatedNats};
use harness_simulation::network::SimulatedLink;
use harness_simulation::{SimulatedServers, World};
use harness_workloads::SessionError;
use harness_workloads::nats::NatsSession;

const MS: Duration = Duration::from_millis(1);
/// A lease with which no call is given up soon.
const PATIENT: Duration = Duration::from_secs(60);

/// Returns a session with one server of a cluster.
async fn session(world: World, nats: SimulatedNats, server: usize, lease: Duration) -> Rc<NatsSession> {
    let links = SimulatedLink::of_client(world, server as u32, nats.count());
    let store = NatsRoutes::to(nats, links.clone(), world.process("c0"), lease);
    loop {
        // each time with the next server
        let session = store.connect().await.unwrap();
        if links[server].live() > 0 {
            return session;
        }
    }
}

/// Starts a cluster of three with a bucket; returns the number of its leader, too.
async fn cluster(world: World, age: Duration) -> (SimulatedNats, usize) {
    let nats = SimulatedNats::start(world, 3);
    session(world, nats, 0, PATIENT).await.make_bucket(age).await.unwrap();
    (nats, nats.leader().unwrap())
}

async fn value(session: &NatsSession) -> Option<String> {
    session.read("k").await.unwrap().map(|message| message.value)
}

#[test]
fn a_new_leader_is_elected_in_four_to_nine_seconds_and_has_what_was_acknowledged() {
    for seed in 0..20 {
        World::run(seed, async |world: World| {
            let (nats, leader) = cluster(world, PATIENT).await;
            let other = session(world, nats, (leader + 1) % 3, PATIENT).await;
            let revision = other.put("k", "v", Some(0)).await.unwrap().unwrap();
            nats.kill(leader);
            let killed_at = world.now();
            let unheard = other.put("k", "w", None).await;
            assert!(matches!(unheard, Err(SessionError::Definite(_))), "{unheard:?}");
            while nats.leader().is_none() {
                world.sleep(MS).await;
            }
            let election = world.now() - killed_at;
            assert!(
                (4000..9200).contains(&election.as_millis()),
                "seed {seed}: {election:?}"
            );
            nats.restart(leader, true);
            world.sleep(MS).await;
            assert_eq!(value(&other).await, Some("v".into()));
            assert_eq!(other.put("k", "w", Some(revision)).await, Ok(Some(revision + 1)));
        });
    }
}

#[test]
fn a_leader_without_a_majority_answers_reads_and_no_writes_until_it_gives_up() {
    for seed in 0..10 {
        World::run(seed, async |world: World| {
            let (nats, leader) = cluster(world, PATIENT).await;
            let patient = session(world, nats, leader, PATIENT).await;
            let hasty = session(world, nats, leader, 300 * MS).await;
            patient.put("k", "v", Some(0)).await.unwrap();
            let others = [(leader + 1) % 3, (leader + 2) % 3].map(|server| nats.process(server));
            others.iter().for_each(|process| process.stop());
            let stopped_at = world.now();
            assert!(matches!(
                hasty.put("k", "w", None).await,
                Err(SessionError::Indefinite(_))
            ));
            assert_eq!(value(&patient).await, Some("v".into()));
            while nats.leader().is_some() {
                world.sleep(MS).await;
            }
            let patience = (world.now() - stopped_at).as_secs();
            assert!((10..=20).contains(&patience), "seed {seed}: {patience} s");
            world.sleep(MS).await;
            // a server that knows of no leader says so
            assert!(matches!(patient.read("k").await, Err(SessionError::Definite(_))));
            others.iter().for_each(|process| process.go_on());
            while patient.read("k").await.is_err() {
                world.sleep(MS).await;
            }
            assert!(nats.leader().is_some() && value(&patient).await.is_some());
        });
    }
}

#[test]
fn a_leader_that_was_stopped_may_show_what_it_had_until_it_hears_of_its_successor() {
    let stale = |seed| {
        World::run(seed, async |world: World| {
            let (nats, leader) = cluster(world, PATIENT).await;
            let former = session(world, nats, leader, PATIENT).await;
            let other = session(world, nats, (leader + 1) % 3, PATIENT).await;
            other.put("k", "old", None).await.unwrap();
            nats.process(leader).stop();
            while nats.leader() == Some(leader) {
                world.sleep(MS).await;
            }
            world.sleep(100 * MS).await;
            other.put("k", "new", None).await.unwrap();
            nats.process(leader).go_on();
            // or it knows no leader
            let first = former.read("k").await;
            world.sleep(20 * MS).await;
            assert_eq!(value(&former).await, Some("new".into()), "seed {seed}");
            first.is_ok_and(|first| first.is_some_and(|message| message.value == "old"))
        })
    };
    let count = (0..20).filter(|seed| stale(*seed)).count();
    assert!((1..20).contains(&count), "{count} of 20");
}

#[test]
fn a_message_ends_by_its_age_and_a_server_that_is_alone_keeps_what_is_younger() {
    World::run(1, async |world: World| {
        let nats = SimulatedNats::start(world, 1);
        let first = session(world, nats, 0, PATIENT).await;
        first.make_bucket(2_000 * MS).await.unwrap();
        first.put("k", "v", Some(0)).await.unwrap();
        nats.kill(0);
        assert!(first.read("k").await.is_err() && first.is_broken());
        nats.restart(0, true);
        world.sleep(200 * MS).await;
        let second = session(world, nats, 0, PATIENT).await;
        world.sleep(1_700 * MS).await;
        assert_eq!(value(&second).await, Some("v".into()));
        assert_eq!(second.put("k", "w", Some(0)).await, Ok(None));
        world.sleep(200 * MS).await;
        assert_eq!(value(&second).await, None);
        assert_eq!(second.put("k", "w", Some(0)).await, Ok(Some(2)));
    });
}
