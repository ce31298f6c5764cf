//! Timed scripts for Redis: the answers of a session with their times, while its link is stalled, delayed and reset and its server paused.

use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::redis::{CompareBy, RedisConnect, RedisServers, RedisSession};

use super::servers::{open_request, redis};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TOLERANCE, TimedLines, TimedTranscript, assert_same_times, plain};
use crate::World;
use crate::redis::{RedisRoutes, SimulatedRedis};
use crate::servers::SimulatedServers;

const LEASE: Duration = Duration::from_millis(1800);
const KEY: &str = "k";

/// `begin` asks, and does not wait: its answer is told when it comes. `get`, `set-nx` and `connect` wait.
///
/// A pause follows each heal before a connect: the proxy's thread takes a moment until it answers connects again, and the kernel
/// repeats one that comes earlier only after a second.
const TIMED: [&str; 10] = [
    // a stall: two silences, and the connection is given up; what was sent arrives all the same
    "get, stall, set-nx, is-broken, get, is-broken, heal, sleep 50, connect, sleep 300, get",
    // one silence is no end, and the late answer is thrown away
    "get, stall, set-nx, heal, sleep 200, get, is-broken",
    // a reset is told at once, to a call that waits and to the next one
    "get, begin, stall, begin, sleep 200, reset, sleep 200, is-broken, heal, get, sleep 50, connect, get",
    // a connect through a stalled link times out
    "stall, connect, heal, sleep 50, connect, get",
    // and gets through when the kernel repeats it, if that is in time
    "stall, connect, connect, heal, sleep 100, connect, get",
    // a delay adds to each answer
    "delay 100, get, set-nx, heal, get",
    // a delay of more than the limit
    "delay 400, get, is-broken, heal, sleep 1000, get, is-broken",
    // a paused server takes connections and answers late
    "get, pause, set-nx, is-broken, connect, go-on, sleep 300, get",
    // a key expires while the link is stalled
    "set-nx, get, stall, sleep 1200, heal, get, sleep 800, get",
    // a call that waits when the stall ends
    "get, stall, begin, sleep 300, heal, sleep 200, get",
];

/// The servers and sessions of a script.
struct RedisPlay {
    store: Rc<dyn RedisConnect>,
    session: Rc<dyn RedisSession>,
    told: TimedTranscript,
}

impl RedisPlay {
    async fn step(&mut self, word: &str) -> Option<String> {
        Some(match word {
            "get" => plain(self.session.get(KEY).await),
            "set-nx" => plain(self.session.set_nx(KEY, "v", Some(LEASE)).await),
            "connect" => plain(self.store.connect(0).await.map(|new| self.session = new)),
            "is-broken" => self.session.is_broken().to_string(),
            "begin" => {
                let session = self.session.clone();
                let got = async move { plain(session.get(KEY).await) };
                self.told.ask_beside("begin", got);
                return None;
            }
            other => unreachable!("{other} is no step"),
        })
    }
}

async fn perform(stage: &dyn Stage, store: Rc<dyn RedisConnect>, script: &str) -> TimedLines {
    let told = TimedTranscript::begin(stage.host());
    let session = store.connect(0).await.unwrap();
    let mut play = RedisPlay {
        store,
        session,
        told: told.clone(),
    };
    told.play(stage, script, async |word, _| play.step(word).await).await;
    told.end()
}

fn on_the_model(script: &str) -> TimedLines {
    World::run(1, async |world: World| {
        let servers = SimulatedRedis::start(world, 1);
        let stage = ModelStage::new(world, servers.process(0));
        let store = RedisRoutes::new(servers, vec![stage.link], stage.client, LEASE, CompareBy::Script);
        perform(&stage, Rc::new(store), script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &str) -> Option<TimedLines> {
    let stage = RealStage::new(proxy, redis("redis-server", None).await?);
    let open = open_request("redis", &[stage.link.listen()], LEASE);
    let store = Rc::new(RedisServers::new(&open, None, CompareBy::Script).unwrap());
    Some(perform(&stage, store, script).await)
}

#[test]
fn timed_scripts_have_the_same_answers_at_the_same_times_on_the_model_and_on_a_real_redis() {
    assert_same_times(&TIMED, on_a_real_server, on_the_model, |_| TOLERANCE, &[]);
}
