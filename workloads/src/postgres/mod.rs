//! Locks on PostgreSQL.
//!
//! [`recipes`](self) has one file a recipe. They are written against the session of [`sql`](crate::sql), which
//! `client_session` implements for real servers.

mod client_session;
pub(crate) mod recipes;

pub use client_session::{PostgresServer, config, said};

/// The tables in which recipes keep locks: leases, and rows that transactions lock. Idempotent.
pub const TABLES: &str = "\
CREATE TABLE IF NOT EXISTS harness_leases \
 (name text PRIMARY KEY, owner text, token bigint NOT NULL, ends timestamptz NOT NULL);\
CREATE TABLE IF NOT EXISTS harness_rows (name text PRIMARY KEY)";

/// The key of an advisory lock, as the server computes it from the lock's name.
pub const ADVISORY_KEY: &str = "hashtextextended($1, 0)";

/// The server's name for a session, as it puts it into its log: `%c` of `log_line_prefix`. For a row of `pg_stat_activity`.
/// <https://www.postgresql.org/docs/current/runtime-config-logging.html#GUC-LOG-LINE-PREFIX>
pub const SESSION_NAME: &str = "to_hex(trunc(EXTRACT(EPOCH FROM backend_start))::integer) || '.' || to_hex(pid)";
