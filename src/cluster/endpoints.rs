//! Endpoints: the current addresses of the nodes for clients, and the primary if clients know only one of several.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use harness_workloads::Login;
use tokio::sync::watch;

use super::streams::{ByteStream, ReachedServers};
use crate::clock::GroundClock;

/// The server that an observer watches, if it watches one of several.
pub type ObservedEndpoint = watch::Receiver<Option<SocketAddr>>;

/// The current endpoints of a cluster; a node that was started again may have another address.
pub type EndpointsReceiver = watch::Receiver<Endpoints>;

/// The address of a server, the login for it, and the way to it without links.
#[derive(Debug, Clone)]
pub struct ServerAccess {
    pub address: SocketAddr,
    /// `None` if the server needs no login.
    pub login: Option<Arc<Login>>,
    pub reach: ReachedServers,
}

impl ServerAccess {
    pub fn login(&self) -> Option<&Login> {
        self.login.as_deref()
    }

    /// Opens a connection to it; the error has the reason for a failure.
    pub async fn connect(&self) -> Result<Box<dyn ByteStream>, String> {
        self.reach.connect(self.address).await
    }

    /// Returns the clock for its timeouts.
    pub fn clock(&self) -> GroundClock {
        self.reach.clock
    }
}

/// Returns the first answer of these servers, of which each has `limit` for it. The error is that of the last one.
pub async fn first_answer<T, F: Future<Output = Result<T, String>>>(
    servers: Vec<ServerAccess>,
    limit: Duration,
    ask: impl Fn(ServerAccess) -> F,
) -> Result<T, String> {
    let mut last = "there is no server".to_owned();
    for server in servers {
        match server.clock().answer_within(limit, ask(server)).await {
            Ok(answer) => return Ok(answer),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// The turns of servers: each connection tries another one first.
#[derive(Debug, Default)]
pub struct ServerTurns(AtomicUsize);

impl ServerTurns {
    /// Returns these servers in the order of the next turn.
    pub fn in_turn(&self, mut servers: Vec<ServerAccess>) -> Vec<ServerAccess> {
        let turn = self.0.fetch_add(1, Relaxed);
        let first = turn % servers.len().max(1);
        servers.rotate_left(first);
        servers
    }
}

/// The current addresses of the nodes, the login for them, and the way to them without links.
///
/// Clients know *servers*. Those are all nodes, or the primary alone if the others are its replicas: then clients know one
/// server, number 0, whichever node it is.
#[derive(Debug, Clone)]
pub struct Endpoints {
    nodes: Vec<SocketAddr>,
    /// The node that clients reach, if the others are its replicas.
    primary: Option<usize>,
    login: Option<Arc<Login>>,
    reach: ReachedServers,
}

impl Endpoints {
    /// Endpoints on this machine's sockets, without a login.
    pub fn new(nodes: Vec<SocketAddr>, primary: Option<usize>) -> Self {
        Self {
            nodes,
            primary,
            login: None,
            reach: ReachedServers::REAL,
        }
    }

    /// Adds a login.
    pub fn with_login(self, login: Option<Arc<Login>>) -> Self {
        Self { login, ..self }
    }

    /// Sets the way to the servers.
    pub fn reached_by(self, reach: ReachedServers) -> Self {
        Self { reach, ..self }
    }

    /// Returns the clock for timeouts of servers.
    pub fn clock(&self) -> GroundClock {
        self.reach.clock
    }

    /// Returns the login, or `None` if the servers need none.
    pub fn login(&self) -> Option<Arc<Login>> {
        self.login.clone()
    }

    /// Returns the access to the first server, if there is only one.
    pub fn first(&self) -> ServerAccess {
        self.access(self.servers()[0])
    }

    /// Returns the access to a server without links.
    pub fn access(&self, address: SocketAddr) -> ServerAccess {
        ServerAccess {
            address,
            login: self.login(),
            reach: self.reach.clone(),
        }
    }

    /// Returns the access to each node without links.
    pub fn accesses(&self) -> Vec<ServerAccess> {
        self.nodes.iter().map(|address| self.access(*address)).collect()
    }

    /// Returns the endpoint at another address, with the same login and way.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self {
            nodes: vec![address],
            primary: None,
            ..self.clone()
        }
    }

    /// Returns the endpoints of all other nodes.
    pub(super) fn without(&self, node: usize) -> Self {
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != node);
        Self {
            nodes: others.map(|(_, address)| *address).collect(),
            primary: None,
            ..self.clone()
        }
    }

    /// Returns the addresses of the nodes.
    pub fn nodes(&self) -> &[SocketAddr] {
        &self.nodes
    }

    /// Returns the addresses that clients connect to, by server.
    pub fn servers(&self) -> Vec<SocketAddr> {
        match self.primary {
            None => self.nodes.clone(),
            Some(primary) => vec![self.nodes[primary]],
        }
    }

    /// Returns the node that is this server now.
    pub fn node_of(&self, server: u32) -> u32 {
        self.primary.map_or(server, |primary| primary as u32)
    }

    /// Returns the values of these servers, of values by node.
    pub fn of_servers<T: Clone>(&self, servers: &[u32], by_node: &[T]) -> Vec<T> {
        let nodes = servers.iter().map(|server| self.node_of(*server) as usize);
        nodes.filter_map(|node| by_node.get(node).cloned()).collect()
    }

    /// Returns the server that a node is now, or `None` for a replica.
    pub fn server_of(&self, node: u32) -> Option<u32> {
        match self.primary {
            None => Some(node),
            Some(primary) => (primary == node as usize).then_some(0),
        }
    }

    /// Returns the primary, if the other nodes are its replicas.
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
        assert_eq!(endpoints.of_servers(&[0], &["n1", "n2"]), ["n2"]);
        let independent = Endpoints::new(nodes.clone(), None);
        assert_eq!((independent.servers(), independent.node_of(1)), (nodes, 1));
    }

    #[test]
    fn the_others_of_a_node_and_one_address_have_the_same_login() {
        let nodes: Vec<SocketAddr> = [1, 2, 3].map(|port| ([127, 0, 0, 1], port).into()).into();
        let login = Login {
            user: "user".into(),
            password: "secret".into(),
        };
        let all = Endpoints::new(nodes.clone(), Some(0)).with_login(Some(Arc::new(login)));
        let (others, one) = (all.without(1), all.at(nodes[1]));
        assert_eq!(others.servers(), [nodes[0], nodes[2]]);
        assert_eq!(one.servers(), [nodes[1]]);
        for endpoints in [others, one] {
            assert!(endpoints.login().is_some() && endpoints.primary().is_none());
        }
    }
}
