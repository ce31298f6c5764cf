//! Removes the node of a ZooKeeper lock that no client uses, so that the next client creates it again.

use harness_workloads::zk::lock_path;
use tokio::time::timeout;
use zookeeper_client::{Client, Error};

use super::data::{SESSION, connect};
use crate::backends::LockSweeper;
use crate::cluster::{BoxFuture, EndpointsReceiver};
use crate::limits::PROBE;

pub struct ZkSweeper {
    client: Client,
}

impl ZkSweeper {
    pub async fn connect(endpoints: EndpointsReceiver) -> Result<Box<dyn LockSweeper>, String> {
        let client = connect(&endpoints, SESSION).await?;
        Ok(Box::new(Self { client }))
    }

    async fn delete(&self, lock: &str) -> Result<bool, String> {
        match timeout(PROBE, self.client.delete(&lock_path(lock), None)).await {
            Ok(Ok(())) => Ok(true),
            // a client still waits for it or holds it; or it is gone already
            Ok(Err(Error::NotEmpty | Error::NoNode)) => Ok(false),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer".into()),
        }
    }
}

impl LockSweeper for ZkSweeper {
    fn remove<'a>(&'a self, lock: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(self.delete(lock))
    }
}
