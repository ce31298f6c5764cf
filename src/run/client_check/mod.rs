//! `harness client-check`: plays the client protocol with one client program, first without a server and then with one and without
//! faults, and says of each step whether it was right, wrong, or will not be judged.
//!
//! A run blames locks; this blames client programs. What is wrong here would end a run with an error, or be taken for a violation.

mod alone;
mod checked_client;
mod contract;
mod malformed;
mod seen_grants;
mod together;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use super::RunError;
use super::clients::child::ChildCommand;
use super::setup;
use crate::cluster::{Cluster, ClusterError, ClusterSpec, NotWritten, Runtime};
use crate::config::Config;

/// What is checked, and where.
pub struct ClientCheckSpec {
    pub config: Config,
    pub runtime: Runtime,
    /// For logs; a folder of its own.
    pub folder: PathBuf,
    /// Turns `true` when the user wants the check to end.
    pub interrupt: watch::Receiver<bool>,
    /// Called with each remark as it is made.
    pub on_remark: Box<dyn Fn(&CheckRemark) + Send + Sync>,
}

/// What a step showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckMark {
    Right,
    Wrong,
    /// Nothing can be said, here or in a run.
    NotJudged,
}

/// One step, or one thing that will not be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckRemark {
    pub mark: CheckMark,
    /// What was looked at: `a try-lock of a taken lock`.
    pub step: String,
    /// What was seen, and where it is wrong, what should have been.
    pub seen: String,
}

/// The remarks of one check, in order.
pub struct CheckRemarks {
    made: Mutex<Vec<CheckRemark>>,
    on_remark: Box<dyn Fn(&CheckRemark) + Send + Sync>,
}

impl CheckRemarks {
    fn make(&self, mark: CheckMark, step: &str, seen: impl Into<String>) {
        let remark = CheckRemark {
            mark,
            step: step.to_owned(),
            seen: seen.into(),
        };
        (self.on_remark)(&remark);
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(remark);
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

    /// What a step came to: `Ok` was right, `Err` wrong.
    fn came_to(&self, step: &str, outcome: Result<String, String>) -> bool {
        let (mark, seen) = match outcome {
            Ok(seen) => (CheckMark::Right, seen),
            Err(seen) => (CheckMark::Wrong, seen),
        };
        self.make(mark, step, seen);
        mark == CheckMark::Right
    }
}

/// What every step needs.
struct CheckBench {
    config: Config,
    command: ChildCommand,
    log: PathBuf,
    remarks: CheckRemarks,
}

/// Checks a client program. The error is one of servers or files, and not the client's.
pub async fn check_client(spec: ClientCheckSpec) -> Result<Vec<CheckRemark>, RunError> {
    let ClientCheckSpec {
        config,
        runtime,
        folder,
        mut interrupt,
        on_remark,
    } = spec;
    std::fs::create_dir_all(&folder).map_err(NotWritten::at(&folder))?;
    let login = config.login();
    let bench = CheckBench {
        command: setup::client_command(&config, login.clone(), None)?,
        log: folder.join("client.log"),
        remarks: CheckRemarks {
            made: Mutex::default(),
            on_remark,
        },
        config,
    };
    if alone::check(&bench).await {
        let config = &bench.config;
        let run = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let place = (run, folder.join("nodes"));
        let wanted = ClusterSpec {
            port_base: config.port_base,
            login: login.clone(),
            ..ClusterSpec::plain(
                config.backend.software,
                config.nodes,
                config.lease,
                place,
                config.start_limit,
            )
        };
        let cluster = Cluster::start(&wanted, &runtime, interrupt.clone()).await?;
        let checked = tokio::select! {
            biased;
            Ok(_) = interrupt.wait_for(|wanted| *wanted) => Err(ClusterError::Interrupted.into()),
            checked = together::check(&bench, cluster.endpoints()) => checked.map_err(RunError::Clients),
        };
        cluster.stop().await;
        checked?;
    }
    let made = bench.remarks.made.into_inner();
    Ok(made.unwrap_or_else(PoisonError::into_inner))
}

/// `12 ms`, `1.4 s`
fn in_words(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
