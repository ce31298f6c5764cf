//! The ground of a run in a world: servers, links and clients, for models of any servers ([`ServerModel`]).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use harness_proxy::LinkTap;
use harness_simulation::network::SimulatedLink;
use harness_simulation::{ClientPlace, SimulatedServers, World};

use super::clients::{ClientMaker, SimulatedSpawner};
use super::links::{FaultableLink, Redirect};
use crate::clock::GroundClock;
use crate::cluster::{
    BoxFuture, Cluster, ClusterError, ClusterParts, Node, ReachedServers, Replication, RunningNodes, ServerQueries,
    Serving,
};
use crate::config::Clients;
use crate::faults::Links;
use crate::run::{self, ClientPool, ConnectObserver, Ground, RunSpec};

/// Models of the servers of one product, in a world. Servers are numbered from 0.
pub trait ServerModel: Clone + Send + Sync + 'static {
    /// Returns the version whose behaviour it has, in words.
    fn version(&self) -> &'static str;

    fn servers(&self) -> &dyn SimulatedServers;

    /// Whether a server answers: it runs, and is not stopped.
    fn answers(&self, server: usize) -> bool {
        let servers = self.servers();
        servers.is_running(server) && !servers.process(server).is_stopped()
    }

    /// Ends the observers of a server that was killed, or starts again.
    fn end_observers(&self, _server: usize) {}

    /// Returns the role of a server that answers, in the product's own word, and whether it leads; the error has the reason for
    /// which it does not serve.
    fn role(&self, server: usize) -> Result<(&'static str, bool), String>;

    /// Redirects new connections of clients from this server's address to another server, if clients do not know every server.
    fn redirect(&self, _server: usize, _to: usize) {}

    /// Returns the commands for replication, if the product has a primary with replicas.
    fn replication(&self) -> Option<&dyn Replication> {
        None
    }

    /// Returns the connector of the observer.
    fn observe(&self) -> ConnectObserver;
}

/// The port of every model.
const PORT: u16 = 1;

/// Returns the address of a server, a name within the world: nothing of this machine is there.
pub fn address_of_server(server: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, server as u8 + 1)
}

/// Returns the address of a server at a port.
pub fn address_of(server: usize, port: u16) -> SocketAddr {
    SocketAddr::from((address_of_server(server as u32), port))
}

/// Returns the server at an address.
pub fn server_at(address: SocketAddr) -> Option<usize> {
    match address {
        SocketAddr::V4(address) => match address.ip().octets() {
            [10, 0, 0, number] => usize::from(number).checked_sub(1),
            _ => None,
        },
        SocketAddr::V6(_) => None,
    }
}

/// Returns links and clients for the servers of `model`. `peer_links` are all links between servers.
pub fn ground<M: ServerModel>(world: World, model: &M, peer_links: Links, spec: &RunSpec) -> (Ground, Cluster) {
    let (config, clock) = (&spec.config, GroundClock::Virtual(world));
    let cluster = cluster(model, clock, spec);
    let (exchange, notices) = run::exchange(config);
    let mut links = Links::new();
    let mut routes = Vec::new();
    for client in 0..config.clients {
        let of_client = SimulatedLink::of_client(world, client, config.nodes as usize);
        for (server, link) in (0..).zip(of_client.iter().copied()) {
            let redirected = model.clone();
            let redirect: Redirect = Arc::new(move |to| {
                if let Some(to) = server_at(to) {
                    redirected.redirect(server as usize, to);
                }
            });
            let tap = LinkTap::new(&exchange, client, link.name());
            let link = FaultableLink::tapped(world, link, tap, redirect);
            links.insert((client, server), link.into());
        }
        routes.push(of_client);
    }
    let ground = Ground {
        clock,
        clients: client_pool(world, model, routes, spec),
        links,
        peer_links,
        servers: cluster.control(),
        version: cluster.version.clone(),
        server_clocks: Vec::new(),
        server_disks: Vec::new(),
        observe: Some(model.observe()),
        sweep: None,
        exchange,
        notices,
        on_line: None,
    };
    (ground, cluster)
}

fn client_pool<M: ServerModel>(world: World, model: &M, routes: Vec<Vec<SimulatedLink>>, spec: &RunSpec) -> ClientPool {
    let config = &spec.config;
    let Clients::Recipe(options) = config.who else {
        unreachable!("a client program is refused before this")
    };
    let (lease, model) = (config.lease, model.clone());
    let make: ClientMaker = Arc::new(move |client, process, signals| {
        let links = routes[client as usize].clone();
        let place = ClientPlace { process, links, lease };
        model.servers().client(options, place, signals)
    });
    let spawner = SimulatedSpawner {
        world,
        make,
        contract: options.contract(),
        steps_clocks: spec.plan.steps_clocks,
    };
    let opens = run::opens(config, &[], |_, server| address_of(server as usize, PORT).to_string());
    ClientPool::new(spec, Arc::new(spawner), GroundClock::Virtual(world), opens)
}

fn cluster<M: ServerModel>(model: &M, clock: GroundClock, spec: &RunSpec) -> Cluster {
    let replicated = spec.plan.replicas > 0;
    let node = |server: u32| Node {
        name: format!("n{}", server + 1),
        address: address_of(server as usize, PORT),
        log: PathBuf::from("no log: the server is a model"),
        // a replica dials its primary: the other one of the two
        peer_proxy: (replicated && server < 2).then(|| address_of(1 - server as usize, PORT)),
    };
    let nodes = ModelNodes {
        model: model.clone(),
        keeps_data: spec.config.backend.software.keeps_data,
    };
    Cluster::assemble(ClusterParts {
        tls: None,
        relays: Vec::new(),
        login: None,
        nodes: (0..spec.config.nodes + spec.plan.replicas).map(node).collect(),
        version: model.version().to_owned(),
        primary: replicated.then_some(0),
        running: Box::new(nodes.clone()),
        queries: Arc::new(nodes),
        reach: ReachedServers { dial: None, clock },
    })
}

/// The servers of a cluster, with their readiness and roles.
#[derive(Clone)]
struct ModelNodes<M> {
    model: M,
    keeps_data: bool,
}

#[async_trait]
impl<M: ServerModel> RunningNodes for ModelNodes<M> {
    // a model does not end by itself

    async fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        self.model.servers().kill(node);
        self.model.end_observers(node);
        Ok(())
    }

    async fn start(&mut self, node: usize) -> Result<Option<SocketAddr>, ClusterError> {
        self.model.end_observers(node);
        self.model.servers().restart(node, self.keeps_data);
        Ok(None)
    }

    async fn pause(&mut self, node: usize) -> Result<(), ClusterError> {
        self.model.servers().process(node).stop();
        Ok(())
    }

    async fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        self.model.servers().process(node).go_on();
        Ok(())
    }

    /// Does nothing: the servers end with their world.
    async fn stop(self: Box<Self>) {}
}

/// Returns the server at an address, if it answers.
pub fn answering<M: ServerModel>(model: &M, address: SocketAddr) -> Result<usize, String> {
    let server = server_at(address).filter(|server| model.answers(*server));
    server.ok_or_else(|| "it does not answer".to_owned())
}

impl<M: ServerModel> ServerQueries for ModelNodes<M> {
    fn ask(&self, _: usize, address: SocketAddr) -> BoxFuture<'_, Result<Serving, String>> {
        let role = answering(&self.model, address).and_then(|server| self.model.role(server));
        Box::pin(std::future::ready(role.map(|(role, leads)| Serving {
            role: role.to_owned(),
            leads,
            version: self.model.version().to_owned(),
        })))
    }

    fn replication(&self) -> Option<&dyn Replication> {
        self.model.replication()
    }
}
