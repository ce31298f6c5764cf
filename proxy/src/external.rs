//! An external proxy, such as a Toxiproxy, that carries out the behaviour of a link. It replies to orders later, and may fail.

use std::fmt::Debug;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::link_state::Layer;
use super::toxic::Toxic;

/// The result of a command, later. A dropped sender means that the driver has stopped.
pub type PendingReply = oneshot::Receiver<Result<(), String>>;

/// A remote proxy that carries out faults. Orders are taken at once and carried out in their order.
pub trait ExternalProxyDriver: Debug + Send + Sync {
    /// Returns the name of the proxy, for errors.
    fn name(&self) -> String;

    /// Adds toxics to some of its proxies, as a layer. The reply comes when they are on and were read back.
    fn put(&self, layer: Layer, proxies: Vec<String>, toxics: Vec<Toxic>) -> PendingReply;

    /// Removes a layer's toxics. The reply comes when they are gone and that was read back.
    fn lift(&self, layer: Layer, proxies: Vec<String>) -> PendingReply;
}

/// Waits for an answer. No answer, and a thread that is gone, are errors.
pub async fn within<T>(patience: Duration, reply: oneshot::Receiver<Result<T, String>>) -> Result<T, String> {
    match timeout(patience, reply).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err("the thread that talks to it has stopped".into()),
        Err(_) => Err(format!("no answer within {}s", patience.as_secs())),
    }
}
