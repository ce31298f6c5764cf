//! The lock recipes for Redis: one file and one line each.

use std::time::Duration;

use super::RedisContext;
use super::key_forms::{DeleteForm, SetForm};
use super::single_key::SingleKeyLock;
use crate::client::LockClient;
use crate::contract::Wakeup;
use crate::recipe::{Constructor, Recipe};
use crate::session::redis::CompareBy;

mod getset;
mod pubsub;
mod redlock;
mod set_px_del;
mod set_px_extend;
mod set_px_get_del;
mod set_px_lua;
mod setnx;
mod setnx_expire;
pub(crate) mod watchdog;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[
    &setnx::RECIPE,
    &setnx_expire::RECIPE,
    &getset::RECIPE,
    &set_px_del::RECIPE,
    &set_px_get_del::RECIPE,
    &set_px_lua::RECIPE,
    &set_px_extend::RECIPE,
    &watchdog::RECIPE,
    &pubsub::RECIPE,
    &redlock::RECIPE,
];

/// Makes a recipe with the values that most recipes for Redis have in common.
const fn redis(name: &'static str, summary: &'static str, make: fn(RedisContext) -> Box<dyn LockClient>) -> Recipe {
    Recipe {
        wakeup: Wakeup::Polling,
        tokens: false,
        fifo: false,
        renews: false,
        interval: Duration::from_millis(20),
        ..Recipe::new(name, summary, Constructor::Redis(make, CompareBy::Script))
    }
}
