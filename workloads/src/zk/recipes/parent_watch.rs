//! `zk-parent-watch`: a queue whose waiters all watch the lock's node.
//!
//! 1. create `lock-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. list the children and set a child watch in the same call; if the client's own node is the smallest, the lock is
//!    held;
//! 3. wait for the watch, and go to 2;
//! 4. delete the node to release.
//!
//! Source: the ZooKeeper recipes page, "Locks", which warns of it: every change of the queue wakes every waiter (the herd
//! effect): <https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks>.

use async_trait::async_trait;

use super::zk;
use crate::recipe::Recipe;
use crate::session::SessionError;
use crate::zk::queue_lock::{QueueLock, QueueLook, QueuePlace, QueueRule, ahead_of};

pub(super) const RECIPE: Recipe = zk(
    "zk-parent-watch",
    "queue of ephemeral nodes; every change wakes every waiter",
    |context| Box::new(QueueLock::new(context, ParentWatch)),
);

struct ParentWatch;

#[async_trait(?Send)]
impl QueueRule for ParentWatch {
    async fn look(&self, place: QueuePlace<'_>) -> Result<QueueLook, SessionError> {
        let (names, watch) = place.session.watch_children(place.parent).await?;
        Ok(match ahead_of(place.name, names) {
            None => QueueLook::Gone,
            Some(ahead) if ahead.is_empty() => QueueLook::First,
            Some(_) => QueueLook::Watch(watch),
        })
    }
}
