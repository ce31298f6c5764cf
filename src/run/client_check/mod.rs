//! `harness client-check`: checks one client program by the client protocol, first without a server and then with one and without
//! faults, and reports of each step whether it was right, wrong, or is not judged.
//!
//! A run judges locks; this judges client programs. A wrong step would end a run with an error, or count as a violation.
//!
//! The steps without a server are in real time. Those with servers use a [`CheckGround`], in real or in virtual time.

mod alone;
mod checked_client;
mod contract;
mod malformed;
mod together;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use harness_workloads::Login;
use serde::Serialize;
use tokio::sync::watch;

use super::clients::child::{ChildSpawner, ClientSpawner};
use super::observer::ConnectObserver;
use super::{RunError, setup};
use crate::clock::GroundClock;
use crate::cluster::{Cluster, ClusterError, ClusterSpec, EndpointsReceiver, NotWritten, Runtime};
use crate::config::Config;

/// The clock and the spawner of client processes.
pub struct CheckPlace {
    pub clock: GroundClock,
    pub spawner: Arc<dyn ClientSpawner>,
}

/// Servers that serve, and clients that reach them.
pub struct CheckGround {
    pub place: CheckPlace,
    /// The servers in the form that clients get.
    pub endpoints: Vec<String>,
    pub servers: EndpointsReceiver,
    /// `None` if the locks cannot be watched.
    pub observe: Option<ConnectObserver>,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckMark {
    Right,
    Wrong,
    /// No result is possible, here or in a run.
    NotJudged,
}

/// The remark about one step, or about one property that is not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckRemark {
    pub mark: CheckMark,
    /// The step: `a try-lock of a taken lock`.
    pub step: String,
    /// The observed answer, and after a wrong one, the right one.
    pub seen: String,
}

/// The check of one client program: the common parts of all steps, and their remarks.
pub struct ClientCheck {
    config: Config,
    /// The login. It is drawn once: servers and clients have the same.
    login: Option<Arc<Login>>,
    log: PathBuf,
    /// The remarks so far, in order.
    made: Mutex<Vec<CheckRemark>>,
    on_remark: Box<dyn Fn(&CheckRemark) + Send + Sync>,
}

impl ClientCheck {
    fn make(&self, mark: CheckMark, step: &str, seen: impl Into<String>) {
        let remark = CheckRemark {
            mark,
            step: step.to_owned(),
            seen: seen.into(),
        };
        (self.on_remark)(&remark);
        self.made().push(remark);
    }

    fn right(&self, step: &str, seen: impl Into<String>) {
        self.make(CheckMark::Right, step, seen);
    }

    fn wrong(&self, step: &str, seen: impl Into<String>) {
        self.make(CheckMark::Wrong, step, seen);
    }

    fn not_judged(&self, step: &str, seen: impl Into<String>) {
        self.make(CheckMark::NotJudged, step, seen);
    }

    /// Adds a remark about a step: `Ok` was right, `Err` wrong.
    fn came_to(&self, step: &str, outcome: Result<String, String>) -> bool {
        let (mark, seen) = match outcome {
            Ok(seen) => (CheckMark::Right, seen),
            Err(seen) => (CheckMark::Wrong, seen),
        };
        self.make(mark, step, seen);
        mark == CheckMark::Right
    }

    /// Prepares a check. `folder` is one of its own, for logs; `on_remark` is called with each remark.
    pub fn new(
        config: Config,
        folder: &Path,
        on_remark: impl Fn(&CheckRemark) + Send + Sync + 'static,
    ) -> Result<Self, RunError> {
        std::fs::create_dir_all(folder).map_err(NotWritten::at(folder))?;
        Ok(Self {
            login: config.login(),
            config,
            log: folder.join("client.log"),
            made: Mutex::default(),
            on_remark: Box::new(on_remark),
        })
    }

    /// Returns the processes of this machine in real time.
    fn real_place(&self) -> Result<CheckPlace, RunError> {
        Ok(CheckPlace {
            clock: GroundClock::Real,
            spawner: Arc::new(ChildSpawner {
                command: setup::client_command(&self.config, self.login.clone(), None)?,
                clocks: Vec::new(),
            }),
        })
    }

    /// Checks without a server. Returns whether the client is fit for further steps.
    pub async fn alone(&self) -> Result<bool, RunError> {
        Ok(alone::check(self, &self.real_place()?).await)
    }

    /// Checks with servers that it starts, in real time. `interrupt` turns `true` when the user wants the check to end.
    pub async fn on_servers(&self, runtime: &Runtime, interrupt: watch::Receiver<bool>) -> Result<(), RunError> {
        let clients = self.real_place()?;
        let config = &self.config;
        let folder = self.log.parent().unwrap_or(Path::new("."));
        let run = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = (run, folder.join("nodes"));
        let wanted = ClusterSpec {
            port_base: config.port_base,
            login: self.login.clone(),
            ..ClusterSpec::plain(
                config.backend.software,
                config.nodes,
                config.lease,
                place,
                config.start_limit,
            )
        };
        let cluster = Cluster::start(&wanted, runtime, interrupt.clone()).await?;
        let servers = cluster.endpoints();
        let endpoints = servers.borrow().servers().iter().map(ToString::to_string).collect();
        let ground = CheckGround {
            place: clients,
            endpoints,
            servers,
            observe: config
                .backend
                .observe
                .map(|observe| Box::new(observe) as ConnectObserver),
        };
        let checked = self.together(&ground, interrupt).await;
        cluster.stop().await;
        checked
    }

    /// Checks with servers. The error is the observer's, or says that the user has ended the check by `interrupt`.
    pub async fn together(&self, ground: &CheckGround, mut interrupt: watch::Receiver<bool>) -> Result<(), RunError> {
        tokio::select! {
            biased;
            Ok(_) = interrupt.wait_for(|wanted| *wanted) => Err(ClusterError::Interrupted.into()),
            checked = together::check(self, ground) => checked.map_err(RunError::Clients),
        }
    }

    fn made(&self) -> MutexGuard<'_, Vec<CheckRemark>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the remarks so far, in order.
    pub fn remarks(&self) -> Vec<CheckRemark> {
        self.made().clone()
    }

    /// Removes all remarks but the first `kept`.
    pub fn take_back(&self, kept: usize) {
        self.made().truncate(kept);
    }
}

/// Returns `12 ms` or `1.4 s`.
fn in_words(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
