//! `zk-election`: leader election as a lock. The client that acquires is the leader until it resigns, loses its session or
//! dies.
//!
//! 1. create `n_` EPHEMERAL_SEQUENTIAL under the lock's node, which takes the place of the recipe's `ELECTION`;
//! 2. list the children; the client with the smallest number is the leader;
//! 3. else watch the node just ahead, and go to 2 when it is deleted: it may have been a candidate and not the leader;
//! 4. delete the node to resign.
//!
//! Source: the ZooKeeper recipes page, "Leader Election":
//! <https://zookeeper.apache.org/doc/current/recipes.html#sc_leaderElection>.

use super::{QueueForm, QueueLock, Recipe, zk};

pub(super) const RECIPE: Recipe = zk(
    "zk-election",
    "leader election as a lock; each candidate watches the one ahead",
    |context| Box::new(QueueLock::new(context, QueueForm::Election)),
);
