//! Simulated etcd: [`SimulatedEtcd`] is a cluster in a world, [`EtcdRoutes`] the way of one client to it; the pure parts are
//! [`store`], the data of one member, and [`lessor`], when the leader ends leases.

mod calls;
mod channel;
mod cluster;
mod connection;
pub mod lessor;
mod member;
pub mod request;
mod services;
mod serving;
mod session;
pub mod store;
mod watchers;

pub use cluster::{EtcdChange, EtcdVersion, SimulatedEtcd};
pub use session::EtcdRoutes;
