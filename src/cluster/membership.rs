//! Members of a cluster: how one leaves for good and a new one, without data, joins in its place, where a product has orders
//! for that.

use tokio::sync::Mutex as AsyncMutex;

use super::control::CommandExecutor;
use super::software::{NodeAddress, ProbedServer};
use super::{BoxFuture, ClusterError, Endpoints, NodeCommand, NodeControl, RunningNodes};

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

const NO_MEMBERSHIP: &str = "members of this cluster cannot be replaced";

impl NodeControl {
    /// Has the new server in a node's place become a member as all others are. The error says what it lacks; then it is asked again.
    pub async fn settle(&self, node: u32) -> Result<(), String> {
        let member = self.member(node as usize);
        let (membership, member) = member.ok_or_else(|| NO_MEMBERSHIP.to_owned())?;
        membership.settle(member).await?;
        let _ = self.order(node, NodeCommand::Joined).await;
        Ok(())
    }
}

impl CommandExecutor {
    /// Takes a member out of its cluster and kills it, or starts a new one in its place.
    pub(super) async fn replace(
        &self,
        node: usize,
        command: NodeCommand,
        running: &AsyncMutex<Box<dyn RunningNodes>>,
    ) -> Result<(), ClusterError> {
        let refused = |why: String| self.refused(node, command, why);
        let member = self.control.member(node);
        let (membership, member) = member.ok_or_else(|| refused(NO_MEMBERSHIP.to_owned()))?;
        if command == NodeCommand::Leave {
            match membership.remove(member).await {
                Err(NotRemoved::Refused(why)) => return Err(refused(why)),
                // it dies for good in both cases: a new one is admitted only when it is surely removed
                Ok(()) | Err(NotRemoved::Unknown(_)) => {
                    let mut running = running.lock().await;
                    return match running.kill(node).await {
                        // an etcd that learns that it is no member any more ends by itself
                        Err(_) if running.ended(node).await.is_some() => Ok(()),
                        killed => killed,
                    };
                }
            }
        }
        membership.admit(member).await.map_err(refused)?;
        let started = running.lock().await.start_new(node).await?;
        self.serves_at(node, started);
        Ok(())
    }

    /// A change of members was refused.
    pub(super) fn refused(&self, node: usize, command: NodeCommand, why: String) -> ClusterError {
        let what = match command {
            NodeCommand::Leave => "leave its cluster",
            NodeCommand::Join => "join its cluster",
            NodeCommand::Upgrade => "be upgraded",
            _ => "be stopped",
        };
        ClusterError::Unchanged {
            node: self.control.name(node as u32).to_owned(),
            what,
            why,
        }
    }
}
