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
use super::shrunk_finds::{self, FoundRun};
use super::stdout::{print, print_json};
use crate::adapters::surveyed::SurveyedLock;
use crate::config::heading::{AGAIN, OUTPUT};
use crate::config::suggest::unknown_word;
use crate::exit::Exit;
use crate::hunt::HuntRecord;
use crate::report::words::clock;
use crate::store;
use crate::survey::record::{SCHEMA, SurveyHunt, SurveyRecord};
use crate::survey::{PROMISES, Promise, PromiseTest, page};

/// The seed of all hunts, so that a row can be made again.
const SEED: &str = "00000001";
/// Time for one experiment to end, at most.
const EXPERIMENT: Duration = Duration::from_secs(180);
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
    /// Survey the newest version that PyPI has in place of those that the files name
    #[arg(long, help_heading = AGAIN)]
    pub newest: bool,
    /// Cut each find in virtual time down, and write it as a test below the results
    #[arg(long, help_heading = AGAIN)]
    pub shrink: bool,
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
    /// Its client, where it is installed.
    client: Option<String>,
    record: Mutex<SurveyRecord>,
}

impl Version {
    fn record(&self) -> std::sync::MutexGuard<'_, SurveyRecord> {
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The folder of its hunts.
    fn place(&self) -> PathBuf {
        self.file.with_extension("")
    }

    fn keep(&self) -> Result<(), Failure> {
        store::write_json(&self.file, &*self.record()).map_err(Failure::environment)
    }
}

/// One hunt that is to be made.
struct SurveyJob<'a> {
    version: &'a Version,
    promise: Promise,
    with: [&'static str; 2],
}

pub fn survey(args: &SurveyArgs) -> Result<Exit, Failure> {
    let locks = crate::survey::read(&args.locks).map_err(Failure::usage)?;
    let folder = args.results.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| Failure::environment(format!("{}: {error}", folder.display())))?;
    let mut wanted = wanted(&locks, &args.names)?;
    if args.newest {
        wanted = newest_of(wanted)?;
    }
    let was_interrupted = super::runtime().block_on(async {
        let stop = interrupted();
        let mut versions = Vec::new();
        for (lock, version) in wanted {
            if *stop.borrow() {
                break;
            }
            versions.push(begun(args, &folder, &locks, (lock, version))?);
        }
        hunt_all(args, &versions, &stop).await?;
        if args.shrink {
            shrink_all(args, &versions, &stop).await?;
        }
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

/// These locks in the newest version that the registry has. One that cannot be asked for is told, and left out.
fn newest_of(wanted: Vec<(&SurveyedLock, String)>) -> Result<Vec<(&SurveyedLock, String)>, Failure> {
    let mut locks: Vec<&SurveyedLock> = wanted.into_iter().map(|(lock, _)| lock).collect();
    locks.dedup_by_key(|lock| &lock.name);
    let mut newest = Vec::new();
    for lock in locks {
        match lock.newest() {
            Ok(version) => newest.push((lock, version)),
            Err(error) => eprintln!("{}: {error}", lock.name),
        }
    }
    match newest.is_empty() {
        true => Err(Failure::environment("PyPI names no version of these locks")),
        false => Ok(newest),
    }
}

/// Installs a version. What is known of it from before is kept where it was found with the same client and as many experiments.
fn begun(
    args: &SurveyArgs,
    folder: &Path,
    locks: &[SurveyedLock],
    (lock, version): (&SurveyedLock, String),
) -> Result<Version, Failure> {
    let file = folder.join(format!("{}-{version}.json", lock.name));
    eprintln!("{} {version}: {}", lock.library, lock.pinned(&version));
    let mut record = SurveyRecord::begun(lock, &version, args.experiments, SEED);
    let adapter = lock.adapter(locks, &version);
    let installed = adapter.and_then(|adapter| adapter.install().and_then(|_| adapter.identity()));
    match &installed {
        Ok(identity) => record.client.clone_from(identity),
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
            let why = format!("could not read {}: {error}", file.display());
            return Err(Failure::environment(why));
        }
        _ => {}
    }
    let version = Version {
        lock: lock.clone(),
        file,
        client: installed.is_ok().then(|| lock.client_of(&version)),
        record: Mutex::new(record),
    };
    version.keep()?;
    Ok(version)
}

/// Makes all hunts that are missing.
async fn hunt_all(args: &SurveyArgs, versions: &[Version], stop: &watch::Receiver<bool>) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for version in versions.iter().filter(|version| version.client.is_some()) {
        for promise in PROMISES {
            let Some(with) = promise.hunted_with(&version.lock) else {
                continue;
            };
            let is_wanted = args.promise.is_empty() || args.promise.contains(&promise);
            if is_wanted && !version.record().has(&promise, &with) {
                jobs.push(SurveyJob { version, promise, with });
            }
        }
    }
    let (all, began) = (jobs.len(), Instant::now());
    let mut done = stream::iter(jobs)
        .map(|job| hunt(job, stop.clone()))
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

/// Cuts down all finds that are not.
async fn shrink_all(args: &SurveyArgs, versions: &[Version], stop: &watch::Receiver<bool>) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for version in versions.iter().filter(|version| version.lock.runtime() == "virtual") {
        let left = shrunk_finds::left(&version.record(), &version.place());
        jobs.extend(left.into_iter().map(|found| (version, found)));
    }
    let all = jobs.len();
    let shrink = |(version, found): (_, FoundRun)| async move {
        let version: &Version = version;
        let result = shrunk_finds::shrink(&found, &version.place(), stop.clone()).await;
        (version, found, result)
    };
    let mut done = stream::iter(jobs).map(shrink).buffer_unordered(args.jobs.into());
    let mut count = 0;
    while let Some((version, found, result)) = done.next().await {
        if *stop.borrow() {
            return Ok(());
        }
        count += 1;
        let outcome = match &result {
            Ok(shrunk) => format!("written as {}", shrunk.test),
            Err(why) => format!("not cut down: {why}"),
        };
        let lock = &version.lock.library;
        eprintln!(
            "[{count:>3}/{all}] {lock} {}, {}: {outcome}",
            version.record().version,
            found.find
        );
        if let Ok(shrunk) = result {
            version.record().shrunk.push(shrunk);
            version.keep()?;
        }
    }
    Ok(())
}

/// One hunt, as a user would type it. `None`: it was interrupted, or does not concern the lock.
async fn hunt(job: SurveyJob<'_>, stop: watch::Receiver<bool>) -> Result<Option<(&Version, SurveyHunt)>, Failure> {
    let SurveyJob { version, promise, with } = job;
    if *stop.borrow() || !version.record().concerns(&promise, &version.lock) {
        return Ok(None);
    }
    let place = version.place().join(promise.name);
    if place.exists() {
        fs::remove_dir_all(&place).map_err(|error| Failure::environment(format!("{}: {error}", place.display())))?;
    }
    let log = place.join("hunt.log");
    let mut command = own_command(&log).map_err(Failure::environment)?;
    let client = version.client.as_deref().unwrap_or_default();
    command.args(["hunt", "--json", "--quiet", "--color=never", "--until=end"]);
    command.args(["--backend", &version.lock.backend, "--client", client, "--seed", SEED]);
    command.args(with);
    let experiments = version.record().experiments;
    if promise.by != PromiseTest::Placements {
        command.args(["--experiments", &experiments.to_string()]);
    }
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
        serde_json::from_slice::<HuntRecord>(&printed).map_err(|_| last_words(&log).join("; "))
    });
    let record = record.unwrap_or_else(|why| HuntRecord {
        error: Some(why),
        ..HuntRecord::default()
    });
    if let Some(contract) = &record.contract {
        version.record().contract = Some(contract.clone());
    }
    Ok(Some((version, SurveyHunt::of(&promise, &with, record))))
}

fn progress(version: &Version, hunt: &SurveyHunt) -> String {
    let finds = hunt.finds.iter();
    let finds = finds.map(|find| format!("{} ({})", find.name(), find.count));
    let finds: Vec<String> = finds.collect();
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
