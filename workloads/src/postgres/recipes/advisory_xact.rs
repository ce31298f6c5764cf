//! `pg-advisory-xact`: an advisory lock of a transaction.
//!
//! 1. `BEGIN`; `pg_advisory_xact_lock(key)`, with `lock_timeout` for the wait; a try-lock is `pg_try_advisory_xact_lock`;
//! 2. `COMMIT` to release.
//!
//! The transaction is open for as long as the lock is held, so that a pooler leaves the session to its client.
//!
//! Source: the PostgreSQL documentation, "Advisory Locks":
//! <https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>.

use super::{Constructor, LockScope, Recipe, SessionLock, of_session};

pub(super) const RECIPE: Recipe = of_session(
    "pg-advisory-xact",
    "pg_advisory_xact_lock of a transaction; ends with it",
    Constructor::Postgres(|context| Box::new(SessionLock::new(context, LockScope::Transaction))),
);
