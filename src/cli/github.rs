//! GitHub Actions: annotations, groups and the job summary, when the runner's variables are set.
//!
//! Workflow commands go to stderr, which the runner reads too; stdout is data.
//! <https://docs.github.com/en/actions/using-workflows/workflow-commands-for-github-actions>

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use super::complain;
use crate::exit::Exit;
use crate::report::{Diagnosis, github, markdown};

pub struct Github {
    summary: Option<PathBuf>,
}

impl Github {
    pub fn detected() -> Option<Self> {
        let is_there = std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true");
        let summary = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
        is_there.then(|| Self {
            summary: summary.map(PathBuf::from),
        })
    }

    /// Starts a group, until [`Self::end`].
    pub fn begin(&self, title: &str) {
        eprintln!("{}", github::group(title));
    }

    pub fn end(&self) {
        eprintln!("{}", github::END_GROUP);
    }

    /// Annotates the job with the violations, and appends to its summary.
    pub fn annotate(&self, diagnosis: &Diagnosis) {
        for line in github::annotations(diagnosis) {
            eprintln!("{line}");
        }
        self.summarise(&markdown::render(diagnosis));
    }

    /// Appends to the job's summary.
    pub fn summarise(&self, text: &str) {
        let Some(path) = &self.summary else { return };
        let added = OpenOptions::new().append(true).create(true).open(path);
        let added = added.and_then(|mut file| writeln!(file, "{text}"));
        if let Err(error) = added {
            complain(
                Exit::Environment,
                format!("could not append to the job summary {}: {error}", path.display()),
            );
        }
    }
}
