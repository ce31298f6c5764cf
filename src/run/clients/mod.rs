//! Lock clients: the pool, its processes, and the driver of each client.

mod abandoned;
pub mod access;
pub mod arrivals;
pub mod child;
pub mod driver;
mod extending;
mod handle;
mod holding;
pub mod logical_client;
mod odd_turns;
pub mod pending;
pub mod pool;
pub mod process;
pub mod rarely;
pub mod refusals;
mod rests;
