//! The header of a history: the model, the locks, and what the recipe promises, so that a checker needs nothing else.

use harness_checkers::history::event::{Bounds, FORMAT, Header, Promises, VERSION, Wakes};
use serde_json::Map;

use crate::config::{Clients, Config};
use crate::run::RunSpec;

pub fn header(spec: &RunSpec) -> Header {
    let config = &spec.config;
    let lease_ms = config.lease.as_millis() as u64;
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        run: spec.name.clone(),
        model: config.model().to_owned(),
        locks: config.lock_names(),
        lease_ms: Some(lease_ms),
        recipe: Some(config.recipe_name().to_owned()),
        per_process: Some(config.per_process).filter(|clients| *clients > 1),
        promises: promises(config),
        bounds: Bounds {
            herd: Some(config.herd_limit),
            requests: config.requests_limit,
            progress_ms: Some(config.progress_bound.as_millis() as u64),
            silent_ms: Some(lease_ms),
            passed_over: None,
        },
        extra: Map::new(),
    }
}

/// Of foreign clients nothing is known.
fn promises(config: &Config) -> Promises {
    let Clients::Recipe(options) = &config.who else {
        return Promises::default();
    };
    Promises {
        wakes: match options.recipe.wakeup {
            harness_workloads::Wakeup::Notified => Some(Wakes::Notified),
            harness_workloads::Wakeup::Polling => Some(Wakes::Polls),
            harness_workloads::Wakeup::Unreported => None,
        },
        fifo: options.recipe.fifo,
        tokens: options.recipe.tokens,
        lease: Some(options.recipe.lease),
        ..Promises::default()
    }
}
