//! `zk-read-write`: a queue of readers and writers.
//!
//! 1. create `read-` or `write-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. a reader waits for the nearest writer ahead, a writer for the nearest node ahead; a client with none ahead holds the
//!    lock. Adjacent readers hold it together;
//! 3. `exists` with a watch on that node; if it is gone already, go to 2;
//! 4. wait for the watch, and go to 2;
//! 5. delete the node to release.
//!
//! Source: the ZooKeeper recipes page, "Shared Locks":
//! <https://zookeeper.apache.org/doc/current/recipes.html#Shared+Locks>, with the rule of Apache Curator's
//! `InterProcessReadWriteLock` that a reader watches the nearest writer, so that the end of a writer wakes the adjacent
//! readers only: <https://curator.apache.org/docs/recipes-shared-reentrant-read-write-lock>.

use async_trait::async_trait;

use super::zk;
use crate::client::{LockError, LockResult};
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::session::SessionError;
use crate::zk::queue_lock::{QueueLock, QueueLook, QueuePlace, QueueRule, watch_nearest};

pub(super) const RECIPE: Recipe = Recipe {
    modes: true,
    ..zk(
        "zk-read-write",
        "queue of readers and writers; adjacent readers hold together",
        |context| Box::new(QueueLock::new(context, ReadWrite)),
    )
};

struct ReadWrite;

fn is_writer(name: &str) -> bool {
    // the kind is between the GUID, which ends in a dash, and the number
    name.starts_with("write-") || name.contains("-write-")
}

#[async_trait(?Send)]
impl QueueRule for ReadWrite {
    fn kind(&self, request: &AcquireRequest) -> LockResult<&'static str> {
        match request.mode.as_deref() {
            Some("read") => Ok("read-"),
            Some("write") | None => Ok("write-"),
            Some(other) => Err(LockError::refused(format!(
                "a mode is \"read\" or \"write\", not {other:?}"
            ))),
        }
    }

    async fn look(&self, place: QueuePlace<'_>) -> Result<QueueLook, SessionError> {
        let writer = is_writer(place.name);
        watch_nearest(place, |name| writer || is_writer(name)).await
    }
}
