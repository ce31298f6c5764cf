//! The lock recipes for PostgreSQL: one file and one line each.

#![deny(dead_code, reason = "a recipe that is not listed cannot be run")]

use std::time::Duration;

use crate::client::LockClient;
use crate::contract::Wakeup;
use crate::recipe::{Constructor, Recipe};
use crate::sql::SqlContext;

mod advisory;
mod advisory_xact;
mod row_lease;
mod row_lease_no_compare;
mod row_lease_read_write;
mod skip_locked;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[
    &advisory::RECIPE,
    &advisory_xact::RECIPE,
    &skip_locked::RECIPE,
    &row_lease::RECIPE,
    &row_lease_no_compare::RECIPE,
    &row_lease_read_write::RECIPE,
];

/// A recipe whose lock a session or a transaction owns: it has no lease.
const fn of_session(name: &'static str, summary: &'static str, make: fn(SqlContext) -> Box<dyn LockClient>) -> Recipe {
    Recipe {
        wakeup: Wakeup::Unreported,
        tokens: false,
        fifo: false,
        lease: false,
        renews: false,
        ..Recipe::new(name, summary, Constructor::Postgres(make))
    }
}

/// A recipe whose lock is a lease in a row.
const fn of_row(name: &'static str, summary: &'static str, make: fn(SqlContext) -> Box<dyn LockClient>) -> Recipe {
    Recipe {
        wakeup: Wakeup::Polling,
        fifo: false,
        renews: false,
        interval: Duration::from_millis(20),
        ..Recipe::new(name, summary, Constructor::Postgres(make))
    }
}
