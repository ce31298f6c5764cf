//! Simulated Redis servers that restart, stop, follow each other and have wall clocks of their own.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Behaviour;
use harness_simulation::network::SimulatedLink;
use harness_simulation::redis::model::RedisKeyEvent;
use harness_simulation::redis::{RedisRoutes, SimulatedRedis};
use harness_simulation::{SimulatedProcess, SimulatedServers, World};
use harness_workloads::SessionError;
use harness_workloads::redis::{CompareBy, RedisConnect, RedisSession};

const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(2);

async fn connect(world: World, redis: SimulatedRedis) -> (Rc<dyn RedisSession>, RedisRoutes, SimulatedProcess) {
    let links = SimulatedLink::of_client(world, 0, redis.count());
    let process = world.process("c0");
    let routes = RedisRoutes::new(redis, links, process, LEASE, CompareBy::Script);
    (routes.connect(0).await.unwrap(), routes, process)
}

#[test]
fn a_restart_breaks_connections_and_loses_what_is_not_kept() {
    for keeps in [false, true] {
        World::run(1, async |world: World| {
            let redis = SimulatedRedis::start(world, 1);
            let changes = Rc::new(RefCell::new(Vec::new()));
            let log = changes.clone();
            redis.on_change(move |change| log.borrow_mut().push((change.key.clone(), change.event.clone())));
            let (session, routes, _) = connect(world, redis).await;
            assert_eq!(session.set_nx("k", "v", None).await, Ok(true));
            redis.kill(0);
            assert!(!redis.is_running(0));
            assert!(matches!(session.get("k").await, Err(SessionError::Indefinite(_))));
            assert!(session.is_broken());
            assert!(matches!(routes.connect(0).await.err(), Some(SessionError::Definite(_))));
            redis.restart(0, keeps);
            world.sleep(100 * MS).await;
            let session = routes.connect(0).await.unwrap();
            assert_eq!(session.get("k").await, Ok(keeps.then(|| "v".to_owned())));
            // a script has to be loaded again
            assert_eq!(session.del_if("k", "v").await, Ok(keeps));
            let set = RedisKeyEvent::Set { value: "v".into() };
            let expected = [("k".to_owned(), set), ("k".to_owned(), RedisKeyEvent::Deleted)];
            assert_eq!(*changes.borrow(), expected);
        });
    }
}

#[test]
fn a_replica_that_is_promoted_lacks_what_its_link_held_back() {
    World::run(1, async |world: World| {
        let redis = SimulatedRedis::start(world, 2);
        redis.follow(1, 0);
        world.sleep(100 * MS).await;
        assert_eq!((redis.role(0), redis.role(1)), ("master", "replica"));
        let (session, routes, _) = connect(world, redis).await;
        session.set_nx("early", "v", None).await.unwrap();
        world.sleep(10 * MS).await;
        assert_eq!(redis.offset(0), redis.offset(1), "in step");
        redis.link_between(1, 0).apply(1, Behaviour::STALL);
        session.set_nx("late", "v", None).await.unwrap();
        world.sleep(100 * MS).await;
        assert_eq!((redis.offset(0), redis.offset(1)), (2, 1));
        redis.kill(0);
        redis.promote(1);
        redis.redirect(0, 1);
        let session = routes.connect(0).await.unwrap();
        assert_eq!(session.get("early").await, Ok(Some("v".into())));
        assert_eq!(session.set_nx("late", "w", None).await, Ok(true), "it is granted again");
        // the old master comes back as a replica
        redis.restart(0, true);
        redis.follow(0, 1);
        world.sleep(2000 * MS).await;
        assert_eq!(redis.value(0, "late").as_deref(), Some("w"));
    });
}

#[test]
fn a_write_that_a_server_refuses_as_a_replica_breaks_the_session() {
    World::run(1, async |world: World| {
        let redis = SimulatedRedis::start(world, 2);
        let (session, _, _) = connect(world, redis).await;
        redis.follow(0, 1);
        world.sleep(100 * MS).await;
        assert_eq!(session.get("k").await, Ok(None));
        assert!(!session.is_broken());
        let refused = session.set_nx("k", "v", None).await;
        assert!(matches!(refused, Err(SessionError::Definite(_))), "{refused:?}");
        assert!(session.is_broken());
    });
}

#[test]
fn keys_expire_by_the_wall_clock_of_the_server() {
    World::run(1, async |world: World| {
        let redis = SimulatedRedis::start(world, 1);
        let expired = Rc::new(RefCell::new(Vec::new()));
        let log = expired.clone();
        redis.on_change(move |change| {
            if change.event == RedisKeyEvent::Expired {
                log.borrow_mut().push(world.now());
            }
        });
        let (session, _, _) = connect(world, redis).await;
        let begun = world.now();
        session.set_nx("k", "v", Some(LEASE)).await.unwrap();
        world.sleep(5 * LEASE).await;
        let lived = expired.borrow()[0] - begun;
        // nobody touched it: the cron came by
        assert!(lived > LEASE && lived < LEASE + 101 * MS, "{lived:?}");
        session.set_nx("k", "v", Some(LEASE)).await.unwrap();
        redis.process(0).set_wall_clock_offset(3_000_000_000);
        assert_eq!(session.get("k").await, Ok(None), "the clock was set ahead");
        session.set_nx("k", "v", Some(LEASE)).await.unwrap();
        redis.process(0).set_wall_clock_offset(-3_600_000_000_000);
        world.sleep(10 * LEASE).await;
        assert_eq!(
            session.get("k").await,
            Ok(Some("v".into())),
            "the clock was set back by an hour"
        );
    });
}

#[test]
fn what_a_killed_client_has_sent_happens_and_what_it_would_have_sent_does_not() {
    World::run(1, async |world: World| {
        let redis = SimulatedRedis::start(world, 1);
        let (session, _, process) = connect(world, redis).await;
        let writing = async move {
            for number in 0.. {
                session.set_nx(&format!("k{number}"), "v", None).await.unwrap();
                world.sleep(100 * MS).await;
            }
        };
        process.spawn(writing).detach();
        // the third one is under way
        world.sleep(200 * MS + Duration::from_micros(400)).await;
        process.kill();
        world.sleep(1000 * MS).await;
        assert_eq!(redis.value(0, "k1").as_deref(), Some("v"));
        assert_eq!(redis.value(0, "k3"), None);
    });
}
