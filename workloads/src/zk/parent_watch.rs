//! `zk-parent-watch`: a queue whose waiters all watch the lock's node.
//!
//! 1. create `lock-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. list the children and set a child watch in the same call; if one's own is the smallest, the lock is held;
//! 3. wait for the watch, and go to 2;
//! 4. delete the node to release.
//!
//! Source: the ZooKeeper recipes page, which warns of it: every change of the queue wakes every waiter (the herd).

use async_trait::async_trait;

use super::queue::{Order, Place, Queue, Turn, ahead_of};
use super::session::ZkConnect;
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn ZkConnect>) -> Box<dyn LockClient> {
    Box::new(Queue::new(seat, ParentWatch))
}

struct ParentWatch;

#[async_trait(?Send)]
impl Order for ParentWatch {
    async fn look(&self, place: Place<'_>) -> Result<Turn, SessionError> {
        let (names, watch) = place.session.watch_children(place.parent).await?;
        Ok(match ahead_of(place.name, names) {
            None => Turn::Gone,
            Some(ahead) if ahead.is_empty() => Turn::Mine,
            Some(_) => Turn::Watch(watch),
        })
    }
}
