//! Timed scripts for etcd: the answers of a session with their times, and its lease and its place in a lock's queue as another session sees
//! them, while its link is stalled, delayed and reset and the server paused.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::etcd::{EtcdServers, EtcdSession};

use super::servers::{etcd, open_request};
use super::stage::{ModelStage, RealStage, Stage};
use super::{TOLERANCE, TimedLines, TimedTranscript, assert_same_times, plain};
use crate::World;
use crate::etcd::SimulatedEtcd;
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

/// `begin` asks, and does not wait: its answer is told when it comes. So does `begin-lock`, which asks the lock service for at most so many
/// milliseconds. `watch` tells what it hears of a key. Another session has the lock, releases it, asks for it with the lease of the first
/// one (`other-locks-same`), lists the contenders, and deletes the key that is watched.
const TIMED: [&str; 21] = [
    // a lease that nobody renews ends
    "sleep 4000, keep-alive, get",
    // one that is renewed ends that much later
    "sleep 1500, keep-alive, sleep 1500, keep-alive, sleep 4000, keep-alive",
    // a renewal that a delay holds back counts from when it arrives
    "sleep 900, delay 250, keep-alive, heal, sleep 4000, keep-alive",
    // a stall ends an idle connection after two pings' time; the call after it finds no way, and the next one does
    "get, stall, sleep 1000, get, heal, sleep 50, get",
    // a call on a connection that ends under it
    "get, stall, sleep 450, begin, sleep 1000, heal, sleep 100, get",
    // a call that is given up before the connection is
    "get, begin, stall, get, heal, sleep 400, get",
    // a stall that is shorter than a ping's time breaks nothing
    "get, stall, sleep 200, heal, get",
    // a reset is told at once, to a call that waits and to the next one
    "get, stall, begin, sleep 100, reset, heal, sleep 100, get",
    "get, reset, sleep 100, get, reset, sleep 100, get",
    // a delay adds to each answer; one of more than a ping's time ends the connection
    "delay 100, get, get, heal, get",
    "get, delay 400, get, get, heal, sleep 1000, get",
    // a paused server takes connections and answers nothing; leases go on
    "get, pause, get, get, go-on, sleep 300, get",
    "keep-alive, pause, sleep 3500, go-on, sleep 1000, keep-alive",
    // a lock that is handed over, and one that is not waited for any longer
    "other-locks, begin-lock 1500, sleep 400, other-unlocks, sleep 300, other-lists",
    "other-locks, begin-lock 500, sleep 1200, other-lists, other-unlocks",
    // the server hears of a broken connection when the stall ends, and cleans up then
    "other-locks, begin-lock 1400, sleep 100, stall, sleep 1000, other-lists, heal, sleep 300, other-lists",
    // and what it cleans up may be the key of the next call, which waits on and is told that it has the lock
    "other-locks, begin-lock 1400, sleep 100, stall, sleep 900, other-locks-same 3000, sleep 200, heal, \
     sleep 200, other-lists, other-unlocks, sleep 300, other-lists",
    // a waiter whose lease ends is told that it has the lock all the same, if something is asked on its connection now and then: a server
    // ends one that is only pinged
    "other-locks, begin-lock 5000, sleep 1000, begin, sleep 1000, begin, sleep 1000, other-lists, other-unlocks, \
     sleep 300, other-lists",
    "other-locks, begin-lock 5000, sleep 2500, other-lists, other-unlocks",
    // a watch hears of a change, and ends with its connection
    "watch, sleep 300, other-deletes, sleep 300, stall, sleep 1000, heal",
    "watch, sleep 300, reset, sleep 300, other-deletes, sleep 200",
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
    async fn set_up(stage: &dyn Stage, session: Rc<dyn EtcdSession>, other: Rc<dyn EtcdSession>) -> Self {
        let other_lease = other.grant_lease(LONG).await.unwrap().id;
        other.create("timed/other", "", other_lease).await.unwrap();
        let lease = session.grant_lease(LEASE).await.unwrap().id;
        let created = session.create("timed/key", "", lease).await.unwrap();
        let mut watch = other.watch("timed/key", created.revision + 1).await.unwrap();
        let told = TimedTranscript::begin(stage.host());
        let own = told.clone();
        told.beside(async move {
            while let Ok(events) = watch.next().await {
                own.say(format!("others see its key deleted: {}", events[0]));
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
        self.told.ask_beside("watch", async move {
            let mut watch = match session.watch("timed/other", 0).await {
                Ok(watch) => watch,
                Err(error) => return plain::<()>(Err(error)),
            };
            loop {
                match watch.next().await {
                    Ok(events) => told.say(format!("watch heard deleted: {}", events[0])),
                    Err(error) => return plain::<()>(Err(error)),
                }
            }
        });
    }

    async fn step(&self, word: &str, ms: u64) -> Option<String> {
        Some(match word {
            "get" => plain(self.session.get("timed/key").await.map(|found| found.is_some())),
            "keep-alive" => plain(self.session.keep_alive(self.lease).await),
            "other-locks" => plain(self.other.lock(LOCK, self.other_lease, LONG).await.map(drop)),
            "other-unlocks" => plain(self.other.unlock(&format!("{LOCK}/{:x}", self.other_lease)).await),
            "other-lists" => plain(self.other.list(LOCK).await.map(|listing| listing.keys.len())),
            "other-deletes" => plain(self.other.delete("timed/other").await),
            _ => {
                self.begin(word, ms);
                return None;
            }
        })
    }

    /// A step that is not waited for.
    fn begin(&self, word: &str, ms: u64) {
        match word {
            "begin" => {
                let session = self.session.clone();
                let got = async move { plain(session.get("timed/key").await.map(drop)) };
                self.told.ask_beside("begin", got);
            }
            "begin-lock" => self.begin_lock("begin-lock", &self.session, ms),
            "other-locks-same" => self.begin_lock("other-locks-same", &self.other, ms),
            "watch" => self.begin_watch(),
            other => unreachable!("{other} is no step"),
        }
    }
}

async fn perform(
    stage: &dyn Stage,
    under_test: Rc<dyn EtcdSession>,
    other: Rc<dyn EtcdSession>,
    script: &str,
) -> TimedLines {
    let play = TimedPlay::set_up(stage, under_test, other).await;
    play.told
        .play(stage, script, async |word, ms| play.step(word, ms).await)
        .await;
    play.told.end()
}

fn on_the_model(script: &str) -> TimedLines {
    World::run(1, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 1);
        let stage = ModelStage::new(world, etcd.process(0));
        // the other client's, on which there is no fault
        let aside = SimulatedLink::of_client(world, 1, 1);
        let session = |links, lease| Rc::new(etcd.session(links, stage.client, lease));
        perform(&stage, session(vec![stage.link], LEASE), session(aside, LONG), script).await
    })
}

async fn on_a_real_server(proxy: &Proxy, script: &str) -> Option<TimedLines> {
    let stage = RealStage::new(proxy, etcd().await?);
    let at = |server: SocketAddr, lease: Duration| {
        let open = open_request("etcd", &[server], lease);
        Rc::new(EtcdServers::new(&open, None, stage.host()).unwrap())
    };
    let (under_test, other) = (at(stage.link.listen(), LEASE), at(stage.server.address, LONG));
    Some(perform(&stage, under_test, other, script).await)
}

/// Answers come within the usual tolerance, and the end of a lease within one look more.
fn tolerance(line: &str) -> Duration {
    match line.starts_with("others see") {
        true => TOLERANCE + LOOK,
        false => TOLERANCE,
    }
}

#[test]
fn timed_scripts_say_the_same_at_the_same_times_on_the_model_and_on_a_real_etcd() {
    assert_same_times(&TIMED, on_a_real_server, on_the_model, tolerance, &MUTANTS);
}
