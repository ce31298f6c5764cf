//! The links of a run in virtual time: between clients and servers, with taps that read what passes, and between servers.

use std::rc::Rc;
use std::sync::Arc;

use harness_proxy::{LinkTap, TapHub};
use harness_simulation::World;
use harness_simulation::network::{LinkLatency, SimulatedLink};

use super::machine::{ByteRoute, KeptMachine, as_client};
use super::network::ByteHook;
use crate::cluster::Peering;
use crate::config::Config;
use crate::faults::Links;
use crate::simulated::{FaultableLink, Redirect};

/// From each client to each server.
pub fn of_clients(world: World, machine: KeptMachine, config: &Config, exchange: &Arc<TapHub>) -> Links {
    let mut links = Links::new();
    for client in 0..config.clients {
        for server in 0..config.nodes {
            let name = format!("c{client}->n{}", server + 1);
            let link = SimulatedLink::new(world, &name, client, LinkLatency::default());
            let tap = LinkTap::new(exchange, client, name);
            let hook = lay(world, machine, (client, server), link, Some(Arc::clone(&tap)));
            // a master in virtual time has no replica
            let redirect: Redirect = Arc::new(|_| {});
            let link = FaultableLink::hooked(link, tap, redirect, hook);
            links.insert((client, server), link.into());
        }
    }
    links
}

/// From each server to each other one, where they speak to each other; one to itself, which no fault is on, is always there.
pub fn between_servers(world: World, machine: KeptMachine, config: &Config) -> Links {
    let mut links = Links::new();
    for from in 0..config.nodes {
        for to in 0..config.nodes {
            let name = format!("n{}->n{}", from + 1, to + 1);
            let link = SimulatedLink::new(world, &name, as_client(from), LinkLatency::default());
            lay(world, machine, (as_client(from), to), link, None);
            if from != to && matches!(config.backend.software.peering, Peering::Socks) {
                links.insert((from, to), FaultableLink::untapped(link).into());
            }
        }
    }
    links
}

/// Has families find their way over a link.
fn lay(
    world: World,
    machine: KeptMachine,
    ends: (u32, u32),
    link: SimulatedLink,
    tap: Option<Arc<LinkTap>>,
) -> Rc<ByteHook> {
    let hook = ByteHook::new(world, tap);
    let route = ByteRoute {
        link,
        hook: Rc::clone(&hook),
    };
    machine.get().routes.borrow_mut().insert(ends, route);
    hook
}
