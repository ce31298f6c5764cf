//! The lock recipes for MariaDB and MySQL: one file and one line each.

use crate::recipe::{Constructor, Recipe};
use crate::sql::row_lease::RowLease;
use crate::sql::session_lock::SessionLock;
use crate::sql::{LeaseForm, LockScope, of_row, of_session};

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
