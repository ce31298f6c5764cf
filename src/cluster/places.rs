//! Where servers serve: every one of them, and those that clients are led to.

use std::net::SocketAddr;

use tokio::sync::watch;

/// The server that an observer watches, where it watches one of several.
pub type Witness = watch::Receiver<Option<SocketAddr>>;

/// Where servers serve now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    nodes: Vec<SocketAddr>,
    /// The one that clients are led to, where one stands for all: a master that has replicas.
    front: Option<usize>,
}

impl Places {
    pub fn new(nodes: Vec<SocketAddr>, front: Option<usize>) -> Self {
        Self { nodes, front }
    }

    /// By node.
    pub fn nodes(&self) -> &[SocketAddr] {
        &self.nodes
    }

    /// Where clients are served, by server as they know them.
    pub fn served(&self) -> Vec<SocketAddr> {
        match self.front {
            None => self.nodes.clone(),
            Some(front) => vec![self.nodes[front]],
        }
    }

    /// The node behind a server as clients know it.
    pub fn node_of(&self, server: u32) -> u32 {
        self.front.map_or(server, |front| front as u32)
    }

    /// The server, as clients know it, that a node stands for now; `None` for a replica.
    pub fn server_of(&self, node: u32) -> Option<u32> {
        match self.front {
            None => Some(node),
            Some(front) => (front == node as usize).then_some(0),
        }
    }

    /// The node that stands for all, where one does.
    pub fn front(&self) -> Option<u32> {
        self.front.map(|front| front as u32)
    }

    pub(super) fn moved(&mut self, node: usize, address: SocketAddr) {
        self.nodes[node] = address;
    }

    pub(super) fn lead_to(&mut self, node: usize) {
        self.front = Some(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_replicated_cluster_know_one_server_whichever_node_it_is() {
        let nodes: Vec<SocketAddr> = [1, 2].map(|port| ([127, 0, 0, 1], port).into()).into();
        let mut places = Places::new(nodes.clone(), Some(0));
        places.lead_to(1);
        assert_eq!(places.served(), [nodes[1]]);
        assert_eq!(
            (places.node_of(0), places.server_of(1), places.server_of(0)),
            (1, Some(0), None)
        );
        let strangers = Places::new(nodes.clone(), None);
        assert_eq!((strangers.served(), strangers.node_of(1)), (nodes, 1));
    }
}
