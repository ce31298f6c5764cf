//! Members of a cluster: how one leaves for good and a new one, without data, joins in its place, where a product has orders
//! for that.

use super::peering::NodeAddress;
use super::ready::ProbedServer;
use super::{BoxFuture, Endpoints};

/// A member of a cluster, and the other members, through which it is replaced.
#[derive(Clone)]
pub struct ClusterMember {
    /// With the address at which it serves now.
    pub server: ProbedServer,
    /// The other nodes, and who logs in there.
    pub others: Endpoints,
}

impl ClusterMember {
    /// `at`: where all nodes serve now.
    pub(super) fn of(server: &ProbedServer, at: &Endpoints) -> Self {
        let others = at.nodes().iter().enumerate();
        let others = others
            .filter(|(node, _)| *node != server.me)
            .map(|(_, address)| *address);
        Self {
            server: ProbedServer {
                address: at.nodes()[server.me],
                first: false,
                ..server.clone()
            },
            others: Endpoints::new(others.collect(), None).with_login(at.login()),
        }
    }

    /// As its peers' configuration names it.
    pub fn address(&self) -> &NodeAddress {
        &self.server.nodes[self.server.me]
    }
}

/// Why a member was not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRemoved {
    /// It is a member as before; why.
    Refused(String),
    /// It may be a member or not, or be removed later; why that is not known.
    Unknown(String),
}

/// What can be told to a cluster whose members change. Each call asks the other members and bounds its time. The errors are
/// sentences.
pub trait Membership: Sync {
    /// Whether a new server can join where all serve clients by TLS alone.
    fn with_tls(&self) -> bool;

    /// Takes a member out of its cluster. One that is none any more is fine.
    fn remove(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), NotRemoved>>;

    /// Prepares the cluster for a new server in the place of one that was removed, before it starts. Makes sure first that the one before is
    /// no member any more, and does nothing if all is prepared.
    fn admit(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>>;

    /// Makes the new server a member that has a vote and everything that the others had when this was called. The error says
    /// what it lacks; then it is called again.
    fn settle(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>>;
}
