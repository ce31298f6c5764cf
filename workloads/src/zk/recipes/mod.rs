//! The lock recipes for ZooKeeper: one file and one line each.

use super::ZkContext;
use super::queue_lock::{QueueForm, QueueLock};
use crate::client::LockClient;
use crate::recipe::{Constructor, Recipe};

mod curator;
mod election;
mod parent_watch;
mod polling;
mod predecessor_watch;
mod read_write;
mod single_node;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[
    &polling::RECIPE,
    &parent_watch::RECIPE,
    &predecessor_watch::RECIPE,
    &single_node::RECIPE,
    &read_write::RECIPE,
    &election::RECIPE,
    &curator::RECIPE,
];

/// Makes a recipe with the values that most recipes for ZooKeeper have in common.
const fn zk(name: &'static str, summary: &'static str, make: fn(ZkContext) -> Box<dyn LockClient>) -> Recipe {
    Recipe {
        guid: true,
        ..Recipe::new(name, summary, Constructor::Zk(make))
    }
}
