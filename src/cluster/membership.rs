//! Membership: a member leaves a cluster permanently and a new one, without data, joins in its place, if the product has commands
//! for that.

use std::time::Duration;

use super::peering::NodeAddress;
use super::ready::ProbedServer;
use super::{BoxFuture, Endpoints};

/// A member of a cluster, and the other members, through which it is replaced.
#[derive(Clone)]
pub struct ClusterMember {
    /// The server, with its current address.
    pub server: ProbedServer,
    /// The other nodes, with the login for them.
    pub others: Endpoints,
}

impl ClusterMember {
    /// Returns the member. `at` has the current endpoints of all nodes.
    pub(super) fn of(server: &ProbedServer, at: &Endpoints) -> Self {
        Self {
            server: ProbedServer {
                address: at.nodes()[server.me],
                first: false,
                ..server.clone()
            },
            others: at.without(server.me),
        }
    }

    /// Returns the answer of the other members, or an error if none comes within the limit.
    pub async fn answer_of_others<T>(
        &self,
        limit: Duration,
        asked: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let answered = self.others.clock().within(limit, asked).await;
        answered.unwrap_or_else(|| Err("the others do not answer".to_owned()))
    }

    /// Returns its address in its peers' configuration.
    pub fn address(&self) -> &NodeAddress {
        &self.server.nodes[self.server.me]
    }
}

/// The reason for which a member was not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRemoved {
    /// It is a member as before, for this reason.
    Refused(String),
    /// It may or may not be a member, or be removed later, for this reason.
    Unknown(String),
}

/// The commands to a cluster that change its members. Each call asks the other members and has a timeout. The errors are
/// sentences.
pub trait Membership: Sync {
    /// Whether a new server can join if all serve clients by TLS alone.
    fn with_tls(&self) -> bool;

    /// Removes a member from its cluster. It is no error if it is not a member.
    fn remove(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), NotRemoved>>;

    /// Prepares the cluster for a new server in the place of a removed one, before it starts. First makes sure that the previous
    /// one is no longer a member; does nothing if all is prepared.
    fn admit(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>>;

    /// Makes the new server a voting member with all data that the others had at the call. The error names what is missing; then
    /// it is called again.
    fn settle(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>>;
}
