//! Merging: the records of shards and of parallel hunts, found in folders, and the paths from a merged record to their runs.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::Failure;
use super::records::relative;

/// Depth of the search for records: an artifact in an artifact, not a whole disk.
const DEPTH: usize = 4;

/// Returns the records called `name` in these folders; `what` is the word for a record. The paths of its `runs` become absolute.
pub fn read_all<T: DeserializeOwned>(
    places: &[PathBuf],
    (name, what): (&str, &str),
    runs: impl Fn(&mut T) -> Vec<&mut String>,
) -> Result<Vec<T>, Failure> {
    let mut found = Vec::new();
    for place in places {
        let before = found.len();
        records_below(place, name, DEPTH, &mut found);
        if found.len() == before {
            let hint = "name the folders that the shards or hunts wrote, or a folder above them";
            let sentence = format!("{} contains no {name}\nhint: {hint}", place.display());
            return Err(Failure::usage(sentence));
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path)
            .map_err(|error| Failure::environment(format!("could not read {}: {error}", path.display())))?;
        let mut record = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{} is not {what}: {error}", path.display())))?;
        let from = path.parent().unwrap_or(Path::new("")).to_owned();
        let from = fs::canonicalize(&from).unwrap_or(from);
        for run in runs(&mut record) {
            let path = from.join(&*run);
            *run = fs::canonicalize(&path).unwrap_or(path).display().to_string();
        }
        Ok(record)
    };
    found.into_iter().map(read).collect()
}

/// Adds the records in `place` and its folders to `found`. It follows neither runs nor links.
fn records_below(place: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    let record = place.join(name);
    if record.is_file() {
        found.push(record);
        return;
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    if depth > 0 {
        folders
            .iter()
            .for_each(|folder| records_below(folder, name, depth - 1, found));
    }
}

/// Returns the path of a run relative to the folder of a merged record.
pub fn seen_from(folder: &Path, run: &str) -> Result<String, Failure> {
    let folder = fs::canonicalize(folder).map_err(Failure::environment)?;
    Ok(relative(&folder, Path::new(run)).display().to_string())
}
