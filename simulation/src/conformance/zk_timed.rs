//! Timed scripts for ZooKeeper: the states of a session's connection with their times, and the end of its node as another session sees it,
//! while its link is stalled and reset and the server paused.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::zk::{ConnectionState, WatchEvent, ZkConnect, ZkServers, ZkSession};

use super::servers::{open_request, zookeeper};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TimedLines, TimedTranscript, assert_same_times, plain};
use crate::World;
use crate::network::SimulatedLink;
use crate::servers::SimulatedServers;
use crate::zk::{SimulatedZk, ZkRoutes};

const LEASE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);
/// One ping (three twentieths of the session), and what the busy machine may add.
const TOLERANCE: Duration = Duration::from_millis(300 + 150);

const MUTANTS: [&str; 3] = [
    "zk: sessions live twice as long",
    "zk: a client believes without an end",
    "zk: a client does not ping",
];

/// `exists` asks for the own node and waits for the answer.
const TIMED: [&str; 10] = [
    // nothing happens: the session is kept alive by pings alone
    "sleep 5000, exists",
    // as long as the session's time, and longer
    "exists, stall, sleep 4500, heal, sleep 1000, exists",
    // given up by the client without any word of the server
    "exists, stall, sleep 5500",
    // shorter than the time for a server: nothing breaks
    "exists, stall, sleep 300, heal, sleep 1000, exists",
    // a break, and the session goes on
    "exists, stall, sleep 1000, heal, sleep 2000, exists",
    // a call while the link is stalled
    "stall, exists, sleep 200, heal, sleep 1500, exists",
    // a reset is seen at once, and the session goes on at once
    "exists, reset, sleep 500, exists",
    "exists, reset, sleep 300, reset, sleep 300, reset, sleep 500, exists",
    // a reset in a stall: nobody answers the connect
    "exists, stall, sleep 100, reset, sleep 900, heal, sleep 2500, exists",
    // a paused server
    "exists, pause, sleep 500, go-on, sleep 1500, exists",
];

/// Runs a script with a node of its session, which another session watches.
async fn perform(
    stage: &dyn Stage,
    under_test: Rc<dyn ZkConnect>,
    other: Rc<dyn ZkConnect>,
    script: &str,
) -> TimedLines {
    let host = stage.host();
    let session = under_test.connect().await.unwrap();
    let watcher = other.connect().await.unwrap();
    let node = session.create("/timed/node").await.unwrap().unwrap();
    // let the first moments of the session be over
    host.sleep(Duration::from_millis(50)).await;
    let told = TimedTranscript::begin(host);
    follow_state(&told, session.clone());
    follow_node(&told, watcher, node.path.clone());
    told.play(stage, script, async |word, _| {
        assert_eq!(word, "exists");
        let found = session.exists(&node.path).await;
        Some(plain(found.map(|found| found.is_some())))
    })
    .await;
    told.end()
}

fn follow_state(told: &TimedTranscript, session: Rc<dyn ZkSession>) {
    let own = told.clone();
    told.beside(async move {
        let mut status = session.connection();
        let mut number = 0;
        loop {
            let seen = status.borrow_and_update().state;
            if seen != ConnectionState::Connected || number > 0 {
                own.say(format!("state {number}: {seen:?}"));
            }
            number += 1;
            // an announcement without a change of state is none here
            let changed = status.wait_for(|status| status.state != seen).await.is_ok();
            if !changed || seen == ConnectionState::Expired {
                return;
            }
        }
    });
}

fn follow_node(told: &TimedTranscript, watcher: Rc<dyn ZkSession>, path: String) {
    let own = told.clone();
    told.beside(async move {
        let (_, watch) = watcher.watch_exists(&path).await.unwrap();
        if let WatchEvent::Fired { kind, .. } = watch.await {
            own.say(format!("others see {kind}"));
        }
    });
}

fn on_the_model(script: &str) -> TimedLines {
    World::run(1, async |world: World| {
        let zk = SimulatedZk::start(world, 1, TICK);
        let stage = ModelStage::new(world, zk.process(0));
        // the other client's, on which there is no fault
        let aside = SimulatedLink::of_client(world, 1, 1);
        let routes = |links| Rc::new(ZkRoutes::new(zk, links, stage.client, LEASE));
        perform(&stage, routes(vec![stage.link]), routes(aside), script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &str) -> Option<TimedLines> {
    let stage = RealStage::new(proxy, zookeeper(TICK).await?);
    let at = |server: SocketAddr| {
        let open = open_request("zk", &[server], LEASE);
        Rc::new(ZkServers::new(&open, None, stage.host()))
    };
    let (under_test, other) = (at(stage.link.listen()), at(stage.server.address));
    Some(perform(&stage, under_test, other, script).await)
}

#[test]
fn timed_scripts_say_the_same_at_the_same_times_on_the_model_and_on_a_real_zookeeper() {
    assert_same_times(&TIMED, on_a_real_server, on_the_model, |_| TOLERANCE, &MUTANTS);
}
