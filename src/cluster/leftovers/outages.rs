//! Outages of attached servers that a run left killed or paused, since it was killed or a command failed: listed in a claim of the run,
//! with the user's commands that undo them.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::claim::{Claim, noted};
use crate::cluster::written::NotWritten;

const OUTAGES_FILE: &str = "outages.json";

/// A server that a command of the user killed or paused, and the command that undoes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedOutage {
    /// Its number, from 1.
    pub node: u32,
    /// `HOST:PORT`.
    pub server: String,
    /// The shell command.
    pub undo: String,
}

impl ClaimedOutage {
    /// Writes all servers that are out now into the claim.
    pub fn note(claim: &Claim, out: &[Self]) -> Result<(), NotWritten> {
        claim.note(OUTAGES_FILE, out)
    }

    /// Reads the outages in a claim, if it has any.
    pub fn noted_in(claim: &Path) -> Option<Vec<Self>> {
        noted(claim, OUTAGES_FILE)
    }

    /// Returns a command of the user for this server.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .envs([
                ("HARNESS_NODE", self.node.to_string()),
                ("HARNESS_SERVER", self.server.clone()),
            ])
            .stdin(Stdio::null());
        command
    }

    /// Runs the command that undoes it. The error is its exit status.
    pub fn undo(&self) -> Result<(), String> {
        let status = self.command(&self.undo).stdout(Stdio::null()).status();
        match status.map_err(|error| error.to_string())? {
            status if status.success() => Ok(()),
            status => Err(format!("`{}`: {status}", self.undo)),
        }
    }
}
