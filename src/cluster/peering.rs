//! How the servers of a product reach each other, and the proxies that can be put between them for a peer partition.
//!
//! A cluster knows where its servers are; it knows nothing of proxies. It is given [`PeerProxies`] with its
//! [`ClusterSpec`](super::ClusterSpec), opens them before the first server starts, and tells them every server's address.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::replication::Replication;

/// One node as its own and its peers' configuration name it.
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
    /// The node of this number, with the name that it has by it.
    pub fn new(number: u32, host: impl ToString, ports: Vec<u16>) -> Self {
        Self {
            name: format!("n{number}"),
            number,
            host: host.to_string(),
            ports,
        }
    }
}

/// How the servers of a product reach each other, as far as a proxy can be put between them.
#[derive(Clone, Copy)]
pub enum Peering {
    /// No proxy can be put between them, or they never talk to each other.
    Direct,
    /// Every server dials its peers through a SOCKS5 proxy. They elect a leader among themselves.
    Socks,
    /// Every server is told an address for each other one, at which it dials it. They elect a leader among themselves.
    Dialled {
        /// Which of [`ServerSoftware::ports`](super::ServerSoftware::ports) it dials there.
        port: usize,
    },
    /// A replica dials its primary, and can be told any address to dial.
    Replication(&'static dyn Replication),
    /// Every server tells the others an address at which they reach it, which may be any: each has a link of its own, and the
    /// others have it in common. They agree among themselves on the primary, and clients look for it.
    Announced(&'static dyn Replication),
}

/// A proxy for each server, through which it reaches the others. Dropping it closes them.
pub trait PeerProxies: Send + Sync {
    /// Opens a proxy for each of `nodes` that listens on `listen`; returns their addresses, by node. With [`Peering::Dialled`] each
    /// node has one for each other node.
    fn open(&self, peering: Peering, listen: IpAddr, nodes: &[NodeAddress]) -> io::Result<Vec<SocketAddr>>;

    /// A server serves clients at `address` from now on; its other ports are at the same host.
    fn found(&self, node: usize, address: SocketAddr);
}
