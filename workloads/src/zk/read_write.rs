//! `zk-read-write`: a queue of readers and writers.
//!
//! 1. create `read-` or `write-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. a reader waits for the nearest writer ahead, a writer for the nearest node ahead; whoever has none, holds. Readers
//!    side by side hold together;
//! 3. `exists` with a watch on that node; if it is gone already, go to 2;
//! 4. wait for the watch, and go to 2;
//! 5. delete the node to release.
//!
//! Source: "Shared locks" of the ZooKeeper recipes page, with Apache Curator's `InterProcessReadWriteLock` for the rule
//! that a reader watches the nearest writer, so that a writer's end wakes the adjacent readers only.

use async_trait::async_trait;

use super::queue::{Order, Place, Queue, Turn, behind};
use super::session::ZkConnect;
use crate::client::{LockClient, NotOk};
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn ZkConnect>) -> Box<dyn LockClient> {
    Box::new(Queue::new(seat, ReadWrite))
}

struct ReadWrite;

fn is_writer(name: &str) -> bool {
    // the kind stands between the GUID, which ends in a dash, and the number
    name.starts_with("write-") || name.contains("-write-")
}

#[async_trait(?Send)]
impl Order for ReadWrite {
    fn kind(&self, request: &Acquire) -> Result<&'static str, NotOk> {
        match request.mode.as_deref() {
            Some("read") => Ok("read-"),
            Some("write") | None => Ok("write-"),
            Some(other) => Err(NotOk::Fail(format!("a mode is \"read\" or \"write\", not {other:?}"))),
        }
    }

    async fn look(&self, place: Place<'_>) -> Result<Turn, SessionError> {
        let writer = is_writer(place.name);
        behind(place, |name| writer || is_writer(name)).await
    }
}
