//! What a killed run left on servers that it did not start: noted in a claim of the run, removed with it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::claim::{Claim, noted};
use crate::cluster::written::NotWritten;

const TRACES_FILE: &str = "traces.json";

/// What a run writes on which servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedTraces {
    /// As it is typed after `--backend`; the whole path of a file.
    pub backend: String,
    /// `HOST:PORT` of each server.
    pub servers: Vec<String>,
    /// What the backend needs to know in order to remove them, as JSON.
    pub traces: String,
}

impl ClaimedTraces {
    /// Notes them before they are made. They are leftovers while the claim is there and this process is not.
    pub fn claim(&self, run: &str) -> Result<Claim, NotWritten> {
        let claim = Claim::make(run)?;
        claim.note(TRACES_FILE, self)?;
        Ok(claim)
    }

    /// What a claim notes, if it is of traces.
    pub(super) fn noted_in(claim: &Path) -> Option<Self> {
        noted(claim, TRACES_FILE)
    }
}
