//! Removes every node that clients left on ZooKeeper, so that the next run finds servers as new.

use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::{Client, Error};

use crate::cluster::{BoxFuture, EndpointsReceiver};
use crate::limits::PROBE;

/// The session with which nodes are removed; it owns nothing.
const SESSION: Duration = Duration::from_secs(10);
/// The only node that servers make themselves.
const SERVERS_OWN: &str = "zookeeper";

pub async fn wipe(endpoints: EndpointsReceiver) -> Result<(), String> {
    let servers: Vec<String> = endpoints.borrow().servers().iter().map(ToString::to_string).collect();
    let client = Client::connector()
        .with_session_timeout(SESSION)
        .with_connection_timeout(PROBE)
        .connect(&servers.join(","))
        .await
        .map_err(|error| error.to_string())?;
    let wiping = async {
        for name in children(&client, "/").await? {
            if name != SERVERS_OWN {
                remove(&client, format!("/{name}")).await?;
            }
        }
        Ok(())
    };
    timeout(SESSION, wiping)
        .await
        .unwrap_or_else(|_| Err("it does not answer".to_owned()))
}

/// The children of a node; none of one that is gone.
async fn children(client: &Client, path: &str) -> Result<Vec<String>, String> {
    match client.list_children(path).await {
        Ok(names) => Ok(names),
        Err(Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// Removes a node and what is below it. A session that runs out may be faster.
fn remove(client: &Client, path: String) -> BoxFuture<'_, Result<(), String>> {
    Box::pin(async move {
        for name in children(client, &path).await? {
            remove(client, format!("{path}/{name}")).await?;
        }
        match client.delete(&path, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(error) => Err(format!("{path}: {error}")),
        }
    })
}
