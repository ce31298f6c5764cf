//! Simulated etcd: [`SimulatedEtcd`] is a cluster in a world, and has sessions of clients; the pure parts are [`store`], the data of one
//! member, and [`lessor`], the end of leases by the leader.

mod calls;
mod channel;
mod cluster;
mod connection;
mod key_watcher;
mod leader_requests;
pub mod lessor;
mod member;
mod member_connection;
pub mod request;
mod services;
mod serving;
mod session;
pub mod store;
mod watchers;
mod work;

pub use cluster::SimulatedEtcd;
