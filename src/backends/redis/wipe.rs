//! Removes every key that clients left on Redis, so that the next run finds servers as new.

use tokio::time::timeout;

use super::connection::RespConnection;
use crate::cluster::EndpointsReceiver;
use crate::limits::PROBE;

pub async fn wipe(endpoints: EndpointsReceiver) -> Result<(), String> {
    let servers = endpoints.borrow().nodes().to_vec();
    for address in servers {
        let wiping = async {
            let mut connection = RespConnection::open(address).await?;
            connection.ask(&["FLUSHALL"]).await?;
            // a script that one client loaded would be there for the clients of the next run
            connection.ask(&["SCRIPT", "FLUSH"]).await
        };
        let wiped = timeout(PROBE, wiping).await;
        wiped.unwrap_or_else(|_| Err(format!("{address} does not answer")))?;
    }
    Ok(())
}
