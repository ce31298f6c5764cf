//! One run: servers, links, clients, phases and faults, and a history on disk at the end.
//!
//! Nothing is decided here. Whatever happens, faults heal, clients and servers end, and what was recorded stays.
//!
//! [`execute`] is given a [`RunSpec`]. It starts the servers and opens the links (`setup`), makes the [`RunContext`] that
//! everything in the run shares (`context`), and goes through the phases (`phases`), which run the clients (`clients`) and
//! the fault windows (`schedule`).

mod churn;
pub mod client_check;
mod clients;
mod clock;
mod context;
mod delays;
mod ground;
mod history_file;
mod holders;
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
    WordsOfRequest, request_words,
};
pub use clients::pending::PendingRequests;
pub use clients::pool::{ClientPool, ClientPoolSpec};
use context::RunContext;
pub use ground::{Ground, ServersOfRun, play};
pub use observer::ConnectObserver;
pub use peer_proxies::PeerLinks;
pub use recorder::OnLine;
pub use setup::attached::{consent_to, survey};
use setup::{ClientLinks, WallClocks};
pub use setup::{RunServers, client_command, exchange, opens};
pub use world_thread::{hear_interrupt, on_a_thread, world_seed};

/// Why a run could not be made, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Clients(String),
    #[error(transparent)]
    Write(#[from] NotWritten),
    /// Without a fault, nothing that a lock says was ever answered.
    #[error("{0}")]
    NoLock(String),
    #[error("{0}")]
    ServerEnded(String),
    #[error("it was stopped")]
    Stopped,
    #[error("{0}")]
    Proxy(String),
}

/// Where a run puts its files.
#[derive(Debug, Clone)]
pub struct RunFolder(pub PathBuf);

impl RunFolder {
    pub fn history(&self) -> PathBuf {
        self.0.join("history.jsonl")
    }

    /// What was recorded where there is no lock to judge.
    fn no_history(&self) -> PathBuf {
        self.0.join("no-lock.jsonl")
    }

    pub fn nodes(&self) -> PathBuf {
        self.0.join("nodes")
    }

    pub fn clients(&self) -> PathBuf {
        self.0.join("clients")
    }

    /// Wall clocks, while the run lasts, if the plan steps any.
    fn clocks(&self) -> PathBuf {
        self.0.join("clocks")
    }
}

/// What a run is made of.
pub struct RunSpec {
    pub config: Config,
    pub plan: Plan,
    /// The run's name, which is its folder's as well.
    pub name: String,
    pub folder: RunFolder,
    /// Whether its history is kept in memory, for [`RunOutcome::history`], and no file is written.
    pub in_memory: bool,
    pub choice: RuntimeChoice,
    pub progress: ProgressSender,
    /// Turns `true` when the user wants the run to end.
    pub interrupt: watch::Receiver<bool>,
}

/// What is known of a run besides its history.
#[derive(Debug, Default)]
pub struct RunOutcome {
    /// The servers' version, once they serve.
    pub version: Option<String>,
    pub interrupted: bool,
    /// What its clients promised, once they were asked.
    pub contract: Option<Contract>,
    /// What was recorded, where that was kept in memory.
    pub history: Option<History>,
    pub sent: SentUnderFaults,
    /// Why it could not be made or go on, if so.
    pub error: Option<RunError>,
    /// How late harness itself was; `None` in virtual time.
    pub own_delays: Option<OwnDelays>,
    /// Everything that still has to be stopped; the history does not depend on it.
    pub teardown: Teardown,
}

impl RunOutcome {
    /// Of a run that could not be made.
    pub fn not_made(error: RunError) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}

/// Clients, servers and links that still exist when the history is complete.
#[derive(Default)]
pub struct Teardown {
    run: Option<Arc<RunContext>>,
    clients: Option<Arc<ClientPool>>,
    /// Where the servers were running before the run.
    config: Option<Config>,
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
    /// Ends them all: clients first, so that they do not see their servers go. The error is a sentence about what the run may have
    /// left on servers that it did not start.
    pub async fn run(mut self) -> Result<(), String> {
        let (config, run) = (self.config.take(), self.run.clone());
        let Some(mut servers) = self.all_but_servers().await else {
            return Ok(());
        };
        let removed = match config {
            Some(config) => servers.remove_traces(&config, run.as_ref()).await,
            None => Ok(()),
        };
        servers.stop().await;
        removed
    }

    /// Ends clients and links. The servers, if they were started, go on for another run.
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

/// Makes the run. The history is complete and on disk when this returns.
pub async fn execute(spec: RunSpec) -> RunOutcome {
    execute_on(None, spec).await
}

/// Makes the run on servers that serve and that [suit its plan](RunServers::suit), or on servers that it starts.
pub async fn execute_on(servers: Option<RunServers>, spec: RunSpec) -> RunOutcome {
    let mut outcome = RunOutcome::default();
    outcome.teardown.servers = servers;
    outcome.teardown.config = spec.config.attach.is_attached().then(|| spec.config.clone());
    let made = attempt(Arc::new(spec), &mut outcome).await;
    outcome.error = made.err();
    let run = outcome.teardown.run.as_ref();
    outcome.own_delays = run.and_then(|run| run.counters.own_delays());
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
        servers: ServersOfRun::of(&servers.cluster),
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
