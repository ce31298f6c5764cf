//! `harness hunt`: short experiments until a property is violated or the time is over; `--merge` merges the records of hunts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::ColorChoice;
use nix::fcntl::Flock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::experiment::set_option;
use super::hunt_args::HuntArgs;
use super::hunt_jobs::{HuntJob, HuntState, JobStep};
use super::hunt_screen::HuntScreen;
use super::hunt_space::SpaceOfHunt;
use super::interrupt::interrupted;
use super::merging;
use super::metrics::Metrics;
use super::records::{HUNT_RECORD, PAGE, in_folder_name};
use super::seeds::fresh_seed;
use super::series::{self, ExperimentSeries, SeriesPlace, SeriesStep};
use super::settings::{run_options, set, warn_of_file, warn_of_variables};
use super::stdout::{print, print_json};
use super::{Failure, look, run_to_end};
use crate::cluster::{Runtime, RuntimeRequest};
use crate::config::heading::describes_experiment;
use crate::config::setting::Setting;
use crate::exit::Exit;
use crate::hunt::exhaustive::Exhaustive;
use crate::hunt::record::{self, HuntUntil};
use crate::hunt::{ExperimentOutcome, ExperimentResult, HuntFind, HuntRecord, junit, page, render};
use crate::limits::MAX_TIME;
use crate::report::terminal::Look;
use crate::store;

const LENGTH: Duration = Duration::from_secs(600);
/// Interval at which the live screen is drawn.
const FRAME: Duration = Duration::from_millis(500);

pub fn hunt(args: &HuntArgs, color: ColorChoice) -> Result<Exit, Failure> {
    if !args.merge.is_empty() {
        return merge(args, color);
    }
    warn_of_variables("hunt");
    // before its record is read, which another harness may write
    let held = args.go_on.as_deref().map(alone).transpose()?;
    let mut record = match &args.go_on {
        Some(folder) => resumed(args, folder)?,
        None => {
            warn_of_file("hunt");
            new_record(args)?
        }
    };
    let is_exhaustive = args.exhaustive.is_some() || record.exhaustive.is_some();
    if is_exhaustive && record.until == HuntUntil::Saturated {
        let why = "--until saturated counts the states of drawn experiments, and --exhaustive draws none";
        return Err(Failure::usage(format!("{why}\nhint: --until end")));
    }
    let space = SpaceOfHunt::of(&record, is_exhaustive)?;
    if let Some(acts) = args.exhaustive {
        let kinds = space.kinds_of_acts(&record).map_err(Failure::usage)?;
        let mut search = Exhaustive::new(acts, kinds);
        (search.without_reduction, search.shard) = (args.without_reduction, args.shard);
        record.exhaustive = Some(search);
    }
    let folder = match &args.go_on {
        Some(folder) => folder.clone(),
        None => create_folder(args, &record, &space)?,
    };
    let _held = held.map_or_else(|| alone(&folder), Ok)?;
    record.interrupted = false;
    let looks = look(color, &io::stderr());
    let record = run_to_end(make_experiments(args, record, space, &folder, looks))?;
    // the logs of clients and servers explain a failed experiment
    if record.counts.failed == 0 {
        series::remove_logs(&folder);
        if !args.keep_runs {
            series::remove_stopped_runs(&folder);
        }
    }
    finish(args, &record, &folder, color)
}

/// Keeps others from the folder of a hunt while this process hunts. The error says that another one hunts there.
fn alone(folder: &Path) -> Result<Option<Flock<fs::File>>, Failure> {
    match store::hold(folder) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let why = format!("the hunt in {} is running", folder.display());
            Err(Failure::usage(format!("{why}\nhint: continue it when it has ended")))
        }
        // some file systems have no locks, and a wrong folder is named later
        held => Ok(held.ok()),
    }
}

/// Writes the record and the reports, and prints the result of the hunt.
fn finish(args: &HuntArgs, record: &HuntRecord, folder: &Path, color: ColorChoice) -> Result<Exit, Failure> {
    keep(folder, record)?;
    for (name, text) in [("junit.xml", junit::junit(record)), (PAGE, page::page(record))] {
        store::write_text(&folder.join(name), &text).map_err(Failure::environment)?;
    }
    // a hunt that continues may be in the results of another folder
    let absolute = fs::canonicalize(folder).map_err(Failure::environment)?;
    super::report::write_index(absolute.parent().unwrap_or(&args.results)).map_err(Failure::environment)?;
    if args.json {
        print_json(record);
    } else {
        let shown = folder.display().to_string();
        print(&render::summary(record, &shown, look(color, &io::stdout())));
    }
    Ok(record.exit())
}

fn merge(args: &HuntArgs, color: ColorChoice) -> Result<Exit, Failure> {
    let named = (HUNT_RECORD, "a hunt's record");
    let records = merging::read_all(&args.merge, named, |record: &mut HuntRecord| {
        record.finds.iter_mut().map(|find| &mut find.run).collect()
    })?;
    let mut merged = crate::hunt::merge(records).map_err(Failure::usage)?;
    let name = format!("{}-hunt-merged", store::minute_now());
    let (_, folder) = store::create(&args.results, &name).map_err(Failure::environment)?;
    for find in &mut merged.finds {
        find.run = merging::seen_from(&folder, &find.run)?;
    }
    merged.end();
    finish(args, &merged, &folder, color)
}

/// Returns the record of a new hunt.
fn new_record(args: &HuntArgs) -> Result<HuntRecord, Failure> {
    let typed = [
        ("backend", &args.backend),
        ("client", &args.client),
        ("promise", &args.promise),
        ("recipe", &args.recipe),
        ("lease", &args.lease),
        ("runtime", &args.runtime),
        ("server-version", &args.server_version),
    ];
    let option = |(name, value): (&str, &Option<String>)| Some((name.to_owned(), value.clone()?));
    let mut options: Vec<(String, String)> = typed.into_iter().filter_map(option).collect();
    let faults = (!args.faults.is_empty()).then(|| ("fault".to_owned(), args.faults.join(",")));
    let given: Vec<(String, String)> = options.iter().chain(&faults).cloned().collect();
    for Setting { option, value, .. } in set(&args.set, &run_options(describes_experiment))? {
        if option.name == "seed" {
            let why = "--set seed: every experiment of a hunt has its own seed\nhint: --seed sets the seed of the hunt";
            return Err(Failure::usage(why));
        }
        let value = value.unwrap_or_default();
        let is_other = |(name, before): &&(String, String)| *name == option.name && *before != value;
        if let Some((name, before)) = given.iter().find(is_other) {
            return Err(Failure::usage(format!(
                "--{name} {before} and --set {name}={value} are two values of one option\nhint: leave one of them out"
            )));
        }
        set_option(&mut options, &option.name, Some(value));
    }
    if let Some((name, faults)) = faults {
        set_option(&mut options, &name, Some(faults));
    }
    let has_end = args.experiments.is_some() || args.exhaustive.is_some();
    let length = args.length.unwrap_or(if has_end { MAX_TIME } else { LENGTH });
    Ok(HuntRecord {
        schema: record::SCHEMA.to_owned(),
        harness: env!("CARGO_PKG_VERSION").to_owned(),
        started: store::minute_now(),
        options,
        seed: format!("{:08x}", args.seed.unwrap_or_else(fresh_seed)),
        for_ms: length.as_millis() as u64,
        at_most: args.experiments,
        until: args.until.unwrap_or_default(),
        ..HuntRecord::default()
    })
}

/// Returns the record of a hunt that continues.
fn resumed(args: &HuntArgs, folder: &Path) -> Result<HuntRecord, Failure> {
    let path = folder.join(HUNT_RECORD);
    let text = fs::read(&path).map_err(|error| {
        let hint = "hint: the folder of a hunt in results/, such as results/20261122-0930-hunt-redis";
        Failure::usage(format!("could not read {}: {error}\n{hint}", path.display()))
    })?;
    let mut record: HuntRecord = serde_json::from_slice(&text)
        .map_err(|error| Failure::usage(format!("{} is not the record of a hunt: {error}", path.display())))?;
    if !record.merged.is_empty() {
        let (path, hunts) = (path.display(), record.merged.len());
        return Err(Failure::usage(format!(
            "{path} is the merged record of {hunts} hunts, and only a single hunt can be continued\nhint: harness hunt --continue with the folder of one of them"
        )));
    }
    let this = env!("CARGO_PKG_VERSION");
    if record.exhaustive.is_some() && record.harness != this {
        let (other, folder) = (&record.harness, folder.display());
        return Err(Failure::usage(format!(
            "harness {other} began the search for every placement in {folder}, and this is {this}: its runs may have other messages, so the placements of the two do not add up\nhint: begin it again with this version, or continue it with that one"
        )));
    }
    record.go_on(args.length.map(|more| more.as_millis() as u64), args.experiments);
    record.until = args.until.unwrap_or(record.until);
    if let Some(runtime) = &args.runtime {
        let before = record.option("runtime").unwrap_or_default();
        if record.exhaustive.is_some() && runtime != before {
            return Err(Failure::usage(format!(
                "a search for every placement continues with the runtime that it began with, {before}: runs have other messages on another one"
            )));
        }
        set_option(&mut record.options, "runtime", Some(runtime.clone()));
    }
    Ok(record)
}

/// Makes the folder of a hunt: `results/20261122-0930-hunt-redis-redis-setnx`.
fn create_folder(args: &HuntArgs, record: &HuntRecord, space: &SpaceOfHunt) -> Result<PathBuf, Failure> {
    let lock: String = in_folder_name(space.config.recipe_name()).chars().take(30).collect();
    let (backend, lock) = (space.config.backend, lock.trim_matches('-'));
    let name = format!("{}-hunt-{backend}-{lock}", record.started);
    let (_, folder) = store::create(&args.results, &name).map_err(Failure::environment)?;
    keep(&folder, record)?;
    Ok(folder)
}

fn keep(folder: &Path, record: &HuntRecord) -> Result<(), Failure> {
    store::write_json(&folder.join(HUNT_RECORD), record).map_err(Failure::environment)
}

/// Makes experiments until the time is over, the user interrupts, or a find ends the hunt.
async fn make_experiments(
    args: &HuntArgs,
    record: HuntRecord,
    space: SpaceOfHunt,
    folder: &Path,
    looks: Look,
) -> Result<HuntRecord, Failure> {
    let user = interrupted();
    let (stop, stopped) = watch::channel(false);
    // the index would list the folder of a new hunt that made no experiment
    let forget = |_: &Failure| {
        if args.go_on.is_none() {
            series::remove_run(folder);
        }
    };
    let place = SeriesPlace::of(&space.config, folder, stopped).await;
    let place = place.inspect_err(forget)?;
    let metrics = Metrics::serve(args.metrics, args.quiet).inspect_err(forget)?;
    let took_before = Duration::from_millis(record.took_ms);
    let left = Duration::from_millis(record.for_ms).saturating_sub(took_before);
    let through_proxy = space.parts_servers();
    let (finds_before, began) = (record.finds.len(), Instant::now());
    let state = Arc::new(HuntState {
        record: Mutex::new(record),
        space,
        keep_runs: args.keep_runs,
        jobs: Arc::default(),
        metrics,
        until: began + left,
        began,
        took_before,
        finds_before,
    });
    let (sender, steps) = mpsc::unbounded_channel();
    let mut jobs = JoinSet::new();
    for job in 0..args.jobs {
        let job = HuntJob {
            number: job,
            series: ExperimentSeries::new(Arc::clone(&place), job, through_proxy),
            state: Arc::clone(&state),
            place: Arc::clone(&place),
            done: sender.clone(),
        };
        match place.choice.runtime {
            Runtime::Simulated => jobs.spawn_blocking(|| job.work_in_memory()),
            _ => jobs.spawn(job.work()),
        };
    }
    drop(sender);
    let screen = HuntScreen::of(args.quiet, looks);
    let done = collect(&state, folder, &screen, (steps, user, stop)).await;
    screen.end();
    done?;
    while let Some(ended) = jobs.join_next().await {
        ended.expect("a job does not panic");
    }
    let mut record = state.record().clone();
    record.took_ms = state.elapsed_ms();
    record.end();
    Ok(record)
}

/// Adds the experiments of the jobs to the record, and stops the jobs at the end of the hunt.
async fn collect(
    state: &HuntState,
    folder: &Path,
    screen: &HuntScreen,
    (mut steps, mut user, stop): (
        mpsc::UnboundedReceiver<JobStep>,
        watch::Receiver<bool>,
        watch::Sender<bool>,
    ),
) -> Result<(), Failure> {
    let mut frames = tokio::time::interval(FRAME);
    let is_simulated = state.space.config.runtime == RuntimeRequest::Simulated;
    let mut is_counted = false;
    loop {
        tokio::select! {
            _ = user.wait_for(|wanted| *wanted), if !*stop.borrow() => {
                state.record().interrupted = true;
                stop.send_replace(true);
            }
            step = steps.recv() => {
                let Some(step) = step else { return Ok(()) };
                add_step(step, state, folder, screen).await?;
            }
            _ = frames.tick() => {
                let mut record = state.record();
                record.took_ms = state.elapsed_ms();
                if is_simulated {
                    // experiments on models are in memory alone
                    keep(folder, &record)?;
                }
                if let Some(board) = state.metrics.board() {
                    board.experiments(record.counts.by_outcome().to_vec(), record.finds.len() as u64);
                }
                if let Some(count) = render::placement_count(&record).filter(|_| !is_counted) {
                    is_counted = true;
                    screen.note(count);
                }
                screen.draw(&record, &state.jobs);
            }
        }
        // jobs on models add most of their experiments themselves, without a step
        if is_over(state) {
            stop.send_replace(true);
        }
    }
}

/// Whether a hunt has enough experiments, or can make none.
fn is_over(state: &HuntState) -> bool {
    let record = state.record();
    let enough = match record.until {
        HuntUntil::First => record.finds.iter().skip(state.finds_before).any(HuntFind::ends_hunt),
        HuntUntil::Saturated => record.states.is_saturated(),
        HuntUntil::End => false,
    };
    enough || record.gives_up()
}

/// Adds one experiment to the record. Its run is kept if it shows something new, or if all are kept.
async fn add_step(step: JobStep, state: &HuntState, folder: &Path, screen: &HuntScreen) -> Result<(), Failure> {
    let JobStep { index, draw, step } = step;
    let mut result = ExperimentResult::of(index, &draw, state.elapsed_ms());
    let mut ended = None;
    match step {
        SeriesStep::Stopped => {}
        SeriesStep::Failed(why) => result.came_to = ExperimentOutcome::Failed(why),
        SeriesStep::Ended(experimented) => {
            let experimented = *experimented;
            let decision = experimented.decision.await.expect("deciding a history does not panic");
            result.sent = experimented.sent;
            result.took_ms = experimented.took.as_millis() as u64;
            result.came_to = match &decision.examined {
                Ok(examined) => {
                    ExperimentOutcome::Decided(Box::new(examined.diagnosis.clone()), series::run_name(&decision.folder))
                }
                Err(failure) => ExperimentOutcome::Failed(failure.sentence.clone()),
            };
            ended = Some((experimented.contract, decision));
        }
    }
    let is_new = {
        let mut record = state.record();
        let is_new = record.add(&result);
        record.took_ms = state.elapsed_ms();
        if let Some((contract, _)) = &ended {
            record.contract = contract.clone();
        }
        keep(folder, &record)?;
        is_new
    };
    if let Some((_, mut decision)) = ended {
        if is_new || state.keep_runs {
            decision.keep().map_err(Failure::environment)?;
        } else {
            decision.remove();
        }
    }
    screen.say(&result, is_new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hunt_that_runs_is_continued_by_no_other_harness() {
        let folder = tempfile::tempdir().unwrap();
        let hold = || alone(folder.path()).map_err(|failure| failure.sentence);
        let held = hold().unwrap();
        assert!(hold().unwrap_err().contains("is running"));
        drop(held);
        assert!(hold().is_ok());
    }
}
