//! Records of suites and hunts in a results folder, and relative paths between folders.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::hunt::HuntRecord;
use crate::suite::Record;

/// The record of a suite; a folder that contains it is a suite's.
pub const SUITE_RECORD: &str = "suite.json";
/// The page of a suite or a hunt, in its folder.
pub const PAGE: &str = "index.html";
/// The record of a hunt; a folder that contains it is a hunt's.
pub const HUNT_RECORD: &str = "hunt.json";

/// Returns the suites in a results folder, oldest first: the name of each folder, and its record.
pub fn suites(results: &Path) -> Vec<(String, Record)> {
    records(results, SUITE_RECORD)
}

/// Returns the hunts in a results folder, oldest first: the name of each folder, and its record.
pub fn hunts(results: &Path) -> Vec<(String, HuntRecord)> {
    records(results, HUNT_RECORD)
}

/// Returns the records in the files of this name in a results folder, oldest first, each with the name of its folder.
fn records<T: DeserializeOwned>(results: &Path, file: &str) -> Vec<(String, T)> {
    let entries = fs::read_dir(results).into_iter().flatten().flatten();
    let mut found: Vec<(String, T)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let text = fs::read(entry.path().join(file)).ok()?;
            Some((name, serde_json::from_slice(&text).ok()?))
        })
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// Returns the records of the same suite and shard that started before `name`, newest first, each with the name of its folder.
pub fn before(results: &Path, name: &str, record: &Record) -> Vec<(String, Record)> {
    let mut earlier = suites(results);
    let same = |other: &Record| other.suite == record.suite && other.shard == record.shard;
    earlier.retain(|(other, found)| other.as_str() < name && same(found));
    earlier.reverse();
    earlier
}

/// Returns a name as a part of the name of a folder.
pub fn in_folder_name(name: &str) -> String {
    let is_other = |letter: char| !letter.is_ascii_alphanumeric() && !"-_.".contains(letter);
    name.replace(is_other, "-")
}

/// Returns the path of `to` relative to the folder `from`; both are absolute.
pub fn relative(from: &Path, to: &Path) -> PathBuf {
    let parts = |path: &Path| {
        path.components()
            .map(|part| part.as_os_str().to_owned())
            .collect::<Vec<_>>()
    };
    let (from, to) = (parts(from), parts(to));
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = from[common..].iter().map(|_| "..".into());
    up.chain(to[common..].iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Shard;

    #[test]
    fn the_way_to_a_path_leads_there() {
        let way = |from: &str, to: &str| relative(Path::new(from), Path::new(to)).display().to_string();
        let of_shard = "/a/shards/1/runs/001";
        assert_eq!(way("/a/results/joined", of_shard), "../../shards/1/runs/001");
        assert_eq!(way("/a/b", "/a/b/runs/001"), "runs/001");
        assert_eq!(way("/a", "/b"), "../b");
    }

    #[test]
    fn the_time_before_is_the_last_one_of_the_same_suite_and_part() {
        let folder = tempfile::tempdir().unwrap();
        let record = |suite: &str, shard: Option<&str>| -> Record {
            serde_json::from_value(serde_json::json!({
                "schema": "harness-suite/1", "suite": suite, "digest": "d", "harness": "0.1.0", "started": "20261121-0645",
                "shard": shard.map(|shard| Shard::read(shard).unwrap()), "wanted": [], "took_ms": 0, "rows": [], "exit": 0,
            }))
            .unwrap()
        };
        for (name, record) in [
            ("20261119-suite-a", record("a", None)),
            ("20261120-suite-a", record("a", None)),
            ("20261120-suite-a-1of2", record("a", Some("1/2"))),
            ("20261121-suite-b", record("b", None)),
            ("20261122-suite-a", record("a", None)),
            ("20261123-suite-a", record("a", None)),
        ] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join(SUITE_RECORD), serde_json::to_string(&record).unwrap()).unwrap();
        }
        fs::create_dir(folder.path().join("20261121-0645-zk-none-1234")).unwrap();
        let of = |name: &str, shard: Option<&str>| {
            let found = before(folder.path(), name, &record("a", shard)).into_iter();
            found.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(of("20261122-suite-a", None), ["20261120-suite-a", "20261119-suite-a"]);
        assert_eq!(of("20261119-suite-a", None), [""; 0]);
        assert_eq!(of("20261122-suite-a-1of2", Some("1/2")), ["20261120-suite-a-1of2"]);
        assert_eq!(suites(folder.path()).len(), 6);
    }
}
