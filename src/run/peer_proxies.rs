//! Peer proxies of a run: every connection between two servers passes a link that faults can act on.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::locked::locked;
use crate::cluster::{NodeAddress, PeerProxies, Peering};
use crate::faults::Links;
use harness_proxy::{Link, LinkControl, PeerAddress, PeerDirectory, PeerProxy, Proxy};

/// The links between servers, on a separate proxy. Dropping it ends the proxy.
pub struct PeerLinks {
    proxy: Proxy,
    opened: Mutex<OpenedLinks>,
    seed: u64,
}

#[derive(Default)]
struct OpenedLinks {
    /// From each server to each other one; if they announce addresses, from all others to each one, under its number twice.
    links: BTreeMap<(u32, u32), Arc<Link>>,
    directory: Option<Arc<PeerDirectory>>,
    /// The port at which the others dial each server, if it is not the one for clients.
    dialled: Vec<u16>,
    egresses: Vec<PeerProxy>,
}

impl PeerLinks {
    /// Starts the proxy. `seed` determines the draws of its links.
    pub fn new(seed: u64) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            proxy: Proxy::start()?,
            opened: Mutex::default(),
            seed,
        }))
    }

    /// Returns the links, by the server that dials and the one that is dialled.
    pub fn links(&self) -> Links {
        let opened = locked(&self.opened);
        let links = opened.links.iter();
        links.map(|(ends, link)| (*ends, Arc::clone(link).into())).collect()
    }

    /// Opens an egress for each server, with a link to every other one.
    fn socks(&self, listen: IpAddr, nodes: &[NodeAddress], seeds: &mut ChaCha8Rng) -> io::Result<Vec<SocketAddr>> {
        let peer = |node: &NodeAddress| PeerAddress {
            name: node.name.clone(),
            host: node.host.clone(),
            ports: node.ports.clone(),
        };
        let directory = Arc::new(PeerDirectory::new(nodes.iter().map(peer).collect()));
        let mut opened = locked(&self.opened);
        opened.directory = Some(Arc::clone(&directory));
        for (from, node) in nodes.iter().enumerate() {
            let seed = || seeds.random();
            let (egress, links) = self.proxy.peer_proxy(listen, &node.name, &directory, seed)?;
            let links = links.into_iter().enumerate();
            let links = links.filter_map(|(to, link)| Some(((from as u32, to as u32), link?)));
            opened.links.extend(links);
            opened.egresses.push(egress);
        }
        Ok(opened.egresses.iter().map(PeerProxy::listen).collect())
    }

    /// Opens a listener for each of these links, which have ends and a name.
    fn listeners(
        &self,
        listen: IpAddr,
        links: impl IntoIterator<Item = ((u32, u32), String)>,
        seeds: &mut ChaCha8Rng,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut opened = locked(&self.opened);
        for (ends, name) in links {
            // no destination, until the server is found
            let upstream = SocketAddr::new(listen, 0);
            let link = self.proxy.open(listen, name, upstream, seeds.random(), None)?;
            opened.links.insert(ends, link);
        }
        Ok(opened.links.values().map(|link| link.listen()).collect())
    }
}

impl PeerProxies for PeerLinks {
    fn open(&self, peering: Peering, listen: IpAddr, nodes: &[NodeAddress]) -> io::Result<Vec<SocketAddr>> {
        let mut seeds = ChaCha8Rng::seed_from_u64(self.seed);
        match peering {
            Peering::Socks => self.socks(listen, nodes, &mut seeds),
            Peering::Dialled { .. } | Peering::Replication(_) => {
                if let Peering::Dialled { port } = peering {
                    locked(&self.opened).dialled = nodes.iter().map(|node| node.ports[port]).collect();
                }
                let name = |server: usize| &nodes[server].name;
                let pairs = (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
                let links = pairs.filter(|(from, to)| from != to);
                let links = links.map(|(from, to)| ((from as u32, to as u32), format!("{}->{}", name(from), name(to))));
                self.listeners(listen, links, &mut seeds)
            }
            Peering::Announced(_) => {
                // in front of each server, for all others
                let links = (0..).zip(nodes);
                let links = links.map(|(number, node)| ((number, number), format!("peers->{}", node.name)));
                self.listeners(listen, links, &mut seeds)
            }
            Peering::Direct => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn found(&self, node: usize, address: SocketAddr) {
        let opened = locked(&self.opened);
        match &opened.directory {
            Some(directory) => directory.found(node, address.ip()),
            None => {
                let port = opened.dialled.get(node).copied();
                let address = SocketAddr::new(address.ip(), port.unwrap_or(address.port()));
                let leading = opened.links.iter().filter(|((_, to), _)| *to as usize == node);
                leading.for_each(|(_, link)| link.redirect(address));
            }
        }
    }
}
