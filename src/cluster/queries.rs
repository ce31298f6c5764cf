//! What servers are asked: whether they serve and as what, and who can tell them to replicate or to change their members.

use std::net::SocketAddr;
use std::sync::Arc;

use super::ready::{ProbedServer, Serving};
use super::software::ServerSoftware;
use super::{BoxFuture, ClusterMember, Endpoints, EndpointsReceiver, Membership, Peering, Replication};
use crate::clock::GroundClock;

/// Asks servers for what they are, and tells those that replicate what to be.
pub trait ServerQueries: Send + Sync {
    /// Asks one server whether it serves, by its node. The error says why not.
    fn ask(&self, node: usize, address: SocketAddr) -> BoxFuture<'_, Result<Serving, String>>;

    /// The commands for replication, where the product replicates from a primary.
    fn replication(&self) -> Option<&dyn Replication>;

    /// Hears what the keys of the locks begin with. Models have the locks of recipes alone.
    fn locks_are_below(&self, _keys: &str) {}

    /// How members of the cluster are replaced, with this one, where the product can replace any. `at`: where all serve now.
    fn member(&self, _node: usize, _at: &Endpoints) -> Option<(&'static dyn Membership, ClusterMember)> {
        None
    }
}

/// Servers of a product, asked over streams of any kind.
pub struct ProductQueries {
    pub software: &'static ServerSoftware,
    /// By node, without the address that it has now.
    pub servers: Vec<ProbedServer>,
}

impl ServerQueries for ProductQueries {
    fn ask(&self, node: usize, address: SocketAddr) -> BoxFuture<'_, Result<Serving, String>> {
        let server = ProbedServer {
            address,
            first: false,
            ..self.servers[node].clone()
        };
        Box::pin(async move { self.software.question.ask(&server).await })
    }

    fn replication(&self) -> Option<&dyn Replication> {
        match self.software.peering {
            Peering::Replication(replication) | Peering::Announced(replication) => Some(replication),
            Peering::Direct | Peering::Socks | Peering::Dialled { .. } => None,
        }
    }

    fn locks_are_below(&self, keys: &str) {
        self.servers.iter().for_each(|server| server.locks_are_below(keys));
    }

    fn member(&self, node: usize, at: &Endpoints) -> Option<(&'static dyn Membership, ClusterMember)> {
        Some((self.software.membership?, ClusterMember::of(&self.servers[node], at)))
    }
}

/// Asks servers for their roles.
#[derive(Clone)]
pub struct RoleProbe {
    pub(super) queries: Arc<dyn ServerQueries>,
    pub(super) names: Vec<String>,
    pub(super) endpoints: EndpointsReceiver,
    pub(super) clock: GroundClock,
}

impl RoleProbe {
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.endpoints.borrow().nodes().to_vec()
    }

    /// Hears what the keys of the locks begin with: where each of them may have its own leader, their leader is asked for.
    pub fn locks_are_below(&self, keys: &str) {
        self.queries.locks_are_below(keys);
    }

    /// Each server's role now, `None` for one that does not serve.
    pub async fn roles(&self) -> Vec<(String, Option<Serving>)> {
        let mut roles = Vec::new();
        for (node, (name, address)) in self.names.iter().zip(self.addresses()).enumerate() {
            roles.push((name.clone(), self.queries.ask(node, address).await.ok()));
        }
        roles
    }
}
