//! Timed scripts for NATS: the answers of a session with their times, while its link is stalled, delayed and reset and its server paused.

use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::nats::{NatsConnect, NatsServers, NatsSession};

use super::servers::{nats, open_request};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TOLERANCE, TimedLines, TimedTranscript, assert_same_times, difference, plain};
use crate::World;
use crate::nats::{NatsRoutes, NatsVersion, SimulatedNats};
use crate::servers::SimulatedServers;

const LEASE: Duration = Duration::from_millis(1800);
const KEY: &str = "k";

const MUTANTS: [&str; 2] = [
    "nats: a write over another keeps its age",
    "nats: messages stay past their age",
];

#[derive(Debug, Clone, Copy)]
enum NatsTimedStep {
    /// Asks and waits for the answer.
    Read,
    Create,
    /// Over the last message that was written.
    Update,
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

use NatsTimedStep::{Begin, Connect, Create, Delay, GoOn, Heal, IsBroken, Pause, Read, Reset, Sleep, Stall, Update};

/// A pause follows each heal before a connect, as in the scripts for Redis.
const TIMED: [&[NatsTimedStep]; 12] = [
    // one silence ends a session; what was sent arrives all the same
    &[Read, Stall, Create, IsBroken, Heal, Sleep(50), Connect, Read],
    // a reset is seen at once by a call that waits, and the next one is not sent
    &[
        Read,
        Begin,
        Stall,
        Sleep(100),
        Begin,
        Sleep(200),
        Reset,
        Sleep(100),
        IsBroken,
        Read,
        Heal,
        Sleep(50),
        Connect,
        Read,
    ],
    // an idle connection that was reset
    &[Read, Reset, Sleep(100), IsBroken, Create, IsBroken, Connect, Read],
    // a connect through a stalled link times out
    &[Stall, Connect, Heal, Sleep(50), Connect, Read],
    // and gets through when the kernel repeats it, if that is in time
    &[Stall, Connect, Connect, Heal, Sleep(100), Connect, Read],
    // a delay adds to each answer, and to each of the messages of a greeting
    &[Delay(100), Read, Create, Connect, Read, Heal, Read],
    // a delay of more than the limit
    &[Delay(400), Read, IsBroken, Heal, Sleep(1000), Connect, Read],
    // a paused server takes connections and says nothing
    &[Read, Pause, Create, IsBroken, Connect, GoOn, Sleep(300), Connect, Read],
    // a message ends by its age, and a write over it begins another
    &[Create, Sleep(1300), Read, Sleep(900), Read, Create],
    &[Create, Sleep(1200), Update, Sleep(1200), Read, Sleep(1000), Read],
    // also while its server is paused
    &[Create, Pause, Sleep(2200), GoOn, Sleep(300), Read],
    // two calls on one connection wait for each other
    &[Read, Stall, Begin, Begin, Sleep(300), Heal, Sleep(300), Read],
];

/// The stage and the session of a script, with its transcript.
struct NatsPlay<'a> {
    stage: &'a dyn Stage,
    store: Rc<dyn NatsConnect>,
    session: Rc<dyn NatsSession>,
    /// The revision of the last message that was written.
    revision: u64,
    told: TimedTranscript,
}

impl NatsPlay<'_> {
    async fn put(&mut self, last: u64) -> String {
        let put = self.session.put(KEY, "v", Some(last)).await;
        if let Ok(Some(revision)) = put {
            self.revision = revision;
        }
        plain(put.map(|put| put.is_some()))
    }

    async fn step(&mut self, step: NatsTimedStep) {
        let answer = match step {
            Read => plain(self.session.read(KEY).await.map(|read| read.is_some())),
            Create => self.put(0).await,
            Update => self.put(self.revision).await,
            Connect => plain(self.store.connect().await.map(|new| self.session = new)),
            IsBroken => self.session.is_broken().to_string(),
            Begin => {
                let session = self.session.clone();
                let read = async move { plain(session.read(KEY).await.map(|read| read.is_some())) };
                return self.told.ask_beside("Begin", read);
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

async fn perform(stage: &dyn Stage, store: Rc<dyn NatsConnect>, script: &[NatsTimedStep]) -> TimedLines {
    let session = store.connect().await.unwrap();
    session.make_bucket(LEASE).await.unwrap();
    let told = TimedTranscript::begin(stage.host());
    let mut play = NatsPlay {
        stage,
        store,
        session,
        revision: 0,
        told,
    };
    for step in script {
        play.step(*step).await;
    }
    play.told.end_by_words()
}

fn on_the_model(script: &[NatsTimedStep]) -> TimedLines {
    World::run(1, async |world: World| {
        let nats = SimulatedNats::start(world, 1, NatsVersion::V2_10);
        let stage = ModelStage::new(world, nats.process(0));
        let store = NatsRoutes::to(nats, vec![stage.link], stage.client, LEASE);
        perform(&stage, Rc::new(store), script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &[NatsTimedStep]) -> Option<TimedLines> {
    let stage = RealStage::new(proxy, nats().await?);
    let open = open_request("nats", &[stage.link.listen()], LEASE);
    let store = Rc::new(NatsServers::new(&open, None, stage.host()));
    Some(perform(&stage, store, script).await)
}

#[test]
fn timed_scripts_have_the_same_answers_at_the_same_times_on_the_model_and_on_a_real_nats() {
    let why = |real: &TimedLines, model: &TimedLines| difference(real, model, TOLERANCE);
    assert_same_times(&TIMED, on_a_real_server, on_the_model, why, &MUTANTS);
}
