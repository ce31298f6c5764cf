//! The lock clients of a run, their process numbers, and the child processes that they live in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use harness_workloads::protocol::Open;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::child::Start;
use super::seat::Seat;
use super::stage::Stage;
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
    pub(super) open: Open,
    /// The incarnation: its process number in the history.
    process: AtomicU32,
    pub(super) fate: watch::Sender<Fate>,
    /// How often it acquired.
    pub acquired: AtomicU64,
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
            Arc::new(Seat::new(who, start, log, members.to_vec(), wall_clock))
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
            .flat_map(|seat| seat.members().iter().map(move |client| (seat, client)))
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
