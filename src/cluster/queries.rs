//! Queries of servers: their readiness and role, and the commands for replication and membership.

use std::net::SocketAddr;

use super::ready::{ProbedServer, Serving};
use super::software::ServerSoftware;
use super::{BoxFuture, ClusterMember, Endpoints, Membership, Peering, Replication};

/// Queries of a cluster's servers.
pub trait ServerQueries: Send + Sync {
    /// Asks the server of a node whether it serves. The error has the reason if not.
    fn ask(&self, node: usize, address: SocketAddr) -> BoxFuture<'_, Result<Serving, String>>;

    /// Returns the commands for replication, if the product has a primary with replicas.
    fn replication(&self) -> Option<&dyn Replication> {
        None
    }

    /// Receives the prefix of the keys of the locks. Models have the locks of recipes alone.
    fn set_key_prefix(&self, _keys: &str) {}

    /// Returns the commands that replace this member, if the product can replace any. `at` has the current endpoints.
    fn member(&self, _node: usize, _at: &Endpoints) -> Option<(&'static dyn Membership, ClusterMember)> {
        None
    }
}

/// Queries of the servers of a product, over streams of any kind.
pub struct ProductQueries {
    pub software: &'static ServerSoftware,
    /// The servers by node, without their current addresses.
    pub servers: Vec<ProbedServer>,
}

impl ServerQueries for ProductQueries {
    fn ask(&self, node: usize, address: SocketAddr) -> BoxFuture<'_, Result<Serving, String>> {
        let server = ProbedServer {
            address,
            first: false,
            ..self.servers[node].clone()
        };
        (self.software.probe)(server)
    }

    fn replication(&self) -> Option<&dyn Replication> {
        match self.software.peering {
            Peering::Replication(replication) | Peering::Announced(replication) => Some(replication),
            Peering::Direct | Peering::Socks | Peering::Dialled { .. } => None,
        }
    }

    fn set_key_prefix(&self, keys: &str) {
        self.servers.iter().for_each(|server| server.set_key_prefix(keys));
    }

    fn member(&self, node: usize, at: &Endpoints) -> Option<(&'static dyn Membership, ClusterMember)> {
        Some((self.software.membership?, ClusterMember::of(&self.servers[node], at)))
    }
}
