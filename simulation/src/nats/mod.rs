//! Simulated NATS: [`SimulatedNats`] is a cluster with JetStream in a world, [`NatsRoutes`] the way of one client to it;
//! [`bucket`] is the pure part, the data of one server.

pub mod bucket;
mod cluster;
mod elections;
pub mod request;
mod server;
mod serving;
mod session;

pub use cluster::{NatsChange, SimulatedNats};
pub use session::NatsRoutes;
