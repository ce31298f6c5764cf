//! The servers of a run, and the peer proxy between them if the plan has faults between them.

use std::sync::Arc;

use tokio::time::Instant;

use super::WallClocks;
use super::attached::AttachedRun;
use super::disks::ServerDisks;
use crate::backends::Topology;
use crate::cluster::{Cluster, ClusterError, ClusterSpec, PeerProxies, Peering, RunTls, Runtime};
use crate::config::Config;
use crate::disks::DiskGate;
use crate::event::ProgressEvent;
use crate::faults::Links;
use crate::plan::Plan;
use crate::process::not_started;
use crate::run::context::RunContext;
use crate::run::observer::ConnectObserver;
use crate::run::peer_proxies::PeerLinks;
use crate::run::{RunError, RunSpec};

/// A running cluster.
pub struct RunServers {
    pub cluster: Cluster,
    /// The proxy of the servers' connections to each other; `None` if they connect directly.
    peer_proxy: Option<Arc<PeerLinks>>,
    /// The data of an attached run.
    attached: Option<AttachedRun>,
    disks: ServerDisks,
}

impl RunServers {
    /// Starts the servers and waits until they serve.
    pub async fn start(spec: &RunSpec, clocks: &WallClocks) -> Result<Self, RunError> {
        let config = &spec.config;
        let attached = AttachedRun::begin(spec).await?;
        let peer_proxy = peer_proxy(spec)?;
        let disks = ServerDisks::lay_out(spec)?;
        let wanted = ClusterSpec {
            software: config.backend.software,
            nodes: config.nodes + spec.plan.replicas,
            lease: config.lease,
            run: spec.name.clone(),
            logs: spec.folder.nodes(),
            start_limit: config.start_limit,
            port_base: config.port_base,
            peer_proxies: peer_proxy.clone().map(|proxy| proxy as Arc<dyn PeerProxies>),
            clocks: clocks.servers.clone(),
            disks: disks.gates.clone(),
            own_disks: spec.plan.own_disks,
            replaceable: spec.plan.replaces_servers,
            version: spec.choice.version.clone(),
            upgrade: spec.choice.upgrade.clone(),
            login: config.login(),
            tls: tls(spec)?,
            on_wait: {
                let progress = spec.progress.clone();
                Arc::new(move |what| progress.send(ProgressEvent::Waiting(what)))
            },
        };
        if let Some(why) = attached.as_ref().and_then(|attached| attached.blind.as_ref()) {
            let text = format!("no observer watches the locks: {why}");
            spec.progress.send(ProgressEvent::Note(text));
        }
        let progress = &spec.progress;
        progress.send(ProgressEvent::Starting(starting(spec, wanted.nodes)));
        progress.send(ProgressEvent::Waiting("no server was asked yet".into()));
        let started = Instant::now();
        let cluster = Cluster::start(&wanted, &spec.choice.runtime, spec.interrupt.clone()).await?;
        let roles = cluster.control().roles().await;
        let leaders: Vec<&str> = roles
            .iter()
            .filter(|(_, serving)| serving.as_ref().is_some_and(|serving| serving.leads))
            .map(|(name, _)| name.as_str())
            .collect();
        spec.progress.send(ProgressEvent::ClusterReady {
            took: started.elapsed(),
            summary: format!(
                "{} {} ×{}{}",
                config.backend.product(),
                cluster.version,
                wanted.nodes,
                match leaders.as_slice() {
                    [] => String::new(),
                    leaders => format!(", leader {}", leaders.join(" ")),
                }
            ),
        });
        Ok(Self {
            cluster,
            peer_proxy,
            attached,
            disks,
        })
    }

    /// Starts servers that several runs use, one after the other, of the kind that the plan of `spec` needs.
    pub async fn start_for_many(spec: &RunSpec) -> Result<Self, RunError> {
        Self::start(spec, &WallClocks::default()).await
    }

    /// Whether a run with this plan is possible on these servers, which were started for many.
    pub fn suit(&self, config: &Config, plan: &Plan) -> bool {
        Self::can_be_kept(config, plan) && (self.peer_proxy.is_some() || !plan.servers_through_proxy)
    }

    /// Whether the servers are after a run with this plan as they were before it. A promoted replica has another role, and a wall
    /// clock is of one run, as are the disks of servers that sync.
    pub fn can_be_kept(config: &Config, plan: &Plan) -> bool {
        let elected = config.backend.topology != Topology::Plain;
        let of_this_run = elected
            || plan.replicas > 0
            || plan.gates_disks
            || plan.replaces_servers
            || config.upgrade().is_some()
            || (plan.steps_clocks && config.backend.wall_clock);
        !of_this_run && !config.attach.is_attached()
    }

    /// Makes the servers as new after a run: every one serves, none has entries of the run's clients. The error has the reason
    /// for which they cannot be used again.
    pub async fn renew(&self, config: &Config) -> Result<(), String> {
        let control = self.cluster.control();
        if let Some(end) = &*control.ended.borrow() {
            return Err(format!("{} ended ({})", end.server, end.how));
        }
        for node in 0..self.cluster.nodes.len() as u32 {
            if !control.is_back(node).await {
                return Err(format!("{} does not serve", control.name(node)));
            }
        }
        config.backend.data.wipe(self.cluster.endpoints()).await
    }

    /// Returns the links between servers, by the one that dials and the one that is dialled.
    pub fn peer_links(&self) -> Links {
        self.peer_proxy.as_ref().map(|proxy| proxy.links()).unwrap_or_default()
    }

    /// Returns the disks of the nodes, if the plan slows disks.
    pub fn disks(&self) -> Vec<Arc<DiskGate>> {
        self.disks.gates.clone()
    }

    /// Returns the connector of this run's observer, if it has one.
    pub fn observe(&self, config: &Config) -> Option<ConnectObserver> {
        let blind = self.attached.as_ref().is_some_and(|attached| attached.blind.is_some());
        let observe = config.backend.observe.filter(|_| !blind)?;
        Some(Box::new(observe))
    }

    /// Removes the entries of a run's clients from attached servers, and nothing from others. The error names possible leftovers.
    pub async fn remove_traces(&mut self, run: Option<&Arc<RunContext>>) -> Result<(), String> {
        match self.attached.take() {
            None => Ok(()),
            Some(attached) => attached.end(run, self.cluster.endpoints()).await,
        }
    }

    pub async fn stop(self) {
        self.cluster.stop().await;
        drop(self.peer_proxy);
    }
}

/// Makes certificates for this run, if its servers speak TLS.
fn tls(spec: &RunSpec) -> Result<Option<Arc<RunTls>>, RunError> {
    let made = spec.config.tls.then(|| RunTls::make(&spec.name)).transpose();
    made.map_err(|why| RunError::Cluster(ClusterError::Nothing(why)))
}

/// Returns a sentence about the start, and the limit of the wait.
fn starting(spec: &RunSpec, nodes: u32) -> String {
    let product = spec.config.backend.product();
    let what = match (&spec.choice.runtime, nodes) {
        (Runtime::Attached(_), _) => format!("asking the servers of {product}"),
        (Runtime::Docker { .. }, 1) => format!("starting a container of {product}"),
        (Runtime::Docker { .. }, _) => format!("starting {nodes} containers of {product}"),
        (_, 1) => format!("starting a server of {product}"),
        _ => format!("starting {nodes} servers of {product}"),
    };
    let limit = spec.config.start_limit.as_secs_f64();
    format!(
        "{what}, until {} (at most {limit:.0}s)",
        if nodes == 1 { "it serves" } else { "all serve" }
    )
}

fn peer_proxy(spec: &RunSpec) -> Result<Option<Arc<PeerLinks>>, RunError> {
    let peering = spec.config.backend.software.peering;
    let announced = matches!(peering, Peering::Announced(_));
    // of servers for many experiments, of which others have a replica
    let alone = matches!(peering, Peering::Replication(_)) && spec.plan.replicas == 0;
    if !announced && (alone || !spec.plan.servers_through_proxy) {
        return Ok(None);
    }
    let proxy = PeerLinks::new(spec.config.seed ^ 0xbe_7ee4).map_err(|error| {
        RunError::Proxy(format!(
            "no thread for the proxy between servers: {}",
            not_started(error)
        ))
    })?;
    if announced {
        return Ok(Some(proxy));
    }
    let text = "servers reach each other through the proxy, because the plan has faults between them";
    spec.progress.send(ProgressEvent::Note(text.into()));
    Ok(Some(proxy))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;

    #[tokio::test]
    async fn a_primary_without_a_replica_has_no_proxy_although_another_experiment_has_one() {
        let config = Config {
            backend: backends::of(BackendId::Redis),
            nodes: 1,
            ..Config::example()
        };
        let mut spec = RunSpec::of_test(config, Path::new("unused"), Runtime::Local);
        spec.plan.servers_through_proxy = true;
        assert!(peer_proxy(&spec).unwrap().is_none());
        spec.plan.replicas = 1;
        assert!(peer_proxy(&spec).unwrap().is_some());
    }
}
