//! The sweeper of ZooKeeper: it removes the node of a lock that no client uses, so that the next client creates it again.

use harness_workloads::zk::lock_path;
use tokio::time::timeout;
use zookeeper_client::{Client, Error};

use super::data::{SESSION, connect};
use crate::cluster::EndpointsReceiver;
use crate::limits::PROBE;

/// The sweeper of locks that no client uses.
pub struct LockSweeper {
    client: Client,
}

impl LockSweeper {
    pub async fn connect(endpoints: EndpointsReceiver) -> Result<Self, String> {
        let client = connect(&endpoints, SESSION).await?;
        Ok(Self { client })
    }

    /// Removes the leftovers of a lock; returns whether there were any. The error means that the connection is lost.
    pub async fn remove(&self, lock: &str) -> Result<bool, String> {
        match timeout(PROBE, self.client.delete(&lock_path(lock), None)).await {
            Ok(Ok(())) => Ok(true),
            // a client still waits for it or holds it, or it is gone already
            Ok(Err(Error::NotEmpty | Error::NoNode)) => Ok(false),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer".into()),
        }
    }
}
