//! The lock recipes for etcd: one file and one line each.

use super::EtcdContext;
use super::server_wait::{QueueService, ServiceLock};
use crate::client::LockClient;
use crate::contract::Wakeup;
use crate::recipe::{Constructor, Recipe};

mod election;
mod lock_rpc;
mod mutex;
mod queue;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[&mutex::RECIPE, &lock_rpc::RECIPE, &queue::RECIPE, &election::RECIPE];

/// Makes a recipe with the values that most recipes for etcd have in common.
const fn etcd(name: &'static str, summary: &'static str, make: fn(EtcdContext) -> Box<dyn LockClient>) -> Recipe {
    Recipe::new(name, summary, Constructor::Etcd(make))
}
