//! Timed scripts for etcd: the answers of a session with their times, and its lease and its place in a lock's queue as another session sees
//! them, while its link is stalled, delayed and reset and the server paused.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::etcd::{EtcdConnect, EtcdServers, EtcdSession};

use super::servers::{etcd, open_request};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TOLERANCE, TimedLines, TimedTranscript, assert_same_times, difference, plain};
use crate::World;
use crate::etcd::{EtcdRoutes, EtcdVersion, SimulatedEtcd};
use crate::network::SimulatedLink;
use crate::servers::SimulatedServers;

const LEASE: Duration = Duration::from_secs(2);
/// The lease of the session that observes the server.
const LONG: Duration = Duration::from_secs(60);
/// The server looks twice a second for leases that have run out.
const LOOK: Duration = Duration::from_millis(500);
const LOCK: &str = "timed/lock";

const MUTANTS: [&str; 5] = [
    "etcd: leases live twice as long",
    "etcd: a renewal changes nothing",
    "etcd: a client does not ping",
    "etcd: callers go in silence",
    "etcd: a server takes any number of pings",
];

#[derive(Debug, Clone, Copy)]
enum EtcdTimedStep {
    /// Asks and waits for the answer.
    Get,
    KeepAlive,
    /// Asks, and does not wait: the answer is written down when it comes.
    Begin,
    /// Asks the lock service, for at most so many milliseconds, and does not wait.
    BeginLock(u64),
    /// Watches a key, and writes down its events.
    Watch,
    /// Another session has the lock, releases it, asks for it with the lease of the first one, lists the contenders, deletes the key that
    /// is watched.
    OtherLocks,
    OtherUnlocks,
    OtherLocksSame(u64),
    OtherLists,
    OtherDeletes,
    Sleep(u64),
    Stall,
    /// In milliseconds, both ways.
    Delay(u64),
    Heal,
    Reset,
    Pause,
    GoOn,
}

use EtcdTimedStep::{
    Begin, BeginLock, Delay, Get, GoOn, Heal, KeepAlive, OtherDeletes, OtherLists, OtherLocks, OtherLocksSame,
    OtherUnlocks, Pause, Reset, Sleep, Stall, Watch,
};

const TIMED: [&[EtcdTimedStep]; 21] = [
    // a lease that nobody renews ends
    &[Sleep(4000), KeepAlive, Get],
    // one that is renewed ends that much later
    &[Sleep(1500), KeepAlive, Sleep(1500), KeepAlive, Sleep(4000), KeepAlive],
    // a renewal that a delay holds back counts from when it arrives
    &[Sleep(900), Delay(250), KeepAlive, Heal, Sleep(4000), KeepAlive],
    // a stall ends an idle connection after two pings' time; the call after it finds no way, and the next one does
    &[Get, Stall, Sleep(1000), Get, Heal, Sleep(50), Get],
    // a call on a connection that ends under it
    &[Get, Stall, Sleep(450), Begin, Sleep(1000), Heal, Sleep(100), Get],
    // a call that is given up before the connection is
    &[Get, Begin, Stall, Get, Heal, Sleep(400), Get],
    // a stall that is shorter than a ping's time breaks nothing
    &[Get, Stall, Sleep(200), Heal, Get],
    // a reset is seen at once, by a call that waits and by the next one
    &[Get, Stall, Begin, Sleep(100), Reset, Heal, Sleep(100), Get],
    &[Get, Reset, Sleep(100), Get, Reset, Sleep(100), Get],
    // a delay adds to each answer; one of more than a ping's time ends the connection
    &[Delay(100), Get, Get, Heal, Get],
    &[Get, Delay(400), Get, Get, Heal, Sleep(1000), Get],
    // a paused server takes connections and answers nothing; leases go on
    &[Get, Pause, Get, Get, GoOn, Sleep(300), Get],
    &[KeepAlive, Pause, Sleep(3500), GoOn, Sleep(1000), KeepAlive],
    // a lock that is handed over, and one that is not waited for any longer
    &[
        OtherLocks,
        BeginLock(1500),
        Sleep(400),
        OtherUnlocks,
        Sleep(300),
        OtherLists,
    ],
    &[OtherLocks, BeginLock(500), Sleep(1200), OtherLists, OtherUnlocks],
    // the server sees a broken connection when the stall ends, and cleans up then
    &[
        OtherLocks,
        BeginLock(1400),
        Sleep(100),
        Stall,
        Sleep(1000),
        OtherLists,
        Heal,
        Sleep(300),
        OtherLists,
    ],
    // and the key that it deletes may be that of the next call, which waits on and gets the answer that it has the lock
    &[
        OtherLocks,
        BeginLock(1400),
        Sleep(100),
        Stall,
        Sleep(900),
        OtherLocksSame(3000),
        Sleep(200),
        Heal,
        Sleep(200),
        OtherLists,
        OtherUnlocks,
        Sleep(300),
        OtherLists,
    ],
    // a waiter whose lease ends is told that it has the lock all the same, if something is asked on its connection now and then: a server
    // ends one that is only pinged
    &[
        OtherLocks,
        BeginLock(5000),
        Sleep(1000),
        Begin,
        Sleep(1000),
        Begin,
        Sleep(1000),
        OtherLists,
        OtherUnlocks,
        Sleep(300),
        OtherLists,
    ],
    &[OtherLocks, BeginLock(5000), Sleep(2500), OtherLists, OtherUnlocks],
    // a watch gets a change, and ends with its connection
    &[Watch, Sleep(300), OtherDeletes, Sleep(300), Stall, Sleep(1000), Heal],
    &[Watch, Sleep(300), Reset, Sleep(300), OtherDeletes, Sleep(200)],
];

/// The stage and the session of a script, with its transcript.
struct TimedPlay {
    session: Rc<dyn EtcdSession>,
    other: Rc<dyn EtcdSession>,
    lease: i64,
    other_lease: i64,
    told: TimedTranscript,
}

impl TimedPlay {
    async fn set_up(stage: &dyn Stage, under_test: Rc<dyn EtcdConnect>, other: Rc<dyn EtcdConnect>) -> Self {
        let (session, other) = (under_test.connect().await.unwrap(), other.connect().await.unwrap());
        let other_lease = other.grant_lease(LONG).await.unwrap().id;
        other.create("timed/other", "", other_lease).await.unwrap();
        let lease = session.grant_lease(LEASE).await.unwrap().id;
        let created = session.create("timed/key", "", lease).await.unwrap();
        let mut watch = other.watch("timed/key", created.revision + 1).await.unwrap();
        let told = TimedTranscript::begin(stage.host());
        let own = told.clone();
        told.beside(async move {
            while let Ok(events) = watch.next().await {
                own.say(format!("others see its key deleted: {}", events[0].deleted));
            }
        });
        TimedPlay {
            session,
            other,
            lease,
            other_lease,
            told,
        }
    }

    fn begin_lock(&self, what: &'static str, session: &Rc<dyn EtcdSession>, ms: u64) {
        let (session, lease) = (session.clone(), self.lease);
        self.told.ask_beside(what, async move {
            let locked = session.lock(LOCK, lease, Duration::from_millis(ms)).await;
            plain(locked.map(|_| ()))
        });
    }

    fn begin_watch(&self) {
        let (session, told) = (self.session.clone(), self.told.clone());
        self.told.ask_beside("Watch", async move {
            let mut watch = match session.watch("timed/other", 0).await {
                Ok(watch) => watch,
                Err(error) => return plain::<()>(Err(error)),
            };
            loop {
                match watch.next().await {
                    Ok(events) => told.say(format!("Watch heard deleted: {}", events[0].deleted)),
                    Err(error) => return plain::<()>(Err(error)),
                }
            }
        });
    }

    async fn step(&self, stage: &dyn Stage, step: EtcdTimedStep) {
        let answer = match step {
            Get => plain(self.session.get("timed/key").await.map(|found| found.is_some())),
            KeepAlive => plain(self.session.keep_alive(self.lease).await),
            Begin => {
                let session = self.session.clone();
                let got = async move { plain(session.get("timed/key").await.map(drop)) };
                return self.told.ask_beside("Begin", got);
            }
            BeginLock(ms) => return self.begin_lock("BeginLock", &self.session, ms),
            OtherLocksSame(ms) => return self.begin_lock("OtherLocksSame", &self.other, ms),
            Watch => return self.begin_watch(),
            OtherLocks => plain(self.other.lock(LOCK, self.other_lease, LONG).await.map(drop)),
            OtherUnlocks => plain(self.other.unlock(&format!("{LOCK}/{:x}", self.other_lease)).await),
            OtherLists => plain(self.other.list(LOCK).await.map(|listing| listing.keys.len())),
            OtherDeletes => plain(self.other.delete("timed/other").await),
            Sleep(ms) => return self.told.sleep(ms).await,
            Stall => return stage.stall(),
            Delay(ms) => return stage.delay(ms),
            Heal => return stage.heal(),
            Reset => return stage.reset(),
            Pause | GoOn => return stage.pause(matches!(step, Pause)),
        };
        self.told.say(format!("{step:?} {answer}"));
    }
}

async fn perform(
    stage: &dyn Stage,
    under_test: Rc<dyn EtcdConnect>,
    other: Rc<dyn EtcdConnect>,
    script: &[EtcdTimedStep],
) -> TimedLines {
    let play = TimedPlay::set_up(stage, under_test, other).await;
    for step in script {
        play.step(stage, *step).await;
    }
    play.told.end_by_words()
}

fn on_the_model(script: &[EtcdTimedStep]) -> TimedLines {
    World::run(1, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 1, EtcdVersion::V3_4);
        let stage = ModelStage::new(world, etcd.process(0));
        // the other client's, on which there is no fault
        let aside = SimulatedLink::of_client(world, 1, 1);
        let routes = |links, lease| Rc::new(EtcdRoutes::new(etcd, links, stage.client, lease));
        perform(&stage, routes(vec![stage.link], LEASE), routes(aside, LONG), script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &[EtcdTimedStep]) -> Option<TimedLines> {
    let stage = RealStage::new(proxy, etcd().await?);
    let at = |server: SocketAddr, lease: Duration| {
        let open = open_request("etcd", &[server], lease);
        Rc::new(EtcdServers::new(&open, None).unwrap())
    };
    let (under_test, other) = (at(stage.link.listen(), LEASE), at(stage.server.address, LONG));
    Some(perform(&stage, under_test, other, script).await)
}

/// Returns why two transcripts are not the same: answers within the usual tolerance, and the end of a lease within one look more.
fn differ(real: &TimedLines, model: &TimedLines) -> Option<String> {
    let split = |lines: &TimedLines| -> (TimedLines, TimedLines) {
        let seen = |(_, line): &(Duration, String)| line.starts_with("others see");
        lines.iter().cloned().partition(seen)
    };
    let ((real_seen, real_said), (model_seen, model_said)) = (split(real), split(model));
    difference(&real_said, &model_said, TOLERANCE).or(difference(&real_seen, &model_seen, TOLERANCE + LOOK))
}

#[test]
fn timed_scripts_say_the_same_at_the_same_times_on_the_model_and_on_a_real_etcd() {
    assert_same_times(&TIMED, on_a_real_server, on_the_model, differ, &MUTANTS);
}
