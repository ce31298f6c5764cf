//! `zk-polling`: a queue whose waiters list it again and again.
//!
//! 1. create `lock-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. list the children; if the client's own node is the smallest, the lock is held;
//! 3. sleep for the interval, and go to 2;
//! 4. delete the node to release.
//!
//! Source: the lock of the ZooKeeper recipes page with its watch replaced by polling, as first versions often have it:
//! <https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks>. It wakes no other client, and costs a list of
//! n names from each of n waiters every interval.

use std::time::Duration;

use super::{QueueForm, QueueLock, Recipe, zk};
use crate::contract::Wakeup;

/// Long, as a poll must be that does not burden the servers.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Polling,
    interval: INTERVAL,
    ..zk(
        "zk-polling",
        "queue of ephemeral nodes; waiters list again and again",
        |context| Box::new(QueueLock::new(context, QueueForm::Polling)),
    )
};
