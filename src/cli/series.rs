//! A series of experiments on servers that are kept between them: a hunt has one series for each job.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_workloads::Contract;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Failure;
use super::args::RunArgs;
use super::examined::{Examined, PAGE};
use super::experiment::{begin, decided, outcome_of, refusal};
use super::report;
use crate::cluster::{ClusterError, Runtime, RuntimeChoice};
use crate::config::Config;
use crate::event::{ProgressEvent, ProgressSender, TimedEvent};
use crate::evidence::SentUnderFaults;
use crate::exit::Exit;
use crate::in_virtual_time::{self, ForkServer};
use crate::plan::{Plan, kept_windows::planned};
use crate::report::Diagnosis;
use crate::run::{self, RunError, RunFolder, RunServers, RunSpec};
use crate::simulated;
use crate::store::{self, RUNS, StoreError, Stored};

/// Folder of the logs of servers that are kept.
const SERVERS: &str = "servers";
/// Time for an experiment that was interrupted to end by itself; then it is dropped, which heals its faults and ends its
/// processes.
const END_LIMIT: Duration = Duration::from_millis(1200);

/// The place of the experiments of a search: the runtime and the folder.
pub struct SeriesPlace {
    pub choice: RuntimeChoice,
    pub digest: Option<String>,
    /// The folder of the search, whose last part is its name.
    pub folder: PathBuf,
    /// Turns `true` when the current experiments must end.
    pub stop: watch::Receiver<bool>,
}

impl SeriesPlace {
    /// Chooses the runtime of experiments with this configuration, on servers that harness starts.
    pub async fn of(config: &Config, folder: &Path, stop: watch::Receiver<bool>) -> Result<Arc<Self>, Failure> {
        refuse_running_servers(config)?;
        if let Some(why) = refusal(config) {
            return Err(Failure::usage(why));
        }
        let choice = config.choose_runtime().await.map_err(Failure::environment)?;
        Ok(Arc::new(Self {
            digest: choice.runtime.digest().await,
            choice,
            folder: fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()),
            stop,
        }))
    }
}

/// The experiments of one job.
pub struct ExperimentSeries {
    place: Arc<SeriesPlace>,
    job: u32,
    /// Whether some plan has partitions between servers: then they are started with proxies between them.
    through_proxy: bool,
    kept: Option<KeptServers>,
    clusters: u32,
    fork_server: Arc<ForkServer>,
}

struct KeptServers {
    servers: RunServers,
    folder: PathBuf,
}

/// An experiment that has ended, and is being decided.
pub struct Experimented {
    pub contract: Option<Contract>,
    pub decision: JoinHandle<RunDecision>,
    pub took: Duration,
    pub sent: SentUnderFaults,
}

/// The decision about a stored run, which is then kept or removed.
pub struct RunDecision {
    pub folder: PathBuf,
    pub examined: Result<Examined, Failure>,
    stored: Stored,
    /// The logs of its servers, if they are not in its folder.
    server_logs: Option<PathBuf>,
}

impl RunDecision {
    /// Returns the diagnosis, or the failure that prevented it.
    pub fn diagnosis(&self) -> Result<&Diagnosis, Failure> {
        let examined = self.examined.as_ref().map_err(Failure::clone);
        examined.map(|examined| &examined.diagnosis)
    }

    /// Writes the reports of a run that is to be kept, and puts the logs of its servers next to it.
    pub fn keep(&mut self) -> Result<(), StoreError> {
        if let Some(logs) = &self.server_logs {
            let path = self.folder.join("nodes");
            copy_logs(&logs.join("nodes"), &path).map_err(|source| StoreError::Write { path, source })?;
        }
        match &mut self.examined {
            Ok(examined) => report::write(&self.stored, examined).map(drop),
            Err(_) => Ok(()),
        }
    }

    pub fn remove(&self) {
        remove_run(&self.folder);
    }
}

/// The result of one experiment of a series.
pub enum SeriesStep {
    Ended(Box<Experimented>),
    /// The experiment could not be made or completed, for this reason.
    Failed(String),
    Stopped,
}

impl ExperimentSeries {
    pub fn new(place: Arc<SeriesPlace>, job: u32, through_proxy: bool) -> Self {
        Self {
            place,
            job,
            through_proxy,
            kept: None,
            clusters: 0,
            fork_server: Arc::default(),
        }
    }

    /// Makes one experiment, and passes its progress to `watch`.
    pub async fn step(&mut self, args: &RunArgs, watch: impl FnOnce(Receiver<TimedEvent>)) -> SeriesStep {
        let mut stop = self.place.stop.clone();
        let stopped = async {
            let _ = stop.wait_for(|stop| *stop).await;
            tokio::time::sleep(END_LIMIT).await;
        };
        tokio::select! {
            made = self.experiment(args, watch) => made.unwrap_or_else(|error| match error {
                RunError::Stopped | RunError::Cluster(ClusterError::Interrupted) => SeriesStep::Stopped,
                error => SeriesStep::Failed(error.to_string()),
            }),
            () = stopped => SeriesStep::Stopped,
        }
    }

    async fn experiment(
        &mut self,
        args: &RunArgs,
        watch: impl FnOnce(Receiver<TimedEvent>),
    ) -> Result<SeriesStep, RunError> {
        let refused = RunError::Clients;
        let config = args.config(args.seed.unwrap_or_default()).map_err(refused)?;
        let plan = planned(&config).map_err(|error| refused(error.to_string()))?;
        let place = Arc::clone(&self.place);
        let (name, folder, info) = begin(args, &config, &plan, &place.choice, place.digest.clone())
            .map_err(|error| refused(error.to_string()))?;
        let _held = store::hold(&folder).ok();
        let (progress, events) = ProgressSender::channel();
        let on_disk = RunFolder(folder.clone());
        let choice = config.with_upgrade(place.choice.clone()).await?;
        let spec = RunSpec {
            progress: progress.clone(),
            interrupt: place.stop.clone(),
            ..RunSpec::of(config.clone(), plan.clone(), name, on_disk, choice)
        };
        let kept = self.servers_for(&config, &plan, &spec).await?;
        let (servers, server_logs) = kept.map_or((None, None), |kept| (Some(kept.servers), Some(kept.folder)));
        watch(events);
        let started = Instant::now();
        let ended = match spec.choice.runtime {
            Runtime::Simulated => simulated::execute(spec).await,
            Runtime::Virtual => in_virtual_time::execute(None, spec, Arc::clone(&self.fork_server)).await,
            _ => run::execute_on(servers, spec).await,
        };
        let took = started.elapsed();
        progress.send(ProgressEvent::End);
        let info = outcome_of(&ended, info);
        let decision = decide(RunFolder(folder), info, server_logs.clone());
        let healthy = ended.error.is_none() && !ended.interrupted;
        let used = ended.teardown.all_but_servers().await;
        self.keep(used, server_logs.as_ref().filter(|_| healthy), &config).await;
        if ended.interrupted {
            return Ok(SeriesStep::Stopped);
        }
        if let Some(error) = ended.error {
            return Err(error);
        }
        Ok(SeriesStep::Ended(Box::new(Experimented {
            contract: ended.contract,
            decision,
            took,
            sent: ended.sent,
        })))
    }

    /// Returns the kept servers, or new ones to keep; `None` if this plan needs its own.
    async fn servers_for(
        &mut self,
        config: &Config,
        plan: &Plan,
        spec: &RunSpec,
    ) -> Result<Option<KeptServers>, RunError> {
        let of_a_world = matches!(spec.choice.runtime, Runtime::Simulated | Runtime::Virtual);
        if of_a_world || !RunServers::can_be_kept(config, plan) {
            return Ok(None);
        }
        match self.kept.take() {
            Some(kept) if kept.servers.suit(config, plan) => return Ok(Some(kept)),
            Some(kept) => kept.servers.stop().await,
            None => {}
        }
        self.clusters += 1;
        let name = format!("{}-{}", self.job + 1, self.clusters);
        let folder = self.place.folder.join(SERVERS).join(&name);
        let hunt = self.place.folder.file_name().unwrap_or_default().to_string_lossy();
        let for_many = RunSpec {
            plan: Plan {
                servers_through_proxy: self.through_proxy,
                steps_clocks: false,
                ..plan.clone()
            },
            name: format!("{hunt}-{name}"),
            folder: RunFolder(folder.clone()),
            ..spec.clone()
        };
        let servers = RunServers::start_for_many(&for_many).await?;
        Ok(Some(KeptServers { servers, folder }))
    }

    /// Keeps the servers of an experiment for the next one if they can be made as new; stops them otherwise.
    async fn keep(&mut self, used: Option<RunServers>, logs: Option<&PathBuf>, config: &Config) {
        let Some(servers) = used else { return };
        match logs {
            Some(folder) if servers.renew(config).await.is_ok() => {
                let folder = folder.clone();
                self.kept = Some(KeptServers { servers, folder });
            }
            _ => servers.stop().await,
        }
    }

    /// Stops the kept servers.
    pub async fn end(self) {
        if let Some(kept) = self.kept {
            kept.servers.stop().await;
        }
    }
}

/// The reason for which a series uses no servers that are already running.
const RUNNING_SERVERS: &str = "hunt and shrink empty their servers between two experiments, and must not empty those of --servers\nhint: harness run --repeat 20 --servers …";

/// Refuses servers that harness did not start.
pub fn refuse_running_servers(config: &Config) -> Result<(), Failure> {
    match config.attach.is_attached() {
        true => Err(Failure::usage(RUNNING_SERVERS)),
        false => Ok(()),
    }
}

fn decide(folder: RunFolder, info: store::RunInfo, server_logs: Option<PathBuf>) -> JoinHandle<RunDecision> {
    spawn_blocking(move || {
        let (stored, examined, told) = decided(&folder, info);
        let examined = examined.map_err(|why| Failure::of(Exit::Bug, why));
        RunDecision {
            folder: folder.0,
            examined: told.map_err(Failure::environment).and(examined),
            stored,
            server_logs,
        }
    })
}

/// Copies `n1/server.log`, … and the servers' configuration.
fn copy_logs(from: &Path, to: &Path) -> std::io::Result<()> {
    for node in fs::read_dir(from)?.flatten() {
        let into = to.join(node.file_name());
        fs::create_dir_all(&into)?;
        for file in fs::read_dir(node.path())?.flatten() {
            fs::copy(file.path(), into.join(file.file_name()))?;
        }
    }
    Ok(())
}

/// Returns the name of a run in the record of its hunt: `runs/NAME`.
pub fn run_name(run: &Path) -> String {
    format!("{RUNS}/{}", run.file_name().unwrap_or_default().to_string_lossy())
}

/// Removes the folder of a run that is not kept. One that cannot be removed stays, and does no harm.
pub fn remove_run(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

/// Removes the logs of servers that were kept; a run that is kept has a copy.
pub fn remove_logs(folder: &Path) {
    let _ = fs::remove_dir_all(folder.join(SERVERS));
}

/// Removes the runs that were stopped: those that are kept have a page.
pub fn remove_stopped_runs(folder: &Path) {
    let runs = fs::read_dir(folder.join(RUNS)).into_iter().flatten().flatten();
    for run in runs.map(|run| run.path()).filter(|run| !run.join(PAGE).is_file()) {
        remove_run(&run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_kept_before_stays_and_one_that_was_stopped_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join(RUNS);
        for run in ["kept", "stopped"] {
            fs::create_dir_all(runs.join(run)).unwrap();
        }
        fs::write(runs.join("kept").join(PAGE), "").unwrap();
        remove_stopped_runs(folder.path());
        assert!(runs.join("kept").exists() && !runs.join("stopped").exists());
    }
}
