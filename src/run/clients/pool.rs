//! The lock clients of a run, their process numbers, and the child processes that they live in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use harness_workloads::protocol::OpenRequest;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::child::ChildCommand;
use super::process::ClientProcess;
use crate::run::context::RunContext;
use crate::wall_clock::WallClock;

/// What a client must notice while it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// How often its library said that the lock is lost.
    pub losses: u64,
    /// When its child process ended, by `CLOCK_MONOTONIC`.
    pub died_at: Option<u64>,
}

/// One lock client, through all its incarnations.
pub struct LogicalClient {
    pub number: u32,
    pub(super) open: OpenRequest,
    /// The incarnation: its process number in the history.
    process: AtomicU32,
    pub(super) health: watch::Sender<Health>,
    /// How often it acquired.
    pub acquired: AtomicU64,
    /// After its last call or reply was recorded, by `CLOCK_MONOTONIC`.
    pub recorded_at: AtomicU64,
}

/// All clients of a run.
pub struct ClientPool {
    pub processes: Vec<Arc<ClientProcess>>,
    next_process: AtomicU32,
}

/// How the pool's clients are started.
pub struct ClientPoolSpec {
    pub start: ChildCommand,
    pub per_process: u32,
    pub logs: PathBuf,
    /// By client: what it is told when it opens.
    pub opens: Vec<OpenRequest>,
    /// By client: the wall clock that its process is to have; empty where they all have the machine's.
    pub clocks: Vec<Arc<WallClock>>,
}

impl ClientPool {
    pub fn new(spec: ClientPoolSpec) -> Self {
        let clients: Vec<Arc<LogicalClient>> = spec
            .opens
            .into_iter()
            .enumerate()
            .map(|(n, o)| LogicalClient::new(n, o))
            .collect();
        let next_process = AtomicU32::new(clients.len() as u32);
        let process = |members: &[Arc<LogicalClient>]| {
            let who = format!("client c{}", members[0].number);
            let log = spec.logs.join(format!("c{}.log", members[0].number));
            let wall_clock = spec.clocks.get(members[0].number as usize).cloned();
            let mut start = spec.start.clone();
            if let Some(clock) = &wall_clock {
                start.env.extend(clock.environment(clock.folder()));
            }
            Arc::new(ClientProcess::new(who, start, log, members.to_vec(), wall_clock))
        };
        Self {
            processes: clients.chunks(spec.per_process as usize).map(process).collect(),
            next_process,
        }
    }

    /// Starts every child and opens every client; fails with the first that cannot.
    pub async fn open(&self, run: &Arc<RunContext>) -> Result<(), String> {
        let mut opening = JoinSet::new();
        for process in &self.processes {
            let (process, run) = (Arc::clone(process), Arc::clone(run));
            opening.spawn(async move { process.open(&run).await });
        }
        while let Some(opened) = opening.join_next().await {
            opened.expect("opening a client does not panic")?;
        }
        Ok(())
    }

    pub fn clients(&self) -> impl Iterator<Item = (&Arc<ClientProcess>, &Arc<LogicalClient>)> {
        self.processes
            .iter()
            .flat_map(|process| process.members().iter().map(move |client| (process, client)))
    }

    /// Gives a client a new process number: its old one must never act again.
    pub fn retire(&self, client: &LogicalClient) {
        client.process.store(self.next_process.fetch_add(1, Relaxed), Relaxed);
    }

    /// Closes every client and ends every child.
    pub async fn close(&self) {
        let mut closing = JoinSet::new();
        for process in &self.processes {
            let process = Arc::clone(process);
            closing.spawn(async move { process.close().await });
        }
        while closing.join_next().await.is_some() {}
    }
}

impl LogicalClient {
    fn new(number: usize, open: OpenRequest) -> Arc<Self> {
        Arc::new(Self {
            number: number as u32,
            open,
            process: AtomicU32::new(number as u32),
            health: watch::channel(Health::default()).0,
            acquired: AtomicU64::new(0),
            recorded_at: AtomicU64::new(0),
        })
    }

    pub fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }
}
