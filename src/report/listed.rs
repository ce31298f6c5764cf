//! Runs, suites and hunts as the index lists them.

use super::comparison::RunSummary;
use super::diagnosis::Outcome;
use crate::store::RunInfo;

/// A run in the index.
pub struct Listed {
    /// The name of its folder.
    pub name: String,
    pub summary: Option<RunSummary>,
    /// The progress of a run without a verdict.
    pub status: String,
    /// The configuration of a run without a verdict.
    pub info: Option<RunInfo>,
    /// Whether it has a page of its own.
    pub page: bool,
}

/// A suite or a hunt in the index.
pub struct ListedRecord {
    /// The name of its folder, which has a page of its own.
    pub name: String,
    pub outcome: Outcome,
    /// The numbers of its rows, or of its experiments, by outcome.
    pub sentence: String,
    /// The rows of a suite that were run: the name of each behind that of the suite, the same each night, and whether it came out as
    /// expected.
    pub rows: Vec<(String, Outcome)>,
    pub finds: Vec<ListedFind>,
}

/// A kind of violation that a hunt found.
pub struct ListedFind {
    /// `HL005 ghost`
    pub kind: String,
    pub summary: String,
    /// Experiments that showed it.
    pub count: u64,
    /// The path of the page of the first of them, from the index, if there is one.
    pub page: Option<String>,
}
