//! One experiment: servers, links, clients, phases and faults, and a history on disk at the end.
//!
//! Nothing is decided here. Whatever happens, faults heal, clients and servers end, and what was recorded stays.

mod aim;
mod child;
mod churn;
mod crew;
mod driver;
mod holders;
mod hosted;
mod observer;
mod outlets;
mod outset;
mod proxied;
mod pulse;
mod recorder;
mod register;
mod roles;
mod routes;
mod scene;
mod schedule;
mod seat;
mod stage;
mod taps;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{Choice, Cluster, ClusterError, Outlets, Spec, server_of};
use crate::config::Config;
use crate::event::{Event, Progress};
use crate::faults::{Field, Links};
use crate::plan::Plan;
use crate::wall_clock::{Clocks, WallClock};
use crew::{Crew, Muster};
pub use outlets::Ways;
use outset::WallClocks;
use proxied::Proxied;
use routes::Routes;
use scene::Scene;
use stage::Stage;

/// Why an experiment could not be made, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
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
pub struct Folder(pub PathBuf);

impl Folder {
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
pub struct Setting<'a> {
    pub config: &'a Config,
    pub plan: &'a Plan,
    pub run: &'a str,
    pub folder: &'a Folder,
    pub choice: &'a Choice,
    pub progress: Progress,
    /// Turns `true` when the user wants it to end.
    pub interrupt: watch::Receiver<bool>,
}

/// What is known of an experiment beside its history.
#[derive(Debug)]
pub struct Ended {
    pub version: Option<String>,
    pub interrupted: bool,
    /// Why it could not be made or go on, if so.
    pub error: Option<ExperimentError>,
    /// Everything that still has to be stopped; the history does not depend on it.
    pub teardown: Teardown,
}

/// Clients, servers and links that are still there when the history is complete.
#[derive(Default)]
pub struct Teardown {
    crew: Option<Arc<Crew>>,
    cluster: Option<Cluster>,
    proxied: Option<Proxied>,
    ways: Option<Arc<Ways>>,
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
        if let Some(crew) = self.crew {
            crew.close().await;
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
pub async fn run(setting: Setting<'_>) -> Ended {
    let mut ended = Ended {
        version: None,
        interrupted: false,
        error: None,
        teardown: Teardown::default(),
    };
    let clocks = match outset::wall_clocks(&setting) {
        Ok(clocks) => clocks,
        Err(error) => {
            ended.error = Some(error);
            return ended;
        }
    };
    let mut interrupt = setting.interrupt.clone();
    let mut preparing = std::pin::pin!(prepare(&setting, &clocks.servers));
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
                let outcome = with_cluster(&setting, &cluster, between, &clocks, &mut ended).await;
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
type Ground = (Option<Arc<Ways>>, Cluster);

async fn prepare(setting: &Setting<'_>, clocks: &[Arc<WallClock>]) -> Result<Ground, ExperimentError> {
    let config = setting.config;
    let server = server_of(config.backend.name()).expect("every backend has servers");
    let ways = if setting.plan.servers_through_proxy {
        let ways = Ways::new(config.seed ^ 0xbe_7ee4);
        Some(ways.map_err(|error| ExperimentError::Proxy(format!("no thread for the proxy between servers: {error}")))?)
    } else {
        None
    };
    if ways.is_some() {
        let text = "the servers reach each other through the proxy, since windows strike between them";
        setting.progress.send(Event::Note(text.into()));
    }
    let spec = Spec {
        server,
        nodes: config.nodes + setting.plan.replicas,
        lease: config.lease,
        run: setting.run.to_owned(),
        logs: setting.folder.nodes(),
        port_base: config.port_base,
        outlets: ways.clone().map(|ways| ways as Arc<dyn Outlets>),
        clocks: clocks.to_vec(),
    };
    let started = Instant::now();
    let cluster = Cluster::start(&spec, &setting.choice.chosen).await?;
    let roles = cluster.census().roles().await;
    let leaders: Vec<&str> = roles
        .iter()
        .filter(|(_, serving)| {
            serving
                .as_ref()
                .is_some_and(|s| s.role == "leader" || s.role == "master")
        })
        .map(|(name, _)| name.as_str())
        .collect();
    let summary = format!(
        "{} {} ×{}, leader {}",
        server.product(),
        cluster.version,
        spec.nodes,
        leaders.join(" ")
    );
    setting.progress.send(Event::ClusterReady {
        took: started.elapsed(),
        summary,
    });
    Ok((ways, cluster))
}

async fn with_cluster(
    setting: &Setting<'_>,
    cluster: &Cluster,
    between: Links,
    clocks: &WallClocks,
    ended: &mut Ended,
) -> Result<(), ExperimentError> {
    let config = setting.config;
    let (exchange, notices) = outset::exchange(config);
    let opened = Proxied::open(setting, cluster, &exchange).await?;
    let proxied = ended.teardown.proxied.insert(opened);
    let links = proxied.links.clone();
    let opens = outset::opens(config, &links);
    let routes = Routes::new(&links, &cluster.places().borrow());
    let path = setting.folder.history();
    let failed = |error: std::io::Error| ExperimentError::Write {
        path: path.clone(),
        why: error.to_string(),
    };
    std::fs::create_dir_all(setting.folder.clients()).map_err(failed)?;
    let (recorder, closer) = recorder::start(&path, &outset::header(setting)).map_err(failed)?;
    let stage = Arc::new(Stage::new(recorder, setting.progress.clone(), exchange, routes));
    let api = proxied.serve_api(config, &stage)?;
    let muster = Muster {
        start: outset::start(config),
        per_process: config.per_process,
        logs: setting.folder.clients(),
        opens,
        clocks: clocks.clients.clone(),
    };
    let crew = Arc::new(Crew::new(muster));
    ended.teardown.crew = Some(Arc::clone(&crew));
    let _listening = taps::start(notices, config.lock_names(), &crew, Arc::clone(&stage));
    let field = Field {
        links,
        between,
        clients: crew.clone(),
        servers: cluster.hand(),
        observed: stage.observed.subscribe(),
        server_clocks: clocks.servers.clone(),
    };
    let scene = Scene {
        setting,
        stage: Arc::clone(&stage),
        crew,
        field: Arc::new(field),
        census: cluster.census(),
        api,
    };
    let outcome = scene.play(cluster.places(), &mut ended.interrupted).await;
    let written = closer.close().map_err(failed);
    outcome.and(written)
}
