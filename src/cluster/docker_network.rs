//! The network of the containers of a run: made with a label, removed at the end of the run or when it unwinds.

use std::net::IpAddr;

use testcontainers::bollard::models::NetworkCreateRequest;

use super::engine::{OWNER_LABEL, RUN_LABEL, engine, engine_failed, engine_name, remove_network};
use super::{ClusterError, ClusterSpec};
use crate::process::Identity;

/// A network of the run. Dropping it removes it.
pub struct Network {
    pub name: String,
    removed: bool,
}

impl Network {
    pub async fn create(spec: &ClusterSpec) -> Result<Self, ClusterError> {
        let name = engine_name(&spec.run);
        let labels = [
            (RUN_LABEL.to_owned(), spec.run.clone()),
            (OWNER_LABEL.to_owned(), Identity::own().label()),
        ]
        .into();
        let request = NetworkCreateRequest {
            name: name.clone(),
            labels: Some(labels),
            ..Default::default()
        };
        let created = engine().await?.create_network(request).await;
        created.map_err(engine_failed)?;
        Ok(Self { name, removed: false })
    }

    /// Returns this machine's address on it.
    pub async fn gateway(&self) -> Result<IpAddr, ClusterError> {
        let failed = |why: String| ClusterError::Engine(format!("the network {}: {why}", self.name));
        let inspected = engine().await?.inspect_network(&self.name, None).await;
        let network = inspected.map_err(|error| failed(error.to_string()))?;
        let mut configs = network.ipam.and_then(|ipam| ipam.config).into_iter().flatten();
        let gateway = configs.find_map(|config| config.gateway?.parse().ok());
        gateway
            .ok_or_else(|| failed("it has no gateway, so its servers cannot reach each other through a proxy".into()))
    }

    pub async fn remove(mut self) {
        let _ = remove_network(&self.name).await;
        self.removed = true;
    }
}

impl Drop for Network {
    /// Removes the network when a run unwinds. The containers are dropped before or after it; leftovers have its label.
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        let name = self.name.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { remove_network(&name).await });
        }
    }
}
