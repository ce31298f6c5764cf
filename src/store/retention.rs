//! Retention: all runs that fail, and the last few that pass. Files that harness did not write are never touched, and a run with
//! one of them stays whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;

use crate::backends::{self, Topology};
use crate::cluster::CONFIGURATION;

use super::{LATEST, RUN_SCHEMA, RunStatus, STORE_FILE, StoreError, UNFINISHED, read_info, runs};

/// The files that harness writes into a run's folder, in the order of their removal: last the one that marks a run.
const FILES: [&str; 9] = [
    STORE_FILE,
    "history.jsonl",
    "plan.json",
    "report.html",
    "junit.xml",
    "summary.md",
    "harness.log",
    "verdict.json",
    "run.json",
];
/// The ending of the files in `clients/`: one log a client.
const CLIENT_LOG: &str = ".log";
/// The file in `nodes/n1/`, beside the files that a backend names.
const SERVER_LOG: &str = "server.log";

#[derive(Deserialize)]
struct StoredVerdict {
    outcome: String,
}

/// Removes passing runs beyond the newest `keep`; returns their names.
pub fn prune(results: &Path, keep: usize) -> Result<Vec<String>, StoreError> {
    let latest = fs::read_link(results.join(LATEST)).unwrap_or_default();
    let mut passes: Vec<String> = runs(results)
        .into_iter()
        .filter(|name| is_pass(&results.join(name), name))
        .collect();
    let surplus = passes.len().saturating_sub(keep);
    passes.truncate(surplus);
    let mut removed = Vec::new();
    for name in passes.into_iter().filter(|name| Path::new(name) != latest) {
        let folder = results.join(&name);
        if let Some(paths) = only_ours(&folder) {
            remove(&folder, &paths).map_err(|(path, source)| StoreError::Remove { path, source })?;
            removed.push(name);
        }
    }
    Ok(removed)
}

/// Whether it is a run that harness made here, that is complete, and that passed.
fn is_pass(folder: &Path, name: &str) -> bool {
    let complete = read_info(folder)
        .is_ok_and(|info| info.schema == RUN_SCHEMA && info.run == name && info.status == RunStatus::Complete);
    let verdict = fs::read(folder.join("verdict.json")).ok();
    let verdict: Option<StoredVerdict> = verdict.and_then(|text| serde_json::from_slice(&text).ok());
    complete && verdict.is_some_and(|verdict| verdict.outcome == "PASS")
}

/// Returns the entries of a run's folder in the order of their removal, or `None` if harness did not write all of them.
pub fn only_ours(folder: &Path) -> Option<Vec<PathBuf>> {
    let mut inner = Vec::new();
    let mut files = Vec::new();
    for (name, path, kind) in entries(folder)? {
        match name.as_str() {
            "clients" if kind.is_dir() => {
                inner.extend(files_of(&path, |name| {
                    name.starts_with('c') && name.ends_with(CLIENT_LOG)
                })?);
                inner.push(path);
            }
            "nodes" if kind.is_dir() => {
                for (node, path, kind) in entries(&path)? {
                    if !kind.is_dir() || !node.starts_with('n') {
                        return None;
                    }
                    inner.extend(files_of(&path, |name| name == SERVER_LOG || is_server_file(name))?);
                    inner.push(path);
                }
                inner.push(path);
            }
            _ if kind.is_file() => files.push((place_of(&name)?, path)),
            _ => return None,
        }
    }
    files.sort();
    inner.extend(files.into_iter().map(|(_, path)| path));
    Some(inner)
}

/// Returns the position of a file in [`FILES`]; one that a killed harness was writing comes before all.
fn place_of(name: &str) -> Option<usize> {
    let (whole, unfinished) = match name.split_once(UNFINISHED) {
        Some((whole, by)) if by.parse::<u32>().is_ok() => (whole, true),
        _ => (name, false),
    };
    let place = FILES.iter().position(|file| *file == whole)?;
    Some(if unfinished { 0 } else { place + 1 })
}

/// Whether a backend keeps a file of this name for each server, in any topology.
fn is_server_file(name: &str) -> bool {
    let keeps = |topology: &Topology| {
        let mut backends = backends::all().filter_map(|backend| backend.in_topology(*topology).ok());
        backends.any(|backend| backend.software.files.contains(&name))
    };
    name.starts_with(CONFIGURATION) || Topology::value_variants().iter().any(keeps)
}

fn files_of(folder: &Path, is_ours: impl Fn(&str) -> bool) -> Option<Vec<PathBuf>> {
    let entries = entries(folder)?.into_iter();
    entries
        .map(|(name, path, kind)| (kind.is_file() && is_ours(&name)).then_some(path))
        .collect()
}

/// Returns the names, paths and kinds in a folder; a link is a kind of its own and is never followed.
fn entries(folder: &Path) -> Option<Vec<(String, PathBuf, fs::FileType)>> {
    let entries = fs::read_dir(folder).ok()?;
    entries
        .map(|entry| {
            let entry = entry.ok()?;
            Some((
                entry.file_name().into_string().ok()?,
                entry.path(),
                entry.file_type().ok()?,
            ))
        })
        .collect()
}

fn remove(folder: &Path, paths: &[PathBuf]) -> Result<(), (PathBuf, io::Error)> {
    for path in paths.iter().map(PathBuf::as_path).chain([folder]) {
        // a folder is removed only if it is empty: files that came since then stay
        let removed = if path.is_dir() {
            fs::remove_dir(path)
        } else {
            fs::remove_file(path)
        };
        match removed {
            // another harness prunes at the same time
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err((path.to_owned(), error)),
            Ok(()) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::a_run;
    use super::super::{point_latest, write_json};
    use super::*;

    /// Makes a run with all files that a judged one has.
    fn a_judged_run(results: &Path, name: &str, outcome: &str) {
        a_run(results, name);
        let folder = results.join(name);
        write_json(
            &folder.join("verdict.json"),
            &serde_json::json!({ "outcome": outcome, "more": 1 }),
        )
        .unwrap();
        for (inner, file) in [
            ("clients", "c0.log"),
            ("nodes/n1", "server.log"),
            ("nodes/n1", "zoo.cfg"),
            ("nodes/n2", "redis.conf"),
            ("nodes/n3", "nodes.conf"),
        ] {
            fs::create_dir_all(folder.join(inner)).unwrap();
            fs::write(folder.join(inner).join(file), "").unwrap();
        }
        fs::write(folder.join("history.jsonl"), "").unwrap();
        fs::write(folder.join("report.html.new-4711"), "").unwrap();
    }

    #[test]
    fn the_last_passes_and_all_failures_stay() {
        let folder = tempfile::tempdir().unwrap();
        for (name, outcome) in [
            ("1", "PASS"),
            ("2", "FAIL"),
            ("3", "PASS"),
            ("4", "UNSURE"),
            ("5", "PASS"),
        ] {
            a_judged_run(folder.path(), name, outcome);
        }
        assert_eq!(prune(folder.path(), 2).unwrap(), ["1"]);
        assert_eq!(runs(folder.path()), ["2", "3", "4", "5"]);
        assert_eq!(prune(folder.path(), 2).unwrap(), [""; 0]);
    }

    #[test]
    fn a_run_with_something_that_harness_did_not_write_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        for (name, foreign) in [
            ("1", "notes.txt"),
            ("2", "nodes/n1/heap.hprof"),
            ("3", "clients/c0.log.bak"),
        ] {
            a_judged_run(folder.path(), name, "PASS");
            fs::write(folder.path().join(name).join(foreign), "mine").unwrap();
        }
        a_judged_run(folder.path(), "4", "PASS");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("4/plan.json")).unwrap();
        fs::create_dir(folder.path().join("5")).unwrap();
        a_judged_run(folder.path(), "6", "PASS");
        assert_eq!(prune(folder.path(), 1).unwrap(), [""; 0]);
        for name in ["1", "2", "3", "4"] {
            assert!(folder.path().join(name).join("history.jsonl").is_file(), "{name}");
        }
        assert!(folder.path().join("5").is_dir());
    }

    #[test]
    fn what_latest_points_to_and_what_still_runs_stay() {
        let folder = tempfile::tempdir().unwrap();
        a_judged_run(folder.path(), "1", "PASS");
        point_latest(folder.path(), "1").unwrap();
        a_run(folder.path(), "2");
        a_judged_run(folder.path(), "3", "PASS");
        assert_eq!(prune(folder.path(), 1).unwrap(), [""; 0]);
        assert_eq!(runs(folder.path()), ["1", "2", "3"]);
    }
}
