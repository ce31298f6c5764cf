//! `pg-skip-locked`: a row that a transaction locks, and that others skip.
//!
//! 1. insert the row of the lock, unless it is there;
//! 2. `BEGIN`; `SELECT … FOR UPDATE SKIP LOCKED`; without a row `ROLLBACK`, and poll;
//! 3. `COMMIT` to release.
//!
//! Source: the PostgreSQL documentation, "The Locking Clause":
//! <https://www.postgresql.org/docs/current/sql-select.html#SQL-FOR-UPDATE-SHARE>.

use std::time::Duration;

use super::{Constructor, LockScope, Recipe, SessionLock, Wakeup, of_session};

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Polling,
    interval: Duration::from_millis(20),
    ..of_session(
        "pg-skip-locked",
        "a row locked FOR UPDATE SKIP LOCKED in an open transaction",
        Constructor::Postgres(|context| Box::new(SessionLock::new(context, LockScope::Row))),
    )
};
