//! Leftover entries of a killed run on attached servers: listed in a claim of the run, removed with it.

use serde::{Deserialize, Serialize};

use super::claim::Claim;
use crate::cluster::written::NotWritten;

pub(super) const TRACES_FILE: &str = "traces.json";

/// The entries of a run on attached servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedTraces {
    /// The value of `--backend`; the whole path of a file.
    pub backend: String,
    /// `HOST:PORT` of each server.
    pub servers: Vec<String>,
    /// The backend's data for their removal, as JSON.
    pub traces: String,
}

impl ClaimedTraces {
    /// Writes a claim before they are made. They are leftovers if the claim outlives this process.
    pub fn claim(&self, run: &str) -> Result<Claim, NotWritten> {
        Claim::with(run, TRACES_FILE, self)
    }
}
