//! Simulated ZooKeeper: [`SimulatedZk`] is an ensemble in a world, [`ZkRoutes`] the way of one client to it; the pure parts are [`tree`],
//! the data of one server, and [`expiry`], the end of sessions by the leader.

mod calls;
mod clients;
mod engine;
mod ensemble;
pub mod expiry;
pub mod request;
mod serving;
mod session;
mod tick_timer;
pub mod tree;
mod watches;
mod work;

pub use ensemble::{SimulatedZk, ZkChange};
pub use session::ZkRoutes;
