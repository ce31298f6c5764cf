//! Locks on Redis.
//!
//! [`recipes`](self) has one file a recipe. They are written against [`RedisSession`], which [`client_session`](RedisServers)
//! implements for real servers. What locks on a single key share is in `single_key`, and how they differ in `key_forms`;
//! `lease_keeper` renews a lease.

mod client_session;
mod cluster_routes;
mod failover_connection;
#[cfg(test)]
mod fake;
mod key_forms;
mod lease_keeper;
mod node_connection;
pub(crate) mod recipes;
mod sentinels;
mod single_key;

#[cfg(test)]
mod tests;

pub use client_session::RedisServers;

use crate::recipe::RedisContext;
pub use crate::session::redis::{CompareBy, RedisConnect, RedisSession, Subscription};

/// Returns the key that is the lock.
pub fn lock_key(lock: &str) -> String {
    format!("harness:{lock}")
}
