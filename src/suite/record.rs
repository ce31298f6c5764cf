//! The record of a suite, as in `suite.json`: of one shard, or merged from all of them.

use std::collections::{BTreeMap, BTreeSet};

use harness_checkers::{Property, Verdict};
use serde::{Deserialize, Serialize};

use super::judge::RowOutcome;
use super::{Expectation, SuiteRow};
use crate::config::Shard;
use crate::exit::Exit;
use crate::report::diagnosis::Outcome;
use crate::report::words::many;

pub const SCHEMA: &str = "harness-suite/1";

/// One run of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RowAttempt {
    pub judged: RowOutcome,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
    pub exit: Option<u8>,
    pub outcome: Option<Outcome>,
    pub verdicts: BTreeMap<Property, Verdict>,
    /// The effect of the faults in one line.
    #[serde(alias = "bite")]
    pub effect: String,
    pub took_ms: u64,
    /// The run's folder, from the folder of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The command that repeats its plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<String>,
}

/// The outcomes of a row with many seeds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedCounts {
    /// The first seed; the others are drawn from it, as `--repeat` of `harness run` draws them.
    pub first: String,
    pub made: u32,
    pub as_expected: u32,
    /// Number of experiments that prove nothing.
    pub unsure: u32,
    /// The seeds of experiments that are neither as expected nor unsure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

impl SeedCounts {
    /// Adds an experiment.
    pub fn add(&mut self, judged: RowOutcome, seed: u64) {
        self.made += 1;
        match judged {
            RowOutcome::AsExpected => self.as_expected += 1,
            RowOutcome::Unsure => self.unsure += 1,
            _ => self.others.push(format!("{seed:08x}")),
        }
    }

    /// `200 seeds, 3 unsure, 1 otherwise`
    fn words(&self) -> String {
        let mut words = many(u64::from(self.made), "seed");
        for (count, what) in [(self.unsure as usize, "unsure"), (self.others.len(), "otherwise")] {
            if count > 0 {
                words += &format!(", {count} {what}");
            }
        }
        words
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowRecord {
    pub name: String,
    /// The arguments of `harness run`.
    pub words: Vec<String>,
    pub expect: Expectation,
    pub canary: bool,
    /// The outcome of the last attempt, which is that of the row.
    pub judged: RowOutcome,
    /// The attempts in order; all but the last prove nothing. A row with many seeds has one attempt, with the outcome of the row.
    pub attempts: Vec<RowAttempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<SeedCounts>,
}

impl RowRecord {
    /// Returns the record of a row that was not run.
    pub fn of(row: &SuiteRow) -> Self {
        Self {
            name: row.name.clone(),
            words: row.words(),
            expect: row.expect.clone(),
            canary: row.canary,
            judged: RowOutcome::NotRun,
            attempts: Vec::new(),
            seeds: None,
        }
    }

    /// Adds a run.
    pub fn add(&mut self, attempt: RowAttempt) {
        self.judged = attempt.judged;
        self.attempts.push(attempt);
    }

    pub fn retries(&self) -> usize {
        self.attempts.len().saturating_sub(1)
    }

    /// Returns the number of runs: `2`, or `200 seeds, 3 unsure`.
    pub fn runs(&self) -> String {
        let runs = || self.attempts.len().to_string();
        self.seeds.as_ref().map_or_else(runs, SeedCounts::words)
    }

    pub fn took_ms(&self) -> u64 {
        self.attempts.iter().map(|attempt| attempt.took_ms).sum()
    }

    pub fn last(&self) -> Option<&RowAttempt> {
        self.attempts.last()
    }
}

/// A row that was left out, because the runtime of `--set` cannot run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowLeftOut {
    pub name: String,
    pub why: String,
}

/// A suite's record: of one shard, or merged from all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub schema: String,
    pub suite: String,
    /// A digest of the suite's file, which distinguishes two versions of it.
    pub digest: String,
    pub harness: String,
    pub started: String,
    pub shard: Option<Shard>,
    /// The rows of all shards together.
    pub wanted: Vec<String>,
    /// Rows of the suite's file that no shard runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<RowLeftOut>,
    pub took_ms: u64,
    pub rows: Vec<RowRecord>,
    pub exit: u8,
}

impl Record {
    /// Returns the exit code of the suite: that of its worst row.
    pub fn exit(&self) -> Exit {
        let exits = self.rows.iter().map(|row| row.judged.exit());
        exits.fold(Exit::Holds, Exit::and)
    }

    pub fn retries(&self) -> usize {
        self.rows.iter().map(RowRecord::retries).sum()
    }

    /// Returns the folders of the runs of all rows.
    pub fn runs_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let attempts = self.rows.iter_mut().flat_map(|row| &mut row.attempts);
        attempts.filter_map(|attempt| attempt.run.as_mut())
    }

    /// Returns the number of rows with such an outcome.
    pub fn count(&self, wanted: impl Fn(RowOutcome) -> bool) -> usize {
        self.rows.iter().filter(|row| wanted(row.judged)).count()
    }
}

/// Merges the records of shards into one, in the order of the suite's file. A row that no shard has run is in it as not
/// run, so that a machine that died cannot make a night green.
pub fn merge(records: Vec<Record>) -> Result<Record, String> {
    let Some(first) = records.first() else {
        return Err("there is nothing to join".into());
    };
    let name = |record: &Record| match record.shard {
        Some(shard) => format!("shard {shard} of `{}`", record.suite),
        None => format!("`{}`", record.suite),
    };
    let is_other = |other: &&Record| (&other.suite, &other.digest) != (&first.suite, &first.digest);
    if let Some(other) = records.iter().find(is_other) {
        return Err(format!(
            "{} and {} are of different suites, or of different versions of one suite",
            name(first),
            name(other)
        ));
    }
    if let Some(other) = records.iter().find(|other| other.harness != first.harness) {
        return Err(format!(
            "{} was run by harness {}, and {} by harness {}",
            name(first),
            first.harness,
            name(other),
            other.harness
        ));
    }
    if let Some(other) = records.iter().find(|other| other.wanted != first.wanted) {
        return Err(format!("{} and {} were filtered differently", name(first), name(other)));
    }
    let mut rows: BTreeMap<String, RowRecord> = BTreeMap::new();
    for row in records.iter().flat_map(|record| &record.rows) {
        if rows.insert(row.name.clone(), row.clone()).is_some() {
            return Err(format!(
                "row `{}` is in two of the records: was one of them named twice?",
                row.name
            ));
        }
    }
    let known: BTreeSet<&String> = first.wanted.iter().collect();
    if let Some(stranger) = rows.keys().find(|row| !known.contains(row)) {
        return Err(format!("row `{stranger}` is not in the suite"));
    }
    let row = |name: &String| rows.remove(name).unwrap_or_else(|| missing(name));
    let in_order = first.wanted.iter().map(row);
    let started = records.iter().map(|record| &record.started).min();
    let mut joined = Record {
        shard: None,
        rows: in_order.collect(),
        took_ms: records.iter().map(|record| record.took_ms).max().unwrap_or(0),
        started: started.cloned().unwrap_or_default(),
        exit: 0,
        ..first.clone()
    };
    joined.exit = joined.exit().code();
    Ok(joined)
}

fn missing(name: &str) -> RowRecord {
    RowRecord {
        name: name.to_owned(),
        words: Vec::new(),
        expect: Expectation {
            outcome: Outcome::Pass,
            verdicts: BTreeMap::new(),
        },
        canary: false,
        judged: RowOutcome::NotRun,
        attempts: Vec::new(),
        seeds: None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn attempt(judged: RowOutcome, took_ms: u64) -> RowAttempt {
        let (outcome, verdict) = match judged {
            RowOutcome::Unexpected => (Outcome::Fail, Verdict::Violated),
            _ => (Outcome::Pass, Verdict::Holds),
        };
        let reason = (judged != RowOutcome::AsExpected).then(|| format!("a reason <{}>", judged.word()));
        RowAttempt {
            judged,
            why: reason.into_iter().collect(),
            exit: Some(judged.exit().code()),
            outcome: Some(outcome),
            verdicts: [(Property::Hl001, verdict)].into(),
            effect: "2 of 2 fault windows: 3 KiB held back".into(),
            took_ms,
            run: Some("runs/20261121-0645-zk-none-5eed".into()),
            again: ["harness", "run", "--backend", "zk", "--client", "python3 my lock.py"]
                .map(str::to_owned)
                .to_vec(),
        }
    }

    /// Returns a record of rows with these outcomes of their attempts.
    pub fn record(shard: Option<&str>, wanted: &[&str], rows: &[(&str, &[RowOutcome])]) -> Record {
        let row = |(name, judged): &(&str, &[RowOutcome])| {
            let mut row = missing(name);
            row.canary = name.contains("canary");
            row.expect
                .verdicts
                .insert(Property::Hl001, super::super::Expected::Holds);
            judged.iter().for_each(|judged| row.add(attempt(*judged, 11_400)));
            row
        };
        let mut record = Record {
            schema: SCHEMA.into(),
            suite: "nightly".into(),
            digest: "d1".into(),
            harness: "0.1.0".into(),
            started: "20261121-0645".into(),
            shard: shard.map(|text| Shard::read(text).unwrap()),
            wanted: wanted.iter().map(|name| (*name).to_owned()).collect(),
            left_out: Vec::new(),
            took_ms: 61_000,
            rows: rows.iter().map(row).collect(),
            exit: 0,
        };
        record.exit = record.exit().code();
        record
    }

    const OK: &[RowOutcome] = &[RowOutcome::AsExpected];

    #[test]
    fn shards_join_to_the_suite_in_the_order_of_its_file() {
        let all = ["a", "b", "c"];
        let one = record(Some("1/2"), &all, &[("c", OK)]);
        let two = record(Some("2/2"), &all, &[("a", OK), ("b", OK)]);
        let joined = merge(vec![one, two]).unwrap();
        let names: Vec<&str> = joined.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, all);
        assert_eq!((joined.shard, joined.exit()), (None, Exit::Holds));
    }

    #[test]
    fn a_shard_that_never_came_makes_the_suite_an_error() {
        let joined = merge(vec![record(Some("1/2"), &["a", "b"], &[("a", OK)])]).unwrap();
        assert_eq!(joined.rows[1].judged, RowOutcome::NotRun);
        assert_eq!(joined.exit(), Exit::Environment);
    }

    #[test]
    fn records_that_do_not_belong_together_are_refused() {
        let one = || record(Some("1/2"), &["a", "b"], &[("a", OK)]);
        let of = |change: fn(&mut Record)| {
            let mut other = record(Some("2/2"), &["a", "b"], &[("b", OK)]);
            change(&mut other);
            merge(vec![one(), other])
        };
        assert!(of(|_| {}).is_ok());
        assert!(of(|other| other.digest = "d2".into()).unwrap_err().contains("versions"));
        let two = "shard 1/2 of `nightly` was run by harness 0.1.0, and shard 2/2 of `nightly` by harness 0.2.0";
        assert_eq!(of(|other| other.harness = "0.2.0".into()).unwrap_err(), two);
        assert!(of(|other| drop(other.wanted.pop())).unwrap_err().contains("filtered"));
        assert!(merge(vec![one(), one()]).unwrap_err().contains("twice"));
        assert!(merge(Vec::new()).is_err());
    }

    #[test]
    fn the_worst_row_is_the_exit_code_and_a_retry_is_counted() {
        let rows: &[(&str, &[RowOutcome])] = &[
            ("a", &[RowOutcome::Unsure, RowOutcome::AsExpected]),
            ("b", &[RowOutcome::Unsure, RowOutcome::Unsure]),
        ];
        let unsure = record(None, &["a", "b"], rows);
        assert_eq!((unsure.exit(), unsure.retries()), (Exit::Inconclusive, 2));
        let rows: &[(&str, &[RowOutcome])] = &[
            ("a", &[RowOutcome::Unsure]),
            ("b", &[RowOutcome::Environment]),
            ("c", &[RowOutcome::Missing]),
        ];
        assert_eq!(record(None, &["a", "b", "c"], rows).exit(), Exit::Violated);
    }
}
