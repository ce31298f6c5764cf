//! `harness survey`: makes the same hunts with the locks of known libraries, and writes the page of their results.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tokio::sync::watch;

use super::Failure;
use super::interrupt::interrupted;
use super::own_command::{self, last_lines, own_command};
use super::records::hunts;
use super::shrunk_finds::{self, FoundRun};
use super::stdout::{print, print_json};
use crate::adapters::surveyed::SurveyedLock;
use crate::config::heading::{AGAIN, OUTPUT};
use crate::config::suggest::unknown_word;
use crate::exit::Exit;
use crate::hunt::HuntRecord;
use crate::limits::MAX_TIME;
use crate::report::words::clock;
use crate::store;
use crate::survey::record::{self, SCHEMA, SurveyHunt, SurveyRecord};
use crate::survey::{PROMISES, Promise, PromiseTest, options, page};

/// Time for one experiment to end, at most.
const EXPERIMENT: Duration = Duration::from_secs(180);
/// The folder of a survey's runs, below that of all runs.
const FOLDER: &str = "survey";
/// The file with the subject of a hunt, in its folder.
const SUBJECT: &str = "subject";
/// The folder of its records, below that of the locks.
const RECORDS: &str = "records";

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
    /// Survey the newest version that PyPI or the Rust registry has in place of those that the files name
    #[arg(long, help_heading = AGAIN)]
    pub newest: bool,
    /// Cut each find in virtual time down, and write it as a test below the results
    #[arg(long, help_heading = AGAIN)]
    pub shrink: bool,
    /// Hunts that run at the same time
    #[arg(long, help_heading = AGAIN, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Make no hunt and install nothing: show the records, and write the pages from them
    #[arg(long, help_heading = AGAIN, conflicts_with_all = ["promise", "anew", "newest", "shrink"])]
    pub no_hunts: bool,
    /// Write the page as Markdown, too
    #[arg(long, help_heading = OUTPUT, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Print the results of the locks as JSON
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Folder of the records, a file for each version; a survey makes the hunts that they lack [default: `records` in --locks]
    #[arg(long, help_heading = OUTPUT, value_name = "DIR")]
    pub records: Option<PathBuf>,
    /// Folder of all runs
    #[arg(long, help_heading = OUTPUT, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

fn promise(typed: &str) -> Result<Promise, String> {
    let names = PROMISES.iter().map(|promise| promise.name);
    Promise::named(typed).ok_or_else(|| unknown_word("promise", typed, names, "docs/adding-a-library.md lists them"))
}

/// One version of one lock, and its record so far.
struct Version {
    lock: SurveyedLock,
    /// The file of its record.
    file: PathBuf,
    /// The folder of its hunts.
    place: PathBuf,
    /// Whether its client is there, or nothing is left to do with it.
    is_ready: bool,
    record: Mutex<SurveyRecord>,
}

impl Version {
    fn record(&self) -> std::sync::MutexGuard<'_, SurveyRecord> {
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// `kazoo 2.8.0`
    fn name(&self) -> String {
        format!("{} {}", self.lock.library, self.record().version)
    }

    fn keep(&self) -> Result<(), Failure> {
        store::write_json(&self.file, &*self.record()).map_err(Failure::environment)
    }
}

/// A hunt to make.
struct SurveyJob<'a> {
    version: &'a Version,
    promise: Promise,
    with: [&'static str; 2],
}

pub fn survey(args: &SurveyArgs) -> Result<Exit, Failure> {
    if let Some(name) = args.names.iter().find(|name| args.newest && name.contains("==")) {
        let lock = name.split("==").next().unwrap_or_default();
        return Err(Failure::usage(format!(
            "{name} names a version, and --newest asks the registry for one\nhint: harness survey {lock} --newest"
        )));
    }
    let locks = crate::survey::read(&args.locks).map_err(Failure::usage)?;
    let folder = args.results.join(FOLDER);
    let records = args.records.clone().unwrap_or_else(|| args.locks.join(RECORDS));
    for folder in [&folder, &records] {
        fs::create_dir_all(folder).map_err(|error| Failure::environment(format!("{}: {error}", folder.display())))?;
    }
    let mut wanted = wanted(&locks, &args.names)?;
    if args.no_hunts {
        wanted.clear();
    }
    if args.newest {
        wanted = newest_of(wanted)?;
    }
    let (versions, was_interrupted) = super::runtime().block_on(async {
        let stop = interrupted();
        let mut versions = Vec::new();
        for wanted in wanted {
            if *stop.borrow() {
                break;
            }
            versions.push(begin_version(args, [&folder, &records], &locks, wanted)?);
        }
        hunt_all(args, &versions, &stop).await?;
        if args.shrink {
            shrink_all(args, &versions, &stop).await?;
        }
        let was_interrupted = *stop.borrow();
        Ok((versions, was_interrupted))
    })?;
    let mut surveyed = record::all(&locks, &records).map_err(Failure::environment)?;
    write_pages(args, &folder, &locks, &surveyed)?;
    let is_named = |name: &str| args.names.iter().any(|typed| typed.split("==").next() == Some(name));
    surveyed.retain(|(lock, _)| args.names.is_empty() || is_named(&lock.name));
    if args.json {
        print_json(&as_json(&surveyed));
    } else {
        print(&surveyed.iter().map(page::plain).collect::<String>());
        let (summary, page) = (page::summary(&surveyed), folder.join("index.html"));
        print(&format!("\n{summary}\n  page  {}\n", page.display()));
    }
    let failed = |version: &Version| {
        let record = version.record();
        let lacks = |hunt: &SurveyHunt| hunt.decided() == 0 || hunt.is_cut_short;
        !version.is_ready || record.hunts.iter().any(lacks)
    };
    Ok(match was_interrupted {
        true => Exit::Interrupted,
        false if versions.iter().any(failed) => Exit::Environment,
        false => Exit::Holds,
    })
}

/// Returns the named versions, or all.
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
    // `kazoo kazoo==2.8.0` names a version twice, and two hunts at the same time would share its folder
    let mut named = BTreeSet::new();
    wanted.retain(|(lock, version)| named.insert((lock.name.clone(), version.clone())));
    Ok(wanted)
}

/// Returns these locks in the newest version of the registry. A lock whose newest version is unknown is reported and left out.
fn newest_of(wanted: Vec<(&SurveyedLock, String)>) -> Result<Vec<(&SurveyedLock, String)>, Failure> {
    let mut locks: Vec<&SurveyedLock> = wanted.into_iter().map(|(lock, _)| lock).collect();
    let mut named = BTreeSet::new();
    locks.retain(|lock| named.insert(lock.name.clone()));
    let mut newest = Vec::new();
    for lock in locks {
        match lock.newest() {
            Ok(version) => newest.push((lock, version)),
            Err(error) => eprintln!("{}: {error}", lock.name),
        }
    }
    match newest.is_empty() {
        true => Err(Failure::environment("no registry names a version of these locks")),
        false => Ok(newest),
    }
}

/// Returns a version with its earlier record, if that is still valid. Its client is installed if it has anything left to do.
fn begin_version(
    args: &SurveyArgs,
    [folder, records]: [&Path; 2],
    locks: &[SurveyedLock],
    (lock, version): (&SurveyedLock, String),
) -> Result<Version, Failure> {
    let adapter = lock.adapter(locks, &version).map_err(Failure::environment)?;
    let client = adapter.identity().map_err(Failure::environment)?;
    let record = SurveyRecord::begun(lock, &version, client);
    let name = record.file_stem();
    let file = records.join(format!("{name}.json"));
    let known = SurveyRecord::read(&file).map_err(Failure::environment)?;
    let mut begun = Version {
        lock: lock.clone(),
        file,
        place: folder.join(name),
        is_ready: true,
        record: Mutex::new(known.filter(|known| known.stands_for(&record)).unwrap_or(record)),
    };
    if missing(args, &begun).is_empty() && (!args.shrink || unshrunk(&begun).is_empty()) {
        return Ok(begun);
    }
    eprintln!("{} {version}: {}", lock.library, lock.pinned(&version));
    if let Err(error) = adapter.install() {
        eprintln!("{} {version}: {error}", lock.library);
        begun.is_ready = false;
    }
    Ok(begun)
}

/// Returns the hunts of a version that are to be made.
fn missing<'a>(args: &SurveyArgs, version: &'a Version) -> Vec<SurveyJob<'a>> {
    let record = version.record();
    let is_wanted = |promise: &Promise| args.promise.is_empty() || args.promise.contains(promise);
    let mut missing = Vec::new();
    for promise in PROMISES.into_iter().filter(is_wanted) {
        let Some(with) = promise.hunted_with(&version.lock) else {
            continue;
        };
        let is_made = !args.anew && record.has(&promise, &with, args.experiments);
        if !is_made && record.concerns(&promise, &version.lock) {
            missing.push(SurveyJob { version, promise, with });
        }
    }
    missing
}

/// Returns the finds of a version that are to be cut down.
fn unshrunk(version: &Version) -> Vec<FoundRun> {
    match version.lock.runtime() {
        "virtual" => shrunk_finds::left(&version.record(), &version.place),
        _ => Vec::new(),
    }
}

/// Makes all hunts that are missing.
async fn hunt_all(args: &SurveyArgs, versions: &[Version], stop: &watch::Receiver<bool>) -> Result<(), Failure> {
    let ready = versions.iter().filter(|version| version.is_ready);
    let jobs: Vec<SurveyJob<'_>> = ready.flat_map(|version| missing(args, version)).collect();
    let (all, began) = (jobs.len(), Instant::now());
    let mut done = stream::iter(jobs)
        .map(|job| hunt(job, args, stop.clone()))
        .buffer_unordered(args.jobs.into());
    let mut count: u32 = 0;
    while let Some(made) = done.next().await {
        let Some((version, hunt)) = made? else { continue };
        count += 1;
        let left = began.elapsed() / count * (all as u32 - count);
        let (told, left) = (progress(version, &hunt), clock(left.as_millis() as u64));
        eprintln!("[{count:>3}/{all}] {told}   {left} left");
        version.record().add(hunt);
        version.keep()?;
    }
    Ok(())
}

/// Cuts down all finds that are not.
async fn shrink_all(args: &SurveyArgs, versions: &[Version], stop: &watch::Receiver<bool>) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for version in versions.iter().filter(|version| version.is_ready) {
        jobs.extend(unshrunk(version).into_iter().map(|found| (version, found)));
    }
    let all = jobs.len();
    let shrink = |(version, found): (_, FoundRun)| async move {
        let version: &Version = version;
        let result = shrunk_finds::shrink(&found, &version.place, stop.clone()).await;
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
            Ok(_) => format!("written as {}", found.test),
            Err(why) => format!("not cut down: {why}"),
        };
        eprintln!("[{count:>3}/{all}] {}, {}: {outcome}", version.name(), found.find);
        if let Ok(command) = result {
            version.record().shrunk.insert(found.find, command);
            version.keep()?;
        }
    }
    Ok(())
}

/// Makes one hunt, as a user would type it. Returns `None` if it was interrupted, or does not concern the lock.
async fn hunt<'a>(
    job: SurveyJob<'a>,
    args: &SurveyArgs,
    stop: watch::Receiver<bool>,
) -> Result<Option<(&'a Version, SurveyHunt)>, Failure> {
    let SurveyJob { version, promise, with } = job;
    if *stop.borrow() || !version.record().concerns(&promise, &version.lock) {
        return Ok(None);
    }
    let place = version.place.join(promise.name);
    let subject = version.record().subject();
    let begun = unfinished(&place, &subject).filter(|_| !args.anew);
    if begun.is_none() && place.exists() {
        fs::remove_dir_all(&place).map_err(|error| Failure::environment(format!("{}: {error}", place.display())))?;
    }
    let log = place.join("hunt.log");
    let mut command = own_command(&log).map_err(Failure::environment)?;
    command.args(["hunt", "--json", "--quiet", "--color=never", "--until=end"]);
    match &begun {
        Some(folder) => command.arg("--continue").arg(folder),
        None => {
            store::write_text(&place.join(SUBJECT), &subject).map_err(Failure::environment)?;
            let client = version.lock.client_of(&version.record().version);
            command
                .args(options(&version.lock))
                .args(["--client", &client])
                .args(with)
        }
    };
    if promise.by != PromiseTest::Placements {
        command.args(["--experiments", &args.experiments.to_string()]);
    }
    command.arg("--results").arg(&place);
    let ran = own_command::run(command, limit(&promise, args.experiments), stop.clone()).await;
    let record = ran.and_then(|(_, printed)| {
        serde_json::from_slice::<HuntRecord>(&printed).map_err(|_| last_lines(&log).join("; "))
    });
    // one that reached its end in that moment may have taken hours
    let has_ended = record.as_ref().is_ok_and(|record| !record.interrupted);
    if *stop.borrow() && !has_ended {
        return Ok(None);
    }
    let record = record.unwrap_or_else(|why| {
        // one that was continued in vain is begun again
        if begun.is_some() {
            let _ = fs::remove_file(place.join(SUBJECT));
        }
        HuntRecord {
            error: Some(why),
            ..HuntRecord::default()
        }
    });
    if let Some(contract) = &record.contract {
        version.record().contract = Some(contract.clone());
    }
    Ok(Some((version, SurveyHunt::of(&promise, &with, record))))
}

/// Returns the folder of a search for every placement with this subject that did not reach its end: it was interrupted, or gave up.
fn unfinished(place: &Path, subject: &str) -> Option<PathBuf> {
    let before = fs::read_to_string(place.join(SUBJECT)).ok()?;
    let (folder, record) = hunts(place).pop().filter(|_| before == subject)?;
    let search = record.exhaustive?;
    (search.wanted() != Some(search.all_tried())).then(|| place.join(folder))
}

/// Returns the time for a hunt to end, at most. A search over all placements has a number of experiments of its own, and ends by itself.
fn limit(promise: &Promise, experiments: u64) -> Duration {
    match promise.by {
        PromiseTest::Placements => MAX_TIME + EXPERIMENT,
        _ => EXPERIMENT * experiments as u32,
    }
}

fn progress(version: &Version, hunt: &SurveyHunt) -> String {
    let finds = hunt.finds.iter();
    let finds = finds.map(|find| format!("{} ({})", find.name(), find.count));
    let finds: Vec<String> = finds.collect();
    let found = match (&hunt.error, finds.is_empty()) {
        (Some(error), true) if hunt.counts.held == 0 || hunt.is_cut_short => {
            error.lines().next().unwrap_or_default().to_owned()
        }
        (_, true) => format!("nothing in {} of {}", hunt.counts.held, hunt.counts.experiments),
        _ => finds.join(", "),
    };
    format!("{}, {}: {found}", version.name(), hunt.promise)
}

fn write_pages(
    args: &SurveyArgs,
    folder: &Path,
    locks: &[SurveyedLock],
    surveyed: &[page::Surveyed<'_>],
) -> Result<(), Failure> {
    let write = |path: &Path, text: &str| store::write_text(path, text).map_err(Failure::environment);
    write(&folder.join("index.html"), &page::page(locks, surveyed))?;
    store::write_json(&folder.join("survey.json"), &as_json(surveyed)).map_err(Failure::environment)?;
    match &args.page {
        Some(path) => write(path, &page::markdown(locks, surveyed)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::surveyed::file_of_test;
    use crate::hunt::exhaustive;

    #[test]
    fn a_version_that_is_named_twice_is_surveyed_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            let text = file_of_test("x", "backend = \"redis\"");
            fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
        }
        let locks = crate::survey::read(folder.path()).unwrap();
        let named = ["a==1", "b==3", "a", "b==3"].map(str::to_owned);
        let wanted = wanted(&locks, &named).unwrap();
        let wanted: Vec<(&str, &str)> = wanted
            .iter()
            .map(|(lock, version)| (lock.name.as_str(), version.as_str()))
            .collect();
        assert_eq!(wanted, [("a", "1"), ("b", "3"), ("a", "2")]);
    }

    #[test]
    fn a_search_of_the_same_client_that_did_not_reach_its_end_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        let search = |tried: u64| {
            let counts = |tried| json!({ "tried": tried, "without_effect": 0, "undecided": 0 });
            let search = json!({
                "acts": 1, "kinds": ["kill=any:#"], "messages": [2], "tried": [counts(1), counts(tried)],
            });
            let record = HuntRecord {
                exhaustive: exhaustive::stored(search).unwrap(),
                ..HuntRecord::default()
            };
            store::write_json(&place.join("hunt/hunt.json"), &record).unwrap();
        };
        fs::create_dir(place.join("hunt")).unwrap();
        search(1);
        assert_eq!(unfinished(place, "a"), None);
        store::write_text(&place.join(SUBJECT), "a").unwrap();
        assert_eq!(unfinished(place, "a"), Some(place.join("hunt")));
        assert_eq!(unfinished(place, "b"), None);
        search(2);
        assert_eq!(unfinished(place, "a"), None);
    }

    #[test]
    fn a_search_over_all_placements_is_not_killed_after_the_time_of_a_few_experiments() {
        let of = |promise: &str| limit(&Promise::named(promise).unwrap(), 2);
        assert_eq!(of("partition"), EXPERIMENT * 2);
        // it begins no experiment after that time, and its record is that of a search which can go on
        assert!(of("one-message") > MAX_TIME);
    }
}
