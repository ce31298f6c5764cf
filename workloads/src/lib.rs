//! Distributed locks under test, and the client protocol that drives them.
//!
//! Start at [`recipes`], the catalogue: one file a lock, under `zk/recipes/`, `etcd/recipes/`, … A recipe is written against a small
//! session ([`zk::ZkSession`], [`etcd::EtcdSession`], [`redis::RedisSession`], [`sql::SqlSession`], [`nats::NatsSession`]) and a
//! [`RecipeHost`] (a clock, timers, random numbers), so that the same code runs against real servers and in simulation.
//! [`serve`] answers the client protocol with any of them.
//!
//! Nothing here may know of faults, checkers or reports: a lock does not know that it is being tested.

mod backend_id;
mod catalogue;
mod client;
mod client_holds;
mod contract;
pub mod defects;
pub mod etcd;
mod host;
mod login;
pub mod mariadb;
pub mod nats;
pub mod postgres;
pub mod protocol;
mod recipe;
pub mod redis;
mod reentrant;
mod relays;
mod serve;
mod session;
pub mod sql;
mod stepped_clock;
#[cfg(test)]
mod testing;
mod valkey;
pub mod zk;

pub use backend_id::BackendId;
pub use catalogue::{find_recipe, recipes};
pub use client::{LockClient, LockError, LockGrant, LockResult, SignalSink};
pub use contract::{Contract, IssuedBy, KeyPattern, KeyValue, Wakeup};
pub use host::{RecipeHost, Task, TokioHost, within};
pub use login::{Login, LoginVariables};
pub use recipe::{Constructor, Policy, Recipe, RecipeOptions};
pub use serve::{ServeError, perform, reply, serve, serve_process, serve_with};
pub use session::{CALLS_A_LEASE, SessionError};
