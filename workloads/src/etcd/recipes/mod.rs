//! The lock recipes for etcd: one file and one line each.

#![deny(dead_code, reason = "a recipe that is not listed cannot be run")]

use std::time::Duration;

use super::session::EtcdConnect;
use crate::client::LockClient;
use crate::recipe::{BackendId, Constructor, Recipe, RecipeContext, Wakeup};

mod election;
mod lock_rpc;
mod mutex;
mod queue;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[&mutex::RECIPE, &lock_rpc::RECIPE, &queue::RECIPE, &election::RECIPE];

/// A recipe with what most recipes for etcd have in common.
const fn etcd(
    name: &'static str,
    summary: &'static str,
    make: fn(RecipeContext<dyn EtcdConnect>) -> Box<dyn LockClient>,
) -> Recipe {
    Recipe {
        name,
        backend: BackendId::Etcd,
        summary,
        policies: true,
        guid: false,
        wakeup: Wakeup::Notified,
        modes: false,
        tokens: true,
        fifo: true,
        servers: None,
        lease: true,
        interval: Duration::ZERO,
        constructor: Constructor::Etcd(make),
    }
}
