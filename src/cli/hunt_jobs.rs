//! A job of a hunt: one experiment after the other, on servers that are kept, or on models in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::experiment::examined_in_memory;
use super::hunt_screen::{JobLines, follow};
use super::hunt_space::SpaceOfHunt;
use super::metrics::Metrics;
use super::series::{ExperimentSeries, SeriesPlace, SeriesStep};
use crate::evidence::SentUnderFaults;
use crate::hunt::exhaustive::NextExperiment;
use crate::hunt::{ExperimentOutcome, ExperimentResult, HuntDraw, HuntRecord};
use crate::store::RUNS;

/// Interval at which a job polls the record for an experiment that depends on other jobs.
const OTHERS: Duration = Duration::from_millis(1);

/// The state that the jobs of a hunt share.
pub struct HuntState {
    pub record: Mutex<HuntRecord>,
    pub space: SpaceOfHunt,
    /// Whether the run of each experiment is kept.
    pub keep_runs: bool,
    pub jobs: Arc<JobLines>,
    pub metrics: Metrics,
    pub until: Instant,
    pub began: Instant,
    /// The time of the record when this call began.
    pub took_before: Duration,
    pub finds_before: usize,
}

impl HuntState {
    pub fn record(&self) -> MutexGuard<'_, HuntRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn elapsed_ms(&self) -> u64 {
        (self.took_before + self.began.elapsed()).as_millis() as u64
    }

    /// Returns the next experiment, unless the hunt is over. Waits while the next one depends on other jobs.
    async fn begin(&self, place: &SeriesPlace) -> Option<(u64, HuntDraw)> {
        while !*place.stop.borrow() && Instant::now() < self.until {
            let next = self.record().begin();
            match next {
                NextExperiment::Number(index) => return Some((index, self.space.draw(&self.record(), index))),
                NextExperiment::NotYet => tokio::time::sleep(OTHERS).await,
                NextExperiment::Over => break,
            }
        }
        None
    }
}

/// An experiment of a job, with its draw and its result.
pub struct JobStep {
    pub index: u64,
    pub draw: HuntDraw,
    pub step: SeriesStep,
}

/// A job, which makes one experiment after the other.
pub struct HuntJob {
    pub number: u32,
    pub series: ExperimentSeries,
    pub state: Arc<HuntState>,
    pub place: Arc<SeriesPlace>,
    /// Receives the experiments that are still to be added to the record.
    pub done: mpsc::UnboundedSender<JobStep>,
}

impl HuntJob {
    /// Makes experiments on real servers until the hunt is over.
    pub async fn work(mut self) {
        while let Some((index, draw)) = self.state.begin(&self.place).await {
            if !self.step(index, draw).await {
                break;
            }
        }
        self.series.end().await;
    }

    /// Makes one experiment with all its files. Returns whether the hunt still accepts experiments.
    async fn step(&mut self, index: u64, draw: HuntDraw) -> bool {
        let args = self.state.space.args(&draw, &self.place.folder.join(RUNS));
        let step = match args {
            Ok(args) => {
                let (jobs, number) = (Arc::clone(&self.state.jobs), self.number);
                let source = self.state.metrics.board().map(|board| board.begin());
                let watch = move |events| follow(jobs, (number, index), source, events);
                self.series.step(&args, watch).await
            }
            Err(why) => SeriesStep::Failed(why),
        };
        self.state.jobs.by_job().remove(&self.number);
        self.done.send(JobStep { index, draw, step }).is_ok()
    }

    /// Makes experiments on models, in memory, on this thread, until the hunt is over. One with a new cause is made a second time,
    /// identically, with its files. If all runs are kept, each experiment is made once, with its files.
    pub fn work_in_memory(mut self) {
        let runtime = Handle::current();
        while let Some((index, draw)) = runtime.block_on(self.state.begin(&self.place)) {
            let began = Instant::now();
            if !self.state.keep_runs {
                let (came_to, sent) = self.in_memory(&draw);
                let is_new = match &came_to {
                    ExperimentOutcome::Decided(diagnosis, _) => self.state.record().is_new(diagnosis),
                    ExperimentOutcome::Failed(_) | ExperimentOutcome::Stopped => true,
                };
                if !is_new {
                    let result = ExperimentResult {
                        came_to,
                        took_ms: began.elapsed().as_millis() as u64,
                        sent,
                        ..ExperimentResult::of(index, &draw, self.state.elapsed_ms())
                    };
                    self.state.record().add(&result);
                    continue;
                }
            }
            if !runtime.block_on(self.step(index, draw)) {
                break;
            }
        }
    }

    /// Makes an experiment in memory. Returns its outcome, and the requests that its clients sent.
    fn in_memory(&self, draw: &HuntDraw) -> (ExperimentOutcome, SentUnderFaults) {
        let config = self.state.space.config(draw);
        match config.and_then(|config| examined_in_memory(config, &self.place.choice, &self.place.stop)) {
            Ok(Some((diagnosis, sent))) => (ExperimentOutcome::Decided(Box::new(diagnosis), String::new()), sent),
            Ok(None) => (ExperimentOutcome::Stopped, SentUnderFaults::default()),
            Err(why) => (ExperimentOutcome::Failed(why), SentUnderFaults::default()),
        }
    }
}
