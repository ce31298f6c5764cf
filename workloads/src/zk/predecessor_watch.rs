//! `zk-predecessor-watch`: a queue whose waiters each watch the one ahead.
//!
//! 1. create `lock-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. list the children, without a watch; if one's own is the smallest, the lock is held;
//! 3. `exists` with a watch on the node just ahead; if it is gone already, go to 2;
//! 4. wait for the watch, and go to 2: the one ahead may have died waiting, so its end is not one's turn;
//! 5. delete the node to release.
//!
//! Source: the lock of the ZooKeeper recipes page, and Apache Curator's `LockInternals`.

use async_trait::async_trait;

use super::queue::{Order, Place, Queue, Turn, behind};
use super::session::ZkConnect;
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn ZkConnect>) -> Box<dyn LockClient> {
    Box::new(Queue::new(seat, PredecessorWatch))
}

struct PredecessorWatch;

#[async_trait(?Send)]
impl Order for PredecessorWatch {
    async fn look(&self, place: Place<'_>) -> Result<Turn, SessionError> {
        behind(place, |_| true).await
    }
}
