//! `harness shrink`: cuts the plan of a violation down by running it again with less.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_checkers::Property;
use serde::Serialize;
use tokio::sync::watch;

use super::args::ColorWhen;
use super::bisect;
use super::experiment::run_args;
use super::hunt_args::ShrinkArgs;
use super::interrupt::interrupted;
use super::original::{Original, original, set_option};
use super::series::{self, ExperimentSeries, Experimented, RUNNING_SERVERS, RUNS, SeriesPlace, SeriesStep};
use super::stdout::{print, print_json};
use super::{Failure, look};
use crate::config::NO_FAULT;
use crate::exit::Exit;
use crate::hunt::hit_rate::HitRate;
use crate::hunt::record::causes;
use crate::hunt::shrink::{ShrinkCandidate, Shrinking};
use crate::plan::Phases;
use crate::plan::kept_windows::planned;
use crate::report::screen::{Look, ScreenText};
use crate::report::words::{many, quoted, span};
use crate::store;

const SCHEMA: &str = "harness-shrink/1";
/// The length of a run without faults.
const FAULTLESS: Duration = Duration::from_secs(12);

/// What a run came to, as `--json` prints it.
#[derive(Debug, Serialize)]
struct ShrinkResult {
    schema: &'static str,
    /// The run that was cut down.
    run: String,
    property: Property,
    class: String,
    /// How many windows, clients and locks it had, and which are left.
    windows_before: usize,
    windows: Vec<u32>,
    clients_before: u32,
    clients: u32,
    locks_before: u32,
    locks: u32,
    /// Options that it does not need.
    without: BTreeSet<&'static str>,
    length_before_ms: u64,
    length_ms: u64,
    /// Runs in which less was tried.
    tried: u32,
    hit_rate: HitRate,
    /// The 95 % Wilson interval of the rate.
    interval: (f64, f64),
    /// From the start of a run to its violation: the median over the hits.
    detected_after_ms: Option<u64>,
    /// The words that run what is left.
    again: Vec<String>,
    /// The last of its runs that failed, if one did.
    kept: Option<String>,
    interrupted: bool,
}

pub fn shrink(args: &ShrinkArgs, color: ColorWhen) -> Result<Exit, Failure> {
    if args.compares_versions() {
        return bisect::bisect(args, color);
    }
    let original = original(args)?;
    let name = format!("{}-shrink-{}", store::minute_now(), original.name);
    let (_, folder) = store::create(&args.results, &name).map_err(Failure::environment)?;
    let runtime = super::runtime();
    let looks = look(color, io::stderr().is_terminal());
    let ended = runtime.block_on(cut_down(args, &original, &folder, looks));
    runtime.shutdown_background();
    let result = ended?;
    series::remove_logs(&folder);
    series::remove_runs_but(&folder, result.kept.iter().map(String::as_str));
    store::write_json(&folder.join("shrink.json"), &result).map_err(Failure::environment)?;
    if args.json {
        print_json(&result);
    } else {
        print(&summary(&result, &folder, look(color, io::stdout().is_terminal())));
    }
    Ok(match (result.hit_rate.hits, result.interrupted) {
        (1.., _) => Exit::Violated,
        (0, true) => Exit::Interrupted,
        (0, false) => Exit::Inconclusive,
    })
}

impl Original {
    /// The options of `harness run` for what is left of it.
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
        for option in &left.without {
            set(option, None);
        }
        options
    }
}

/// A run of what is left: whether it showed the violation, when, and where it is.
struct Trial {
    detected: Option<Duration>,
    experimented: PathBuf,
    server_logs: Option<PathBuf>,
    decision: series::RunDecision,
}

/// Everything that the search and the confirmation share.
struct Shrinker<'a> {
    args: &'a ShrinkArgs,
    original: &'a Original,
    folder: &'a Path,
    series: ExperimentSeries,
    stop: watch::Receiver<bool>,
    look: Look,
    until: Instant,
    number: u32,
    /// The last run that failed.
    kept: Option<PathBuf>,
}

async fn cut_down(args: &ShrinkArgs, original: &Original, folder: &Path, looks: Look) -> Result<ShrinkResult, Failure> {
    let stop = interrupted();
    let config = &original.config;
    if config.attach.is_attached() {
        return Err(Failure::usage(RUNNING_SERVERS.to_owned()));
    }
    let choice = config.choose_runtime().await;
    let choice = choice.map_err(Failure::environment)?;
    let place = SeriesPlace {
        digest: choice.runtime.digest().await,
        choice,
        folder: fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()),
        stop: stop.clone(),
    };
    let mut shrinker = Shrinker {
        args,
        original,
        folder,
        series: ExperimentSeries::new(Arc::new(place), 0, original.plan.servers_through_proxy),
        stop,
        look: looks,
        until: Instant::now() + args.limit,
        number: 0,
        kept: None,
    };
    let result = shrinker.search().await;
    shrinker.series.end().await;
    result
}

impl Shrinker<'_> {
    async fn search(&mut self) -> Result<ShrinkResult, Failure> {
        let Original {
            options,
            windows,
            config,
            ..
        } = self.original;
        let given: Vec<&str> = options.iter().map(|(name, _)| name.as_str()).collect();
        let mut search = Shrinking::of(
            windows.clone(),
            config.clients,
            config.locks,
            self.original.suspect,
            &given,
        );
        while self.number < self.args.runs && !self.is_over() {
            let Some(candidate) = search.candidate() else { break };
            let trial = self.trial(&candidate).await?;
            let Some(trial) = trial else { break };
            search.came_to(trial.detected.is_some());
            self.keep(trial)?;
        }
        let tried = self.number;
        let best = search.best().clone();
        let mut hits = Vec::new();
        let mut runs = 0;
        while runs < self.args.confirm && !self.is_over() {
            let Some(trial) = self.trial(&best).await? else { break };
            runs += 1;
            hits.extend(trial.detected);
            self.keep(trial)?;
        }
        self.result(&best, tried, runs, hits)
    }

    fn is_over(&self) -> bool {
        *self.stop.borrow() || Instant::now() >= self.until
    }

    /// Runs what is left; `None` when the user interrupts meanwhile.
    async fn trial(&mut self, left: &ShrinkCandidate) -> Result<Option<Trial>, Failure> {
        self.number += 1;
        let args = run_args(&self.original.options(left), &self.folder.join(RUNS)).map_err(Failure::usage)?;
        let started = Instant::now();
        let experimented = match self.series.step(&args, drop).await {
            SeriesStep::Ended(experimented) => *experimented,
            SeriesStep::Failed(why) => return Err(Failure::environment(why)),
            SeriesStep::Stopped => return Ok(None),
        };
        let Experimented {
            folder,
            decision,
            server_logs,
            ..
        } = experimented;
        let decision = decision.await.expect("deciding a history does not panic");
        let detected = match &decision.examined {
            Ok(examined) => {
                let causes = causes(&examined.diagnosis);
                let same = causes.iter().find(|(property, _)| *property == self.original.property);
                same.map(|(_, violation)| Duration::from_nanos(violation.at_ns))
            }
            Err(why) => {
                return Err(Failure {
                    exit: Exit::Bug,
                    sentence: why.clone(),
                });
            }
        };
        self.say(left, detected.is_some(), started.elapsed());
        Ok(Some(Trial {
            detected,
            experimented: folder,
            server_logs,
            decision,
        }))
    }

    /// Keeps the run if it failed, in place of the one before it.
    fn keep(&mut self, mut trial: Trial) -> Result<(), Failure> {
        if trial.detected.is_none() {
            series::remove_run(&trial.experimented);
            return Ok(());
        }
        series::keep_run(&mut trial.decision, &trial.experimented, trial.server_logs.as_deref())
            .map_err(Failure::environment)?;
        if let Some(before) = self.kept.replace(trial.experimented) {
            series::remove_run(&before);
        }
        Ok(())
    }

    fn say(&self, left: &ShrinkCandidate, failed: bool, took: Duration) {
        if self.args.quiet {
            return;
        }
        let word = if failed {
            self.look.paint("1;31", "violated")
        } else {
            self.look.paint("32", "held    ")
        };
        let line = ScreenText::from(format!("[{:>2}] ", self.number))
            + word
            + &format!("  {}   {:.1}s", in_words(left), took.as_secs_f64());
        eprintln!("{line}");
    }

    fn result(
        &self,
        best: &ShrinkCandidate,
        tried: u32,
        runs: u32,
        mut hits: Vec<Duration>,
    ) -> Result<ShrinkResult, Failure> {
        let Original {
            name,
            property,
            class,
            windows,
            config,
            plan,
            ..
        } = self.original;
        let args = run_args(&self.original.options(best), &self.args.results).map_err(Failure::usage)?;
        let left = args.config(config.seed).map_err(Failure::usage)?;
        let length =
            |phases: &Phases| (phases.control + phases.warm_up + phases.faults + phases.recovery).as_millis() as u64;
        let hit_rate = HitRate {
            hits: hits.len() as u32,
            runs,
        };
        hits.sort_unstable();
        let kept = self.kept.as_ref().and_then(|folder| folder.file_name());
        Ok(ShrinkResult {
            schema: SCHEMA,
            run: name.clone(),
            property: *property,
            class: class.clone(),
            windows_before: windows.len(),
            windows: best.windows.clone(),
            clients_before: config.clients,
            clients: best.clients,
            locks_before: config.locks,
            locks: best.locks,
            without: best.without.clone(),
            length_before_ms: length(&plan.phases),
            length_ms: length(&planned(&left).map_err(Failure::usage)?.phases),
            tried,
            hit_rate,
            interval: hit_rate.interval(),
            detected_after_ms: hits.get(hits.len() / 2).map(|time| time.as_millis() as u64),
            again: args.again(&left),
            kept: kept.map(|name| format!("{RUNS}/{}", name.to_string_lossy())),
            interrupted: *self.stop.borrow(),
        })
    }
}

/// `windows 3 7, 2 clients, 1 lock`
fn in_words(left: &ShrinkCandidate) -> String {
    let numbers: Vec<String> = left.windows.iter().map(u32::to_string).collect();
    let windows = match left.windows.len() {
        0 => "no fault".to_owned(),
        1 => format!("window {}", numbers[0]),
        _ => format!("windows {}", numbers.join(" ")),
    };
    let (clients, locks) = (many(left.clients.into(), "client"), many(left.locks.into(), "lock"));
    let without: Vec<String> = left
        .without
        .iter()
        .map(|option| format!("without --{option}"))
        .collect();
    [vec![windows, clients, locks], without].concat().join(", ")
}

fn summary(result: &ShrinkResult, folder: &Path, look: Look) -> String {
    let id = format!("{} {}", result.property.id(), result.class);
    let again: Vec<String> = result.again.iter().map(|word| quoted(word)).collect();
    let left = ShrinkCandidate {
        windows: result.windows.clone(),
        clients: result.clients,
        locks: result.locks,
        without: result.without.clone(),
    };
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let before = format!(
        "from {}, {}, {} and {:.0}s, in {}",
        many(result.windows_before as u64, "window"),
        many(result.clients_before.into(), "client"),
        many(result.locks_before.into(), "lock"),
        seconds(result.length_before_ms),
        many(result.tried.into(), "run")
    );
    let mut lines = vec![
        look.bold("x") + " " + look.bold(&id) + &format!("  of {}", result.run),
        ScreenText::from(format!(
            "  left      {}, {:.0}s",
            in_words(&left),
            seconds(result.length_ms)
        )),
        ScreenText::from(format!("            {before}")),
        ScreenText::from(format!("  hit rate  {}", result.hit_rate)),
    ];
    lines.extend(
        result
            .detected_after_ms
            .map(|ms| ScreenText::from(format!("  detected  after {}, the median", span(ms * 1_000_000)))),
    );
    if result.hit_rate.hits == 0 && result.hit_rate.runs > 0 {
        lines.push(ScreenText::from(
            "  It did not come again: it is rare, or depends on what this machine did. More runs: --confirm 20.",
        ));
    }
    lines.push(ScreenText::from("  again     ") + again.join(" "));
    if let Some(kept) = &result.kept {
        lines.push(ScreenText::from("  see       harness check ") + quoted(&folder.join(kept).display().to_string()));
    }
    ScreenText::join(&lines) + "\n"
}
