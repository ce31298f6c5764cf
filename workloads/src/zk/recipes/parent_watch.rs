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

use super::{QueueForm, QueueLock, Recipe, zk};

pub(super) const RECIPE: Recipe = zk(
    "zk-parent-watch",
    "queue of ephemeral nodes; every change wakes every waiter",
    |context| Box::new(QueueLock::new(context, QueueForm::ParentWatch)),
);
