//! What a cluster asks of whoever leads the connections between its servers through a proxy.
//!
//! A cluster knows where its servers are, and when; it knows nothing of proxies. Outlets are given to it with its
//! [`Spec`](super::Spec), opened before the first server starts, and told of every address.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::server::Member;

/// How the servers of a product reach each other, as far as it can be led through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peering {
    /// Every server dials its peers through a SOCKS5 proxy of its own.
    Socks,
    /// A replica dials its master, and can be told any address to dial.
    Replica,
}

/// A way out for each server. Dropping it closes them.
pub trait Outlets: Send + Sync {
    /// Opens an outlet for each of `members`, at the address `listen`; where each is, by node.
    fn open(&self, peering: Peering, listen: IpAddr, members: &[Member]) -> io::Result<Vec<SocketAddr>>;

    /// A server serves here from now on; its other ports are at the same address.
    fn found(&self, node: usize, address: SocketAddr);
}
