//! Locks on Redis.
//!
//! [`session`] is what a recipe needs of Redis, `real` is that on the field's own crate, `keyed` has what all locks on
//! one key share; the rest is one file a recipe.

mod connection;
#[cfg(test)]
mod fake;
pub mod getset;
mod guard;
mod keyed;
pub mod pubsub;
mod real;
pub mod redlock;
pub mod session;
pub mod set_px_del;
pub mod set_px_get_del;
pub mod set_px_lua;
pub mod setnx;
pub mod setnx_expire;
mod style;
pub mod watchdog;

#[cfg(test)]
mod tests;

pub use real::RealRedis;
pub use session::{RedisConnect, RedisSession, Subscription};

/// The key that is the lock.
pub fn lock_key(lock: &str) -> String {
    format!("harness:{lock}")
}
