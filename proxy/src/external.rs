//! An external proxy, such as a Toxiproxy, that does the work of a link: it is asked, answers later, and may fail.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::counters::LinkCounters;
use super::link::{Layer, Link, Upstream};
use super::toxic::Toxic;
use crate::counts::LinkCounts;
use crate::limits::REMOTE;

/// The result of a command, later. A dropped sender means that the driver has stopped.
pub type PendingReply = oneshot::Receiver<Result<(), String>>;

/// What a remote proxy must do for faults. Orders are taken at once and carried out in their order.
pub trait ExternalProxyDriver: Debug + Send + Sync {
    /// Who it is, for errors.
    fn name(&self) -> String;

    /// Puts toxics on some of its proxies, as a layer. The answer comes when they are on and were seen to be.
    fn put(&self, layer: Layer, proxies: Vec<String>, toxics: Vec<Toxic>) -> PendingReply;

    /// Takes a layer's toxics away. The answer comes when they are gone and were seen to be.
    fn lift(&self, layer: Layer, proxies: Vec<String>) -> PendingReply;
}

/// The external side of a link: a proxy there, and the meter between it and the server.
#[derive(Debug)]
pub struct ExternalProxy {
    pub driver: Arc<dyn ExternalProxyDriver>,
    /// What the remote calls it.
    pub proxy: String,
    /// From the remote to the server.
    pub back: Arc<Link>,
}

impl ExternalProxy {
    pub fn counts(&self, front: LinkCounts) -> LinkCounts {
        front.plus(self.back.counts())
    }

    /// Bytes that are inside the remote now, or were lost there, by what both meters saw; those apart that came over
    /// connections which began in a partition. Only differences mean something.
    pub fn inside(&self, front: &LinkCounters) -> i64 {
        let at = |stats: &LinkCounters| {
            let read = |counter: &AtomicU64| counter.load(Relaxed) as i64;
            read(&stats.entered) - read(&stats.bytes) - read(&stats.unanswered)
        };
        at(front) + at(self.back.counters())
    }

    /// The remote dials the meter, whatever becomes of the server.
    pub fn redirect(&self, upstream: Upstream) {
        self.back.redirect(upstream);
    }
}

/// Waits for the answer to an order, for a bounded time.
pub async fn answer(remote: &dyn ExternalProxyDriver, reply: PendingReply) -> Result<(), String> {
    within(REMOTE, reply)
        .await
        .map_err(|why| format!("{}: {why}", remote.name()))
}

/// Waits for an answer. No answer, and a thread that is gone, are errors.
pub async fn within<T>(patience: Duration, reply: oneshot::Receiver<Result<T, String>>) -> Result<T, String> {
    match timeout(patience, reply).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err("the thread that talks to it has stopped".into()),
        Err(_) => Err(format!("no answer within {}s", patience.as_secs())),
    }
}
