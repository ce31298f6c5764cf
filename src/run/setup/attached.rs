//! A run on attached servers: a survey of their entries before it begins, and the removal of the run's entries at its end.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::backends::Backend;
use crate::backends::stored_data::{RunTraces, StoreSurvey};
use crate::cluster::leftovers::claim::Claim;
use crate::cluster::leftovers::traces::ClaimedTraces;
use crate::cluster::{Endpoints, EndpointsReceiver, look_up};
use crate::config::Config;
use crate::limits::PROBE;
use crate::run::context::RunContext;
use crate::run::{RunError, RunSpec};

/// The data of an attached run for its end.
pub struct AttachedRun {
    /// The reason for which the locks cannot be watched, if so.
    pub blind: Option<String>,
    backend: &'static Backend,
    traces: RunTraces,
    claim: Claim,
}

/// Reads the servers of `--servers` and changes nothing there; the error is a sentence.
pub async fn survey(config: &Config) -> Result<StoreSurvey, String> {
    let addresses = look_up(&config.attach.servers).await?;
    let (_sender, endpoints) = watch::channel(Endpoints::new(addresses, None).with_login(config.login()));
    let servers = config.attach.servers.join(", ");
    let found = config.backend.data.survey(endpoints, config.lease).await;
    found.map_err(|why| config.with_login_hint(format!("{} at {servers}: {why}", config.backend.product())))
}

/// Returns a sentence about the present entries, to which a user must agree before the run, if there are any.
pub fn consent_to(config: &Config, survey: &StoreSurvey) -> Option<String> {
    let holds = survey.holds.as_ref().filter(|_| !config.attach.yes)?;
    let (product, mark) = (config.backend.product(), config.attach.mark());
    let servers = config.attach.servers.join(", ");
    let end = match config.backend.data.removes() {
        true => "removed at the end",
        false => "not removed, since the file has no `remove` in [data]",
    };
    Some(format!(
        "{product} at {servers} holds {holds}; harness changes only its own entries\n  \
         this run: the names of its entries contain `{mark}`; they are {end}"
    ))
}

impl AttachedRun {
    /// Surveys the servers and writes a claim of the run's entries. It is an error without the user's consent.
    pub async fn begin(spec: &RunSpec) -> Result<Option<Self>, RunError> {
        let config = &spec.config;
        if !config.attach.is_attached() {
            return Ok(None);
        }
        let survey = survey(config).await.map_err(RunError::Clients)?;
        if let Some(what) = consent_to(config, &survey) {
            return Err(RunError::Clients(format!("{what}\nhint: --yes agrees to it")));
        }
        let pattern = config.backend.keys.parse().map_err(RunError::Clients)?;
        let traces = RunTraces {
            mark: config.attach.mark().to_owned(),
            pattern,
            top: survey.top,
        };
        let noted = ClaimedTraces {
            backend: config.backend.typed(),
            servers: config.attach.servers.clone(),
            traces: serde_json::to_string(&traces).expect("traces are plain data"),
        };
        Ok(Some(Self {
            blind: survey.blind,
            backend: config.backend,
            traces,
            claim: noted.claim(&spec.name)?,
        }))
    }

    /// Removes the entries of the run's clients, after these ended. The error names possible leftovers.
    pub async fn end(self, run: Option<&Arc<RunContext>>, servers: EndpointsReceiver) -> Result<(), String> {
        let mut traces = self.traces;
        if let Some(run) = run {
            // clients of a contract may keep them elsewhere
            traces.pattern = run.terms.keys.pattern.clone();
        }
        let data = self.backend.data;
        let mut removed = data.remove(servers.clone(), traces.clone()).await;
        if matches!(removed, Ok(1..)) {
            // a request that was on its way at the kill of its client may have been executed since
            sleep(PROBE).await;
            removed = data.remove(servers, traces.clone()).await;
        }
        removed.map(drop).map_err(|why| {
            // it stays for `harness doctor`
            self.claim.keep();
            format!(
                "the entries of this run on {} could not be removed: {why}\nhint: their names contain `{}`; `harness doctor --clean` tries again",
                self.backend.product(),
                traces.mark
            )
        })
    }
}
