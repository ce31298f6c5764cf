//! Replacement of members of a running cluster: one is removed and killed, a new one starts in its place and is settled.

use tokio::sync::Mutex as AsyncMutex;

use super::control::CommandExecutor;
use super::membership::NotRemoved;
use super::{ClusterError, NodeCommand, NodeControl, RunningNodes};

const NO_MEMBERSHIP: &str = "members of this cluster cannot be replaced";

impl NodeControl {
    /// Makes the new server of a node a member as all others are. The error names what is missing; then it is called again.
    pub async fn settle(&self, node: u32) -> Result<(), String> {
        let member = self.member(node as usize);
        let (membership, member) = member.ok_or_else(|| NO_MEMBERSHIP.to_owned())?;
        membership.settle(member).await?;
        let _ = self.order(node, NodeCommand::Joined).await;
        Ok(())
    }
}

impl CommandExecutor {
    /// Removes a member from its cluster and kills it, or starts a new one in its place.
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
                // it is killed for good in both cases: a new one is admitted only after it is certainly removed
                Ok(()) | Err(NotRemoved::Unknown(_)) => {
                    let mut running = running.lock().await;
                    return match running.kill(node).await {
                        // an etcd that learns that it is no longer a member ends by itself
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

    /// Returns the error of a refused change of members.
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
