//! One experiment: servers, links, clients, phases and faults, and a history on disk at the end.
//!
//! Nothing is decided here. Whatever happens, faults heal, clients and servers end, and what was recorded stays.

mod churn;
mod clients;
mod context;
mod observer;
mod peer_proxies;
mod phases;
mod progress;
mod recorder;
mod register;
mod roles;
mod schedule;
mod setup;
mod taps;
mod targeting;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{Cluster, ClusterError, ClusterSpec, PeerProxies, RuntimeChoice};
use crate::config::Config;
use crate::event::{ProgressEvent, ProgressSender};
use crate::faults::{FaultEnv, Links};
use crate::plan::Plan;
use crate::wall_clock::{Clocks, WallClock};
use clients::pool::{ClientPool, ClientPoolSpec};
use context::RunContext;
pub use peer_proxies::PeerLinks;
use phases::PhaseRunner;
use setup::WallClocks;
use setup::links::ClientLinks;
use setup::routes::Routes;

/// Why an experiment could not be made, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Clients(String),
    #[error("the control phase failed: nobody acquired a lock in {}s of fair weather{}", after.as_secs_f32(), said.as_ref().map(|said| format!("\n  the last thing a client said: {said}")).unwrap_or_default())]
    Control { after: Duration, said: Option<String> },
    #[error("could not write {}: {why}", path.display())]
    Write { path: PathBuf, why: String },
    #[error("it was stopped")]
    Stopped,
    #[error("{0}")]
    Proxy(String),
}

/// Where an experiment puts its files.
#[derive(Debug, Clone)]
pub struct RunFolder(pub PathBuf);

impl RunFolder {
    pub fn history(&self) -> PathBuf {
        self.0.join("history.jsonl")
    }

    pub fn nodes(&self) -> PathBuf {
        self.0.join("nodes")
    }

    pub fn clients(&self) -> PathBuf {
        self.0.join("clients")
    }

    /// Where wall clocks lie while the run lasts, if the plan steps any.
    fn clocks(&self) -> PathBuf {
        self.0.join("clocks")
    }
}

/// What an experiment needs beside its plan.
pub struct RunSpec<'a> {
    pub config: &'a Config,
    pub plan: &'a Plan,
    pub run: &'a str,
    pub folder: &'a RunFolder,
    pub choice: &'a RuntimeChoice,
    pub progress: ProgressSender,
    /// Turns `true` when the user wants it to end.
    pub interrupt: watch::Receiver<bool>,
}

/// What is known of an experiment beside its history.
#[derive(Debug)]
pub struct RunOutcome {
    pub version: Option<String>,
    pub interrupted: bool,
    /// Why it could not be made or go on, if so.
    pub error: Option<RunError>,
    /// Everything that still has to be stopped; the history does not depend on it.
    pub teardown: Teardown,
}

/// Clients, servers and links that are still there when the history is complete.
#[derive(Default)]
pub struct Teardown {
    pool: Option<Arc<ClientPool>>,
    cluster: Option<Cluster>,
    proxied: Option<ClientLinks>,
    ways: Option<Arc<PeerLinks>>,
    clocks: Option<Clocks>,
}

impl std::fmt::Debug for Teardown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Teardown")
    }
}

impl Teardown {
    /// Ends them all.
    pub async fn run(self) {
        if let Some(pool) = self.pool {
            pool.close().await;
        }
        if let Some(cluster) = self.cluster {
            cluster.stop().await;
        }
        if let Some(proxied) = self.proxied {
            proxied.close().await;
        }
        drop((self.ways, self.clocks));
    }
}

/// Makes the experiment. The history is complete and on disk when this returns.
pub async fn execute(spec: RunSpec<'_>) -> RunOutcome {
    let mut ended = RunOutcome {
        version: None,
        interrupted: false,
        error: None,
        teardown: Teardown::default(),
    };
    let clocks = match setup::wall_clocks(&spec) {
        Ok(clocks) => clocks,
        Err(error) => {
            ended.error = Some(error);
            return ended;
        }
    };
    let mut interrupt = spec.interrupt.clone();
    let mut preparing = std::pin::pin!(prepare(&spec, &clocks.servers));
    let made = tokio::select! {
        made = &mut preparing => made,
        _ = interrupt.wait_for(|wanted| *wanted) => {
            ended.interrupted = true;
            // servers that are half started cannot be stopped; whole ones can, and starting has its own limit
            preparing.await
        }
    };
    match made {
        Err(error) => ended.error = Some(error),
        Ok((ways, cluster)) => {
            ended.version = Some(cluster.version.clone());
            if !ended.interrupted {
                let between = ways.as_ref().map(|ways| ways.links()).unwrap_or_default();
                let outcome = with_cluster(&spec, &cluster, between, &clocks, &mut ended).await;
                ended.error = outcome.err();
            }
            ended.teardown.ways = ways;
            ended.teardown.cluster = Some(cluster);
        }
    }
    ended.teardown.clocks = clocks.folder;
    ended
}

/// The servers, and the ways between them where the plan strikes there.
type Ground = (Option<Arc<PeerLinks>>, Cluster);

async fn prepare(spec: &RunSpec<'_>, clocks: &[Arc<WallClock>]) -> Result<Ground, RunError> {
    let config = spec.config;
    let ways = if spec.plan.servers_through_proxy {
        let ways = PeerLinks::new(config.seed ^ 0xbe_7ee4);
        Some(ways.map_err(|error| RunError::Proxy(format!("no thread for the proxy between servers: {error}")))?)
    } else {
        None
    };
    if ways.is_some() {
        let text = "the servers reach each other through the proxy, since windows strike between them";
        spec.progress.send(ProgressEvent::Note(text.into()));
    }
    let servers = ClusterSpec {
        software: config.backend.software,
        nodes: config.nodes + spec.plan.replicas,
        lease: config.lease,
        run: spec.run.to_owned(),
        logs: spec.folder.nodes(),
        port_base: config.port_base,
        peer_proxies: ways.clone().map(|ways| ways as Arc<dyn PeerProxies>),
        clocks: clocks.to_vec(),
    };
    let started = Instant::now();
    let cluster = Cluster::start(&servers, &spec.choice.runtime).await?;
    let roles = cluster.probe().roles().await;
    let leaders: Vec<&str> = roles
        .iter()
        .filter(|(_, serving)| serving.as_ref().is_some_and(|serving| serving.leads))
        .map(|(name, _)| name.as_str())
        .collect();
    let summary = format!(
        "{} {} ×{}, leader {}",
        config.backend.product(),
        cluster.version,
        servers.nodes,
        leaders.join(" ")
    );
    spec.progress.send(ProgressEvent::ClusterReady {
        took: started.elapsed(),
        summary,
    });
    Ok((ways, cluster))
}

async fn with_cluster(
    spec: &RunSpec<'_>,
    cluster: &Cluster,
    between: Links,
    clocks: &WallClocks,
    ended: &mut RunOutcome,
) -> Result<(), RunError> {
    let config = spec.config;
    let (exchange, notices) = setup::exchange(config);
    let opened = ClientLinks::open(spec, cluster, &exchange).await?;
    let proxied = ended.teardown.proxied.insert(opened);
    let links = proxied.links.clone();
    let opens = setup::opens(config, &links);
    let routes = Routes::new(&links, &cluster.endpoints().borrow());
    let path = spec.folder.history();
    let failed = |error: std::io::Error| RunError::Write {
        path: path.clone(),
        why: error.to_string(),
    };
    std::fs::create_dir_all(spec.folder.clients()).map_err(failed)?;
    let (recorder, closer) = recorder::start(&path, &setup::header(spec)).map_err(failed)?;
    let run = Arc::new(RunContext::new(recorder, spec.progress.clone(), exchange, routes));
    let api = proxied.serve_api(config, &run)?;
    let clients = ClientPoolSpec {
        start: setup::start(config),
        per_process: config.per_process,
        logs: spec.folder.clients(),
        opens,
        clocks: clocks.clients.clone(),
    };
    let pool = Arc::new(ClientPool::new(clients));
    ended.teardown.pool = Some(Arc::clone(&pool));
    let _listening = taps::start(notices, config, &pool, Arc::clone(&run));
    let env = FaultEnv {
        links,
        peer_links: between,
        clients: pool.clone(),
        servers: cluster.control(),
        observed: run.observed.subscribe(),
        server_clocks: clocks.servers.clone(),
    };
    let scene = PhaseRunner {
        spec,
        run: Arc::clone(&run),
        pool,
        env: Arc::new(env),
        probe: cluster.probe(),
        api,
    };
    let outcome = scene.play(cluster.endpoints(), &mut ended.interrupted).await;
    let written = closer.close().map_err(failed);
    outcome.and(written)
}
