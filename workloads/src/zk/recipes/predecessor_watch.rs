//! `zk-predecessor-watch`: a queue whose waiters each watch the one ahead.
//!
//! 1. create `lock-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. list the children, without a watch; if the client's own node is the smallest, the lock is held;
//! 3. `exists` with a watch on the node just ahead; if it is gone already, go to 2;
//! 4. wait for the watch, and go to 2: the client ahead may have died waiting, so the end of its node does not yet make
//!    this one the first;
//! 5. delete the node to release.
//!
//! Source: the ZooKeeper recipes page, "Locks": <https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks>,
//! and Apache Curator's `LockInternals`, whose GUID in the name finds a node again whose create was not answered:
//! <https://github.com/apache/curator/blob/master/curator-recipes/src/main/java/org/apache/curator/framework/recipes/locks/LockInternals.java>.

use super::{QueueForm, QueueLock, Recipe, zk};

pub(super) const RECIPE: Recipe = zk(
    "zk-predecessor-watch",
    "queue of ephemeral nodes; each waiter watches the one ahead",
    |context| Box::new(QueueLock::new(context, QueueForm::PredecessorWatch)),
);
