//! Distributed locks under test, and the protocol that drives them.
//!
//! Start at [`RECIPES`], the catalogue: one line a lock. A recipe is written against a small session trait
//! ([`zk::ZkSession`], [`etcd::EtcdSession`], [`redis::RedisSession`]) and what a [`Host`] gives it (a clock, timers,
//! chance), so that the same code runs against a real ensemble and in simulation. [`serve`] puts any of them behind
//! the client protocol.
//!
//! Nothing here may know of faults, checkers or reports: a lock does not know that it is being tested.

mod client;
pub mod etcd;
mod host;
pub mod protocol;
mod recipe;
pub mod redis;
mod reentrant;
mod serve;
mod session;
#[cfg(test)]
mod testing;
pub mod zk;

pub use client::{Grant, LockClient, NotOk, Outcome, Signals};
pub use host::{Host, Task, TokioHost, within};
pub use recipe::{BackendId, Holder, Open, RECIPES, Recipe, RecipeError, RecipeOptions, Wakes, find_recipe};
pub use serve::{ServeError, serve, serve_process, serve_with};
pub use session::SessionError;
