//! Timed scripts for ZooKeeper: what a session says of its connection, and when another session sees its node go, while its
//! link is stalled and reset and the server paused.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::{Behaviour, Proxy};
use harness_workloads::protocol::OpenRequest;
use harness_workloads::zk::{ConnectionState, WatchEvent, ZkConnect, ZkServers, ZkSession};
use harness_workloads::{RecipeHost, Task, TokioHost};

use super::servers::{zookeeper, zookeeper_is_ready};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TimedLines, difference, plain, timed_on_real};
use crate::World;
use crate::mutants::with_mutant;
use crate::network::{LinkLatency, SimulatedLink};
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

#[derive(Debug, Clone, Copy)]
enum ZkTimedStep {
    /// Asks for the own node and waits for the answer.
    Exists,
    Sleep(u64),
    Stall,
    Heal,
    Reset,
    Pause,
    GoOn,
}

use ZkTimedStep::{Exists, GoOn, Heal, Pause, Reset, Sleep, Stall};

const TIMED: [&[ZkTimedStep]; 10] = [
    // nothing happens: the session is kept alive by pings alone
    &[Sleep(5000), Exists],
    // as long as the session's time, and longer
    &[Exists, Stall, Sleep(4500), Heal, Sleep(1000), Exists],
    // given up by the client without any word of the server
    &[Exists, Stall, Sleep(5500)],
    // shorter than the time for a server: nothing breaks
    &[Exists, Stall, Sleep(300), Heal, Sleep(1000), Exists],
    // a break, and the session goes on
    &[Exists, Stall, Sleep(1000), Heal, Sleep(2000), Exists],
    // a call while the link is stalled
    &[Stall, Exists, Sleep(200), Heal, Sleep(1500), Exists],
    // a reset is seen at once, and the session goes on at once
    &[Exists, Reset, Sleep(500), Exists],
    &[Exists, Reset, Sleep(300), Reset, Sleep(300), Reset, Sleep(500), Exists],
    // a reset in a stall: nobody answers the connect
    &[Exists, Stall, Sleep(100), Reset, Sleep(900), Heal, Sleep(2500), Exists],
    // a paused server
    &[Exists, Pause, Sleep(500), GoOn, Sleep(1500), Exists],
];

/// Runs a script with a node of its session, which another session watches.
async fn perform(
    stage: &dyn Stage,
    under_test: Rc<dyn ZkConnect>,
    other: Rc<dyn ZkConnect>,
    script: &[ZkTimedStep],
) -> TimedLines {
    let host = stage.host();
    let lines: Rc<RefCell<TimedLines>> = Rc::default();
    let session = under_test.connect().await.unwrap();
    let watcher = other.connect().await.unwrap();
    let node = session.create("/timed/node").await.unwrap().unwrap();
    // let the first moments of the session be over
    host.sleep(Duration::from_millis(50)).await;
    let began = host.now();
    let followers = [
        follow_state(&host, session.clone(), began, lines.clone()),
        follow_node(&host, watcher, node.path.clone(), began, lines.clone()),
    ];
    for step in script {
        match step {
            Exists => {
                let found = session.exists(&node.path).await;
                let answer = plain(found.map(|found| found.is_some()));
                lines
                    .borrow_mut()
                    .push((host.now() - began, format!("Exists {answer}")));
            }
            Sleep(ms) => host.sleep(Duration::from_millis(*ms)).await,
            Stall => stage.apply(Behaviour::STALL),
            Heal => stage.heal(),
            Reset => stage.reset(),
            Pause | GoOn => stage.pause(matches!(step, Pause)),
        }
    }
    drop(followers);
    let mut lines = lines.take();
    // two things at about the same time may come in either order
    lines.sort_by(|(_, one), (_, other)| one.cmp(other));
    lines
}

fn follow_state(
    host: &Rc<dyn RecipeHost>,
    session: Rc<dyn ZkSession>,
    began: Duration,
    lines: Rc<RefCell<TimedLines>>,
) -> Task {
    let own = host.clone();
    host.spawn(Box::pin(async move {
        let mut status = session.connection();
        let mut number = 0;
        loop {
            let seen = status.borrow_and_update().state;
            if seen != ConnectionState::Connected || number > 0 {
                let line = format!("state {number}: {seen:?}");
                lines.borrow_mut().push((own.now() - began, line));
            }
            number += 1;
            // an announcement without a change of state is none here
            let changed = status.wait_for(|status| status.state != seen).await.is_ok();
            if !changed || seen == ConnectionState::Expired {
                return;
            }
        }
    }))
}

fn follow_node(
    host: &Rc<dyn RecipeHost>,
    watcher: Rc<dyn ZkSession>,
    path: String,
    began: Duration,
    lines: Rc<RefCell<TimedLines>>,
) -> Task {
    let own = host.clone();
    host.spawn(Box::pin(async move {
        let (_, watch) = watcher.watch_exists(&path).await.unwrap();
        if let WatchEvent::Fired { kind, .. } = watch.await {
            lines
                .borrow_mut()
                .push((own.now() - began, format!("others see {kind}")));
        }
    }))
}

fn on_the_model(script: &[ZkTimedStep], seed: u64) -> TimedLines {
    World::run(seed, async |world: World| {
        let zk = SimulatedZk::start(world, 1, TICK);
        let stage = ModelStage {
            server: zk.process(0),
            link: SimulatedLink::new(world, "c0->n1", 0, LinkLatency::default()),
            client: world.process("c0"),
        };
        // the other client's, that no fault is put on
        let aside = SimulatedLink::new(world, "c1->n1", 1, LinkLatency::default());
        let routes = |link| Rc::new(ZkRoutes::new(zk, vec![link], stage.client, LEASE));
        let (under_test, other) = (routes(stage.link), routes(aside));
        perform(&stage, under_test, other, script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &[ZkTimedStep]) -> Option<TimedLines> {
    let server = zookeeper(TICK)?;
    server.until_ready(zookeeper_is_ready).await;
    let link = proxy.link("c0->n1".into(), server.address, 1).unwrap();
    let open = |endpoint: String| OpenRequest {
        backend: "zk".into(),
        endpoints: vec![endpoint],
        lease_ms: LEASE.as_millis() as u64,
        sentinel: None,
        cluster: None,
    };
    let host = TokioHost::shared();
    let under_test = Rc::new(ZkServers::new(&open(link.listen().to_string()), None, host.clone()));
    let other = Rc::new(ZkServers::new(&open(server.address.to_string()), None, host.clone()));
    let stage = RealStage { server, link, host };
    Some(perform(&stage, under_test, other, script).await)
}

#[test]
fn timed_scripts_say_the_same_at_the_same_times_on_the_model_and_on_a_real_zookeeper() {
    let why = |script: &&[ZkTimedStep], real: &TimedLines| difference(real, &on_the_model(script, 1), TOLERANCE);
    let run = async |proxy: &Proxy, script: &&[ZkTimedStep]| on_a_real_server(proxy, script).await;
    let Some(real) = timed_on_real(&TIMED, run, |script, real| why(script, real).is_some()) else {
        return;
    };
    let differ = || {
        let each = TIMED.iter().zip(&real);
        each.filter_map(|(script, real)| Some(format!("{script:?}\n{}", why(script, real)?)))
            .collect::<Vec<_>>()
    };
    let complaints = differ();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
    for mutant in MUTANTS {
        let noticed = with_mutant(mutant, differ);
        assert!(!noticed.is_empty(), "no script notices the error {mutant:?}");
    }
}
