//! `harness shrink`: cuts the plan of a violation down by smaller runs.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ColorChoice;
use tokio::sync::watch;

use super::bisect;
use super::experiment::{completed, examined_in_memory, run_args, set_option};
use super::hunt_args::ShrinkArgs;
use super::interrupt::interrupted;
use super::original::{Original, original};
use super::series::{self, ExperimentSeries, RunDecision, SeriesPlace, SeriesStep};
use super::shrink_screen::{SHRINK_SCHEMA, ShrinkResult, not_made_line, progress_line, summary};
use super::shrunk_test;
use super::stdout::{print, print_json};
use super::{Failure, look, run_to_end};
use crate::cluster::{Runtime, RuntimeRequest};
use crate::config::{Config, NO_FAULT};
use crate::exit::Exit;
use crate::hunt::hit_rate::HitRate;
use crate::hunt::shrink::{ShrinkCandidate, ShrinkGround, Shrinking};
use crate::plan::Phases;
use crate::plan::kept_windows::planned;
use crate::report::screen::Look;
use crate::store::{self, RUNS};

/// The length of a run without faults.
const FAULTLESS: Duration = Duration::from_secs(12);
/// Default number of runs in which less is tried.
const RUNS_ON_SERVERS: u32 = 20;
const RUNS_OF_PROCESSES: u32 = 40;
const RUNS_ON_MODELS: u32 = 3000;
/// Maximum number of retries of a run that could not be made: one failed start on a busy machine must not end the whole search.
const MADE_AGAIN: u32 = 2;
/// The reason for the end of a search by the user.
const INTERRUPT: &str = "Ctrl-C";

pub fn shrink(args: &ShrinkArgs, color: ColorChoice) -> Result<Exit, Failure> {
    if let Some((kind, versions)) = args.compared() {
        return bisect::bisect(args, kind, versions, color);
    }
    let original = original(args)?;
    if let Some(path) = &args.as_test {
        shrunk_test::accepts(path, original.config.runtime).map_err(Failure::usage)?;
    }
    let name = format!("{}-shrink-{}", store::minute_now(), original.name);
    let (_, folder) = store::create(&args.results, &name).map_err(Failure::environment)?;
    let looks = look(color, &io::stderr());
    let result = run_to_end(cut_down(args, &original, &folder, looks))?;
    series::remove_logs(&folder);
    series::remove_stopped_runs(&folder);
    store::write_json(&folder.join("shrink.json"), &result).map_err(Failure::environment)?;
    let exit = match (result.detected_after_ms, result.interrupted) {
        (Some(_), _) => Exit::Violated,
        (None, true) => Exit::Interrupted,
        (None, false) => Exit::Inconclusive,
    };
    let is_shown = exit == Exit::Violated;
    if let Some(path) = args.as_test.as_ref().filter(|_| is_shown) {
        shrunk_test::write(path, &result).map_err(Failure::environment)?;
    }
    if args.json {
        print_json(&result);
    } else {
        print(&summary(&result, &folder, look(color, &io::stdout())));
    }
    match &args.as_test {
        Some(path) if !is_shown => {
            let why = format!("{} was not written: the result shows no violation", path.display());
            Err(Failure::of(exit, why))
        }
        _ => Ok(exit),
    }
}

impl Original {
    /// Returns the options of `harness run` for a candidate.
    fn options(&self, left: &ShrinkCandidate) -> Vec<(String, String)> {
        let mut options = self.options.clone();
        let mut set = |name: &str, value| set_option(&mut options, name, value);
        if left.windows.is_empty() {
            set("fault", Some(NO_FAULT.to_owned()));
            let phases = self.config.lease * 3 + FAULTLESS / 2;
            set("time", Some(format!("{}ms", FAULTLESS.max(phases).as_millis())));
            set("window", None);
            set("windows", None);
        } else if left.windows != self.windows {
            let numbers: Vec<String> = left.windows.iter().map(u32::to_string).collect();
            set("windows", Some(numbers.join(",")));
        }
        if left.clients != self.config.clients {
            set("clients", Some(left.clients.to_string()));
        }
        if left.locks != self.config.locks {
            set("locks", Some(left.locks.to_string()));
        }
        if left.grants != self.config.grants {
            set("grants", left.grants.map(|grants| grants.to_string()));
        }
        if let Some(wait) = left.wait.filter(|wait| *wait != self.config.wait) {
            set("wait", Some(format!("{}ms", wait.as_millis())));
        }
        if left.world > 0 {
            let runtime = match self.config.runtime {
                RuntimeRequest::Virtual => Runtime::Virtual,
                _ => Runtime::Simulated,
            };
            set("runtime", Some(runtime.name().to_owned()));
            set("world", Some(left.world.to_string()));
        }
        for option in &left.without {
            set(option, None);
        }
        options
    }

    /// Returns the configuration of a candidate, unless such a run is refused, or its plan lacks a window.
    fn possible(&self, left: &ShrinkCandidate) -> Option<Config> {
        let (_, config) = completed(&self.options(left), Path::new("")).ok()?;
        planned(&config).is_ok().then_some(config)
    }

    /// Returns the candidate that the search begins with: the whole run.
    fn whole(&self) -> ShrinkCandidate {
        let has_wait = self.options.iter().any(|(name, _)| name == "wait");
        ShrinkCandidate {
            windows: self.windows.clone(),
            clients: self.config.clients,
            locks: self.config.locks,
            grants: self.config.grants,
            wait: has_wait.then_some(self.config.wait),
            without: BTreeSet::new(),
            world: self.config.world,
        }
    }
}

/// A run of a candidate: the time of its violation since the start of the run, its class, and its files; none of them if the run could
/// not be made.
#[derive(Default)]
struct Trial {
    detected: Option<Duration>,
    class: Option<String>,
    decision: Option<RunDecision>,
}

impl Trial {
    /// Removes its files. Returns whether it showed the violation; `None` if the run could not be made.
    fn without_files(self) -> Option<bool> {
        let decision = self.decision?;
        decision.remove();
        Some(self.detected.is_some())
    }
}

/// The state that the search and the confirmation share.
struct Shrinker<'a> {
    args: &'a ShrinkArgs,
    original: &'a Original,
    folder: &'a Path,
    ground: ShrinkGround,
    place: Arc<SeriesPlace>,
    series: ExperimentSeries,
    stop: watch::Receiver<bool>,
    look: Look,
    until: Instant,
    number: u32,
    /// The number of runs that could be made. After the first one, a candidate that cannot be run counts as one without the violation.
    made: u32,
    /// The last run that failed, and the class of its violation.
    kept: Option<PathBuf>,
    class: Option<String>,
}

async fn cut_down(args: &ShrinkArgs, original: &Original, folder: &Path, looks: Look) -> Result<ShrinkResult, Failure> {
    let stop = interrupted();
    let place = SeriesPlace::of(&original.config, folder, stop.clone()).await;
    let place = place.inspect_err(|_| series::remove_run(folder))?;
    let ground = match place.choice.runtime {
        Runtime::Simulated => ShrinkGround::Models,
        Runtime::Virtual => ShrinkGround::Processes,
        _ => ShrinkGround::Servers,
    };
    let mut shrinker = Shrinker {
        args,
        original,
        folder,
        ground,
        series: ExperimentSeries::new(Arc::clone(&place), 0, original.plan.servers_through_proxy),
        place,
        stop,
        look: looks,
        until: Instant::now() + args.limit,
        number: 0,
        made: 0,
        kept: None,
        class: None,
    };
    let result = shrinker.search().await;
    shrinker.series.end().await;
    result
}

impl Shrinker<'_> {
    async fn search(&mut self) -> Result<ShrinkResult, Failure> {
        let given: Vec<&str> = self.original.options.iter().map(|(name, _)| name.as_str()).collect();
        let most = self.args.runs.unwrap_or(match self.ground {
            ShrinkGround::Servers => RUNS_ON_SERVERS,
            ShrinkGround::Processes => RUNS_OF_PROCESSES,
            ShrinkGround::Models => RUNS_ON_MODELS,
        });
        let (whole, suspect) = (self.original.whole(), self.original.suspect);
        let mut search = Shrinking::of(self.ground, whole, suspect, &given, most);
        let ended_early = loop {
            let Some(candidate) = search.candidate() else {
                break search.is_spent.then_some("--runs");
            };
            if let Some(why) = self.over() {
                break Some(why);
            }
            let failed = match (self.ground, self.original.possible(&candidate)) {
                (_, None) => false,
                (ShrinkGround::Servers | ShrinkGround::Processes, Some(_)) => {
                    let Some(trial) = self.trial(&candidate).await? else {
                        break Some(INTERRUPT);
                    };
                    let failed = trial.detected.is_some();
                    self.keep(trial)?;
                    failed
                }
                (ShrinkGround::Models, Some(config)) => self.in_memory(&candidate, config).await? == Some(true),
            };
            search.add_run(failed);
        };
        let (tried, best) = (self.made, search.best().clone());
        let (runs, hits, detected) = match self.ground {
            ShrinkGround::Servers => self.confirm(&best).await?,
            ShrinkGround::Processes | ShrinkGround::Models => self.confirm_in_worlds(&best).await?,
        };
        let result = self.result(&best, tried, HitRate { hits, runs }, detected)?;
        Ok(ShrinkResult { ended_early, ..result })
    }

    /// Runs the result for its hit rate. Returns the number of runs and of hits, and the median time to a violation.
    async fn confirm(&mut self, best: &ShrinkCandidate) -> Result<(u32, u32, Option<Duration>), Failure> {
        let mut hits = Vec::new();
        let mut runs = 0;
        for _ in 0..self.args.confirm {
            if self.over().is_some() {
                break;
            }
            let Some(trial) = self.trial(best).await? else { break };
            runs += u32::from(trial.decision.is_some());
            hits.extend(trial.detected);
            self.keep(trial)?;
        }
        hits.sort_unstable();
        Ok((runs, hits.len() as u32, hits.get(hits.len() / 2).copied()))
    }

    /// Runs the result with its files, and in other worlds for its hit rate: in one world it is the same run each time.
    async fn confirm_in_worlds(&mut self, best: &ShrinkCandidate) -> Result<(u32, u32, Option<Duration>), Failure> {
        let Some(trial) = self.trial(best).await? else {
            return Ok((0, 0, None));
        };
        let detected = trial.detected;
        self.keep(trial)?;
        let (mut runs, mut hits) = (0, 0);
        for other in 1..=self.args.confirm {
            let elsewhere = best.elsewhere(other);
            let config = self.original.possible(&elsewhere).filter(|_| self.over().is_none());
            let Some(config) = config else { break };
            let failed = match self.ground {
                ShrinkGround::Models => self.in_memory(&elsewhere, config).await?,
                _ => self.trial(&elsewhere).await?.and_then(Trial::without_files),
            };
            runs += u32::from(failed.is_some());
            hits += u32::from(failed == Some(true));
        }
        Ok((runs, hits, detected))
    }

    /// Returns the reason for which no other run is made, if there is one.
    fn over(&self) -> Option<&'static str> {
        let late = || (Instant::now() >= self.until).then_some("--limit");
        self.stop.borrow().then_some(INTERRUPT).or_else(late)
    }

    /// Runs a candidate. Returns `None` if the user interrupts. The error is the reason for which no run at all can be made.
    async fn trial(&mut self, left: &ShrinkCandidate) -> Result<Option<Trial>, Failure> {
        self.number += 1;
        let args = run_args(&self.original.options(left), &self.folder.join(RUNS)).map_err(Failure::usage)?;
        let started = Instant::now();
        let mut failed = 0;
        let decision = loop {
            match self.series.step(&args, drop).await {
                SeriesStep::Ended(ended) => break ended.decision.await.expect("deciding a history does not panic"),
                SeriesStep::Failed(_) if failed < MADE_AGAIN => failed += 1,
                SeriesStep::Failed(why) => {
                    self.say_not_made(left, &why)?;
                    return Ok(Some(Trial::default()));
                }
                SeriesStep::Stopped => return Ok(None),
            }
        };
        self.made += 1;
        let shown = self.original.shown_in(decision.diagnosis()?, self.ground);
        self.say(left, shown.is_some(), started.elapsed());
        Ok(Some(Trial {
            detected: shown.map(|violation| Duration::from_nanos(violation.at_ns)),
            class: shown.map(|violation| violation.class.clone()),
            decision: Some(decision),
        }))
    }

    /// Runs a candidate on models, without files. Returns whether it showed the violation; `None` if the run was not made.
    async fn in_memory(&mut self, left: &ShrinkCandidate, config: Config) -> Result<Option<bool>, Failure> {
        self.number += 1;
        let place = Arc::clone(&self.place);
        let started = Instant::now();
        let examined =
            tokio::task::spawn_blocking(move || examined_in_memory(config, &place.choice, &place.stop)).await;
        let diagnosis = match examined.expect("a run on models does not panic") {
            Ok(Some((diagnosis, _))) => diagnosis,
            Ok(None) => return Ok(None),
            Err(why) => {
                self.say_not_made(left, &why)?;
                return Ok(None);
            }
        };
        self.made += 1;
        let failed = self.original.shown_in(&diagnosis, self.ground).is_some();
        // hundreds of runs without a violation would flood the screen
        if failed {
            self.say(left, true, started.elapsed());
        }
        Ok(Some(failed))
    }

    /// Keeps the run if it failed, in place of the one before it.
    fn keep(&mut self, trial: Trial) -> Result<(), Failure> {
        let Some(mut decision) = trial.decision else {
            return Ok(());
        };
        if trial.detected.is_none() {
            decision.remove();
            return Ok(());
        }
        decision.keep().map_err(Failure::environment)?;
        self.class = trial.class;
        if let Some(before) = self.kept.replace(decision.folder) {
            series::remove_run(&before);
        }
        Ok(())
    }

    /// Reports a candidate that cannot be run. That is the error of the whole search if no run could be made before.
    fn say_not_made(&self, left: &ShrinkCandidate, why: &str) -> Result<(), Failure> {
        if self.made == 0 {
            return Err(Failure::environment(why));
        }
        if !self.args.quiet {
            eprintln!("{}", not_made_line(self.number, left, why, self.look));
        }
        Ok(())
    }

    fn say(&self, left: &ShrinkCandidate, failed: bool, took: Duration) {
        if !self.args.quiet {
            eprintln!("{}", progress_line(self.number, left, failed, took, self.look));
        }
    }

    fn result(
        &self,
        best: &ShrinkCandidate,
        tried: u32,
        hit_rate: HitRate,
        detected: Option<Duration>,
    ) -> Result<ShrinkResult, Failure> {
        let original = self.original;
        let (args, left) = completed(&original.options(best), &self.args.results)?;
        let length =
            |phases: &Phases| (phases.control + phases.warm_up + phases.faults + phases.recovery).as_millis() as u64;
        Ok(ShrinkResult {
            schema: SHRINK_SCHEMA,
            run: original.name.clone(),
            property: original.property,
            class: self.class.clone().unwrap_or_else(|| original.class().to_owned()),
            windows_before: original.windows.len(),
            clients_before: original.config.clients,
            locks_before: original.config.locks,
            left: best.clone(),
            length_before_ms: length(&original.plan.phases),
            length_ms: length(&planned(&left).map_err(Failure::usage)?.phases),
            tried,
            hit_rate,
            interval: hit_rate.interval(),
            detected_after_ms: detected.map(|time| time.as_millis() as u64),
            again: args.again(&left),
            kept: self.kept.as_deref().map(series::run_name),
            ended_early: None,
            interrupted: *self.stop.borrow(),
            simulated: self.ground == ShrinkGround::Models,
            in_worlds: self.ground != ShrinkGround::Servers,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;
    use crate::cli::original::original_of;

    #[test]
    fn a_candidate_that_a_run_would_refuse_does_not_end_the_search() {
        let original = original_of("backend=redis fault=reset time=60s hold=15s locks=2 skew=1 seed=7");
        let whole = original.whole();
        assert!(original.possible(&whole).is_some());
        // --skew needs two locks
        let one_lock = ShrinkCandidate {
            locks: 1,
            ..whole.clone()
        };
        assert_eq!(original.possible(&one_lock).map(|config| config.locks), None);
        // a run without faults is shorter than the hold
        let faultless = ShrinkCandidate {
            windows: Vec::new(),
            ..whole
        };
        assert_eq!(original.possible(&faultless).map(|config| config.hold), None);
    }

    #[test]
    fn the_other_runs_of_a_result_in_virtual_time_are_in_other_worlds() {
        for (runtime, world) in [("runtime=virtual", 0), ("runtime=simulated world=7", 7)] {
            let original = original_of(&format!("backend=redis {runtime} fault=reset time=60s seed=7"));
            let worlds = [1, 2, 3].map(|other| {
                let config = original.possible(&original.whole().elsewhere(other));
                config.unwrap().world
            });
            assert_eq!(worlds, [world + 1, world + 2, world + 3]);
        }
    }

    #[test]
    fn the_help_has_the_numbers_of_runs() {
        let command = ShrinkArgs::augment_args(Command::new("shrink"));
        let option = command.get_arguments().find(|option| option.get_id() == "runs");
        let help = option.and_then(|option| option.get_help()).unwrap().to_string();
        let numbers = format!("{RUNS_ON_SERVERS}, in virtual time {RUNS_OF_PROCESSES}, on models {RUNS_ON_MODELS}");
        assert!(help.ends_with(&format!("[default: {numbers}]")), "{help}");
    }
}
