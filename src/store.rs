//! The store of runs, `results/`: one folder a run, written first and kept; names, `latest`, and the search for a run.

mod retention;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::macros::format_description;

use crate::own_delays::OwnDelays;

pub use retention::{only_ours, prune};

/// The file that describes a run; a folder with it is a run.
const RUN_FILE: &str = "run.json";
const HISTORY_FILE: &str = "history.jsonl";
/// The file that describes the store of a run, if the store is a described one.
pub const STORE_FILE: &str = "store.toml";
const LATEST: &str = "latest";
/// The folder of runs in that of a hunt or a suite.
pub const RUNS: &str = "runs";
/// The unit of the size of a file on disk (`stat`).
const BLOCK: u64 = 512;
/// Separates the name of a file that is being written from the number of the process that writes it.
const UNFINISHED: &str = ".new-";

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// It has not ended.
    Running,
    /// Its harness was killed: `run.json` says `running`, and no process holds the folder ([`hold`]).
    Killed,
    Complete,
    Interrupted,
    /// It could not start or continue; `error` has the reason.
    Failed,
}

impl RunStatus {
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Killed => "killed",
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// `run.json`: all facts about a run that its history does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    pub schema: String,
    pub run: String,
    pub status: RunStatus,
    pub harness: String,
    pub started: String,
    pub backend: String,
    pub product: String,
    /// The servers' version, once it is known.
    pub version: Option<String>,
    pub nodes: u32,
    pub runtime: String,
    pub runtime_why: String,
    /// `HOST:PORT` of the servers, if they were running before the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The prefix of the names of the run's locks on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    pub image: Option<String>,
    /// The digest of the image when the run was made.
    #[serde(default)]
    pub image_digest: Option<String>,
    /// The machine: `linux x86_64, 2 cores`.
    #[serde(default)]
    pub machine: String,
    /// The lateness of harness itself, after the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_delays: Option<OwnDelays>,
    pub recipe: String,
    pub attitude: Option<String>,
    pub fault: String,
    pub seed: String,
    pub clients: u32,
    pub locks: u32,
    pub lease_ms: u64,
    pub time_ms: u64,
    /// Fault windows that were planned.
    pub windows: u32,
    /// The number of acquires of each client.
    pub each: Option<u32>,
    /// The arguments that make the same plan again.
    pub again: Vec<String>,
    /// The arguments that were typed.
    #[serde(default)]
    pub argv: Vec<String>,
    pub error: Option<String>,
}

impl RunInfo {
    /// The name of the runtime whose servers are models.
    pub const SIMULATED: &str = "simulated";

    /// The name of the runtime whose servers and clients are processes in virtual time.
    pub const VIRTUAL: &str = "virtual";

    pub fn is_simulated(&self) -> bool {
        self.runtime == Self::SIMULATED
    }

    /// Whether the run can be repeated exactly: it was in virtual time.
    pub fn is_repeatable(&self) -> bool {
        self.is_simulated() || self.runtime == Self::VIRTUAL
    }

    /// Returns a note if its machine was too busy.
    pub fn busy_machine(&self) -> Option<String> {
        self.own_delays.as_ref()?.in_words()
    }

    /// Returns the kind of the servers, for reports: the runtime, or the words that they were models.
    pub fn servers_were(&self) -> &str {
        match self.is_simulated() {
            true => "simulated servers",
            false => &self.runtime,
        }
    }
}

pub const RUN_SCHEMA: &str = "harness-run/1";

/// A run on disk.
#[derive(Debug, Clone)]
pub struct Stored {
    pub folder: Option<PathBuf>,
    pub history: PathBuf,
    pub info: Option<RunInfo>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("could not remove {}: {source}", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("there is no run or history `{wanted}`{}", if known.is_empty() { String::new() } else { format!("\nhint: the latest runs are\n  {}", known.join("\n  ")) })]
    Unknown { wanted: String, known: Vec<String> },
    #[error("the names of {} runs begin with `{wanted}`:\n  {}", names.len(), names.join("\n  "))]
    Ambiguous { wanted: String, names: Vec<String> },
    #[error("{} is a folder, and must be a link to the latest run\nhint: rename it, or --results DIR", path.display())]
    NotALink { path: PathBuf },
    #[error("the folder {} has no run.json and no history.jsonl, so it is not a run\nhint: {hint}", path.display())]
    NotARun { path: PathBuf, hint: String },
    #[error("{} does not have the format of harness: {why}", path.display())]
    Broken { path: PathBuf, why: String },
}

/// Returns the conversion of errors about this path.
fn not_written(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Write {
        path: path.to_owned(),
        source,
    }
}

/// Returns the current minute, with which the names of runs begin: `20261121-0645`, in UTC.
pub fn minute_now() -> String {
    OffsetDateTime::now_utc()
        .format(format_description!("[year][month][day]-[hour][minute]"))
        .expect("every time has these parts")
}

/// Returns the current day in UTC: `2026-11-21`.
pub fn day_now() -> String {
    OffsetDateTime::now_utc().date().to_string()
}

/// Creates the folder of a new run; a second run of the same name gets a number.
pub fn create(results: &Path, name: &str) -> Result<(String, PathBuf), StoreError> {
    let made = fs::create_dir_all(results).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::other("it is a file or a broken link, and must be a folder"),
        _ => error,
    });
    made.map_err(not_written(results))?;
    for number in 1.. {
        let run = if number == 1 {
            name.to_owned()
        } else {
            format!("{name}-{number}")
        };
        let folder = results.join(&run);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok((run, folder)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(not_written(&folder)(error)),
        }
    }
    unreachable!("some number is free")
}

/// Marks a run as running, until the lock is dropped or this process ends.
pub fn hold(folder: &Path) -> io::Result<Flock<fs::File>> {
    Flock::lock(fs::File::open(folder)?, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

/// Refuses a results folder in which [`point_latest`] would fail, before a run is made there.
pub fn check_latest(results: &Path) -> Result<(), StoreError> {
    let path = results.join(LATEST);
    match fs::symlink_metadata(&path) {
        Ok(about) if about.is_dir() => Err(StoreError::NotALink { path }),
        _ => Ok(()),
    }
}

/// Points `results/latest` at a run.
pub fn point_latest(results: &Path, run: &str) -> Result<(), StoreError> {
    let latest = results.join(LATEST);
    let failed = not_written(&latest);
    let fresh = results.join(format!(".latest-{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    std::os::unix::fs::symlink(run, &fresh).map_err(&failed)?;
    fs::rename(&fresh, &latest).map_err(|source| {
        let _ = fs::remove_file(&fresh);
        match source.kind() {
            io::ErrorKind::IsADirectory => StoreError::NotALink { path: latest.clone() },
            _ => failed(source),
        }
    })
}

/// Writes a file as JSON: whole or not at all.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let text = serde_json::to_string_pretty(value).expect("what is stored is plain data");
    write_text(path, &(text + "\n"))
}

/// Writes a file: whole or not at all.
pub fn write_text(path: &Path, text: &str) -> Result<(), StoreError> {
    let mut fresh = path.as_os_str().to_owned();
    // another harness may write the same file, the index of all runs, at the same time
    fresh.push(format!("{UNFINISHED}{}", std::process::id()));
    let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // the part that was written on a full disk would be in the way
        let _ = fs::remove_file(&fresh);
    }
    written.map_err(not_written(path))
}

/// Returns the lines of a history by the index of their event, for the wanted indices, which ascend. An event of index `i` is on
/// line `i + 1`; a file without this order was written by another program, and no lines of it are returned.
pub fn lines(history: &Path, wanted: &[u64]) -> BTreeMap<u64, String> {
    let Ok(file) = fs::File::open(history) else {
        return BTreeMap::new();
    };
    let mut wanted = wanted.iter().copied().peekable();
    let mut found = BTreeMap::new();
    for (index, line) in (0_u64..).zip(BufReader::new(file).lines()) {
        let Ok(line) = line else { break };
        if wanted.peek().is_none() {
            break;
        }
        if wanted.next_if_eq(&index).is_some() && line.contains(&format!("\"index\":{index},")) {
            found.insert(index, line);
        }
    }
    found
}

/// Writes `run.json`. On a full disk it overwrites the old one in place, so that a run does not seem to be running.
pub fn write_info(folder: &Path, info: &RunInfo) -> Result<(), StoreError> {
    let path = folder.join(RUN_FILE);
    let written = write_json(&path, info);
    match &written {
        Err(StoreError::Write { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
            let text = serde_json::to_string_pretty(info).expect("what is stored is plain data");
            overwrite(&path, &text).or(written)
        }
        _ => written,
    }
}

/// Writes into the blocks that a file has; refuses a text that needs more before it writes.
fn overwrite(path: &Path, text: &str) -> Result<(), StoreError> {
    let failed = not_written(path);
    let mut file = fs::File::options().write(true).open(path).map_err(&failed)?;
    let room = file.metadata().map_err(&failed)?.blocks() * BLOCK;
    if text.len() as u64 > room {
        return Err(failed(io::ErrorKind::StorageFull.into()));
    }
    file.write_all(text.as_bytes()).map_err(&failed)?;
    file.set_len(text.len() as u64).map_err(failed)
}

/// Finds a run by a path, by `latest`, or by the beginning of its name; or a history by its path.
pub fn find(results: &Path, wanted: &str) -> Result<Stored, StoreError> {
    let path = Path::new(wanted);
    if path.is_dir() {
        return open(path);
    }
    // a pipe is a history as well; a folder was opened above
    if path.exists() {
        let folder = path
            .parent()
            .filter(|folder| folder.join(RUN_FILE).is_file() && path.ends_with(HISTORY_FILE));
        let info = folder.map(read_info).transpose()?;
        return Ok(Stored {
            folder: folder.map(Path::to_owned),
            history: path.to_owned(),
            info,
        });
    }
    if wanted == LATEST {
        return match runs(results).last() {
            Some(_) if results.join(LATEST).is_dir() => open(&results.join(LATEST)),
            _ => Err(StoreError::Unknown {
                wanted: wanted.to_owned(),
                known: Vec::new(),
            }),
        };
    }
    let all = runs(results);
    let mut names: Vec<String> = all.iter().filter(|name| name.starts_with(wanted)).cloned().collect();
    match names.len() {
        0 => Err(StoreError::Unknown {
            wanted: wanted.to_owned(),
            known: all.into_iter().rev().take(5).collect(),
        }),
        1 => open(&results.join(names.remove(0))),
        _ if names.iter().any(|name| name == wanted) => open(&results.join(wanted)),
        _ => Err(StoreError::Ambiguous {
            wanted: wanted.to_owned(),
            names,
        }),
    }
}

/// Returns the names of all runs, oldest first.
pub fn runs(results: &Path) -> Vec<String> {
    let entries = fs::read_dir(results).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join(RUN_FILE).is_file() && entry.file_name() != LATEST)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Returns the error for a folder without a run. The folder of a hunt or a suite has the folders of its runs below it.
fn not_a_run(path: PathBuf) -> StoreError {
    let runs = path.join(RUNS);
    let hint = match runs.is_dir() {
        true => format!("its runs are in {}", runs.display()),
        false => "`harness list runs` shows the runs in --results DIR".to_owned(),
    };
    StoreError::NotARun { path, hint }
}

fn open(folder: &Path) -> Result<Stored, StoreError> {
    // `latest` is shown under the name of its run
    let folder = match fs::read_link(folder) {
        Ok(run) => folder.parent().unwrap_or(Path::new("")).join(run),
        Err(_) => folder.to_owned(),
    };
    let history = folder.join(HISTORY_FILE);
    if !folder.join(RUN_FILE).is_file() {
        // a folder of another program with a history in it
        return if history.is_file() {
            Ok(Stored {
                folder: None,
                history,
                info: None,
            })
        } else {
            Err(not_a_run(folder))
        };
    }
    Ok(Stored {
        info: Some(read_info(&folder)?),
        history,
        folder: Some(folder),
    })
}

pub fn read_info(folder: &Path) -> Result<RunInfo, StoreError> {
    let path = folder.join(RUN_FILE);
    let broken = |why: String| StoreError::Broken {
        path: path.clone(),
        why,
    };
    let text = fs::read(&path).map_err(|error| broken(error.to_string()))?;
    let mut info: RunInfo = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
    if info.status == RunStatus::Running && hold(folder).is_ok() {
        info.status = RunStatus::Killed;
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a complete run.
    pub(super) fn a_run(results: &Path, name: &str) {
        let (_, folder) = create(results, name).unwrap();
        let info = serde_json::json!({
            "schema": RUN_SCHEMA, "run": name, "status": "complete", "harness": "0", "started": "", "backend": "zk",
            "product": "ZooKeeper", "version": null, "nodes": 3, "runtime": "local", "runtime_why": "", "image": null,
            "recipe": "r", "attitude": null, "fault": "none", "seed": "1", "clients": 1, "locks": 1, "lease_ms": 1,
            "time_ms": 1, "windows": 0, "each": null, "again": [], "error": null,
        });
        write_info(&folder, &serde_json::from_value(info).unwrap()).unwrap();
    }

    #[test]
    fn a_run_is_found_by_a_unique_beginning_and_by_latest() {
        let folder = tempfile::tempdir().unwrap();
        a_run(folder.path(), "20261121-0645-zk-none-aaaa");
        a_run(folder.path(), "20261122-0645-zk-none-bbbb");
        point_latest(folder.path(), "20261121-0645-zk-none-aaaa").unwrap();
        let name = |wanted: &str| find(folder.path(), wanted).map(|stored| stored.info.unwrap().run);
        assert_eq!(name("20261122").unwrap(), "20261122-0645-zk-none-bbbb");
        assert_eq!(name("latest").unwrap(), "20261121-0645-zk-none-aaaa");
        assert!(matches!(name("2026"), Err(StoreError::Ambiguous { names, .. }) if names.len() == 2));
        let unknown = name("1999").unwrap_err().to_string();
        assert!(unknown.contains("20261122-0645-zk-none-bbbb"), "{unknown}");
    }

    #[test]
    fn a_folder_in_the_place_of_the_link_is_named_and_nothing_is_left() {
        let results = tempfile::tempdir().unwrap();
        fs::create_dir(results.path().join(LATEST)).unwrap();
        let refused = point_latest(results.path(), "r").unwrap_err().to_string();
        assert_eq!(check_latest(results.path()).unwrap_err().to_string(), refused);
        assert!(
            refused.contains("is a folder") && refused.contains("hint: rename it"),
            "{refused}"
        );
        assert_eq!(fs::read_dir(results.path()).unwrap().count(), 1);
        let refused = find(results.path(), results.path().to_str().unwrap())
            .unwrap_err()
            .to_string();
        assert!(refused.contains("has no run.json and no history.jsonl"), "{refused}");
    }

    #[test]
    fn a_pipe_with_a_history_is_found_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let stored = find(folder.path(), pipe.to_str().unwrap()).unwrap();
        assert_eq!((stored.history, stored.folder), (pipe, None));
    }

    #[test]
    fn a_run_whose_harness_is_gone_was_killed() {
        let results = tempfile::tempdir().unwrap();
        a_run(results.path(), "r");
        let folder = results.path().join("r");
        let running = RunInfo {
            status: RunStatus::Running,
            ..read_info(&folder).unwrap()
        };
        write_info(&folder, &running).unwrap();
        let held = hold(&folder).unwrap();
        assert_eq!(read_info(&folder).unwrap().status, RunStatus::Running);
        drop(held);
        assert_eq!(read_info(&folder).unwrap().status, RunStatus::Killed);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing() {
        let results = tempfile::tempdir().unwrap();
        // a file cannot take the place of a folder
        let target = results.path().join("taken");
        fs::create_dir(&target).unwrap();
        assert!(write_text(&target, "text").is_err());
        let left: Vec<_> = fs::read_dir(results.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_file_is_overwritten_in_its_blocks_and_not_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        fs::write(&path, "running, and more words").unwrap();
        // file systems with delayed allocation allocate now
        fs::File::open(&path).unwrap().sync_all().unwrap();
        overwrite(&path, "failed").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "failed");
        let refused = overwrite(&path, &"x".repeat(1 << 20)).unwrap_err().to_string();
        assert!(refused.contains("run.json"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "failed");
    }

    #[test]
    fn two_runs_of_one_name_get_two_folders() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(create(folder.path(), "r").unwrap().0, "r");
        assert_eq!(create(folder.path(), "r").unwrap().0, "r-2");
    }
}
