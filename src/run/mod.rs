//! One run: servers, links, clients, phases and faults, and a history on disk at the end.
//!
//! Nothing is decided here. In any case faults heal, clients and servers end, and the recorded lines stay.
//!
//! [`execute`] takes a [`RunSpec`]. It starts the servers and opens the links (`setup`), makes the [`RunContext`] that all parts
//! of the run share (`context`), and goes through the phases (`phases`), which run the clients (`clients`) and the fault windows
//! (`schedule`).

mod churn;
pub mod client_check;
mod clients;
mod clock;
mod context;
mod delays;
mod ground;
mod history_file;
mod holders;
mod locked;
mod observer;
mod online_check;
mod peer_proxies;
mod phases;
mod progress;
mod recorder;
mod register;
mod roles;
mod routes;
mod schedule;
mod setup;
mod stop_on_violation;
mod taps;
mod targeting;
mod terms;
#[cfg(test)]
mod testing;
mod world_thread;

use std::path::PathBuf;
use std::sync::Arc;

use harness_checkers::History;
use harness_workloads::Contract;
use tokio::sync::watch;

use crate::clock::GroundClock;
use crate::cluster::{ClusterError, NotWritten, RuntimeChoice};
use crate::config::Config;
use crate::event::ProgressSender;
use crate::evidence::SentUnderFaults;
use crate::own_delays::OwnDelays;
use crate::plan::Plan;
use crate::wall_clock::Clocks;
pub use clients::child::{
    CLIENT_CLOSE, ChildCommand, ChildError, ChildEvent, ClientChild, ClientSpawner, OnChildEvent, OutputReader,
    WordsOfRequest, process_name, request_words,
};
pub use clients::pending::PendingRequests;
pub use clients::pool::ClientPool;
use context::RunContext;
pub use ground::{Ground, play};
pub use observer::ConnectObserver;
pub use peer_proxies::PeerLinks;
pub use recorder::OnLine;
pub use setup::attached::{consent_to, survey};
use setup::{ClientLinks, WallClocks};
pub use setup::{RunServers, client_command, exchange, opens};
pub use world_thread::{hear_interrupt, on_a_thread, world_seed};

/// The reason for which a run could not start, or could not continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Clients(String),
    #[error(transparent)]
    Write(#[from] NotWritten),
    /// No acquire was answered as a lock answers, without a fault.
    #[error("{0}")]
    NoLock(String),
    #[error("{0}")]
    ServerEnded(String),
    #[error("it was stopped")]
    Stopped,
    #[error("{0}")]
    Proxy(String),
}

/// The folder of a run's files.
#[derive(Debug, Clone)]
pub struct RunFolder(pub PathBuf);

impl RunFolder {
    pub fn history(&self) -> PathBuf {
        self.0.join("history.jsonl")
    }

    /// Returns the path of the history if there is no lock to judge.
    fn no_history(&self) -> PathBuf {
        self.0.join("no-lock.jsonl")
    }

    pub fn nodes(&self) -> PathBuf {
        self.0.join("nodes")
    }

    pub fn clients(&self) -> PathBuf {
        self.0.join("clients")
    }

    /// Returns the folder of the wall clocks, which exist while the run lasts.
    fn clocks(&self) -> PathBuf {
        self.0.join("clocks")
    }
}

/// The configuration of a run.
#[derive(Clone)]
pub struct RunSpec {
    pub config: Config,
    pub plan: Plan,
    /// The run's name, which is that of its folder, too.
    pub name: String,
    pub folder: RunFolder,
    /// Whether its history is kept in memory, for [`RunOutcome::history`], and no file is written.
    pub in_memory: bool,
    pub choice: RuntimeChoice,
    pub progress: ProgressSender,
    /// Turns `true` when the user wants the run to end.
    pub interrupt: watch::Receiver<bool>,
}

impl RunSpec {
    /// Returns a run on disk, without a receiver of its progress and without an interrupt.
    pub fn of(config: Config, plan: Plan, name: String, folder: RunFolder, choice: RuntimeChoice) -> Self {
        Self {
            config,
            plan,
            name,
            folder,
            in_memory: false,
            choice,
            progress: ProgressSender::unheard(),
            interrupt: watch::channel(false).1,
        }
    }
}

/// The result of a run besides its history.
#[derive(Debug, Default)]
pub struct RunOutcome {
    /// The servers' version, once they serve.
    pub version: Option<String>,
    pub interrupted: bool,
    /// The contract of its clients, if it is known.
    pub contract: Option<Contract>,
    /// The history, if it was kept in memory.
    pub history: Option<History>,
    pub sent: SentUnderFaults,
    /// The reason for which it could not start or continue.
    pub error: Option<RunError>,
    /// The lateness of harness itself; `None` in virtual time.
    pub own_delays: Option<OwnDelays>,
    /// Processes and links that still have to be stopped; the history does not depend on them.
    pub teardown: Teardown,
}

impl RunOutcome {
    /// Returns the outcome of a run that could not start.
    pub fn not_made(error: RunError) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}

/// Clients, servers and links that still exist after the history is complete.
#[derive(Default)]
pub struct Teardown {
    run: Option<Arc<RunContext>>,
    clients: Option<Arc<ClientPool>>,
    servers: Option<RunServers>,
    links: Option<ClientLinks>,
    clocks: Option<Clocks>,
}

impl std::fmt::Debug for Teardown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Teardown")
    }
}

impl Teardown {
    /// Ends them all: clients first, so that they do not see the end of their servers. The error is a sentence about leftovers of
    /// the run on attached servers.
    pub async fn run(self) -> Result<(), String> {
        let run = self.run.clone();
        let Some(mut servers) = self.all_but_servers().await else {
            return Ok(());
        };
        let removed = servers.remove_traces(run.as_ref()).await;
        servers.stop().await;
        removed
    }

    /// Ends clients and links. The servers, if they were started, are left for another run.
    pub async fn all_but_servers(self) -> Option<RunServers> {
        if let Some(clients) = self.clients {
            clients.close().await;
        }
        drop(self.run);
        if let Some(links) = self.links {
            links.close().await;
        }
        drop(self.clocks);
        self.servers
    }
}

/// Executes the run. The history is complete and on disk when this returns.
pub async fn execute(spec: RunSpec) -> RunOutcome {
    execute_on(None, spec).await
}

/// Executes the run on servers that serve and that [suit its plan](RunServers::suit), or on servers that it starts.
pub async fn execute_on(servers: Option<RunServers>, spec: RunSpec) -> RunOutcome {
    let mut outcome = RunOutcome::default();
    outcome.teardown.servers = servers;
    let made = attempt(Arc::new(spec), &mut outcome).await;
    outcome.error = made.err();
    let run = outcome.teardown.run.as_ref();
    outcome.own_delays = run.and_then(|run| run.counters.own_delays.borrow().clone());
    outcome
}

async fn attempt(spec: Arc<RunSpec>, outcome: &mut RunOutcome) -> Result<(), RunError> {
    let mut clocks = WallClocks::lay_out(&spec)?;
    outcome.teardown.clocks = clocks.folder.take();
    if outcome.teardown.servers.is_none() {
        match RunServers::start(&spec, &clocks).await {
            Err(RunError::Cluster(ClusterError::Interrupted)) => {
                outcome.interrupted = true;
                return Ok(());
            }
            started => outcome.teardown.servers = Some(started?),
        }
    }
    let servers = outcome.teardown.servers.as_ref();
    let servers = servers.expect("they were given or have been started");
    let (exchange, notices) = exchange(&spec.config);
    let opened = ClientLinks::open(&spec, &servers.cluster, &exchange).await?;
    let links = outcome.teardown.links.insert(opened);
    let backend = spec.config.backend;
    let ground = Ground {
        clock: GroundClock::Real,
        clients: setup::client_pool(&spec, links, &clocks, &servers.cluster)?,
        links: links.any(),
        peer_links: servers.peer_links(),
        servers: servers.cluster.control(),
        version: servers.cluster.version.clone(),
        server_clocks: clocks.servers.iter().map(|clock| Arc::clone(clock) as _).collect(),
        server_disks: servers.disks(),
        observe: servers.observe(&spec.config),
        sweep: backend.sweep,
        exchange,
        notices,
        on_line: None,
    };
    play(spec, ground, outcome).await
}
