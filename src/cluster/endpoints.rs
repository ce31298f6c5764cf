//! Endpoints: where each node serves clients now, and which node is the primary where clients know only one of several.

use std::net::SocketAddr;
use std::sync::Arc;

use harness_workloads::Login;
use tokio::sync::watch;

use super::streams::{ByteStream, ReachedServers};
use crate::clock::GroundClock;

/// The server that an observer watches, where it watches one of several.
pub type ObservedEndpoint = watch::Receiver<Option<SocketAddr>>;

/// The current endpoints of a cluster; a node that was started again may have another address.
pub type EndpointsReceiver = watch::Receiver<Endpoints>;

/// Where a server serves clients, who logs in there, and how it is reached past all links.
#[derive(Debug, Clone)]
pub struct ServerAccess {
    pub address: SocketAddr,
    /// `None` where the server lets everyone in.
    pub login: Option<Arc<Login>>,
    pub reach: ReachedServers,
}

impl ServerAccess {
    pub fn login(&self) -> Option<&Login> {
        self.login.as_deref()
    }

    /// Opens a connection to it; the error says why there is none.
    pub async fn connect(&self) -> Result<Box<dyn ByteStream>, String> {
        self.reach.connect(self.address).await
    }

    /// By which it is silent.
    pub fn clock(&self) -> GroundClock {
        self.reach.clock
    }
}

/// Where nodes serve clients now, who logs in there, and how they are reached past all links.
///
/// Clients know *servers*. Those are all nodes, or the primary alone where the others are its replicas: then clients know one
/// server, number 0, whichever node it is.
#[derive(Debug, Clone)]
pub struct Endpoints {
    nodes: Vec<SocketAddr>,
    /// The node that clients reach, where the others are its replicas.
    primary: Option<usize>,
    login: Option<Arc<Login>>,
    reach: ReachedServers,
}

impl Endpoints {
    /// Of servers that this machine's sockets reach, and that let everyone in.
    pub fn new(nodes: Vec<SocketAddr>, primary: Option<usize>) -> Self {
        Self {
            nodes,
            primary,
            login: None,
            reach: ReachedServers::REAL,
        }
    }

    /// The same, of servers that want this login.
    pub fn with_login(self, login: Option<Arc<Login>>) -> Self {
        Self { login, ..self }
    }

    /// The same, of servers that are reached in this way.
    pub fn reached_by(self, reach: ReachedServers) -> Self {
        Self { reach, ..self }
    }

    /// By which servers are silent.
    pub fn clock(&self) -> GroundClock {
        self.reach.clock
    }

    /// Who logs in; `None` where the servers let everyone in.
    pub fn login(&self) -> Option<Arc<Login>> {
        self.login.clone()
    }

    /// How the first server is reached, where there is only one.
    pub fn first(&self) -> ServerAccess {
        self.access(self.servers()[0])
    }

    /// How a server is reached past all links.
    pub fn access(&self, address: SocketAddr) -> ServerAccess {
        ServerAccess {
            address,
            login: self.login(),
            reach: self.reach.clone(),
        }
    }

    /// How each node is reached past all links.
    pub fn accesses(&self) -> Vec<ServerAccess> {
        self.nodes.iter().map(|address| self.access(*address)).collect()
    }

    /// By node.
    pub fn nodes(&self) -> &[SocketAddr] {
        &self.nodes
    }

    /// The addresses that clients connect to, by server.
    pub fn servers(&self) -> Vec<SocketAddr> {
        match self.primary {
            None => self.nodes.clone(),
            Some(primary) => vec![self.nodes[primary]],
        }
    }

    /// The node that is this server now.
    pub fn node_of(&self, server: u32) -> u32 {
        self.primary.map_or(server, |primary| primary as u32)
    }

    /// The server that a node is now; `None` for a replica.
    pub fn server_of(&self, node: u32) -> Option<u32> {
        match self.primary {
            None => Some(node),
            Some(primary) => (primary == node as usize).then_some(0),
        }
    }

    /// The primary, where the other nodes are its replicas.
    pub fn primary(&self) -> Option<u32> {
        self.primary.map(|primary| primary as u32)
    }

    pub(super) fn set_address(&mut self, node: usize, address: SocketAddr) {
        self.nodes[node] = address;
    }

    pub(super) fn set_primary(&mut self, node: usize) {
        self.primary = Some(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_replicated_cluster_know_one_server_whichever_node_it_is() {
        let nodes: Vec<SocketAddr> = [1, 2].map(|port| ([127, 0, 0, 1], port).into()).into();
        let mut endpoints = Endpoints::new(nodes.clone(), Some(0));
        endpoints.set_primary(1);
        assert_eq!(endpoints.servers(), [nodes[1]]);
        assert_eq!(
            (endpoints.node_of(0), endpoints.server_of(1), endpoints.server_of(0)),
            (1, Some(0), None)
        );
        let independent = Endpoints::new(nodes.clone(), None);
        assert_eq!((independent.servers(), independent.node_of(1)), (nodes, 1));
    }
}
