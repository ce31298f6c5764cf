//! The phases of a run: control, warm-up, faults, recovery, end; on servers, links and clients that exist.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::{NemesisFact, PhaseFact};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::churn::{self, Turns};
use super::clients::arrivals::Arrivals;
use super::clients::driver::ClientDriver;
use super::clients::pool::ClientPool;
use super::clients::rarely::Rarely;
use super::clients::refusals::RefusalPause;
use super::context::RunContext;
use super::observer::{self, ConnectObserver};
use super::{RunError, progress, schedule, stop_on_violation, taps};
use crate::backends::ConnectSweeper;
use crate::client_role::in_words;
use crate::clock::{RunningTask, TaskSet};
use crate::cluster::NotWritten;
use crate::config::Clients;
use crate::evidence::SentUnderFaults;
use crate::faults::FaultEnv;
use harness_proxy::api::Api;

/// The time between two checks whether every client had its turns.
const LOOK: Duration = Duration::from_millis(50);
/// Time for the observer to connect.
const OBSERVER_OPEN: Duration = Duration::from_secs(15);
/// The pauses between its attempts, in milliseconds: on a busy machine one attempt may exceed its limit.
const OBSERVER_PAUSES_MS: [u64; 4] = [100, 200, 400, 800];
/// The delay of clients if acts are placed on their first messages: the rules are active by then.
const FIRST_MESSAGE: Duration = Duration::from_millis(1);
/// The time for the heal of a run that was stopped.
const GRACE: Duration = Duration::from_secs(2);

/// Executes the phases.
pub struct PhaseRunner {
    pub run: Arc<RunContext>,
    pub clients: Arc<ClientPool>,
    pub env: Arc<FaultEnv>,
    pub observe: Option<ConnectObserver>,
    pub sweep: Option<ConnectSweeper>,
    /// Toxiproxy's API, if the run serves it.
    pub api: Option<Api>,
}

impl PhaseRunner {
    /// Executes all phases, with the observer. Ends early, with faults healed, when the user interrupts or the run cannot
    /// continue. If a server ended by itself, that is the reason, before any consequence of it.
    pub async fn play(&self, interrupted: &mut bool) -> Result<(), RunError> {
        let mut written = None;
        let outcome = self.play_until(interrupted, &mut written).await;
        match written.or_else(|| outcome.is_err().then(|| self.write_end()).flatten()) {
            Some(end) => Err(RunError::ServerEnded(end)),
            None => outcome,
        }
    }

    /// Records that a server ended by itself, if one did; returns it in a sentence.
    fn write_end(&self) -> Option<String> {
        let end = self.env.servers.ended.borrow().clone()?;
        let at_ns = self.run.recorder.nemesis(&NemesisFact::ServerEnded(end.clone()));
        Some(end.in_words(at_ns))
    }

    async fn play_until(&self, interrupted: &mut bool, written: &mut Option<String>) -> Result<(), RunError> {
        let run = &self.run;
        let _observer = self.observer().await.map_err(RunError::Clients)?;
        let _ticker = progress::start(run, self.env.servers.clone());
        let mut interrupt = run.spec.interrupt.clone();
        let phases = async {
            self.clients.open(run).await.map_err(RunError::Clients)?;
            self.phases().await
        };
        let mut phases = std::pin::pin!(phases);
        let mut ended = self.env.servers.ended.clone();
        let outcome = tokio::select! {
            biased;
            _ = interrupt.wait_for(|wanted| *wanted) => {
                *interrupted = true;
                Ok(())
            }
            // the sender lives as long as the servers
            Ok(_) = ended.wait_for(Option::is_some) => {
                *written = self.write_end();
                Ok(())
            }
            why = run.failed() => Err(RunError::Clients(why)),
            why = run.recorder.failed() => Err(RunError::Write(NotWritten { path: run.spec.folder.history(), why })),
            outcome = &mut phases => return outcome,
        };
        run.stopping.turn_on();
        // open windows heal and record it, and clients release their locks
        let _ = run.clock.within(GRACE, phases).await;
        outcome
    }

    /// Starts the observer, if there is one.
    async fn observer(&self) -> Result<Option<RunningTask>, String> {
        let Some(observe) = &self.observe else { return Ok(None) };
        let mut failed = None;
        let connecting = async {
            let mut pauses = OBSERVER_PAUSES_MS.into_iter();
            loop {
                let endpoints = self.env.servers.watch_endpoints();
                match observer::start(observe, endpoints, Arc::clone(&self.run)).await {
                    Ok(task) => return Some(task),
                    Err(why) => failed = Some(why),
                }
                self.run.clock.sleep(Duration::from_millis(pauses.next()?)).await;
            }
        };
        let connected = self.run.clock.within(OBSERVER_OPEN, connecting).await.flatten();
        let late = || format!("the observer did not connect within {}s", OBSERVER_OPEN.as_secs());
        connected.map(Some).ok_or_else(|| failed.unwrap_or_else(late))
    }

    async fn phases(&self) -> Result<(), RunError> {
        let run = &self.run;
        let config = &run.spec.config;
        self.begin(PhaseFact::Control { each: config.each });
        let turns = Turns::new(config.lock_names(), config.churn, config.load.skew, run.clock);
        let drivers = self.drivers(turns.clone());
        let _sweeper = self.sweeper(turns);
        let _check = config.stop_on_violation.then(|| stop_on_violation::start(run));
        let went = match config.each {
            Some(each) => self.turns(each).await,
            None => self.control_to_recovery().await,
        };
        let stopped = run.stopping.is_on() && !run.is_violated();
        run.stopping.turn_on();
        // clients release their locks
        let patience = config.lease * 2 + Duration::from_secs(1);
        let _ = run.clock.within(patience, drivers.all()).await;
        let unfinished = match went {
            // no client had its planned time
            Err(RunError::Stopped) if run.is_violated() => Vec::new(),
            went => went?,
        };
        if stopped {
            return Err(RunError::Stopped);
        }
        let wire = Some(taps::summary(&self.env.links, run));
        self.begin(PhaseFact::End { unfinished, wire });
        Ok(())
    }

    /// Waits until every client had its turns, or the time is over. Returns the clients that had fewer.
    async fn turns(&self, each: u32) -> Result<Vec<String>, RunError> {
        let run = &self.run;
        let end = run.clock.now() + run.spec.plan.phases.control;
        loop {
            self.elapse(LOOK).await?;
            let unfinished = self.below(std::iter::repeat(u64::from(each)));
            let holding = !run.holders.all().is_empty();
            if (unfinished.is_empty() && !holding) || run.clock.now() >= end {
                self.has_answered()?;
                return Ok(unfinished);
            }
        }
    }

    /// Executes control, warm-up, faults and recovery. Returns the clients that did not acquire during recovery.
    async fn control_to_recovery(&self) -> Result<Vec<String>, RunError> {
        let (run, plan) = (&self.run, &self.run.spec.plan);
        self.elapse(plan.phases.control).await?;
        if !plan.places_acts && !self.first_acquire().await? {
            self.has_answered()?;
            // faults would show nothing: the verdict is about a lock that nobody gets without them
            return Ok(self.below(std::iter::repeat(1)));
        }
        self.begin(PhaseFact::WarmUp {
            control_acquires: self.acquired(),
        });
        self.elapse(plan.phases.warm_up).await?;
        self.begin(PhaseFact::Faults {
            windows: plan.windows.len() as u32,
            any: run.spec.config.is_any_fault(),
        });
        let end = run.clock.now() + plan.phases.faults;
        let before = self.requests();
        schedule::run_windows(run, &self.env).await;
        self.granted_or(end).await?;
        if self.acquired() == 0 {
            self.has_answered()?;
        }
        let sent = SentUnderFaults {
            requests: self.requests() - before,
            states: run.exchange.states().iter().map(in_words).collect(),
        };
        run.sent_under_faults.set(sent).expect("faults are over once");
        self.recovery().await
    }

    /// Returns the number of requests so far, without pings.
    fn requests(&self) -> u64 {
        self.run.exchange.counts().requests
    }

    /// Waits until then, or until the lock had all its grants.
    async fn granted_or(&self, end: Duration) -> Result<(), RunError> {
        let elapsed = self.elapse(end.saturating_sub(self.run.clock.now()));
        tokio::select! {
            biased;
            () = self.run.granted.until_on() => Ok(()),
            elapsed = elapsed => elapsed,
        }
    }

    /// Waits for the first acquire as long as it takes to decide that the lock does not work. Returns whether there was one.
    async fn first_acquire(&self) -> Result<bool, RunError> {
        let config = &self.run.spec.config;
        let end = self.run.clock.now() + config.progress_bound + config.lease + config.wait;
        while self.acquired() == 0 {
            if self.run.clock.now() >= end {
                return Ok(false);
            }
            self.elapse(LOOK).await?;
        }
        Ok(true)
    }

    /// Checks that a lock has answered. If each client had errors for answers instead, there is nothing to judge: a program is
    /// missing, or the servers are not those that the client expects.
    fn has_answered(&self) -> Result<(), RunError> {
        let run = &self.run;
        if run.counters.answered.load(Relaxed) || !self.clients.have_all_failed() {
            return Ok(());
        }
        let last = run.counters.last_error().unwrap_or_default();
        let why = format!("no client ever acquired, and each answer was an error, the last one: {last}");
        let hint =
            "hint: see clients/c0.log in the run's folder, and check the client program with `harness client-check`";
        let config = &run.spec.config;
        let foreign = matches!(config.who, Clients::Foreign { .. });
        let why = config.with_login_hint(why);
        Err(RunError::NoLock(if foreign { format!("{why}\n{hint}") } else { why }))
    }

    /// Waits without faults until the planned time is over and every client acquired, or until the bound for that, which is
    /// longer if a turn of all clients takes long. After the planned time clients that acquired leave the lock to the others.
    /// Returns the clients that did not acquire.
    async fn recovery(&self) -> Result<Vec<String>, RunError> {
        let run = &self.run;
        let config = &run.spec.config;
        if let Some(api) = &self.api {
            // a lock must not be judged for changes through the API
            api.calm().await.map_err(RunError::Proxy)?;
        }
        self.begin(PhaseFact::Recovery);
        run.recovery.turn_on();
        let before = self.clients.acquired();
        let began = run.clock.now();
        let planned = run.spec.plan.phases.recovery;
        // a client may have begun to wait just before the recovery
        let at_most = planned.max(config.progress_bound + config.wait + run.until_sent_again());
        loop {
            self.elapse(LOOK).await?;
            let unfinished = self.below(before.iter().map(|before| before + 1));
            let lasted = run.clock.now() - began;
            if lasted >= planned {
                run.granted.turn_on();
            }
            let is_over = lasted >= at_most && lasted >= self.two_turns(&before, lasted).min(config.time);
            if is_over || (unfinished.is_empty() && lasted >= planned) {
                return Ok(unfinished);
            }
        }
    }

    /// Returns the time of two turns of all clients, by their grants in this time; zero without any.
    fn two_turns(&self, before: &[u64], lasted: Duration) -> Duration {
        let grants = self.clients.acquired().iter().sum::<u64>() - before.iter().sum::<u64>();
        if grants == 0 {
            return Duration::ZERO;
        }
        lasted.mul_f64(2.0 * before.len() as f64 / grants as f64)
    }

    /// Returns the clients with fewer acquires than `wanted` of each, in the order of the clients.
    fn below(&self, wanted: impl Iterator<Item = u64>) -> Vec<String> {
        let acquired = self.clients.acquired().into_iter();
        let clients = acquired.zip(wanted).enumerate();
        let short = clients.filter(|(_, (acquired, wanted))| acquired < wanted);
        short.map(|(client, _)| format!("c{client}")).collect()
    }

    /// Starts the removal of leftovers of locks out of use.
    fn sweeper(&self, turns: Turns) -> Option<RunningTask> {
        let connect = self.sweep?;
        let endpoints = self.env.servers.watch_endpoints();
        let sweep = churn::sweep(turns, endpoints, connect, Arc::clone(&self.run));
        Some(self.run.clock.by.spawn(sweep))
    }

    /// Starts the driver of each client.
    fn drivers(&self, locks: Turns) -> TaskSet<()> {
        let config = &self.run.spec.config;
        let locks = Arc::new(locks);
        let arrivals = config.load.rate.map(|rate| {
            // a reading takes time in a world: without a rate there is none
            let since = self.run.clock.now();
            Arc::new(Arrivals::new(rate, config.load.ramp, since, config.seed))
        });
        let mut seeds = ChaCha8Rng::seed_from_u64(config.seed);
        let mut drivers = self.run.clock.by.tasks();
        let ramp = config.load.ramp / config.clients;
        let first = match self.run.spec.plan.places_acts {
            true => FIRST_MESSAGE,
            false => Duration::ZERO,
        };
        for (process, client) in self.clients.clients() {
            let mut rng = ChaCha8Rng::seed_from_u64(seeds.random());
            let vary = Some(config.vary).filter(|_| config.each.is_none());
            let driver = ClientDriver {
                client: Arc::clone(client),
                process: Arc::clone(process),
                pool: Arc::clone(&self.clients),
                run: Arc::clone(&self.run),
                locks: Arc::clone(&locks),
                arrivals: arrivals.clone(),
                long_holds: Rarely::new(vary, &mut rng),
                rests: Rarely::new(vary, &mut rng),
                refusals: RefusalPause::default(),
                begins_after: match config.load.rate {
                    // the rate ramps up in place of the clients
                    Some(_) => Duration::ZERO,
                    None => first + ramp * client.number,
                },
                had_its_last: false,
                rng,
            };
            drivers.spawn(driver.run());
        }
        drivers
    }

    fn acquired(&self) -> u64 {
        self.run.counters.acquires.load(Relaxed)
    }

    /// Waits for this time; fails if the run stops before.
    async fn elapse(&self, time: Duration) -> Result<(), RunError> {
        tokio::select! {
            biased;
            () = self.run.stopping.until_on() => Err(RunError::Stopped),
            () = self.run.clock.sleep(time) => Ok(()),
        }
    }

    fn begin(&self, phase: PhaseFact) {
        let text = match &phase {
            PhaseFact::WarmUp { control_acquires } => format!("control passed, {control_acquires} acquires"),
            PhaseFact::Recovery => "faults over; recovery, until every client acquired".to_owned(),
            _ => phase.name().to_owned(),
        };
        self.run.begin_phase(phase, text);
    }
}
