//! The header of a history: the model, the locks, and the contract of the clients, so that a checker needs nothing else.

use harness_checkers::history::event::{Bounds, FORMAT, Header, VERSION};
use serde_json::Map;

use crate::cluster::Runtime;
use crate::run::RunSpec;
use crate::run::terms::Terms;

pub fn header(spec: &RunSpec, terms: &Terms) -> Header {
    let config = &spec.config;
    let mut extra = Map::new();
    if matches!(spec.choice.runtime, Runtime::Simulated | Runtime::Virtual) {
        // a history without its folder needs it, too
        extra.insert("runtime".to_owned(), spec.choice.runtime.name().into());
    }
    if let Some(mark) = &config.attach.mark {
        extra.insert("mark".to_owned(), mark.as_str().into());
    }
    let lease_ms = config.lease.as_millis() as u64;
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        run: spec.name.clone(),
        model: terms.demand.model(),
        locks: config.lock_names(),
        lease_ms: Some(lease_ms),
        recipe: Some(config.recipe_name().to_owned()),
        backend: Some(config.backend.name().to_owned()),
        per_process: Some(config.per_process).filter(|clients| *clients > 1),
        promises: terms.promises(),
        bounds: Bounds {
            herd: Some(config.herd_limit),
            requests: config.requests_limit,
            progress_ms: Some(config.progress_bound.as_millis() as u64),
            silent_ms: Some(lease_ms),
            passed_over: None,
            starvation_ms: config.starvation_bound.map(|bound| bound.as_millis() as u64),
        },
        extra,
    }
}
