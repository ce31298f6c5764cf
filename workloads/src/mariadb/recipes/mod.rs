//! The lock recipes for MariaDB and MySQL: one file and one line each.

#![deny(dead_code, reason = "a recipe that is not listed cannot be run")]

use std::time::Duration;

use crate::client::LockClient;
use crate::contract::Wakeup;
use crate::recipe::{Constructor, Recipe};
use crate::sql::SqlContext;

mod get_lock;
mod row_lease;
mod row_lease_no_compare;
mod row_lease_read_write;

/// The recipes in the order in which they are listed.
pub(crate) const RECIPES: &[&Recipe] = &[
    &get_lock::RECIPE,
    &row_lease::RECIPE,
    &row_lease_no_compare::RECIPE,
    &row_lease_read_write::RECIPE,
];

/// A recipe whose lock is a lease in a row.
const fn of_row(name: &'static str, summary: &'static str, make: fn(SqlContext) -> Box<dyn LockClient>) -> Recipe {
    Recipe {
        wakeup: Wakeup::Polling,
        fifo: false,
        renews: false,
        interval: Duration::from_millis(20),
        ..Recipe::new(name, summary, Constructor::Mariadb(make))
    }
}
