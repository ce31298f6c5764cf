//! Peering: the connections between the servers of a product, and the proxies between them for a peer partition.
//!
//! A cluster knows the addresses of its servers, and nothing of proxies. It has [`PeerProxies`] in its
//! [`ClusterSpec`](super::ClusterSpec), opens them before the first server starts, and reports every server's address to them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::replication::Replication;

/// One node in the configuration of itself and of its peers.
#[derive(Debug, Clone)]
pub struct NodeAddress {
    /// `n1`, `n2`, …
    pub name: String,
    /// From 1.
    pub number: u32,
    /// A name or an address that its peers can reach.
    pub host: String,
    /// The ports it listens on, one for each of [`ServerSoftware::ports`](super::ServerSoftware::ports); the first serves clients.
    pub ports: Vec<u16>,
}

impl NodeAddress {
    /// Returns the node of this number, with its name.
    pub fn new(number: u32, host: impl ToString, ports: Vec<u16>) -> Self {
        Self {
            name: format!("n{number}"),
            number,
            host: host.to_string(),
            ports,
        }
    }
}

/// The connections between the servers of a product, as far as a proxy can be put between them.
#[derive(Clone, Copy)]
pub enum Peering {
    /// No proxy can be put between them, or they do not communicate.
    Direct,
    /// Every server dials its peers through a SOCKS5 proxy. They elect a leader among themselves.
    Socks,
    /// Every server has in its configuration an address for each other one. They elect a leader among themselves.
    Dialled {
        /// The index in [`ServerSoftware::ports`](super::ServerSoftware::ports) of the port that it dials.
        port: usize,
    },
    /// A replica dials its primary, at any configured address.
    Replication(&'static dyn Replication),
    /// Every server announces an address to the others, which may be any: each has one link, which all others share. They elect
    /// the primary among themselves, and clients look for it.
    Announced(&'static dyn Replication),
}

/// A proxy for each server, through which it reaches the others. Dropping it closes them.
pub trait PeerProxies: Send + Sync {
    /// Opens a proxy for each of `nodes` that listens on `listen`; returns their addresses, by node. With [`Peering::Dialled`] each
    /// node has one for each other node.
    fn open(&self, peering: Peering, listen: IpAddr, nodes: &[NodeAddress]) -> io::Result<Vec<SocketAddr>>;

    /// Records that a server serves clients at `address` from now on; its other ports are at the same host.
    fn found(&self, node: usize, address: SocketAddr);
}
