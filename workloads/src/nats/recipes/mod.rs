//! The lock recipes for NATS: one file and one line each.

use std::time::Duration;

use super::key_lock::{KeyGiving, KeyLock, KeyTaking};
use crate::client::LockClient;
use crate::contract::Wakeup;
use crate::recipe::{Constructor, NatsContext, Recipe};

mod key_marker;
mod key_no_revision;
mod key_put;
mod key_revision;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[
    &key_revision::RECIPE,
    &key_marker::RECIPE,
    &key_no_revision::RECIPE,
    &key_put::RECIPE,
];

/// Makes a recipe with the values that most recipes for NATS have in common.
const fn nats(name: &'static str, summary: &'static str, make: fn(NatsContext) -> Box<dyn LockClient>) -> Recipe {
    Recipe {
        wakeup: Wakeup::Polling,
        fifo: false,
        interval: Duration::from_millis(20),
        ..Recipe::new(name, summary, Constructor::Nats(make))
    }
}
