//! Coverage of a hunt: the points that its experiments struck, by message, state of the client that sends it, and fault
//! on messages.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::typed_fault::{ON_MESSAGES, without_number_or_time};
use crate::report::coverage::Coverage;

/// Passes in an experiment from which on a message certainly comes while a fault waits for it.
const OFTEN: u64 = 50;
/// Number of aims without a strike after which a fault is unlikely to strike a message.
const PATIENCE: u64 = 3;

/// Messages in the states of their senders, as arguments of a fault: `create:waiter`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HuntCoverage(BTreeMap<String, HuntPoint>);

/// One message in one state of its sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct HuntPoint {
    passed: u64,
    /// Experiments in which it passed.
    #[serde(default)]
    experiments: u64,
    /// Number of strikes of each fault.
    strikes: BTreeMap<String, u64>,
    /// Number of times that each fault was aimed at it.
    #[serde(default)]
    aimed: BTreeMap<String, u64>,
}

/// A fault on a message in one state of its sender, as a candidate for an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageCell {
    /// The fault as an option: `drop-reply=SET:waiter`.
    pub fault: String,
    /// Whether it never struck its message, and was aimed at it less than [`PATIENCE`] times. Such cells are chosen first.
    pub open: bool,
    /// Number of strikes, or of aims if that is larger. Cells with few are chosen first.
    pub tries: u64,
    /// Whether the message is rare, so that another fault must cause it.
    pub rare: bool,
}

/// The cells that the faults on messages struck.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Struck {
    pub cells: u64,
    pub struck: u64,
    /// Points without a strike that passed by chance, in less than half of the experiments. They are no cells.
    pub by_chance: BTreeSet<String>,
    /// Points that were awaited [`PATIENCE`] times, and did not pass while a fault was active: `SCRIPT:releaser`.
    pub in_vain: BTreeMap<String, u64>,
}

impl HuntCoverage {
    /// Adds the coverage of one experiment with these faults.
    pub fn add(&mut self, coverage: &Coverage, faults: &[String]) {
        for covered in &coverage.messages.points {
            let Some(argument) = &covered.argument else { continue };
            let point = self.0.entry(argument.clone()).or_default();
            point.passed += covered.passed.unwrap_or(0);
            point.experiments += u64::from(covered.passed.is_some());
            for (fault, strikes) in &covered.strikes {
                *point.strikes.entry(fault.clone()).or_default() += strikes.times;
            }
        }
        for fault in faults {
            let fault = without_number_or_time(fault);
            if let Some((name, of)) = fault.split_once('=')
                && let Some(point) = self.0.get_mut(of)
            {
                *point.aimed.entry(name.to_owned()).or_default() += 1;
            }
        }
    }

    /// Adds the coverage of another hunt.
    pub fn merge(&mut self, other: Self) {
        let add = |to: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>| {
            for (fault, count) in from {
                *to.entry(fault).or_default() += count;
            }
        };
        for (argument, more) in other.0 {
            let point = self.0.entry(argument).or_default();
            point.passed += more.passed;
            point.experiments += more.experiments;
            add(&mut point.strikes, more.strikes);
            add(&mut point.aimed, more.aimed);
        }
    }

    /// Whether clients sent a message of this name, in any state.
    pub fn has_passed(&self, message: &str) -> bool {
        let name = |point: &str| point.split(':').next() == Some(message);
        self.0
            .iter()
            .any(|(argument, point)| name(argument) && point.passed > 0)
    }

    /// Returns every fault on every message; none while no message is known.
    pub fn cells(&self) -> Vec<MessageCell> {
        let experiments = self.experiments();
        let of_each = |(name, point): (&String, &HuntPoint)| {
            let rare = point.passed < OFTEN * point.experiments;
            let cell = |fault: &&'static str| MessageCell {
                fault: format!("{fault}={name}"),
                open: point.struck_by(fault) == 0 && point.aimed_at(fault) < PATIENCE,
                tries: point.struck_by(fault).max(point.aimed_at(fault)),
                rare,
            };
            ON_MESSAGES.iter().map(cell).collect::<Vec<_>>()
        };
        let usual = self.0.iter().filter(|(_, point)| !point.is_by_chance(experiments));
        usual.flat_map(of_each).collect()
    }

    pub fn struck(&self) -> Struck {
        let mut all = Struck::default();
        for (name, point) in &self.0 {
            if point.is_by_chance(self.experiments()) {
                all.by_chance.insert(name.clone());
                continue;
            }
            for fault in ON_MESSAGES {
                all.cells += 1;
                if point.struck_by(fault) > 0 {
                    all.struck += 1;
                } else if point.aimed_at(fault) >= PATIENCE {
                    *all.in_vain.entry(name.clone()).or_default() += 1;
                }
            }
        }
        all
    }

    /// Returns the number of experiments, since some message passes in each.
    fn experiments(&self) -> u64 {
        self.0.values().map(|point| point.experiments).max().unwrap_or(0)
    }
}

impl HuntPoint {
    fn is_by_chance(&self, experiments: u64) -> bool {
        self.experiments * 2 < experiments && self.strikes.is_empty()
    }

    fn struck_by(&self, fault: &str) -> u64 {
        self.strikes.get(fault).copied().unwrap_or(0)
    }

    fn aimed_at(&self, fault: &str) -> u64 {
        self.aimed.get(fault).copied().unwrap_or(0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn experiment(point: &str, passed: u64, strikes: &[(&str, u64)]) -> Coverage {
        serde_json::from_value(serde_json::json!({
            "messages": {"faults": [], "points": [{
                "point": "in words",
                "argument": point,
                "passed": passed,
                "strikes": strikes.iter().map(|(fault, times)| ((*fault).to_owned(), serde_json::json!({"times": times, "noticed": 0})))
                    .collect::<serde_json::Map<_, _>>(),
            }]},
            "clients": {"faults": [], "points": []},
            "servers": {"faults": [], "points": []},
            "in_vain": 0,
        }))
        .unwrap()
    }

    fn cell(coverage: &HuntCoverage, fault: &str) -> MessageCell {
        let mut cells = coverage.cells().into_iter();
        cells.find(|cell| cell.fault == fault).expect("it is known")
    }

    #[test]
    fn what_struck_or_was_aimed_at_counts_as_a_try() {
        let mut coverage = HuntCoverage::default();
        assert!(coverage.cells().is_empty());
        coverage.add(&experiment("SET:waiter", 900, &[("drop-reply", 2)]), &[]);
        let script = experiment("SCRIPT:releaser", 1, &[]);
        let again = ["kill-after=SCRIPT:1:releaser".to_owned()];
        coverage.add(&script, &[again[0].clone(), "reset".into()]);
        assert_eq!(coverage.cells().len(), 10);
        let struck = cell(&coverage, "drop-reply=SET:waiter");
        assert_eq!((struck.open, struck.tries, struck.rare), (false, 2, false));
        let aimed = cell(&coverage, "kill-after=SCRIPT:releaser");
        assert_eq!((aimed.open, aimed.tries, aimed.rare), (true, 1, true));
        assert_eq!(cell(&coverage, "drop-reply=SCRIPT:releaser").tries, 0);
        assert_eq!((coverage.struck().struck, coverage.struck().cells), (1, 10));
        for _ in 1..PATIENCE {
            coverage.add(&script, &again);
        }
        assert!(!cell(&coverage, "kill-after=SCRIPT:releaser").open);
    }

    #[test]
    fn a_message_that_was_awaited_in_vain_is_told_apart_from_one_that_was_not_awaited() {
        let mut coverage = HuntCoverage::default();
        let script = experiment("SCRIPT:releaser", 1, &[]);
        for _ in 0..PATIENCE {
            coverage.add(&script, &["drop-reply=SCRIPT:releaser".into()]);
        }
        let in_vain = BTreeMap::from([("SCRIPT:releaser".to_owned(), 1)]);
        assert_eq!(coverage.struck().in_vain, in_vain);
        coverage.add(&experiment("SCRIPT:releaser", 1, &[("drop-reply", 1)]), &[]);
        let Struck {
            cells,
            struck,
            by_chance,
            in_vain,
        } = coverage.struck();
        assert_eq!((cells, struck), (5, 1));
        assert!(by_chance.is_empty() && in_vain.is_empty());
    }

    #[test]
    fn a_message_that_passes_in_few_experiments_is_none_to_aim_at_until_it_was_struck() {
        let mut coverage = HuntCoverage::default();
        coverage.add(&experiment("GET:worker", 1, &[]), &[]);
        for _ in 0..3 {
            coverage.add(&experiment("SET:waiter", 900, &[]), &[]);
        }
        assert_eq!(coverage.struck().by_chance, BTreeSet::from(["GET:worker".to_owned()]));
        assert!(coverage.cells().iter().all(|cell| cell.fault.ends_with("=SET:waiter")));
        coverage.add(&experiment("GET:worker", 1, &[("drop-reply", 1)]), &[]);
        assert_eq!((coverage.struck().struck, coverage.struck().cells), (1, 10));
    }
}
