//! The lock recipes for PostgreSQL: one file and one line each.

use crate::contract::Wakeup;
use crate::recipe::{Constructor, Recipe};
use crate::sql::row_lease::RowLease;
use crate::sql::session_lock::SessionLock;
use crate::sql::{LeaseForm, LockScope, of_row, of_session};

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
