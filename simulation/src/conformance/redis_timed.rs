//! Timed scripts for Redis: the answers of a session with their times, while its link is stalled, delayed and reset and its server paused.

use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::redis::{CompareBy, RedisConnect, RedisServers, RedisSession};

use super::servers::{open_request, redis};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TOLERANCE, TimedLines, TimedTranscript, assert_same_times, difference, plain};
use crate::World;
use crate::redis::{RedisRoutes, SimulatedRedis};
use crate::servers::SimulatedServers;

const LEASE: Duration = Duration::from_millis(1800);
const KEY: &str = "k";

/// A step of a timed script.
#[derive(Debug, Clone, Copy)]
enum TimedStep {
    /// Asks and waits for the answer.
    Get,
    SetNx,
    /// Asks for it, and does not wait: the answer is written down when it comes.
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
    // a reset is seen at once, by a call that waits and by the next one
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

/// The stage and the session of a script, with its transcript.
struct RedisPlay<'a> {
    stage: &'a dyn Stage,
    store: Rc<dyn RedisConnect>,
    session: Rc<dyn RedisSession>,
    told: TimedTranscript,
}

impl RedisPlay<'_> {
    async fn step(&mut self, step: TimedStep) {
        let answer = match step {
            Get => plain(self.session.get(KEY).await),
            SetNx => plain(self.session.set_nx(KEY, "v", Some(LEASE)).await),
            Connect => plain(self.store.connect(0).await.map(|new| self.session = new)),
            IsBroken => self.session.is_broken().to_string(),
            Begin => {
                let session = self.session.clone();
                return self
                    .told
                    .ask_beside("Begin", async move { plain(session.get(KEY).await) });
            }
            Sleep(ms) => return self.told.sleep(ms).await,
            Stall => return self.stage.stall(),
            Delay(ms) => return self.stage.delay(ms),
            Heal => return self.stage.heal(),
            Reset => return self.stage.reset(),
            Pause | GoOn => return self.stage.pause(matches!(step, Pause)),
        };
        self.told.say(format!("{step:?} {answer}"));
    }
}

async fn perform(stage: &dyn Stage, store: Rc<dyn RedisConnect>, script: &[TimedStep]) -> TimedLines {
    let told = TimedTranscript::begin(stage.host());
    let session = store.connect(0).await.unwrap();
    let mut play = RedisPlay {
        stage,
        store,
        session,
        told,
    };
    for step in script {
        play.step(*step).await;
    }
    play.told.end()
}

fn on_the_model(script: &[TimedStep]) -> TimedLines {
    World::run(1, async |world: World| {
        let servers = SimulatedRedis::start(world, 1);
        let stage = ModelStage::new(world, servers.process(0));
        let store = RedisRoutes::new(servers, vec![stage.link], stage.client, LEASE, CompareBy::Script);
        perform(&stage, Rc::new(store), script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &[TimedStep]) -> Option<TimedLines> {
    let stage = RealStage::new(proxy, redis("redis-server", None).await?);
    let open = open_request("redis", &[stage.link.listen()], LEASE);
    let store = Rc::new(RedisServers::new(&open, None, CompareBy::Script).unwrap());
    Some(perform(&stage, store, script).await)
}

#[test]
fn timed_scripts_have_the_same_answers_at_the_same_times_on_the_model_and_on_a_real_redis() {
    let why = |real: &TimedLines, model: &TimedLines| difference(real, model, TOLERANCE);
    assert_same_times(&TIMED, on_a_real_server, on_the_model, why, &[]);
}
