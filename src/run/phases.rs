//! The phases of an experiment: control, warm-up, faults, calm, end; with servers, links and clients in place.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::churn::{self, Turns};
use super::clients::driver::{ClientDriver, Workload};
use super::clients::pool::ClientPool;
use super::{RunError, RunSpec, observer, progress, schedule, taps};
use crate::cluster::{EndpointsReceiver, RoleProbe};
use crate::event::ProgressEvent;
use crate::faults::FaultEnv;
use crate::limits::CLIENT_OPEN;
use crate::network::api::Api;
use crate::run::context::RunContext;

/// How often the calm phase looks whether everybody had their turn.
const LOOK: Duration = Duration::from_millis(50);
/// How long a run that was stopped may take to heal.
const GRACE: Duration = Duration::from_secs(2);

/// The phases, with everything in place.
pub struct PhaseRunner<'a> {
    pub spec: &'a RunSpec<'a>,
    pub run: Arc<RunContext>,
    pub pool: Arc<ClientPool>,
    pub env: Arc<FaultEnv>,
    pub probe: RoleProbe,
    /// Toxiproxy's API, where it is served.
    pub api: Option<Api>,
}

impl PhaseRunner<'_> {
    /// Plays all phases, with the observer watching.
    pub async fn play(&self, endpoints: EndpointsReceiver, interrupted: &mut bool) -> Result<(), RunError> {
        let starting = observer::start(self.spec.config.backend, endpoints.clone(), Arc::clone(&self.run));
        let late = || format!("the observer did not connect within {}s", CLIENT_OPEN.as_secs());
        let started = timeout(CLIENT_OPEN, starting).await.unwrap_or_else(|_| Err(late()));
        let _observer = started.map_err(RunError::Clients)?;
        let _pulse = progress::start(self.spec.plan, Arc::clone(&self.run), self.probe.clone());
        let mut interrupt = self.spec.interrupt.clone();
        let phases = async {
            self.pool.open(&self.run).await.map_err(RunError::Clients)?;
            self.phases(endpoints).await
        };
        let mut phases = std::pin::pin!(phases);
        let outcome = tokio::select! {
            biased;
            _ = interrupt.wait_for(|wanted| *wanted) => {
                *interrupted = true;
                Ok(())
            }
            why = self.run.failed() => Err(RunError::Clients(why)),
            why = self.run.recorder.failed() => {
                Err(RunError::Write { path: self.spec.folder.history(), why })
            }
            outcome = &mut phases => return outcome,
        };
        self.run.stop();
        // windows that are open heal and say so, and clients give back what they hold
        let _ = timeout(GRACE, phases).await;
        outcome
    }

    async fn phases(&self, endpoints: EndpointsReceiver) -> Result<(), RunError> {
        self.phase("control", json!({ "each": self.spec.config.each }));
        let turns = Turns::new(self.spec.config.lock_names(), self.spec.config.churn);
        let drivers = self.drivers(turns.clone());
        let _sweeper = self.sweeper(turns, endpoints);
        let (weathered, drivers) = match self.spec.config.each {
            Some(each) => (self.turns(each).await, drivers),
            None => (self.weather().await, drivers),
        };
        let stopped = *self.run.stopping().borrow();
        self.run.stop();
        // clients give back what they hold
        let patience = self.spec.config.lease * 2 + Duration::from_secs(1);
        let _ = timeout(patience, schedule::all(drivers)).await;
        let unfinished = weathered?;
        if stopped {
            return Err(RunError::Stopped);
        }
        let wire = taps::summary(&self.env.links, &self.run);
        self.phase("end", json!({ "unfinished": unfinished, "wire": wire }));
        Ok(())
    }

    /// Every client has its turns, within the time. Returns those who had not.
    async fn turns(&self, each: u32) -> Result<Vec<String>, RunError> {
        let end = Instant::now() + self.spec.plan.phases.control;
        loop {
            self.elapse(LOOK).await?;
            let waiting = self.below(std::iter::repeat(u64::from(each)));
            let holding = !self.run.holders.all().is_empty();
            if (waiting.is_empty() && !holding) || Instant::now() >= end {
                return Ok(waiting);
            }
        }
    }

    /// Control, warm-up, faults, calm. Returns the clients that did not acquire in the calm.
    async fn weather(&self) -> Result<Vec<String>, RunError> {
        let plan = self.spec.plan;
        self.elapse(plan.phases.control).await?;
        let acquired = self.acquired();
        if acquired == 0 {
            let said = self.run.counters.last_error();
            return Err(RunError::Control {
                after: plan.phases.control,
                said,
            });
        }
        self.phase("warm-up", json!({ "control_acquires": acquired }));
        self.elapse(plan.phases.warm_up).await?;
        self.phase("faults", json!({ "windows": plan.windows.len() }));
        let faults_end = Instant::now() + plan.phases.faults;
        schedule::run(plan, &self.env, &self.run).await;
        self.elapse(faults_end.saturating_duration_since(Instant::now()))
            .await?;
        self.calm().await
    }

    /// Fair weather, until its time is over and everybody acquired, or until the bound for that. Returns those who did not.
    async fn calm(&self) -> Result<Vec<String>, RunError> {
        let config = self.spec.config;
        if let Some(api) = &self.api {
            // whoever poked must not be taken for a lock that makes no progress
            api.calm().await.map_err(RunError::Proxy)?;
        }
        self.phase("calm", json!({}));
        let before: Vec<u64> = self
            .pool
            .clients()
            .map(|(_, client)| client.acquired.load(Relaxed))
            .collect();
        let started = Instant::now();
        let planned = self.spec.plan.phases.calm;
        // somebody may have begun to wait just before the calm
        let at_most = planned.max(config.progress_bound + config.wait);
        loop {
            self.elapse(LOOK).await?;
            let waiting = self.below(before.iter().map(|before| before + 1));
            if started.elapsed() >= at_most || (waiting.is_empty() && started.elapsed() >= planned) {
                return Ok(waiting);
            }
        }
    }

    /// The clients that acquired less often than they should have, in the order of the clients.
    fn below(&self, wanted: impl Iterator<Item = u64>) -> Vec<String> {
        let short = self
            .pool
            .clients()
            .zip(wanted)
            .filter(|((_, client), wanted)| client.acquired.load(Relaxed) < *wanted);
        short.map(|((_, client), _)| format!("c{}", client.number)).collect()
    }

    /// Removes what is left of locks that are out of use, until it is dropped.
    fn sweeper(&self, turns: Turns, endpoints: EndpointsReceiver) -> JoinSet<()> {
        let mut sweeper = JoinSet::new();
        if let Some(connect) = self.spec.config.backend.sweep {
            sweeper.spawn(churn::sweep(turns, endpoints, connect, Arc::clone(&self.run)));
        }
        sweeper
    }

    fn drivers(&self, locks: Turns) -> JoinSet<()> {
        let config = self.spec.config;
        let work = Arc::new(Workload {
            locks,
            hold: config.hold,
            wait: config.wait,
            patience: config.lease * 2 + Duration::from_secs(5),
            each: config.each,
            mix: config.mix,
            nested: config.is_reentrant(),
        });
        let mut seeds = ChaCha8Rng::seed_from_u64(config.seed);
        let mut drivers = JoinSet::new();
        for (process, client) in self.pool.clients() {
            let driver = ClientDriver {
                client: Arc::clone(client),
                process: Arc::clone(process),
                pool: Arc::clone(&self.pool),
                run: Arc::clone(&self.run),
                work: Arc::clone(&work),
                rng: ChaCha8Rng::seed_from_u64(seeds.random()),
            };
            drivers.spawn(driver.run());
        }
        drivers
    }

    fn acquired(&self) -> u64 {
        self.run.counters.acquires.load(Relaxed)
    }

    /// Lets time pass; ends early with the reason when the run cannot go on, or was stopped.
    async fn elapse(&self, time: Duration) -> Result<(), RunError> {
        let mut stop = self.run.stopping();
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => Err(RunError::Stopped),
            () = sleep(time) => Ok(()),
        }
    }

    fn phase(&self, name: &'static str, facts: serde_json::Value) {
        let mut extra = Map::new();
        extra.insert("phase".into(), name.into());
        extra.extend(facts.as_object().cloned().unwrap_or_default());
        self.run.recorder.nemesis("phase", extra);
        let text = match name {
            "warm-up" => format!("control passed, {} acquires", self.acquired()),
            "calm" => "faults over; calm, until everybody acquired".to_owned(),
            other => other.to_owned(),
        };
        self.run.progress.send(ProgressEvent::Phase { name, text });
    }
}
