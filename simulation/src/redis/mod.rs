//! Simulated Redis: [`SimulatedRedis`] is a set of servers in a world, [`RedisRoutes`] the way of one client to them, and the pure model of
//! one server is [`model`].

pub mod model;
pub mod request;
mod server;
mod serving;
mod session;

pub use server::{RedisKeyChange, SimulatedRedis};
pub use session::RedisRoutes;
