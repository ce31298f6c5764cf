//! A suite: experiments in rows, each with its expected verdict, divided among machines and merged again.
//!
//! Pure: a file's text becomes a [`Suite`] ([`file`]), a run's diagnosis becomes a [`Judgement`] ([`judge`]),
//! judgements become a [`Record`] ([`record`]), and all output is a rendering of that. `cli` runs the rows.

pub mod file;
pub mod judge;
pub mod junit;
pub mod page;
pub mod record;
pub mod render;
pub mod since;
mod versions;

use std::collections::BTreeMap;

use harness_checkers::{Property, Verdict};
use serde::{Deserialize, Serialize};

pub use judge::{Judgement, RowOutcome};
pub use record::{Record, RowAttempt, RowLeftOut, RowRecord};

use crate::config::setting::Setting;
use crate::report::diagnosis::Outcome;

/// The expected verdict of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    Holds,
    Violated,
    Inconclusive,
    NotApplicable,
    /// Any verdict: it depends on chance.
    Any,
}

impl Expected {
    pub const ALL: [Self; 5] = [
        Self::Holds,
        Self::Violated,
        Self::Inconclusive,
        Self::NotApplicable,
        Self::Any,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Violated => "violated",
            Self::Inconclusive => "inconclusive",
            Self::NotApplicable => "not-applicable",
            Self::Any => "any",
        }
    }

    pub fn is(self, verdict: Verdict) -> bool {
        match self {
            Self::Holds => verdict == Verdict::Holds,
            Self::Violated => verdict == Verdict::Violated,
            Self::Inconclusive => verdict == Verdict::Inconclusive,
            Self::NotApplicable => verdict == Verdict::NotApplicable,
            Self::Any => true,
        }
    }
}

/// The expected result of a row. A property that is not named must not be violated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    pub outcome: Outcome,
    pub verdicts: BTreeMap<Property, Expected>,
}

/// An experiment of a suite.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteRow {
    pub name: String,
    /// Its line in the file, from 1.
    pub line: usize,
    pub settings: Vec<Setting>,
    pub expect: Expectation,
    /// Whether its lock is known to be broken, so that the row expects a violation although its verdicts do not: a
    /// suite fails if its canary has none.
    pub canary: bool,
    /// Number of times that a run that proves nothing is repeated.
    pub retries: u32,
}

impl SuiteRow {
    /// Returns the value of an option, if it has one.
    pub fn value(&self, option: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|setting| setting.option.name == option);
        setting.and_then(|setting| setting.value.as_deref())
    }

    /// Returns the arguments of `harness run`.
    pub fn words(&self) -> Vec<String> {
        self.settings.iter().filter_map(Setting::word).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    pub name: String,
    /// A digest of the file, which distinguishes two versions of a suite.
    pub digest: String,
    pub rows: Vec<SuiteRow>,
}
