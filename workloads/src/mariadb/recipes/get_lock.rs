//! `mysql-get-lock`: a named lock of the session.
//!
//! 1. `SELECT GET_LOCK(name, seconds)`, with the wait in seconds; a try-lock waits for 0;
//! 2. `SELECT RELEASE_LOCK(name)` on the same connection to release.
//!
//! The server keeps it until its session ends, however long the holder is silent.
//!
//! Source: the MariaDB documentation, "GET_LOCK": <https://mariadb.com/kb/en/get_lock/>, and the MySQL Reference Manual, "Locking
//! Functions": <https://dev.mysql.com/doc/refman/8.4/en/locking-functions.html>.

use super::{Constructor, LockScope, Recipe, SessionLock, of_session};

pub(super) const RECIPE: Recipe = of_session(
    "mysql-get-lock",
    "GET_LOCK of the session; ends with its connection",
    Constructor::Mariadb(|context| Box::new(SessionLock::new(context, LockScope::Session))),
);
