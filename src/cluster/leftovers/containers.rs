//! Leftover containers and networks of killed runs, found by the labels that name their owners.

use std::collections::HashMap;

use testcontainers::bollard::query_parameters::{ListContainersOptionsBuilder, ListNetworksOptionsBuilder};

use super::{Found, LeftAlone, Leftover, Sight, engine_is_expected};
use crate::cluster::engine::{OWNER_LABEL, RUN_LABEL, engine};
use crate::process::Identity;

/// Adds the containers and networks of runs whose harness has ended, and the reasons for unknown ones.
pub async fn look_for(sight: Sight, found: &mut Found) {
    let engine = match engine().await {
        Ok(engine) => engine,
        Err(_) if !engine_is_expected() => return,
        Err(error) => {
            found.unknown.push(format!("containers and networks: {error}"));
            return;
        }
    };
    let filters: HashMap<String, Vec<String>> = [("label".to_owned(), vec![OWNER_LABEL.to_owned()])].into();
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let containers = engine.list_containers(Some(options)).await.unwrap_or_else(|error| {
        found.unknown.push(format!("containers: {error}"));
        Vec::new()
    });
    for container in containers {
        let id = container.id.unwrap_or_default();
        let run = orphaned(container.labels.as_ref(), sight, &mut found.left_alone);
        found.leftovers.extend(run.map(|run| Leftover::Container { run, id }));
    }
    let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
    let networks = engine.list_networks(Some(options)).await.unwrap_or_else(|error| {
        found.unknown.push(format!("networks: {error}"));
        Vec::new()
    });
    // a network is removed only after the containers on it
    for network in networks {
        let id = network.id.unwrap_or_default();
        let run = orphaned(network.labels.as_ref(), sight, &mut found.left_alone);
        found.leftovers.extend(run.map(|run| Leftover::Network { run, id }));
    }
}

/// Returns the run of an object whose harness has ended.
fn orphaned(labels: Option<&HashMap<String, String>>, sight: Sight, alone: &mut LeftAlone) -> Option<String> {
    let labels = labels?;
    let owner = Identity::from_label(labels.get(OWNER_LABEL)?)?;
    match sight.is_over(owner) {
        Some(true) => Some(labels.get(RUN_LABEL).cloned().unwrap_or_default()),
        Some(false) => None,
        None => {
            alone.out_of_sight += 1;
            None
        }
    }
}
