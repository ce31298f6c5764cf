//! Simulated Redis or Valkey as the ground of a run: one master, its replica for a failover, or independent masters.

use std::net::SocketAddr;
use std::sync::Arc;

use harness_simulation::redis::SimulatedRedis;
use harness_simulation::{SimulatedServers, World};
use harness_workloads::BackendId;

use super::ground::{ServerModel, answering, server_at};
use super::keyspaces::ModelKeyspaces;
use super::links::FaultableLink;
use crate::backends::{self, keyspace::OpenKeyspace};
use crate::cluster::{BoxFuture, Cluster, Replication, ServerAccess};
use crate::faults::Links;
use crate::run::{ConnectObserver, Ground, RunSpec};

/// The servers of a run, and their keyspaces for observers.
#[derive(Clone)]
struct RedisServersOfRun {
    redis: SimulatedRedis,
    keyspaces: ModelKeyspaces,
    version: &'static str,
}

/// Returns servers, links and clients in `world`.
pub fn ground(world: World, spec: &RunSpec) -> (Ground, Cluster) {
    let servers = (spec.config.nodes + spec.plan.replicas) as usize;
    let redis = SimulatedRedis::start(world, servers);
    let mut peer_links = Links::new();
    if spec.plan.replicas > 0 {
        redis.follow(1, 0);
        for (from, to) in [(0, 1), (1, 0)] {
            let link = FaultableLink::untapped(redis.link_between(from, to));
            peer_links.insert((from as u32, to as u32), link.into());
        }
    }
    let keyspaces = ModelKeyspaces::of(redis);
    let model = RedisServersOfRun {
        redis,
        keyspaces,
        version: match spec.config.backend.id {
            Some(BackendId::Valkey) => "9 (a model)",
            _ => "7 (a model)",
        },
    };
    super::ground::ground(world, &model, peer_links, spec)
}

impl ServerModel for RedisServersOfRun {
    fn version(&self) -> &'static str {
        self.version
    }

    fn servers(&self) -> &dyn SimulatedServers {
        &self.redis
    }

    fn end_observers(&self, server: usize) {
        self.keyspaces.close(server);
    }

    fn role(&self, server: usize) -> Result<(&'static str, bool), String> {
        let role = self.redis.role(server);
        Ok((role, role == "master"))
    }

    fn redirect(&self, server: usize, to: usize) {
        self.redis.redirect(server, to);
    }

    fn replication(&self) -> Option<&dyn Replication> {
        Some(self)
    }

    fn observe(&self) -> ConnectObserver {
        let keyspaces = self.keyspaces.clone();
        let source: OpenKeyspace = Arc::new(move |server, keys| keyspaces.open(server, keys));
        Box::new(move |endpoints, keys| Box::pin(backends::observe_keyspaces(source.clone(), endpoints, keys)))
    }
}

impl RedisServersOfRun {
    /// Executes `act` on a server that answers.
    fn tell<T: Send + 'static>(
        &self,
        address: SocketAddr,
        act: impl FnOnce(SimulatedRedis, usize) -> T,
    ) -> BoxFuture<'static, Result<T, String>> {
        let server = answering(self, address);
        Box::pin(std::future::ready(server.map(|server| act(self.redis, server))))
    }
}

impl Replication for RedisServersOfRun {
    fn role_of_replica(&self) -> &'static str {
        "replica"
    }

    fn promote(&self, server: ServerAccess) -> BoxFuture<'_, Result<(), String>> {
        self.tell(server.address, SimulatedRedis::promote)
    }

    fn follow(&self, server: ServerAccess, primary: SocketAddr) -> BoxFuture<'_, Result<(), String>> {
        self.tell(server.address, |redis, server| {
            redis.follow(server, server_at(primary).unwrap_or_default());
        })
    }

    fn keys(&self, server: ServerAccess) -> BoxFuture<'_, Result<Vec<String>, String>> {
        self.tell(server.address, SimulatedRedis::keys)
    }

    fn written(&self, primary: ServerAccess) -> BoxFuture<'_, Result<u64, String>> {
        self.tell(primary.address, SimulatedRedis::offset)
    }

    fn applied(&self, replica: ServerAccess) -> BoxFuture<'_, Result<u64, String>> {
        self.tell(replica.address, SimulatedRedis::offset)
    }
}
