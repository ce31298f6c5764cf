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

use super::{QueueForm, QueueLock, Recipe, zk};

pub(super) const RECIPE: Recipe = Recipe {
    modes: true,
    ..zk(
        "zk-read-write",
        "queue of readers and writers; adjacent readers hold together",
        |context| Box::new(QueueLock::new(context, QueueForm::ReadWrite)),
    )
};
