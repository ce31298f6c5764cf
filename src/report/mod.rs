//! Reports of a run: one [`Diagnosis`], made from the history and its findings, and its renderings.
//!
//! Pure: no clock, no I/O. Every screen and file is a rendering of the one diagnosis, so no two can disagree. A format is one
//! file and one line in [`FORMATS`].

mod churn;
pub mod comparison;
pub mod coverage;
pub mod diagnosis;
mod downsample;
pub mod drawing;
pub mod effect;
pub mod escape;
pub mod github;
pub(crate) mod html;
pub mod index;
pub mod junit;
pub mod listed;
mod manual_changes;
pub mod markdown;
pub mod moment;
mod owned;
pub mod roles;
pub mod screen;
pub mod summary;
pub mod terminal;
#[cfg(test)]
pub(crate) mod test_diagnosis;
#[cfg(test)]
mod test_history;
#[cfg(test)]
pub(crate) mod test_text;
pub mod timeline;
pub mod trend;
pub(crate) mod words;

use std::collections::BTreeMap;

use serde_json::Value;

pub use diagnosis::{Diagnosis, diagnose};
pub use timeline::Timeline;

/// The published schema of [`Diagnosis`] as it is written into `verdict.json`.
pub const SCHEMA: &str = include_str!("schema.json");

/// The input of renderings: the diagnosis, and the run's own records for pages that show more.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    pub diagnosis: &'a Diagnosis,
    pub timeline: &'a Timeline,
    /// `plan.json`, if there is one.
    pub plan: Option<&'a Value>,
    /// The lines of the history in proofs, by the index of their event.
    pub lines: &'a BTreeMap<u64, String>,
}

/// A report format.
pub struct ReportFormat {
    /// The value of `--format`.
    pub name: &'static str,
    /// The name of its file in a run's folder, if there is one.
    pub file: Option<&'static str>,
    pub about: &'static str,
    pub render: fn(&Report<'_>) -> String,
}

/// All report formats.
pub const FORMATS: &[ReportFormat] = &[
    ReportFormat {
        name: "html",
        file: Some("report.html"),
        about: "one offline page: proof, tables, timeline",
        render: html::render,
    },
    ReportFormat {
        name: "junit",
        file: Some("junit.xml"),
        about: "one test case a property, for CI servers",
        render: |report| junit::render(report.diagnosis),
    },
    ReportFormat {
        name: "markdown",
        file: Some("summary.md"),
        about: "a summary of at most 64 KiB, for job summaries and issues",
        render: |report| markdown::render(report.diagnosis),
    },
    ReportFormat {
        name: "json",
        file: Some("verdict.json"),
        about: "the whole diagnosis; `harness report --schema` prints its schema",
        render: |report| json(report.diagnosis),
    },
    ReportFormat {
        name: "terminal",
        file: None,
        about: "the screen that `harness run` ends with",
        render: |report| terminal::render(report.diagnosis, terminal::Look::PLAIN),
    },
];

/// Returns the diagnosis as in `verdict.json`.
pub fn json(diagnosis: &Diagnosis) -> String {
    let text = serde_json::to_string_pretty(diagnosis).expect("a diagnosis is plain data");
    escape::json(&text) + "\n"
}

/// Returns the indices of the events in proofs, whose lines are read again.
pub fn proven(diagnosis: &Diagnosis) -> Vec<u64> {
    let events = diagnosis.violations().flat_map(|violation| &violation.events);
    let mut indices: Vec<u64> = events.map(|step| step.index).collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}
