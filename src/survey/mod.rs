//! A survey: locks of known libraries, each tested by the same hunts, and a page that says of each promise whether it holds.
//!
//! A lock is a TOML file ([`SurveyedLock`]). [`PROMISES`] are the promises of a lock and the hunts that test them.

pub mod page;
pub mod record;

use std::path::Path;

use harness_checkers::Property;

use crate::adapters::surveyed::{self, SurveyedLock};

/// The promises that people expect of a lock, in the order of the columns.
pub const PROMISES: [Promise; 14] = [
    Promise {
        name: "one-message",
        title: "any one message",
        by: PromiseTest::Placements,
    },
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

/// The options of a hunt that tries every fault on every single message.
pub const EVERY_PLACEMENT: [&str; 2] = ["--exhaustive", "1"];

/// The seed of all hunts, so that a row can be made again.
const SEED: &str = "00000001";

/// Returns the options of all hunts against a lock.
pub fn options(lock: &SurveyedLock) -> Vec<&str> {
    let mut options = vec!["--backend", lock.backend.as_str(), "--seed", SEED];
    options.extend(["--runtime", lock.runtime()]);
    options.extend(lock.set.iter().flat_map(|set| ["--set", set.as_str()]));
    options
}

/// A promise. It is tested by the faults of a hunt of its own, or in all experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub name: &'static str,
    /// The head of its column.
    pub title: &'static str,
    pub by: PromiseTest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromiseTest {
    /// No property is violated under these faults, but for those of other columns.
    Faults(&'static str),
    /// The same under any fault on any one message of a small scenario.
    Placements,
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

    /// Returns the options of its own hunt against a lock, or `None` if it has no hunt there.
    pub fn hunted_with(&self, lock: &SurveyedLock) -> Option<[&'static str; 2]> {
        match self.by {
            PromiseTest::Faults(_) => Some(["--fault", self.faults(lock)?]),
            // in real time a placement is another run each time
            PromiseTest::Placements => (lock.runtime() == "virtual").then_some(EVERY_PLACEMENT),
            PromiseTest::Property(_) => None,
        }
    }

    fn faults(&self, lock: &SurveyedLock) -> Option<&'static str> {
        let PromiseTest::Faults(faults) = self.by else {
            return None;
        };
        let is_redis = ["redis", "valkey"].contains(&lock.backend.as_str());
        match self.name {
            "minority" if !lock.has_majority() => None,
            // a single server of Redis loses its keys at a restart, with any lock
            "server-restart" if is_redis => (!lock.has_majority()).then_some("server-pause"),
            _ => Some(faults),
        }
    }

    /// Whether a violation of this property breaks the promise.
    pub fn is_broken_by(&self, property: Property) -> bool {
        match self.by {
            PromiseTest::Property(own) => own == property,
            _ => !PROMISES.iter().any(|other| other.by == PromiseTest::Property(property)),
        }
    }
}

/// Returns the locks of the files in a folder, by name.
///
/// # Errors
///
/// A file cannot be read, or is wrong; the sentence names it.
pub fn read(folder: &Path) -> Result<Vec<SurveyedLock>, String> {
    let locks = surveyed::read(folder)?;
    let mut entries = locks
        .iter()
        .flat_map(|lock| lock.not_promised.iter().map(move |entry| (lock, entry)));
    match entries.find(|(_, entry)| Promise::named(&entry.promise).is_none()) {
        Some((lock, entry)) => Err(format!("{}: `{}` is no promise", lock.file.display(), entry.promise)),
        None => Ok(locks),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::adapters::surveyed::file_of_test;

    fn lock(more: &str) -> Result<SurveyedLock, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.toml"), file_of_test("x", more)).unwrap();
        Ok(read(folder.path())?.remove(0))
    }

    #[test]
    fn a_file_is_a_lock_and_one_that_is_wrong_is_named_with_the_key() {
        let known = lock("backend = \"redis\"\ncrates = ['y = \"=3\"']").unwrap();
        assert_eq!((known.name.as_str(), known.runtime()), ("x", "virtual"));
        assert_eq!(known.pinned("1"), "x==1, y = \"=3\"");
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
        for backend in ["redis", "valkey"] {
            let one = format!("backend = {backend:?}");
            assert_eq!(faults("server-restart", &one), Some("server-pause"));
        }
        assert_eq!(
            faults("server-restart", "backend = \"postgres\""),
            Some("server-pause,server-restart")
        );
        assert_eq!(faults("minority", "backend = \"redis\""), None);
        assert!(faults("minority", three).is_some() && faults("server-restart", three).is_none());
        for cluster in ["zk", "nats"] {
            assert!(faults("minority", &format!("backend = {cluster:?}")).is_some());
        }
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
