//! Timed scripts for Redis: what a session says, and when, while its link is stalled, delayed and reset and its server paused.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::{Behaviour, Flow, Proxy};
use harness_workloads::protocol::OpenRequest;
use harness_workloads::redis::{RedisConnect, RedisServers, RedisSession};
use harness_workloads::{RecipeHost, TokioHost};

use super::servers::{redis, redis_says};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TOLERANCE, TimedLines, difference, plain, timed_on_real};
use crate::World;
use crate::network::{LinkLatency, SimulatedLink};
use crate::redis::{RedisRoutes, SimulatedRedis};

const LEASE: Duration = Duration::from_millis(1800);

/// What a timed script does.
#[derive(Debug, Clone, Copy)]
enum TimedStep {
    /// Asks and waits for the answer.
    Get,
    SetNx,
    /// Asks for it, and does not wait: it is told when its answer comes.
    Begin,
    Connect,
    IsBroken,
    Sleep(u64),
    Stall,
    /// In milliseconds, both ways.
    Delay(u64),
    Heal,
    Reset,
    Pause,
    GoOn,
}

use TimedStep::{Begin, Connect, Delay, Get, GoOn, Heal, IsBroken, Pause, Reset, SetNx, Sleep, Stall};

/// A pause follows each heal before a connect: the proxy's thread takes a moment until it answers connects again, and the kernel
/// repeats one that comes earlier only after a second.
const TIMED: [&[TimedStep]; 10] = [
    // a stall: two silences, and the connection is given up; what was sent arrives all the same
    &[
        Get,
        Stall,
        SetNx,
        IsBroken,
        Get,
        IsBroken,
        Heal,
        Sleep(50),
        Connect,
        Sleep(300),
        Get,
    ],
    // one silence is no end, and the late answer is thrown away
    &[Get, Stall, SetNx, Heal, Sleep(200), Get, IsBroken],
    // a reset is told at once, to a call that waits and to the next one
    &[
        Get,
        Begin,
        Stall,
        Begin,
        Sleep(200),
        Reset,
        Sleep(200),
        IsBroken,
        Heal,
        Get,
        Sleep(50),
        Connect,
        Get,
    ],
    // a connect through a stalled link times out
    &[Stall, Connect, Heal, Sleep(50), Connect, Get],
    // and gets through when the kernel repeats it, if that is in time
    &[Stall, Connect, Connect, Heal, Sleep(100), Connect, Get],
    // a delay adds to each answer
    &[Delay(100), Get, SetNx, Heal, Get],
    // a delay of more than the limit
    &[Delay(400), Get, IsBroken, Heal, Sleep(1000), Get, IsBroken],
    // a paused server takes connections and answers late
    &[Get, Pause, SetNx, IsBroken, Connect, GoOn, Sleep(300), Get],
    // a key expires while the link is stalled
    &[SetNx, Get, Stall, Sleep(1200), Heal, Get, Sleep(800), Get],
    // a call that waits when the stall ends
    &[Get, Stall, Begin, Sleep(300), Heal, Sleep(200), Get],
];

async fn perform(stage: &dyn Stage, store: Rc<dyn RedisConnect>, script: &[TimedStep], key: &str) -> TimedLines {
    let host = stage.host();
    let began = host.now();
    let lines: Rc<RefCell<TimedLines>> = Rc::default();
    let mut session = store.connect(0).await.unwrap();
    let mut begun = Vec::new();
    for step in script {
        let answer = match step {
            Get => plain(session.get(key).await),
            SetNx => plain(session.set_nx(key, "v", Some(LEASE)).await),
            Connect => match store.connect(0).await {
                Ok(new) => {
                    session = new;
                    "connected".into()
                }
                Err(error) => plain::<()>(Err(error)),
            },
            IsBroken => session.is_broken().to_string(),
            Begin => {
                begun.push(begin(
                    session.clone(),
                    stage.host(),
                    began,
                    lines.clone(),
                    key.to_owned(),
                ));
                continue;
            }
            Sleep(ms) => {
                host.sleep(Duration::from_millis(*ms)).await;
                continue;
            }
            Stall => {
                stage.apply(Behaviour::STALL);
                continue;
            }
            Delay(ms) => {
                let delay = Duration::from_millis(*ms);
                stage.apply(Behaviour::both(Flow { delay, ..Flow::PASS }));
                continue;
            }
            Heal => {
                stage.heal();
                continue;
            }
            Reset => {
                stage.reset();
                continue;
            }
            Pause | GoOn => {
                stage.pause(matches!(step, Pause));
                continue;
            }
        };
        lines
            .borrow_mut()
            .push((host.now() - began, format!("{step:?} {answer}")));
    }
    drop(begun);
    lines.take()
}

fn begin(
    session: Rc<dyn RedisSession>,
    host: Rc<dyn RecipeHost>,
    began: Duration,
    lines: Rc<RefCell<TimedLines>>,
    key: String,
) -> harness_workloads::Task {
    let own = host.clone();
    host.spawn(Box::pin(async move {
        let answer = plain(session.get(&key).await);
        lines.borrow_mut().push((own.now() - began, format!("Begin {answer}")));
    }))
}

fn on_the_model(script: &[TimedStep]) -> TimedLines {
    World::run(1, async |world: World| {
        let servers = SimulatedRedis::start(world, 1);
        let stage = ModelStage {
            server: servers.process(0),
            link: SimulatedLink::new(world, "c0->n1", 0, LinkLatency::default()),
            client: world.process("c0"),
        };
        let store = RedisRoutes::new(servers, vec![stage.link], stage.client, LEASE);
        let driver = stage.client;
        let lines = Rc::new(RefCell::new(Vec::new()));
        let (out, script) = (lines.clone(), script.to_vec());
        driver
            .spawn(async move {
                *out.borrow_mut() = perform(&stage, Rc::new(store), &script, "k").await;
            })
            .await;
        lines.take()
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &[TimedStep]) -> Option<TimedLines> {
    let server = redis(None)?;
    server.until_ready(|stream| redis_says(stream, "PING", "PONG")).await;
    let link = proxy.link("c0->n1".into(), server.address, 1).unwrap();
    let open = OpenRequest {
        backend: "redis".into(),
        endpoints: vec![link.listen().to_string()],
        lease_ms: LEASE.as_millis() as u64,
        sentinel: None,
        cluster: None,
    };
    let stage = RealStage {
        server,
        link,
        host: TokioHost::shared(),
    };
    let store = Rc::new(RedisServers::new(&open, None).unwrap());
    Some(perform(&stage, store, script, "k").await)
}

#[test]
fn timed_scripts_have_the_same_answers_at_the_same_times_on_the_model_and_on_a_real_redis() {
    let why = |script: &&[TimedStep], real: &TimedLines| difference(real, &on_the_model(script), TOLERANCE);
    let run = async |proxy: &Proxy, script: &&[TimedStep]| on_a_real_server(proxy, script).await;
    let Some(real) = timed_on_real(&TIMED, run, |script, real| why(script, real).is_some()) else {
        return;
    };
    let each = TIMED.iter().zip(&real);
    let complaints: Vec<String> = each
        .filter_map(|(script, real)| Some(format!("{script:?}\n{}", why(script, real)?)))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}
