//! The lock clients of a run: their child processes, their process numbers, and what happens when one dies.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::protocol::{Message, Op, Open, SignalKind};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::child::{Child, ChildError, News, OnNews, Start};
use super::stage::Stage;
use crate::event::Event;
use crate::limits::{CLIENT_CLOSE, CLIENT_OPEN, MAX_RESTARTS};
use crate::wall_clock::WallClock;

/// What a client must notice while it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fate {
    /// How often its library said that the lock is lost.
    pub losses: u64,
    /// When its child process ended, by `CLOCK_MONOTONIC`.
    pub died_at: Option<u64>,
}

/// One lock client, through all its incarnations.
pub struct Client {
    pub number: u32,
    open: Open,
    /// The incarnation: its process number in the history.
    process: AtomicU32,
    fate: watch::Sender<Fate>,
    /// How often it acquired.
    pub acquired: AtomicU64,
}

/// A child process and the clients in it.
pub struct Seat {
    start: Start,
    log: PathBuf,
    who: String,
    members: Vec<Arc<Client>>,
    child: RwLock<Option<Arc<Child>>>,
    /// How often it was started again; held while somebody does.
    restarts: AsyncMutex<u32>,
    over: AtomicBool,
    /// Whether a fault killed its child: that is not the child's own doing.
    was_struck: AtomicBool,
    wall_clock: Option<Arc<WallClock>>,
}

/// All clients of a run.
pub struct Crew {
    pub seats: Vec<Arc<Seat>>,
    next_process: AtomicU32,
}

/// How the crew's clients are started.
pub struct Muster {
    pub start: Start,
    pub per_process: u32,
    pub logs: PathBuf,
    /// By client: what it is told when it opens.
    pub opens: Vec<Open>,
    /// By client: the wall clock that its process is to have; empty where they all have the machine's.
    pub clocks: Vec<Arc<WallClock>>,
}

impl Crew {
    pub fn new(muster: Muster) -> Self {
        let clients: Vec<Arc<Client>> = muster
            .opens
            .into_iter()
            .enumerate()
            .map(|(n, o)| Client::new(n, o))
            .collect();
        let next_process = AtomicU32::new(clients.len() as u32);
        let seat = |members: &[Arc<Client>]| {
            let who = format!("client c{}", members[0].number);
            let log = muster.logs.join(format!("c{}.log", members[0].number));
            let wall_clock = muster.clocks.get(members[0].number as usize).cloned();
            let mut start = muster.start.clone();
            if let Some(clock) = &wall_clock {
                start.env.extend(clock.environment(clock.folder()));
            }
            Arc::new(Seat {
                start,
                log,
                who,
                members: members.to_vec(),
                child: RwLock::default(),
                restarts: AsyncMutex::new(0),
                over: AtomicBool::new(false),
                was_struck: AtomicBool::new(false),
                wall_clock,
            })
        };
        Self {
            seats: clients.chunks(muster.per_process as usize).map(seat).collect(),
            next_process,
        }
    }

    /// Starts every child and opens every client; fails with the first that cannot.
    pub async fn open(&self, stage: &Arc<Stage>) -> Result<(), String> {
        let mut opening = JoinSet::new();
        for seat in &self.seats {
            let (seat, stage) = (Arc::clone(seat), Arc::clone(stage));
            opening.spawn(async move { seat.open(&stage).await });
        }
        while let Some(opened) = opening.join_next().await {
            opened.expect("opening a client does not panic")?;
        }
        Ok(())
    }

    pub fn clients(&self) -> impl Iterator<Item = (&Arc<Seat>, &Arc<Client>)> {
        self.seats
            .iter()
            .flat_map(|seat| seat.members.iter().map(move |client| (seat, client)))
    }

    /// Gives a client a new process number: its old one must never act again.
    pub fn retire(&self, client: &Client) {
        client.process.store(self.next_process.fetch_add(1, Relaxed), Relaxed);
    }

    /// Closes every client and ends every child.
    pub async fn close(&self) {
        let mut closing = JoinSet::new();
        for seat in &self.seats {
            let seat = Arc::clone(seat);
            closing.spawn(async move { seat.close().await });
        }
        while closing.join_next().await.is_some() {}
    }
}

impl Client {
    fn new(number: usize, open: Open) -> Arc<Self> {
        Arc::new(Self {
            number: number as u32,
            open,
            process: AtomicU32::new(number as u32),
            fate: watch::channel(Fate::default()).0,
            acquired: AtomicU64::new(0),
        })
    }

    pub fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    pub fn fate(&self) -> watch::Receiver<Fate> {
        self.fate.subscribe()
    }
}

impl Seat {
    /// The child to talk to now.
    pub fn child(&self) -> Option<Arc<Child>> {
        self.child
            .read()
            .expect("no one panics while holding a seat's child")
            .clone()
    }

    /// The child to talk to now, unless it is over.
    pub fn living(&self) -> Option<Arc<Child>> {
        self.child().filter(|_| !self.over.load(Relaxed))
    }

    pub fn clients(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.number).collect()
    }

    pub fn hosts(&self, client: u32) -> bool {
        self.members.iter().any(|member| member.number == client)
    }

    pub fn wall_clock(&self) -> Option<Arc<WallClock>> {
        self.wall_clock.clone()
    }

    /// A fault kills the child: its next start is not held against it.
    pub fn struck(&self) {
        self.was_struck.store(true, Relaxed);
    }

    /// Kills a child that does not answer any more.
    pub fn kill(&self) {
        if let Some(child) = self.child() {
            child.kill();
        }
    }

    async fn open(self: &Arc<Self>, stage: &Arc<Stage>) -> Result<(), String> {
        self.over.store(false, Relaxed);
        for member in &self.members {
            member.fate.send_modify(|fate| fate.died_at = None);
        }
        let child = Child::start(&self.start, self.who.clone(), &self.log, self.on_news(stage))
            .await
            .map_err(|error| error.to_string())?;
        *self.child.write().expect("no one panics while holding a seat's child") = Some(Arc::clone(&child));
        for member in &self.members {
            let asked = timeout(CLIENT_OPEN, child.ask(member.number, Op::Open(member.open.clone()))).await;
            match asked {
                Ok(Some(Message::Ok { .. })) => {}
                Ok(Some(Message::Fail { error, .. } | Message::Info { error, .. })) => {
                    return Err(format!("client c{} could not open its session: {error}", member.number));
                }
                Ok(Some(Message::Signal(_))) => unreachable!("a signal is never a reply"),
                Ok(None) => return Err(self.why_it_ended(member, stage).await),
                Err(_) => {
                    return Err(format!(
                        "client c{} did not open within {}s",
                        member.number,
                        CLIENT_OPEN.as_secs()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Why a child ended while it was opening: its last words come a moment after its end.
    async fn why_it_ended(&self, member: &Client, stage: &Stage) -> String {
        let mut fate = member.fate();
        let _ = timeout(CLIENT_CLOSE * 2, fate.wait_for(|fate| fate.died_at.is_some())).await;
        let said = stage.failure().or_else(|| stage.tally.last_error());
        said.unwrap_or_else(|| {
            format!(
                "{} ended while it was opening (its log: {})",
                self.who,
                self.log.display()
            )
        })
    }

    /// Starts a new child in place of one that is over, unless another client of this seat already did. Returns whether
    /// there is a child to talk to; a client that is cut off from every server cannot open, and tries again.
    pub async fn revive(self: &Arc<Self>, stage: &Arc<Stage>) -> bool {
        let mut restarts = self.restarts.lock().await;
        if !self.over.load(Relaxed) {
            return true;
        }
        if let Err(error) = self.open(stage).await {
            stage.tally.said(&error);
            self.kill();
            self.over.store(true, Relaxed);
            return false;
        }
        *restarts += u32::from(!self.was_struck.swap(false, Relaxed));
        if *restarts > MAX_RESTARTS {
            stage.fail(format!(
                "{} ended {MAX_RESTARTS} times; see {}",
                self.who,
                self.log.display()
            ));
        }
        true
    }

    async fn close(&self) {
        let Some(child) = self.child() else { return };
        for member in &self.members {
            let _ = timeout(CLIENT_CLOSE, child.ask(member.number, Op::Close)).await;
        }
        child.end().await;
    }

    /// Called for everything that the child says by itself, in its order.
    fn on_news(self: &Arc<Self>, stage: &Arc<Stage>) -> OnNews {
        let (seat, stage) = (Arc::clone(self), Arc::clone(stage));
        Arc::new(move |news| match news {
            News::Signal(signal) => seat.heard(&signal, &stage),
            News::Over { error, at } => seat.is_over(&error, at, &stage),
        })
    }

    fn heard(&self, signal: &harness_workloads::protocol::Signal, stage: &Stage) {
        let Some(client) = self.members.iter().find(|member| member.number == signal.client) else {
            return stage.fail(format!(
                "{} raised a signal for client {}, which it does not host",
                self.who, signal.client
            ));
        };
        if !stage.recorder.is_of_this_run(signal.at) {
            return stage.fail(format!(
                "client c{} raised a signal at {}, which is no CLOCK_MONOTONIC of this run in nanoseconds",
                signal.client, signal.at
            ));
        }
        let f = match signal.f {
            SignalKind::Lost => "lost",
            SignalKind::Woken => "woken",
        };
        let cause = Some(signal.cause.as_str()).filter(|cause| !cause.is_empty());
        let fields = Fields {
            lock: Some(&signal.lock),
            cause,
            ..Fields::default()
        };
        stage.recorder.signal(
            Process::Client(client.process()),
            Some(client.number),
            f,
            fields,
            Some(signal.at),
        );
        if signal.f == SignalKind::Lost {
            stage.tally.lost.fetch_add(1, Relaxed);
            stage.progress.send(Event::Lost {
                client: client.number,
                cause: signal.cause.clone(),
            });
            client.fate.send_modify(|fate| fate.losses += 1);
        }
    }

    fn is_over(&self, error: &ChildError, at: u64, stage: &Stage) {
        self.over.store(true, Relaxed);
        stage.tally.said(&error.to_string());
        if error.is_lie() {
            self.kill();
            stage.fail(error.to_string());
        }
        for member in &self.members {
            member.fate.send_modify(|fate| fate.died_at = Some(at));
        }
    }
}
