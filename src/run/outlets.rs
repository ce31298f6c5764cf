//! The outlets of a run's servers: their ways to each other, on the proxy, as links that faults can act on.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::cluster::{Member, Outlets, Peering};
use crate::faults::Links;
use crate::network::{Directory, Egress, Peer, Proxy};

/// Ways between servers on a proxy. They last as long as this does.
pub struct Ways {
    proxy: Proxy,
    opened: Mutex<Opened>,
    seed: u64,
}

#[derive(Default)]
struct Opened {
    /// From each server to each other one.
    links: Links,
    directory: Option<Arc<Directory>>,
    egresses: Vec<Egress>,
}

impl Ways {
    /// On a proxy of their own; `seed` decides what its links draw.
    pub fn new(seed: u64) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            proxy: Proxy::start()?,
            opened: Mutex::default(),
            seed,
        }))
    }

    /// The links there are, by the server that dials and the one that is dialled.
    pub fn links(&self) -> Links {
        self.opened().links.clone()
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, Opened> {
        self.opened.lock().expect("no one panics while opening outlets")
    }

    /// An egress for each server, with a link to every other one.
    fn socks(&self, listen: IpAddr, members: &[Member], seed: &mut impl FnMut() -> u64) -> io::Result<Vec<SocketAddr>> {
        let peer = |member: &Member| Peer {
            name: member.name.clone(),
            host: member.host.clone(),
            ports: member.ports.clone(),
        };
        let directory = Arc::new(Directory::new(members.iter().map(peer).collect()));
        let mut opened = self.opened();
        opened.directory = Some(Arc::clone(&directory));
        for (from, member) in members.iter().enumerate() {
            let (egress, links) = self.proxy.egress(listen, &member.name, &directory, &mut *seed)?;
            let links = links.into_iter().enumerate();
            let links = links.filter_map(|(to, link)| Some(((from as u32, to as u32), link?)));
            opened.links.extend(links);
            opened.egresses.push(egress);
        }
        Ok(opened.egresses.iter().map(Egress::listen).collect())
    }

    /// A listener for the first and the second server each, in front of the other one.
    fn replica(
        &self,
        listen: IpAddr,
        members: &[Member],
        seed: &mut impl FnMut() -> u64,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut opened = self.opened();
        for (from, to) in [(0, 1), (1, 0)] {
            let name = format!("{}->{}", members[from].name, members[to].name);
            // nowhere, until it is found
            let upstream = SocketAddr::new(listen, 0);
            let link = self.proxy.link_at(listen, name, upstream, seed())?;
            opened.links.insert((from as u32, to as u32), link);
        }
        Ok(opened.links.values().map(|link| link.listen()).collect())
    }
}

impl Outlets for Ways {
    fn open(&self, peering: Peering, listen: IpAddr, members: &[Member]) -> io::Result<Vec<SocketAddr>> {
        let mut seeds = ChaCha8Rng::seed_from_u64(self.seed);
        let mut seed = || seeds.random();
        match peering {
            Peering::Socks => self.socks(listen, members, &mut seed),
            Peering::Replica => self.replica(listen, members, &mut seed),
        }
    }

    fn found(&self, node: usize, address: SocketAddr) {
        let opened = self.opened();
        match &opened.directory {
            Some(directory) => directory.found(node, address.ip()),
            None => {
                let leading = opened.links.iter().filter(|((_, to), _)| *to as usize == node);
                leading.for_each(|(_, link)| link.redirect(address));
            }
        }
    }
}
