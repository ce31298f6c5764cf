//! Proxies that a killed run left on a Toxiproxy which it did not start: noted in a claim of the run, removed with it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::claim::{Claim, noted};
use crate::cluster::written::NotWritten;
use crate::process::Identity;

const PROXIES_FILE: &str = "proxies.json";

/// Which proxies a run makes on which Toxiproxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedProxies {
    /// `HOST:PORT` of its API.
    pub at: String,
    /// Their names begin with it, and no other run's do: it has the identity of the run's harness in it.
    pub prefix: String,
}

impl ClaimedProxies {
    /// Those of a run of this process.
    pub fn of(run: &str, at: &str) -> Self {
        Self {
            at: at.to_owned(),
            prefix: format!("{run}-{}-", Identity::own().label()),
        }
    }

    /// Notes them before they are made. They are leftovers while the claim is there and this process is not.
    pub fn claim(&self, run: &str) -> Result<Claim, NotWritten> {
        let claim = Claim::make(run)?;
        claim.note(PROXIES_FILE, self)?;
        Ok(claim)
    }

    /// What a claim notes, if it is of proxies.
    pub(super) fn noted_in(claim: &Path) -> Option<Self> {
        noted(claim, PROXIES_FILE)
    }

    /// Deletes them where they are. The error says why they may still be there.
    #[cfg(feature = "toxiproxy")]
    pub(super) async fn remove(&self) -> Result<(), String> {
        let toxiproxy = harness_proxy::Toxiproxy::connect(&self.at).await?;
        let mut own = toxiproxy.proxies().await?;
        own.retain(|name| name.starts_with(&self.prefix));
        toxiproxy.delete(own).await
    }

    #[cfg(not(feature = "toxiproxy"))]
    pub(super) async fn remove(&self) -> Result<(), String> {
        Err("this harness was built without toxiproxy".into())
    }
}
