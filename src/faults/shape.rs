//! `Shape`: the cluster that a fault is planned for.

use std::time::Duration;

use crate::backends::{Backend, Topology};
use crate::cluster::{RuntimeRequest, ServersObey};
use crate::config::{Clients, Config};
use harness_proxy::tap::Protocol;
use harness_workloads::BackendId;

/// The cluster that a fault is planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub backend: &'static Backend,
    pub clients: u32,
    pub servers: u32,
    pub locks: u32,
    pub lease: Duration,
    /// The protocol on the links between clients and servers.
    pub protocol: Protocol,
    /// Whether the clients compare times of day; `None` if it is not known.
    pub reads_wall_clock: Option<bool>,
    /// Whether servers and clients speak TLS.
    pub tls: bool,
    /// Whether the servers and the network are models.
    pub simulated: bool,
    /// Whether servers and clients are processes in virtual time, on a simulated network.
    pub virtual_time: bool,
    /// The acts that attached servers support; `None` for servers that harness starts, which support all.
    pub attached: Option<ServersObey>,
}

impl Shape {
    /// Returns the shape of a configuration's cluster.
    pub fn of(config: &Config) -> Self {
        Self {
            backend: config.backend,
            clients: config.clients,
            servers: config.nodes,
            locks: config.locks,
            lease: config.lease,
            protocol: config.backend.protocol,
            reads_wall_clock: match &config.who {
                Clients::Recipe(options) => options.contract().wall_clock,
                Clients::Foreign { promise, .. } => promise.wall_clock,
            },
            tls: config.tls,
            simulated: config.runtime == RuntimeRequest::Simulated,
            virtual_time: config.runtime == RuntimeRequest::Virtual,
            attached: config.attach.obey(),
        }
    }

    /// Whether the servers are independent: masters of Redis or Valkey, each with all keys.
    pub fn has_independent_servers(&self) -> bool {
        matches!(self.backend.id, Some(BackendId::Redis | BackendId::Valkey))
            && self.backend.topology == Topology::Plain
    }
}

#[cfg(test)]
impl Shape {
    /// Returns five clients and three servers of ZooKeeper.
    pub fn example() -> Self {
        Self {
            backend: crate::backends::of(BackendId::Zk),
            clients: 5,
            servers: 3,
            locks: 1,
            lease: Duration::from_secs(2),
            protocol: Protocol::Zk,
            reads_wall_clock: None,
            tls: false,
            simulated: false,
            virtual_time: false,
            attached: None,
        }
    }

    /// Returns the example with this number of servers.
    pub fn of_servers(servers: u32) -> Self {
        Self {
            servers,
            ..Self::example()
        }
    }

    /// Returns the example with servers of another backend.
    pub fn of_backend(id: BackendId) -> Self {
        Self {
            backend: crate::backends::of(id),
            ..Self::example()
        }
    }

    /// Replaces the servers by models.
    pub fn simulated(self) -> Self {
        Self {
            simulated: true,
            ..self
        }
    }

    /// Returns five clients and one master of Redis.
    pub fn one_redis() -> Self {
        Self {
            servers: 1,
            locks: 1,
            protocol: Protocol::Resp,
            ..Self::of_backend(BackendId::Redis)
        }
    }
}
