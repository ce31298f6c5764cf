//! A survey: locks of known libraries, each put through the same hunts, and a page that says of each promise whether it holds.
//!
//! A lock is a TOML file ([`SurveyedLock`]); `docs/adding-a-library.md` has the keys. [`PROMISES`] is the battery.

pub mod page;
pub mod record;

use std::fs;
use std::path::{Path, PathBuf};

use harness_checkers::Property;
use serde::Deserialize;

/// What people ask of a lock, in the order of the columns.
pub const PROMISES: [Promise; 13] = [
    struck("slow-network", "slow network", "latency,loss,bursts,slow"),
    struck("partition", "partition", "partition,partition=waiter"),
    struck(
        "messages",
        "a message lost or late",
        "drop-request,drop-reply,delay-request,delay-reply",
    ),
    struck("reset", "reset", "reset,flaky"),
    struck("server-restart", "server away", "server-pause,server-restart"),
    struck("minority", "minority away", "server-kill=one,server-pause=one"),
    struck("clock", "clock step", "clock"),
    struck("holder-death", "holder dies", "kill-holder,kill-after"),
    seen("calls-end", "calls end in time", Property::Hl011),
    seen("tells-of-a-loss", "tells of a loss", Property::Hl009),
    seen("tokens", "fencing tokens", Property::Hl003),
    seen("order", "order", Property::Hl006),
    seen("herd", "wakes one", Property::Hl004),
];

/// One promise: it is looked for under faults of its own, or in all experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub name: &'static str,
    /// The head of its column.
    pub title: &'static str,
    pub by: PromiseTest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromiseTest {
    /// Nothing but the properties of other columns is violated under these faults.
    Faults(&'static str),
    /// This property is not violated in any experiment.
    Property(Property),
}

const fn struck(name: &'static str, title: &'static str, faults: &'static str) -> Promise {
    let by = PromiseTest::Faults(faults);
    Promise { name, title, by }
}

const fn seen(name: &'static str, title: &'static str, property: Property) -> Promise {
    let by = PromiseTest::Property(property);
    Promise { name, title, by }
}

impl Promise {
    pub fn named(name: &str) -> Option<Self> {
        PROMISES.into_iter().find(|promise| promise.name == name)
    }

    /// The faults of its own hunt against a lock; `None`: it has no hunt there.
    pub fn faults(&self, lock: &SurveyedLock) -> Option<&'static str> {
        let PromiseTest::Faults(faults) = self.by else {
            return None;
        };
        let is_redis = lock.backend == "redis";
        match self.name {
            "minority" if !lock.has_majority() => None,
            // one server of Redis that starts again has lost its keys, whatever lock was there
            "server-restart" if is_redis => (!lock.has_majority()).then_some("server-pause"),
            _ => Some(faults),
        }
    }

    /// Whether a violation of this property breaks it.
    pub fn is_broken_by(&self, property: Property) -> bool {
        match self.by {
            PromiseTest::Property(own) => own == property,
            PromiseTest::Faults(_) => !PROMISES.iter().any(|other| other.by == PromiseTest::Property(property)),
        }
    }
}

/// One kind of lock of one library.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SurveyedLock {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    pub library: String,
    /// Which of its locks.
    pub lock: String,
    pub home: String,
    pub backend: String,
    /// Of the library, newest first.
    pub versions: Vec<String>,
    /// Of PyPI, pinned; `{version}` stands for the library's.
    pub packages: Vec<String>,
    /// A program, below the folder of the survey or among the adapters, and its arguments.
    pub client: String,
    /// Options of `harness run`, in every experiment.
    #[serde(default)]
    pub set: Vec<String>,
    #[serde(default)]
    pub not_promised: Vec<NotPromised>,
    #[serde(default)]
    pub find: Vec<Triage>,
}

/// What the library says that it does not do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotPromised {
    pub promise: String,
    pub quote: String,
    pub link: String,
}

/// A find that a reader has compared with the library's source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Triage {
    /// Property and class: `HL001 told-twice`.
    pub find: String,
    /// The versions that have it, where not all do.
    #[serde(default)]
    pub versions: Vec<String>,
    pub is: FindKind,
    pub happened: String,
    /// File and lines of the library.
    pub source: String,
    /// A public report, or how none was found.
    pub report: String,
}

impl Triage {
    /// Whether this version has it.
    fn is_of(&self, version: &str) -> bool {
        self.versions.is_empty() || self.versions.iter().any(|known| known == version)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindKind {
    Defect,
    /// Documented, or one that no lock of its kind avoids.
    Limit,
    /// The adapter's fault.
    Adapter,
}

impl FindKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Defect => "defect",
            Self::Limit => "limit",
            Self::Adapter => "fault of the adapter",
        }
    }
}

impl SurveyedLock {
    /// The value of one of its options.
    fn option(&self, name: &str) -> Option<&str> {
        let given = self.set.iter().filter_map(|set| set.split_once('='));
        given
            .filter(|(option, _)| *option == name)
            .map(|(_, value)| value)
            .next_back()
    }

    /// Whether it is a lock on a majority of servers that know nothing of each other, or on a cluster.
    fn has_majority(&self) -> bool {
        let is_cluster = ["zk", "etcd"].contains(&self.backend.as_str());
        self.option("nodes").map_or(is_cluster, |nodes| nodes != "1")
    }

    /// The file of its client.
    pub fn program(&self) -> &str {
        self.client.split(' ').next().unwrap_or_default()
    }

    /// The name of its store; of a described one, that of its file.
    pub fn store(&self) -> &str {
        let name = Path::new(&self.backend).file_stem();
        name.and_then(|name| name.to_str()).unwrap_or(&self.backend)
    }

    /// Virtual time, unless it says otherwise.
    pub fn runtime(&self) -> &str {
        self.option("runtime").unwrap_or("virtual")
    }

    pub fn packages_of(&self, version: &str) -> Vec<String> {
        let packages = self.packages.iter();
        packages.map(|package| package.replace("{version}", version)).collect()
    }

    fn check(&self) -> Result<(), String> {
        let unpinned = self.packages.iter().find(|package| !package.contains("=="));
        if let Some(package) = unpinned {
            return Err(format!("`{package}` has no version"));
        }
        if self.versions.is_empty() || self.packages.is_empty() {
            return Err("it has no version or no package".to_owned());
        }
        if let Some(set) = self.set.iter().find(|set| !set.contains('=')) {
            return Err(format!("`{set}` is not OPTION=VALUE"));
        }
        let unknown = self
            .not_promised
            .iter()
            .find(|entry| Promise::named(&entry.promise).is_none());
        unknown.map_or(Ok(()), |entry| Err(format!("`{}` is no promise", entry.promise)))
    }
}

/// The locks whose files are in a folder, by name.
///
/// # Errors
///
/// A file cannot be read, or is wrong; the sentence names it.
pub fn read(folder: &Path) -> Result<Vec<SurveyedLock>, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("could not read {}: {error}", folder.display());
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(|error| cannot(&error))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let of_file = |path: &PathBuf| {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let mut lock: SurveyedLock = toml::from_str(&text).map_err(|error| wrong(&error.to_string().trim_end()))?;
        lock.check().map_err(|why| wrong(&why))?;
        lock.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(lock)
    };
    files.iter().map(of_file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(more: &str) -> Result<SurveyedLock, String> {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "library = \"x\"\nlock = \"Lock\"\nhome = \"https://example.org\"\nclient = \"x.py\"\n\
             versions = [\"2\", \"1\"]\npackages = [\"x=={{version}}\", \"y==3\"]\n{more}"
        );
        fs::write(folder.path().join("x.toml"), text).unwrap();
        Ok(read(folder.path())?.remove(0))
    }

    #[test]
    fn a_file_is_a_lock_and_one_that_is_wrong_is_named_with_the_key() {
        let known = lock("backend = \"redis\"").unwrap();
        assert_eq!((known.name.as_str(), known.runtime()), ("x", "virtual"));
        assert_eq!(known.packages_of("1"), ["x==1", "y==3"]);
        for (more, says) in [
            ("backend = \"redis\"\nbakend = 1", "unknown field `bakend`"),
            ("", "missing field `backend`"),
            ("backend = \"redis\"\nset = [\"nodes\"]", "`nodes` is not OPTION=VALUE"),
            (
                "backend = \"zk\"\n[[not-promised]]\npromise = \"speed\"\nquote = \"\"\nlink = \"\"",
                "`speed` is no promise",
            ),
        ] {
            let error = lock(more).unwrap_err();
            assert!(error.contains(says) && error.contains("x.toml"), "{error}");
        }
    }

    #[test]
    fn a_server_that_loses_its_keys_is_no_fault_for_a_lock_on_one_redis_and_a_minority_needs_a_majority() {
        let faults = |promise: &str, more: &str| Promise::named(promise).unwrap().faults(&lock(more).unwrap());
        let three = "backend = \"redis\"\nset = [\"nodes=3\"]";
        assert_eq!(faults("server-restart", "backend = \"redis\""), Some("server-pause"));
        assert_eq!(
            faults("server-restart", "backend = \"postgres\""),
            Some("server-pause,server-restart")
        );
        assert_eq!(faults("minority", "backend = \"redis\""), None);
        assert!(faults("minority", three).is_some() && faults("server-restart", three).is_none());
        assert!(faults("minority", "backend = \"zk\"").is_some());
        assert_eq!(
            faults("herd", "backend = \"zk\""),
            None,
            "it is seen in all experiments"
        );
    }

    #[test]
    fn a_violation_breaks_the_promise_that_is_about_its_property_or_those_with_faults() {
        let broken = |property: Property| {
            let promises = PROMISES.iter().filter(|promise| promise.is_broken_by(property));
            promises.map(|promise| promise.name).collect::<Vec<_>>()
        };
        assert_eq!(broken(Property::Hl004), ["herd"]);
        assert_eq!(broken(Property::Hl011), ["calls-end"]);
        assert!(broken(Property::Hl001).contains(&"partition") && !broken(Property::Hl001).contains(&"herd"));
    }
}
