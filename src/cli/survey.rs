//! `harness survey`: puts locks of known libraries through the same hunts, one after the other, and writes the page of what was found.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tokio::sync::watch;

use super::Failure;
use super::interrupt::interrupted;
use super::own_command::{self, last_words, own_command};
use super::stdout::{print, print_json};
use crate::adapters::Adapter;
use crate::config::heading::{AGAIN, OUTPUT};
use crate::config::suggest::unknown_word;
use crate::exit::Exit;
use crate::hunt::HuntRecord;
use crate::report::words::clock;
use crate::store;
use crate::survey::record::{SCHEMA, SurveyHunt, SurveyRecord};
use crate::survey::{PROMISES, Promise, SurveyedLock, page};

/// The seed of all hunts, so that a row can be made again.
const SEED: &str = "00000001";
/// Time for one experiment to end, at most.
const EXPERIMENT: Duration = Duration::from_secs(180);
/// Lines of a hunt's log that are repeated when it failed.
const LOG_TAIL: usize = 3;
/// The folder of a survey, below that of all runs.
const FOLDER: &str = "survey";

#[derive(Debug, Args)]
pub struct SurveyArgs {
    /// Locks by the names of their files, such as `kazoo` or `kazoo==2.8.0` [default: all, in the versions that their files name]
    #[arg(value_name = "NAME[==VERSION]")]
    pub names: Vec<String>,
    /// Folder with the files of the locks
    #[arg(long, value_name = "DIR", default_value = "tests/survey")]
    pub locks: PathBuf,
    /// Make only the hunt of this promise; can be repeated
    #[arg(long, value_name = "PROMISE", value_parser = promise)]
    pub promise: Vec<Promise>,
    /// Experiments of each hunt
    #[arg(long, help_heading = AGAIN, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub experiments: u64,
    /// Repeat hunts that were made before
    #[arg(long, help_heading = AGAIN)]
    pub anew: bool,
    /// Hunts that run at the same time
    #[arg(long, help_heading = AGAIN, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Write the page as Markdown, too
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Print the results of the locks as JSON
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Folder of all runs
    #[arg(long, help_heading = OUTPUT, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

fn promise(typed: &str) -> Result<Promise, String> {
    let names = PROMISES.iter().map(|promise| promise.name);
    Promise::named(typed).ok_or_else(|| unknown_word("promise", typed, names, "docs/adding-a-library.md lists them"))
}

/// One version of one lock, and what is known of it so far.
struct Version {
    lock: SurveyedLock,
    file: PathBuf,
    /// The command of its client; or why there is none.
    client: Result<String, String>,
    record: Mutex<SurveyRecord>,
}

impl Version {
    fn record(&self) -> std::sync::MutexGuard<'_, SurveyRecord> {
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn keep(&self) -> Result<(), Failure> {
        store::write_json(&self.file, &*self.record()).map_err(Failure::environment)
    }
}

/// One hunt that is to be made.
struct SurveyJob<'a> {
    version: &'a Version,
    promise: Promise,
    faults: &'static str,
}

pub fn survey(args: &SurveyArgs) -> Result<Exit, Failure> {
    let locks = crate::survey::read(&args.locks).map_err(Failure::usage)?;
    let folder = args.results.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| Failure::environment(format!("{}: {error}", folder.display())))?;
    let wanted = wanted(&locks, &args.names)?;
    let was_interrupted = super::runtime().block_on(async {
        let stop = interrupted();
        let mut versions = Vec::new();
        for (lock, version) in wanted {
            if *stop.borrow() {
                break;
            }
            versions.push(begun(args, &folder, &locks, (lock, version))?);
        }
        hunt_all(args, &folder, &versions, &stop).await?;
        Ok(*stop.borrow())
    })?;
    let surveyed = all_records(&locks, &folder);
    let pairs: Vec<page::Surveyed<'_>> = surveyed.iter().map(|(lock, record)| (*lock, record)).collect();
    write_pages(args, &folder, &pairs)?;
    let named: HashSet<&str> = args
        .names
        .iter()
        .map(|name| name.split("==").next().unwrap_or(name))
        .collect();
    let shown: Vec<_> = pairs
        .iter()
        .filter(|(lock, _)| named.is_empty() || named.contains(lock.name.as_str()))
        .copied()
        .collect();
    if args.json {
        print_json(&as_json(&shown));
    } else {
        print(&shown.iter().map(page::plain).collect::<String>());
        print(&format!(
            "\n{}\n  page  {}\n",
            page::summary(&shown),
            folder.join("index.html").display()
        ));
    }
    let failed = |(_, record): &page::Surveyed<'_>| {
        record.error.is_some() || record.hunts.iter().any(|hunt| hunt.decided() == 0)
    };
    Ok(match was_interrupted {
        true => Exit::Interrupted,
        false if shown.iter().any(failed) => Exit::Environment,
        false => Exit::Holds,
    })
}

/// The versions that were named, or all.
fn wanted<'a>(locks: &'a [SurveyedLock], names: &[String]) -> Result<Vec<(&'a SurveyedLock, String)>, Failure> {
    let all_of = |lock: &'a SurveyedLock| lock.versions.iter().map(move |version| (lock, version.clone()));
    if names.is_empty() {
        return Ok(locks.iter().flat_map(all_of).collect());
    }
    let mut wanted = Vec::new();
    for typed in names {
        let (name, version) = typed
            .split_once("==")
            .map_or((typed.as_str(), None), |(name, version)| (name, Some(version)));
        let known = locks.iter().map(|lock| lock.name.as_str());
        let lock = locks
            .iter()
            .find(|lock| lock.name == name)
            .ok_or_else(|| Failure::usage(unknown_word("lock", name, known, "each file of --locks is a lock")))?;
        match version {
            Some(version) => wanted.push((lock, version.to_owned())),
            None => wanted.extend(all_of(lock)),
        }
    }
    Ok(wanted)
}

/// Installs a version. What is known of it from before is kept where it was found with the same client and as many experiments.
fn begun(
    args: &SurveyArgs,
    folder: &Path,
    locks: &[SurveyedLock],
    (lock, version): (&SurveyedLock, String),
) -> Result<Version, Failure> {
    let file = folder.join(format!("{}-{version}.json", lock.name));
    eprintln!("{} {version}: {}", lock.library, lock.packages_of(&version).join(" "));
    let mut record = SurveyRecord::begun(lock, &version, args.experiments, SEED);
    let client = installed(&args.locks, locks, lock, &version);
    match &client {
        Ok((_, identity)) => record.client.clone_from(identity),
        Err(error) => record.error = Some(error.clone()),
    }
    match fs::read(&file) {
        Ok(text) if !args.anew => {
            let known: SurveyRecord = serde_json::from_slice(&text).map_err(|error| {
                Failure::environment(format!("{} is not the record of a survey: {error}", file.display()))
            })?;
            if known.stands_for(&record) {
                record = known;
            }
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Failure::environment(format!(
                "could not read {}: {error}",
                file.display()
            )));
        }
        _ => {}
    }
    let version = Version {
        lock: lock.clone(),
        file,
        client: client.map(|(command, _)| command),
        record: Mutex::new(record),
    };
    version.keep()?;
    Ok(version)
}

/// Installs the packages of a version in an environment of its own, with its client and what clients share; returns the client's
/// command, and its identity.
fn installed(
    folder: &Path,
    locks: &[SurveyedLock],
    lock: &SurveyedLock,
    version: &str,
) -> Result<(String, String), String> {
    let is_of_another = |name: &str| name != lock.program() && locks.iter().any(|other| other.program() == name);
    let mut own = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".py") && !is_of_another(&name) {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            own.push((name, text));
        }
    }
    own.sort();
    let name = format!("survey-{}-{version}", lock.name);
    let adapter = Adapter::of_python(
        name,
        lock.backend.clone(),
        lock.packages_of(version),
        lock.client.clone(),
        own,
    );
    let made = adapter
        .install()
        .and_then(|_| Ok((adapter.command()?, adapter.identity()?)));
    made.map_err(|error| error.to_string())
}

/// Makes all hunts that are missing.
async fn hunt_all(
    args: &SurveyArgs,
    folder: &Path,
    versions: &[Version],
    stop: &watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for version in versions.iter().filter(|version| version.client.is_ok()) {
        for promise in PROMISES {
            let Some(faults) = promise.faults(&version.lock) else {
                continue;
            };
            let is_wanted = args.promise.is_empty() || args.promise.contains(&promise);
            if is_wanted && !version.record().has(&promise, faults) {
                jobs.push(SurveyJob {
                    version,
                    promise,
                    faults,
                });
            }
        }
    }
    let (all, began) = (jobs.len(), Instant::now());
    let mut done = stream::iter(jobs)
        .map(|job| hunt(folder, job, stop.clone()))
        .buffer_unordered(args.jobs.into());
    let mut count: u32 = 0;
    while let Some(made) = done.next().await {
        let Some((version, hunt)) = made? else { continue };
        count += 1;
        let left = began.elapsed() / count * (all as u32 - count);
        eprintln!(
            "[{count:>3}/{all}] {}   {} left",
            progress(version, &hunt),
            clock(left.as_millis() as u64)
        );
        version.record().add(hunt);
        version.keep()?;
    }
    Ok(())
}

/// One hunt, as a user would type it. `None`: it was interrupted, or does not concern the lock.
async fn hunt<'a>(
    folder: &Path,
    job: SurveyJob<'a>,
    stop: watch::Receiver<bool>,
) -> Result<Option<(&'a Version, SurveyHunt)>, Failure> {
    let SurveyJob {
        version,
        promise,
        faults,
    } = job;
    if *stop.borrow() || !version.record().concerns(&promise, &version.lock) {
        return Ok(None);
    }
    let name = version.file.file_stem().unwrap_or_default();
    let place = folder.join(name).join(promise.name);
    if place.exists() {
        fs::remove_dir_all(&place).map_err(|error| Failure::environment(format!("{}: {error}", place.display())))?;
    }
    let log = place.join("hunt.log");
    let mut command = own_command(&log).map_err(Failure::environment)?;
    let client = version.client.as_deref().unwrap_or_default();
    command.args(["hunt", "--json", "--quiet", "--color=never", "--until=end"]);
    command.args([
        "--backend",
        &version.lock.backend,
        "--client",
        client,
        "--fault",
        faults,
        "--seed",
        SEED,
    ]);
    let experiments = version.record().experiments;
    command.args(["--experiments", &experiments.to_string()]);
    command.args(["--runtime", version.lock.runtime()]);
    for set in &version.lock.set {
        command.args(["--set", set]);
    }
    command.arg("--results").arg(&place);
    let limit = EXPERIMENT * experiments as u32;
    let ran = own_command::run(command, limit, stop.clone()).await;
    if *stop.borrow() {
        return Ok(None);
    }
    let record = ran.and_then(|(_, printed)| {
        serde_json::from_slice::<HuntRecord>(&printed).map_err(|_| last_words(&log, LOG_TAIL).join("; "))
    });
    let record = record.unwrap_or_else(|why| HuntRecord {
        error: Some(why),
        ..HuntRecord::default()
    });
    if let Some(contract) = &record.contract {
        version.record().contract = Some(contract.clone());
    }
    Ok(Some((version, SurveyHunt::of(&promise, faults, record))))
}

fn progress(version: &Version, hunt: &SurveyHunt) -> String {
    let finds: Vec<String> = hunt
        .finds
        .iter()
        .map(|find| format!("{} ({})", find.name(), find.count))
        .collect();
    let found = match (&hunt.error, finds.is_empty()) {
        (Some(error), true) if hunt.counts.held == 0 => error.lines().next().unwrap_or_default().to_owned(),
        (_, true) => format!("nothing in {} of {}", hunt.counts.held, hunt.counts.experiments),
        _ => finds.join(", "),
    };
    format!(
        "{} {}, {}: {found}",
        version.lock.library,
        version.record().version,
        hunt.promise
    )
}

/// The records of all versions that were ever surveyed, by lock, and for each lock in the order of its file.
fn all_records<'a>(locks: &'a [SurveyedLock], folder: &Path) -> Vec<(&'a SurveyedLock, SurveyRecord)> {
    let files = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let records = files.filter_map(|path| serde_json::from_slice::<SurveyRecord>(&fs::read(path).ok()?).ok());
    let known = records.filter_map(|record| Some((locks.iter().find(|lock| lock.name == record.name)?, record)));
    // one that was only begun has nothing to show
    let is_made = |record: &SurveyRecord| !record.hunts.is_empty() || record.error.is_some();
    let mut known: Vec<_> = known
        .filter(|(_, record)| record.schema == SCHEMA && is_made(record))
        .collect();
    let place = |lock: &SurveyedLock, version: &str| lock.versions.iter().position(|known| known == version);
    known.sort_by_key(|(lock, record)| {
        let place = place(lock, &record.version).unwrap_or(usize::MAX);
        (lock.name.clone(), place, record.version.clone())
    });
    known
}

fn write_pages(args: &SurveyArgs, folder: &Path, surveyed: &[page::Surveyed<'_>]) -> Result<(), Failure> {
    let write = |path: &Path, text: &str| store::write_text(path, text).map_err(Failure::environment);
    write(&folder.join("index.html"), &page::page(surveyed))?;
    store::write_json(&folder.join("survey.json"), &as_json(surveyed)).map_err(Failure::environment)?;
    match &args.page {
        Some(path) => write(path, &page::markdown(surveyed)),
        None => Ok(()),
    }
}

fn as_json(surveyed: &[page::Surveyed<'_>]) -> serde_json::Value {
    let version = |(lock, record): &page::Surveyed<'_>| {
        let states = PROMISES.map(|promise| (promise.name.to_owned(), json!(record.state(&promise, lock))));
        json!({
            "library": lock.library, "lock": lock.lock, "backend": lock.backend, "record": record,
            "promises": serde_json::Map::from_iter(states),
        })
    };
    json!({ "schema": SCHEMA, "versions": surveyed.iter().map(version).collect::<Vec<_>>() })
}
