//! Replicas of a primary: the runtimes that have none, and the waits until one follows its primary or is in sync.

use std::time::Duration;

use super::control::back_within;
use super::peering::Peering;
use super::replication::Replication;
use super::runtime::Runtime;
use super::software::LoginGuard;
use super::{ClusterError, ClusterSpec, NodeControl};
use crate::limits::{PROBE, READY_POLL};

impl ClusterSpec {
    /// Refuses a primary with replicas if it is known that they would not work.
    pub(super) fn refuse_replicas(&self, runtime: &Runtime) -> Result<(), ClusterError> {
        let Peering::Replication(replication) = self.software.peering else {
            return Ok(());
        };
        let contained = matches!(runtime, Runtime::Docker { .. });
        let told = self.login.is_some() && matches!(self.software.guard, LoginGuard::ByCommand(_));
        let why = match replication.not_in_containers().filter(|_| contained) {
            Some(why) => why,
            None if told => "a standby would have no login on its primary\nhint: leave --auth out",
            None => return Ok(()),
        };
        match self.primary() {
            None => Ok(()),
            Some(_) => Err(ClusterError::Nothing(why.to_owned())),
        }
    }
}

impl NodeControl {
    /// Returns the node that clients do not reach: the replica.
    pub fn replica(&self) -> Option<u32> {
        let endpoints = self.endpoints();
        let primary = endpoints.primary()?;
        (0..endpoints.nodes().len() as u32).find(|node| *node != primary)
    }

    /// Whether a node follows a primary now.
    pub async fn is_replica(&self, node: u32) -> bool {
        let role = self.replication().map(Replication::role_of_replica);
        role.is_some() && self.serving(node).await.map(|serving| serving.role).as_deref() == role
    }

    /// Waits until a node that was a primary follows another; returns whether it does.
    pub async fn follows(&self, node: u32) -> bool {
        let deadline = self.clock().after(back_within(self.clock()));
        let look = || async { self.is_replica(node).await.then_some(()).ok_or(()) };
        self.clock().try_until(deadline, READY_POLL, look).await.is_ok()
    }

    /// Returns the keys of a node, or `None` if it does not answer.
    pub async fn keys(&self, node: u32) -> Option<Vec<String>> {
        let asked = self.replication()?.keys(self.access(node));
        self.clock().within(PROBE, asked).await?.ok()
    }

    /// Waits until a replica has all data that its primary has written by now; returns whether it does.
    pub async fn in_sync(&self, replica: u32, primary: u32, within: Duration) -> bool {
        let Some(replication) = self.replication() else {
            return false;
        };
        let clock = self.clock();
        let deadline = clock.after(within);
        let written = clock.within(PROBE, replication.written(self.access(primary))).await;
        let Some(Ok(written)) = written else { return false };
        let look = || async {
            let applied = clock.within(PROBE, replication.applied(self.access(replica))).await;
            let is_there = matches!(applied, Some(Ok(applied)) if applied >= written);
            is_there.then_some(()).ok_or(())
        };
        clock.try_until(deadline, READY_POLL / 10, look).await.is_ok()
    }
}
