//! The links of a run in virtual time: between clients and servers, with taps that read what passes, and between servers.

use std::rc::Rc;
use std::sync::Arc;

use harness_proxy::{LinkTap, TapHub};
use harness_simulation::network::{LinkLatency, SimulatedLink};

use super::machine::KeptMachine;
use super::network::ByteHook;
use super::routes::{as_client, as_peers_of, undisturbed};
use crate::cluster::Peering;
use crate::config::Config;
use crate::faults::Links;
use crate::simulated::{FaultableLink, Redirect, server_at};

/// Makes the links from each client to each server.
pub fn of_clients(machine: KeptMachine, config: &Config, exchange: &Arc<TapHub>) -> Links {
    let mut links = Links::new();
    for client in 0..config.clients {
        let of_client = SimulatedLink::of_client(machine.world(), client, config.nodes as usize);
        for (server, link) in (0..).zip(of_client) {
            let tap = LinkTap::new(exchange, client, link.name());
            let hook = lay(machine, (client, server), link, Some(Arc::clone(&tap)));
            let redirect: Redirect = Arc::new(move |to| {
                if let Some(to) = server_at(to) {
                    machine.get().routes.lead(client, server, to as u32);
                }
            });
            let link = FaultableLink::hooked(link, tap, redirect, hook);
            links.insert((client, server), link.into());
        }
    }
    links
}

/// Makes the links between servers, where they connect to each other. The route of a server to itself is always there, without faults.
pub fn between_servers(machine: KeptMachine, config: &Config, servers: u32) -> Links {
    let mut links = Links::new();
    let way = |ends: (u32, u32), name: String| {
        let link = SimulatedLink::new(machine.world(), &name, ends.0, LinkLatency::default());
        lay(machine, ends, link, None);
        link
    };
    let (announced, speak) = match config.backend.software.peering {
        Peering::Announced(_) => (true, false),
        Peering::Socks | Peering::Dialled { .. } => (false, true),
        _ => (false, servers > config.nodes),
    };
    for to in 0..servers {
        if announced {
            let link = way((as_peers_of(to), to), format!("peers->n{}", to + 1));
            links.insert((to, to), FaultableLink::untapped(link).into());
        }
        for from in 0..servers {
            let name = format!("n{}->n{}", from + 1, to + 1);
            if announced {
                way((undisturbed(from), to), format!("{name}, undisturbed"));
            }
            if announced && from != to {
                machine.get().routes.share((as_peers_of(to), to), (as_client(from), to));
                continue;
            }
            let link = way((as_client(from), to), name);
            if speak && from != to {
                links.insert((from, to), FaultableLink::untapped(link).into());
            }
        }
    }
    links
}

/// Makes a link the route between two ends. Returns its hook.
fn lay(machine: KeptMachine, ends: (u32, u32), link: SimulatedLink, tap: Option<Arc<LinkTap>>) -> Rc<ByteHook> {
    let hook = ByteHook::new(machine.world(), tap);
    machine.get().routes.lay(ends, link, Rc::clone(&hook));
    hook
}
