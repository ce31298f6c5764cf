//! What a survey found out about one version of one lock, as its file in the results has it.

use harness_checkers::Property;
use harness_workloads::{Contract, IssuedBy};
use serde::{Deserialize, Serialize};

use super::{PROMISES, Promise, PromiseTest};
use crate::adapters::surveyed::{SurveyedLock, Triage};
use crate::hunt::record::HuntCounts;
use crate::hunt::{HitRate, HuntFind, HuntRecord};

pub const SCHEMA: &str = "harness-survey/2";

/// One version, with its hunts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SurveyRecord {
    pub schema: String,
    pub harness: String,
    pub name: String,
    pub version: String,
    /// Its client, with a digest of its programs and packages.
    pub client: String,
    /// When it was begun.
    pub started: String,
    pub experiments: u64,
    pub seed: String,
    /// Why it could not be installed or run, if it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default)]
    pub contract: Option<Contract>,
    pub hunts: Vec<SurveyHunt>,
    /// Finds that were cut down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shrunk: Vec<ShrunkFind>,
}

/// The least that shows a find, in virtual time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShrunkFind {
    /// Property and class.
    pub find: String,
    /// The words that run it.
    pub again: Vec<String>,
    /// From the start of a run to the violation.
    pub detected_after_ms: u64,
    /// The test that it was written as, in the folder of the version.
    pub test: String,
}

/// The hunt of one promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SurveyHunt {
    pub promise: String,
    /// Its options.
    pub with: String,
    pub counts: HuntCounts,
    pub finds: Vec<HuntFind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SurveyHunt {
    pub fn of(promise: &Promise, with: &[&str], record: HuntRecord) -> Self {
        Self {
            promise: promise.name.to_owned(),
            with: with.join(" "),
            counts: record.counts,
            finds: record.finds,
            error: record.error,
        }
    }

    /// Experiments that came to a verdict.
    pub fn decided(&self) -> u64 {
        self.counts.held + self.counts.violated
    }

    /// How often one of its finds came.
    fn rate(&self, find: &HuntFind) -> HitRate {
        HitRate {
            hits: find.count as u32,
            runs: self.decided().max(find.count) as u32,
        }
    }
}

/// What is known of one promise of one version.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromiseState {
    /// It was not broken in so many experiments.
    Holds(u64),
    /// The find that broke it most often.
    Broken {
        find: String,
        rate: HitRate,
    },
    NotPromised,
    /// It is not in question for this lock: one server has no minority, and some compare no times of day.
    NotConcerned,
    NotKnown,
}

impl SurveyRecord {
    /// A record without a hunt.
    pub fn begun(lock: &SurveyedLock, version: &str, experiments: u64, seed: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            harness: env!("CARGO_PKG_VERSION").to_owned(),
            name: lock.name.clone(),
            version: version.to_owned(),
            client: String::new(),
            started: crate::store::minute_now(),
            experiments,
            seed: seed.to_owned(),
            error: None,
            contract: None,
            hunts: Vec::new(),
            shrunk: Vec::new(),
        }
    }

    /// Whether what it knows stands for a survey of the same client with so many experiments.
    pub fn stands_for(&self, other: &Self) -> bool {
        let is_same = (&self.schema, &self.harness, &self.client) == (&other.schema, &other.harness, &other.client);
        is_same && self.experiments >= other.experiments
    }

    /// Whether a hunt was made in full with this battery.
    pub fn has(&self, promise: &Promise, with: &[&str]) -> bool {
        let mut hunts = self.hunts.iter();
        hunts.any(|hunt| {
            let is_same = hunt.promise == promise.name && hunt.with == with.join(" ");
            // a search over all placements has as many as there are
            let has_ended = promise.by == PromiseTest::Placements || hunt.counts.experiments >= self.experiments;
            is_same && has_ended && hunt.decided() > 0
        })
    }

    pub fn add(&mut self, hunt: SurveyHunt) {
        self.hunts.retain(|other| other.promise != hunt.promise);
        self.hunts.push(hunt);
        let place = |hunt: &SurveyHunt| PROMISES.iter().position(|promise| promise.name == hunt.promise);
        self.hunts.sort_by_key(place);
    }

    pub fn state(&self, promise: &Promise, lock: &SurveyedLock) -> PromiseState {
        match promise.by {
            PromiseTest::Property(property) if !self.promises(property) => return PromiseState::NotPromised,
            PromiseTest::Property(_) => {}
            _ if !self.concerns(promise, lock) => return PromiseState::NotConcerned,
            _ => {}
        }
        let is_about = |hunt: &&SurveyHunt| match promise.by {
            PromiseTest::Property(_) => true,
            _ => hunt.promise == promise.name,
        };
        let hunts: Vec<&SurveyHunt> = self.hunts.iter().filter(is_about).collect();
        let finds = hunts.iter().flat_map(|hunt| {
            let finds = hunt.finds.iter().filter(|find| promise.is_broken_by(find.property));
            finds.map(|find| (find, hunt.rate(find)))
        });
        // the first of those that came as often
        let finds: Vec<_> = finds.collect();
        let worst = finds
            .into_iter()
            .rev()
            .max_by_key(|(find, _)| (find.count, std::cmp::Reverse(find.property)));
        if let Some((find, rate)) = worst {
            let find = find.name();
            return PromiseState::Broken { find, rate };
        }
        let is_excluded = lock.not_promised.iter().any(|entry| entry.promise == promise.name);
        let decided: u64 = hunts.iter().map(|hunt| hunt.decided()).sum();
        match decided {
            _ if is_excluded => PromiseState::NotPromised,
            0 => PromiseState::NotKnown,
            decided => PromiseState::Holds(decided),
        }
    }

    /// Whether the faults of a promise can concern it.
    pub fn concerns(&self, promise: &Promise, lock: &SurveyedLock) -> bool {
        let compares_times = self
            .contract
            .as_ref()
            .is_none_or(|contract| contract.wall_clock != Some(false));
        promise.hunted_with(lock).is_some() && (promise.name != "clock" || compares_times)
    }

    /// Whether its contract has what this property is about.
    fn promises(&self, property: Property) -> bool {
        let Some(contract) = &self.contract else { return true };
        match property {
            Property::Hl003 => !matches!(contract.token, None | Some(IssuedBy::None)),
            Property::Hl006 => contract.fifo == Some(true),
            Property::Hl009 => contract.lease != Some(false),
            _ => true,
        }
    }

    /// What is known of this version and did not come in its hunts.
    pub fn not_met<'a>(&self, lock: &'a SurveyedLock) -> Vec<&'a Triage> {
        let finds = self.finds();
        let is_met = |triage: &&Triage| finds.iter().any(|found| found.find.name() == triage.find);
        let known = lock.find.iter().filter(|triage| triage.is_of(&self.version));
        known.filter(|triage| !is_met(triage)).collect()
    }

    /// Its finds with the promises under whose faults they came, the gravest first.
    pub fn finds(&self) -> Vec<SurveyFind<'_>> {
        let mut finds: Vec<SurveyFind<'_>> = Vec::new();
        for hunt in &self.hunts {
            for find in &hunt.finds {
                let seen = (hunt.promise.as_str(), hunt.rate(find));
                let known = finds.iter_mut().find(|known| known.find.name() == find.name());
                match known {
                    Some(known) => known.seen.push(seen),
                    None => finds.push(SurveyFind {
                        version: &self.version,
                        find,
                        seen: vec![seen],
                    }),
                }
            }
        }
        finds.sort_by_key(|found| found.find.property);
        finds
    }
}

/// A find in the hunts of one version.
pub struct SurveyFind<'a> {
    version: &'a str,
    /// Where it came first.
    pub find: &'a HuntFind,
    /// The promises under whose faults it came, and how often.
    pub seen: Vec<(&'a str, HitRate)>,
}

impl SurveyFind<'_> {
    /// The promise under whose faults it came first.
    pub fn promise(&self) -> &str {
        self.seen[0].0
    }

    pub fn triage<'a>(&self, lock: &'a SurveyedLock) -> Option<&'a Triage> {
        let mut triages = lock.find.iter().filter(|triage| triage.is_of(self.version));
        triages.find(|triage| triage.find == self.find.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(more: &str) -> SurveyedLock {
        let text = format!(
            "library = \"x\"\nlock = \"Lock\"\nhome = \"https://example.org\"\nclient = \"x.py\"\nbackend = \"redis\"\n\
             versions = [\"1\"]\npackages = [\"x=={{version}}\"]\n{more}"
        );
        toml::from_str(&text).unwrap()
    }

    fn find(property: Property, class: &str, count: u64) -> HuntFind {
        HuntFind {
            property,
            class: class.to_owned(),
            summary: String::new(),
            likely: None,
            count,
            experiment: 0,
            at_ms: 0,
            fault: String::new(),
            run: String::new(),
            again: Vec::new(),
        }
    }

    /// A record with hunts that held and were violated so often, with these finds.
    fn record(hunts: &[(&str, u64, u64, &[HuntFind])]) -> SurveyRecord {
        let mut record = SurveyRecord::begun(&lock(""), "1", 20, "1");
        for (promise, held, violated, finds) in hunts {
            record.add(SurveyHunt {
                promise: (*promise).to_owned(),
                with: "--fault f".to_owned(),
                counts: HuntCounts {
                    experiments: 20,
                    held: *held,
                    violated: *violated,
                    ..HuntCounts::default()
                },
                finds: finds.to_vec(),
                error: None,
            });
        }
        record
    }

    fn state(record: &SurveyRecord, promise: &str) -> PromiseState {
        record.state(&Promise::named(promise).unwrap(), &lock(""))
    }

    #[test]
    fn a_promise_is_broken_by_its_most_frequent_find_and_of_those_by_the_gravest() {
        let finds = [
            find(Property::Hl004, "herd", 9),
            find(Property::Hl007, "orphan-grant", 3),
            find(Property::Hl001, "stale-holder", 3),
        ];
        let broken = record(&[("reset", 5, 0, &[]), ("partition", 8, 9, &finds)]);
        let rate = |hits, runs| HitRate { hits, runs };
        let partition = PromiseState::Broken {
            find: "HL001 stale-holder".to_owned(),
            rate: rate(3, 17),
        };
        assert_eq!(state(&broken, "partition"), partition);
        assert_eq!(state(&broken, "reset"), PromiseState::Holds(5));
        let herd = PromiseState::Broken {
            find: "HL004 herd".to_owned(),
            rate: rate(9, 17),
        };
        assert_eq!(state(&broken, "herd"), herd);
        assert_eq!(state(&broken, "calls-end"), PromiseState::Holds(22));
    }

    #[test]
    fn a_promise_that_nothing_was_decided_about_is_not_known_and_one_that_is_not_in_question_is_said() {
        let mut undecided = record(&[("partition", 0, 0, &[])]);
        assert_eq!(state(&undecided, "partition"), PromiseState::NotKnown);
        assert_eq!(state(&undecided, "reset"), PromiseState::NotKnown);
        assert_eq!(state(&undecided, "minority"), PromiseState::NotConcerned);
        assert_eq!(state(&undecided, "clock"), PromiseState::NotKnown);
        undecided.contract = Some(Contract {
            wall_clock: Some(false),
            ..Contract::default()
        });
        assert_eq!(state(&undecided, "clock"), PromiseState::NotConcerned);
        assert_eq!(state(&undecided, "tokens"), PromiseState::NotPromised);
        assert_eq!(state(&undecided, "order"), PromiseState::NotPromised);
    }

    #[test]
    fn a_record_stands_for_fewer_experiments_of_the_same_client_and_for_no_other() {
        let known = record(&[]);
        let wanted = |experiments, client: &str| SurveyRecord {
            client: client.to_owned(),
            ..SurveyRecord::begun(&lock(""), "1", experiments, "1")
        };
        assert!(known.stands_for(&wanted(20, "")) && known.stands_for(&wanted(5, "")));
        assert!(!known.stands_for(&wanted(21, "")) && !known.stands_for(&wanted(20, "x-1-abc")));
    }
}
