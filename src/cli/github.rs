//! GitHub Actions: annotations, groups and the job summary, when the runner's variables are set.
//!
//! Workflow commands go to stderr, which the runner reads too; stdout is data.
//! <https://docs.github.com/en/actions/using-workflows/workflow-commands-for-github-actions>

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::complain;
use crate::exit::Exit;
use crate::report::{Diagnosis, github, markdown};

/// Maximum size of the summary of a step, with room for a last line: GitHub drops one above 1 MiB entirely.
const SUMMARY_BYTES: u64 = (1 << 20) - 4096;
/// The last line of a summary that has no room for more.
const FULL: &str = "\nThe summaries of further runs are not here: GitHub allows 1 MiB for a step.";

pub struct Github {
    summary: Option<PathBuf>,
    /// Whether a text had no room in the summary.
    is_full: AtomicBool,
}

impl Github {
    pub fn detected() -> Option<Self> {
        let is_there = std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true");
        let summary = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
        is_there.then(|| Self {
            summary: summary.map(PathBuf::from),
            is_full: AtomicBool::default(),
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

    /// Appends to the job's summary, as long as there is room.
    pub fn summarise(&self, text: &str) {
        let Some(path) = &self.summary else { return };
        let added = OpenOptions::new().append(true).create(true).open(path);
        let added = added.and_then(|mut file| {
            let has_room = file.metadata()?.len() + text.len() as u64 <= SUMMARY_BYTES;
            match has_room {
                true => writeln!(file, "{text}"),
                false if !self.is_full.swap(true, Ordering::Relaxed) => writeln!(file, "{FULL}"),
                false => Ok(()),
            }
        });
        if let Err(error) = added {
            complain(
                Exit::Environment,
                format!("could not append to the job summary {}: {error}", path.display()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_ends_with_one_line_where_there_is_no_room_for_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary");
        let github = Github {
            summary: Some(path.clone()),
            is_full: AtomicBool::default(),
        };
        let long = "a".repeat(400 << 10);
        (0..4).for_each(|_| github.summarise(&long));
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, format!("{long}\n{long}\n{FULL}\n"));
    }
}
