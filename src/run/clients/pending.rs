//! Requests to a child that wait for their replies.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use harness_workloads::protocol::Message;
use tokio::sync::oneshot;

type ReplySenders = HashMap<u64, oneshot::Sender<Message>>;

/// Requests without an answer, by their ids.
#[derive(Clone)]
pub struct PendingRequests(Arc<Mutex<Option<ReplySenders>>>);

impl Default for PendingRequests {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(HashMap::new()))))
    }
}

impl PendingRequests {
    /// Adds a request, and returns the receiver of its reply, or `None` if the child is not read any more.
    pub fn add(&self, id: u64) -> Option<oneshot::Receiver<Message>> {
        let (sender, reply) = oneshot::channel();
        self.open().as_mut()?.insert(id, sender);
        Some(reply)
    }

    pub fn take(&self, id: u64) -> Option<oneshot::Sender<Message>> {
        self.open().as_mut()?.remove(&id)
    }

    /// Fails all requests, and those that are added later.
    pub fn end(&self) {
        self.open().take();
    }

    fn open(&self) -> MutexGuard<'_, Option<ReplySenders>> {
        self.0.lock().expect("no one panics while holding the pending requests")
    }
}
