//! The record of a survey: the hunts of one version of one lock, in a file that is the same on every machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use harness_checkers::Property;
use harness_workloads::{Contract, IssuedBy};
use serde::{Deserialize, Serialize};

use super::{PROMISES, Promise, PromiseTest, options};
use crate::adapters::surveyed::{SurveyedLock, Triage};
use crate::hunt::exhaustive::Exhaustive;
use crate::hunt::find::cause_name;
use crate::hunt::{HitRate, HuntCounts, HuntFind, HuntRecord};
use crate::store::day_now;

pub const SCHEMA: &str = "harness-survey/3";

/// One version, with its hunts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SurveyRecord {
    pub schema: String,
    pub harness: String,
    pub name: String,
    pub version: String,
    /// Its client, with a digest of its programs and packages.
    pub client: String,
    /// The options of all its hunts.
    pub options: String,
    /// The day of its newest hunt, in UTC; empty before the first.
    pub surveyed: String,
    #[serde(default)]
    pub contract: Option<Contract>,
    pub hunts: Vec<SurveyHunt>,
    /// Finds that were shrunk, each with its shortest command, in virtual time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shrunk: BTreeMap<String, String>,
}

/// The hunt of one promise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SurveyHunt {
    pub promise: String,
    /// Its options beside those of all hunts.
    pub with: String,
    pub counts: HuntCounts,
    /// Whether a search for every placement left some untried: it gave up after errors, or its time was over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut_short: bool,
    /// Placements that were tried without a verdict.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undecided: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finds: Vec<RecordedFind>,
    /// The error of the last experiment that failed. It is about this machine, so the file does not have it.
    #[serde(skip)]
    pub error: Option<String>,
}

/// A find of a hunt, without the run that showed it, which is on one machine only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedFind {
    pub property: Property,
    pub class: String,
    pub summary: String,
    /// Experiments that showed it.
    pub count: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl RecordedFind {
    fn of(find: HuntFind) -> Self {
        Self {
            property: find.property,
            class: find.class,
            summary: find.summary,
            count: find.count,
        }
    }

    /// Returns `HL005 ghost`.
    pub fn name(&self) -> String {
        cause_name(self.property, &self.class)
    }
}

impl SurveyHunt {
    pub fn of(promise: &Promise, with: &[&str], record: HuntRecord) -> Self {
        let search = record.exhaustive.as_ref();
        Self {
            promise: promise.name.to_owned(),
            with: with.join(" "),
            counts: record.counts,
            is_cut_short: search.is_some_and(|search| search.wanted() != Some(search.all_tried())),
            undecided: search.map_or(0, Exhaustive::all_undecided),
            finds: record.finds.into_iter().map(RecordedFind::of).collect(),
            error: record.error,
        }
    }

    /// Experiments that came to a verdict.
    pub fn decided(&self) -> u64 {
        self.counts.held + self.counts.violated
    }

    /// Returns the rate at which its experiments showed this find.
    fn rate(&self, find: &RecordedFind) -> HitRate {
        HitRate {
            hits: find.count as u32,
            runs: self.decided().max(find.count) as u32,
        }
    }
}

/// The result of one promise for one version.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromiseState {
    /// No experiment broke it; their number. Of a search for every placement, all were tried and decided.
    Holds(u64),
    /// No decided placement broke it, and some have no verdict.
    HoldsWhereDecided {
        held: u64,
        undecided: u64,
    },
    /// The find that broke it most often.
    Broken {
        find: String,
        rate: HitRate,
    },
    NotPromised,
    /// It does not apply to this lock: one server has no minority, and some locks compare no times of day.
    NotConcerned,
    NotKnown,
}

impl SurveyRecord {
    /// Returns a record without a hunt.
    pub fn begun(lock: &SurveyedLock, version: &str, client: String) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            harness: env!("CARGO_PKG_VERSION").to_owned(),
            name: lock.name.clone(),
            version: version.to_owned(),
            client,
            options: options(lock).join(" "),
            surveyed: String::new(),
            contract: None,
            hunts: Vec::new(),
            shrunk: BTreeMap::new(),
        }
    }

    /// Reads the record in a file. Returns `None` without a file, and for a record of another schema.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no record; the sentence names it.
    pub fn read(file: &Path) -> Result<Option<Self>, String> {
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("could not read {}: {error}", file.display())),
        };
        let wrong = |error: serde_json::Error| format!("{} is not the record of a survey: {error}", file.display());
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(wrong)?;
        match value["schema"] == SCHEMA {
            true => serde_json::from_value(value).map(Some).map_err(wrong),
            false => Ok(None),
        }
    }

    /// Returns the name of its file without the ending: `walrus-0.9.8`.
    pub fn file_stem(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// Returns the subject of its hunts: the harness, the client and their options.
    pub fn subject(&self) -> String {
        [&self.harness, &self.client, &self.options]
            .map(String::as_str)
            .join("\n")
    }

    /// Whether both have the same subject.
    pub fn stands_for(&self, other: &Self) -> bool {
        self.subject() == other.subject()
    }

    /// Whether it has a complete hunt of this promise with these options.
    pub fn has(&self, promise: &Promise, with: &[&str], experiments: u64) -> bool {
        let mut hunts = self.hunts.iter();
        hunts.any(|hunt| {
            let is_same = hunt.promise == promise.name && hunt.with == with.join(" ");
            // a search over all placements has a number of experiments of its own
            let has_ended = match promise.by {
                PromiseTest::Placements => !hunt.is_cut_short,
                _ => hunt.counts.experiments >= experiments,
            };
            is_same && has_ended && hunt.decided() > 0
        })
    }

    /// Adds a hunt of today, in place of an older one of its promise.
    pub fn add(&mut self, hunt: SurveyHunt) {
        self.surveyed = day_now();
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
        // the first of the finds with the same count
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
        let search = hunts.iter().find(|_| promise.by == PromiseTest::Placements);
        match search.map_or(0, |search| search.undecided) {
            _ if is_excluded => PromiseState::NotPromised,
            _ if decided == 0 || search.is_some_and(|search| search.is_cut_short) => PromiseState::NotKnown,
            0 => PromiseState::Holds(decided),
            undecided => PromiseState::HoldsWhereDecided {
                held: decided,
                undecided,
            },
        }
    }

    /// Whether the faults of a promise apply to it.
    pub fn concerns(&self, promise: &Promise, lock: &SurveyedLock) -> bool {
        let compares_times = self
            .contract
            .as_ref()
            .is_none_or(|contract| contract.wall_clock != Some(false));
        promise.hunted_with(lock).is_some() && (promise.name != "clock" || compares_times)
    }

    /// Whether its contract has the subject of this property.
    fn promises(&self, property: Property) -> bool {
        let Some(contract) = &self.contract else { return true };
        match property {
            Property::Hl003 => !matches!(contract.token, None | Some(IssuedBy::None)),
            Property::Hl006 => contract.fifo == Some(true),
            Property::Hl009 => contract.lease != Some(false),
            _ => true,
        }
    }

    /// Returns the known finds of this version that its hunts did not show.
    pub fn not_met<'a>(&self, lock: &'a SurveyedLock) -> Vec<&'a Triage> {
        let finds = self.finds();
        let is_met = |triage: &&Triage| finds.iter().any(|found| found.find.name() == triage.find);
        let known = lock.find.iter().filter(|triage| triage.is_of(&self.version));
        known.filter(|triage| !is_met(triage)).collect()
    }

    /// Returns its finds with the promises under whose faults they came, the gravest first.
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
    /// The first record of the find.
    pub find: &'a RecordedFind,
    /// The promises under whose faults it came, and its rate under each.
    pub seen: Vec<(&'a str, HitRate)>,
}

impl SurveyFind<'_> {
    /// Returns the promise under whose faults it came first.
    pub fn promise(&self) -> &str {
        self.seen[0].0
    }

    pub fn triage<'a>(&self, lock: &'a SurveyedLock) -> Option<&'a Triage> {
        let mut triages = lock.find.iter().filter(|triage| triage.is_of(self.version));
        triages.find(|triage| triage.find == self.find.name())
    }
}

/// Returns the records in a folder, by lock, and for each lock in the order of its file.
///
/// # Errors
///
/// A file is no record; the sentence names it.
pub fn all<'a>(locks: &'a [SurveyedLock], folder: &Path) -> Result<Vec<(&'a SurveyedLock, SurveyRecord)>, String> {
    let mut known = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.path();
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let Some(record) = SurveyRecord::read(&file)? else {
            continue;
        };
        let lock = locks.iter().find(|lock| lock.name == record.name);
        known.extend(lock.map(|lock| (lock, record)));
    }
    known.sort_by_key(|(lock, record)| {
        let place = lock.versions.iter().position(|version| *version == record.version);
        (lock.name.clone(), place.unwrap_or(usize::MAX), record.version.clone())
    });
    Ok(known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::EVERY_PLACEMENT;
    use super::*;
    use crate::adapters::surveyed::file_of_test;
    use crate::hunt::exhaustive;
    use crate::store::write_json;

    fn lock(more: &str) -> SurveyedLock {
        toml::from_str(&file_of_test("x", &format!("backend = \"redis\"\n{more}"))).unwrap()
    }

    fn find(property: Property, class: &str, count: u64) -> RecordedFind {
        RecordedFind {
            property,
            class: class.to_owned(),
            summary: String::new(),
            count,
        }
    }

    /// Returns a record with hunts that held and were violated so often, with these finds.
    fn record(hunts: &[(&str, u64, u64, &[RecordedFind])]) -> SurveyRecord {
        let mut record = SurveyRecord::begun(&lock(""), "1", "x-1-abc".to_owned());
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
                ..SurveyHunt::default()
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
    fn a_record_stands_for_the_same_client_and_options_and_a_hunt_for_the_same_faults_and_fewer_experiments() {
        let known = record(&[("partition", 12, 0, &[])]);
        let stands_for =
            |client: &str, more: &str| known.stands_for(&SurveyRecord::begun(&lock(more), "1", client.to_owned()));
        assert!(stands_for("x-1-abc", ""));
        assert!(!stands_for("x-1-def", "") && !stands_for("x-1-abc", "set = [\"nodes=3\"]"));
        let has = |promise: &str, faults: &str, experiments| {
            known.has(&Promise::named(promise).unwrap(), &["--fault", faults], experiments)
        };
        assert!(has("partition", "f", 20) && has("partition", "f", 5));
        assert!(!has("partition", "f", 21) && !has("partition", "g", 20) && !has("reset", "f", 20));
    }

    #[test]
    fn a_search_for_every_placement_that_left_some_untried_is_no_hunt_and_shows_nothing_that_holds() {
        let promise = Promise::named("one-message").unwrap();
        let searched = |tried: u64, undecided: u64| {
            let counts = |tried, undecided| json!({ "tried": tried, "without_effect": 0, "undecided": undecided });
            // one act on each of two messages
            let stored = json!({
                "acts": 1, "kinds": ["kill=any:#"], "messages": [2],
                "tried": [counts(1, 0), counts(tried, undecided)],
            });
            let made = HuntRecord {
                counts: HuntCounts {
                    experiments: 12,
                    held: 12,
                    ..HuntCounts::default()
                },
                exhaustive: exhaustive::stored(stored).unwrap(),
                ..HuntRecord::default()
            };
            let mut record = record(&[]);
            record.add(SurveyHunt::of(&promise, &EVERY_PLACEMENT, made));
            let has = record.has(&promise, &EVERY_PLACEMENT, 20);
            (state(&record, promise.name), has)
        };
        assert_eq!(searched(1, 0), (PromiseState::NotKnown, false));
        assert_eq!(searched(2, 0), (PromiseState::Holds(12), true));
        let but_one = PromiseState::HoldsWhereDecided { held: 12, undecided: 1 };
        assert_eq!(searched(2, 1), (but_one, true));
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_one_that_is_broken_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let made = record(&[("reset", 2, 1, &[find(Property::Hl005, "ghost", 1)])]);
        assert_eq!(made.surveyed.len(), "2026-11-21".len());
        let file = folder.path().join("x-1.json");
        assert_eq!(SurveyRecord::read(&file), Ok(None));
        write_json(&file, &made).unwrap();
        assert_eq!(SurveyRecord::read(&file), Ok(Some(made.clone())));
        let schema = "harness-survey/1".to_owned();
        write_json(&file, &SurveyRecord { schema, ..made }).unwrap();
        assert_eq!(SurveyRecord::read(&file), Ok(None));
        fs::write(&file, "<<<<<<< ours").unwrap();
        let error = SurveyRecord::read(&file).unwrap_err();
        assert!(error.contains("x-1.json is not the record of a survey"), "{error}");
    }

    #[test]
    fn a_record_of_the_repository_is_small_is_of_a_lock_and_has_no_path_of_a_machine() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/survey");
        let locks = crate::survey::read(&folder).unwrap();
        let known = all(&locks, &folder.join("records")).unwrap();
        let names: Vec<String> = known.iter().map(|(_, record)| record.file_stem()).collect();
        for entry in fs::read_dir(folder.join("records")).into_iter().flatten().flatten() {
            let file = entry.path();
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            assert!(
                names.contains(&name),
                "{}: it is of no lock, or of another schema",
                file.display()
            );
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.len() < 16_000, "{}: {} bytes", file.display(), text.len());
            for path in ["/home/", "/root/", "/tmp/", "results/"] {
                assert!(!text.contains(path), "{}: {path}", file.display());
            }
        }
    }
}
