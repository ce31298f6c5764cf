//! Requests to a child that wait for their replies.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use harness_workloads::protocol::Message;
use tokio::sync::oneshot;

use crate::run::locked::locked;

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
        locked(&self.0).as_mut()?.insert(id, sender);
        Some(reply)
    }

    pub fn take(&self, id: u64) -> Option<oneshot::Sender<Message>> {
        locked(&self.0).as_mut()?.remove(&id)
    }

    /// Fails all requests, and those that are added later.
    pub fn end(&self) {
        locked(&self.0).take();
    }
}
