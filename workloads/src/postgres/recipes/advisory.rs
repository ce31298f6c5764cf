//! `pg-advisory`: an advisory lock of the session.
//!
//! 1. `pg_advisory_lock(key)`, with `lock_timeout` for the wait; a try-lock is `pg_try_advisory_lock`;
//! 2. `pg_advisory_unlock(key)` on the same connection to release.
//!
//! The server keeps it until its session ends, however long the holder is silent. A pooler that gives each transaction another
//! session breaks it.
//!
//! Source: the PostgreSQL documentation, "Advisory Locks":
//! <https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>.

use super::{Constructor, LockScope, Recipe, SessionLock, of_session};

pub(super) const RECIPE: Recipe = of_session(
    "pg-advisory",
    "pg_advisory_lock of the session; ends with its connection",
    Constructor::Postgres(|context| Box::new(SessionLock::new(context, LockScope::Session))),
);
