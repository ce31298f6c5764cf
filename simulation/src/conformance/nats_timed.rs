//! Timed scripts for NATS: the answers of a session with their times, while its link is stalled, delayed and reset and its server paused.

use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::nats::{NatsServers, NatsSession};

use super::servers::{nats, open_request};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TOLERANCE, TimedLines, TimedTranscript, assert_same_times, plain};
use crate::World;
use crate::nats::{NatsRoutes, SimulatedNats};
use crate::servers::SimulatedServers;

const LEASE: Duration = Duration::from_millis(1800);
const KEY: &str = "k";

const MUTANTS: [&str; 2] = [
    "nats: a write over another keeps its age",
    "nats: messages stay past their age",
];

/// `update` writes over what was written last. `begin` asks, and does not wait: its answer is told when it comes.
///
/// A pause follows each heal before a connect, as in the scripts for Redis.
const TIMED: [&str; 12] = [
    // one silence ends a session; what was sent arrives all the same
    "read, stall, create, is-broken, heal, sleep 50, connect, read",
    // a reset is told at once to a call that waits, and the next one is not sent
    "read, begin, stall, sleep 100, begin, sleep 200, reset, sleep 100, is-broken, read, heal, sleep 50, \
     connect, read",
    // an idle connection that was reset
    "read, reset, sleep 100, is-broken, create, is-broken, connect, read",
    // a connect through a stalled link times out
    "stall, connect, heal, sleep 50, connect, read",
    // and gets through when the kernel repeats it, if that is in time
    "stall, connect, connect, heal, sleep 100, connect, read",
    // a delay adds to each answer, and to each of the messages of a greeting
    "delay 100, read, create, connect, read, heal, read",
    // a delay of more than the limit
    "delay 400, read, is-broken, heal, sleep 1000, connect, read",
    // a paused server takes connections and says nothing
    "read, pause, create, is-broken, connect, go-on, sleep 300, connect, read",
    // a message ends by its age, and a write over it begins another
    "create, sleep 1300, read, sleep 900, read, create",
    "create, sleep 1200, update, sleep 1200, read, sleep 1000, read",
    // also while its server is paused
    "create, pause, sleep 2200, go-on, sleep 300, read",
    // two calls on one connection wait for each other
    "read, stall, begin, begin, sleep 300, heal, sleep 300, read",
];

/// The servers and sessions of a script.
struct NatsPlay {
    store: Rc<NatsServers>,
    session: Rc<NatsSession>,
    /// The revision of the last message that was written.
    revision: u64,
    told: TimedTranscript,
}

impl NatsPlay {
    async fn put(&mut self, last: u64) -> String {
        let put = self.session.put(KEY, "v", Some(last)).await;
        if let Ok(Some(revision)) = put {
            self.revision = revision;
        }
        plain(put.map(|put| put.is_some()))
    }

    async fn step(&mut self, word: &str) -> Option<String> {
        Some(match word {
            "read" => plain(self.session.read(KEY).await.map(|read| read.is_some())),
            "create" => self.put(0).await,
            "update" => self.put(self.revision).await,
            "connect" => plain(self.store.connect().await.map(|new| self.session = new)),
            "is-broken" => self.session.is_broken().to_string(),
            "begin" => {
                let session = self.session.clone();
                let read = async move { plain(session.read(KEY).await.map(|read| read.is_some())) };
                self.told.ask_beside("begin", read);
                return None;
            }
            other => unreachable!("{other} is no step"),
        })
    }
}

async fn perform(stage: &dyn Stage, store: Rc<NatsServers>, script: &str) -> TimedLines {
    let session = store.connect().await.unwrap();
    session.make_bucket(LEASE).await.unwrap();
    let told = TimedTranscript::begin(stage.host());
    let mut play = NatsPlay {
        store,
        session,
        revision: 0,
        told: told.clone(),
    };
    told.play(stage, script, async |word, _| play.step(word).await).await;
    told.end()
}

fn on_the_model(script: &str) -> TimedLines {
    World::run(1, async |world: World| {
        let nats = SimulatedNats::start(world, 1);
        let stage = ModelStage::new(world, nats.process(0));
        let store = NatsRoutes::to(nats, vec![stage.link], stage.client, LEASE);
        perform(&stage, Rc::new(store), script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &str) -> Option<TimedLines> {
    let stage = RealStage::new(proxy, nats().await?);
    let open = open_request("nats", &[stage.link.listen()], LEASE);
    let store = Rc::new(NatsServers::new(&open, None, stage.host()));
    Some(perform(&stage, store, script).await)
}

#[test]
fn timed_scripts_have_the_same_answers_at_the_same_times_on_the_model_and_on_a_real_nats() {
    assert_same_times(&TIMED, on_a_real_server, on_the_model, |_| TOLERANCE, &MUTANTS);
}
