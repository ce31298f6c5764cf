//! Leftover proxies of a killed run on a Toxiproxy that it did not start: listed in a claim of the run, removed with it.

use serde::{Deserialize, Serialize};

use super::claim::Claim;
use crate::cluster::written::NotWritten;
use crate::process::Identity;

pub(super) const PROXIES_FILE: &str = "proxies.json";

/// The proxies of a run on a Toxiproxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedProxies {
    /// `HOST:PORT` of its API.
    pub at: String,
    /// The prefix of their names, which no other run has: it contains the identity of the run's harness.
    pub prefix: String,
}

impl ClaimedProxies {
    /// Returns the proxies of a run of this process.
    pub fn of(run: &str, at: &str) -> Self {
        Self {
            at: at.to_owned(),
            prefix: format!("{run}-{}-", Identity::own().label()),
        }
    }

    /// Writes a claim before they are made. They are leftovers if the claim outlives this process.
    pub fn claim(&self, run: &str) -> Result<Claim, NotWritten> {
        Claim::with(run, PROXIES_FILE, self)
    }

    /// Deletes them from the Toxiproxy. The error has the reason for a failure.
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
