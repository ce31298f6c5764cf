//! Routes of a world ([`WorldRoutes`]): from each client or server to a server, and the numbers and addresses of those that dial.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use harness_simulation::network::SimulatedLink;

use super::network::{ByteHook, BytePort};
use super::page::FIRST_PORT;
use crate::simulated::address_of_server;

/// The first number of servers that dial, behind those of all clients.
const SERVERS: u32 = 1 << 20;
/// The count of numbers for each kind of route between servers.
const WAY: u32 = 64;
/// The first number of families that dial themselves.
const FAMILIES: u32 = 1 << 21;

/// Returns the number of a server among those that dial.
pub fn as_client(server: u32) -> u32 {
    SERVERS + server
}

/// Returns the number of all others among those that dial this server, where they have one route to it in common.
pub fn as_peers_of(server: u32) -> u32 {
    SERVERS + WAY + server
}

/// Returns the number of a server among those that dial, on a route without faults.
pub fn undisturbed(server: u32) -> u32 {
    SERVERS + 2 * WAY + server
}

/// Returns the number of a family among those that dial, and among servers, where it dials itself.
pub fn as_itself(family: u32) -> u32 {
    FAMILIES + family
}

/// Returns the address of the client or server that dials with this number.
pub fn address_of_client(client: u32) -> Ipv4Addr {
    if client >= FAMILIES {
        return Ipv4Addr::LOCALHOST;
    }
    if let Some(number) = client.checked_sub(SERVERS) {
        return address_of_server(number % WAY);
    }
    Ipv4Addr::new(10, 0, 1 + (client / 250) as u8, 1 + (client % 250) as u8)
}

/// Returns the local port of the connection with this number.
pub fn port_of(number: u64) -> u16 {
    const PORTS: u64 = 28_000;
    FIRST_PORT + (number % PORTS) as u16
}

/// A route from a client, or from a server, to a server.
#[derive(Clone)]
pub struct ByteRoute {
    pub link: SimulatedLink,
    pub hook: Rc<ByteHook>,
}

/// A route, and the port to which it leads.
pub type ByteWay = (ByteRoute, BytePort);

/// Returns the way to an address that a family dials; `None`: there is none.
pub type Router = Rc<dyn Fn(SocketAddrV4) -> Option<ByteWay>>;

/// All routes of a world, by the number of the end that dials and the server.
#[derive(Default)]
pub struct WorldRoutes {
    ways: RefCell<BTreeMap<(u32, u32), ByteRoute>>,
    /// By client and the server that it knows: the server to which it is redirected, where a replica has taken the place of the known one.
    led: RefCell<BTreeMap<(u32, u32), u32>>,
}

impl WorldRoutes {
    pub fn get(&self, ends: (u32, u32)) -> Option<ByteRoute> {
        self.ways.borrow().get(&ends).cloned()
    }

    pub fn lay(&self, ends: (u32, u32), link: SimulatedLink, hook: Rc<ByteHook>) -> ByteRoute {
        let route = ByteRoute { link, hook };
        self.ways.borrow_mut().insert(ends, route.clone());
        route
    }

    /// Makes the route between these ends that between others, too.
    pub fn share(&self, ends: (u32, u32), others: (u32, u32)) {
        if let Some(route) = self.get(ends) {
            self.ways.borrow_mut().insert(others, route);
        }
    }

    /// Redirects a client that dials a server to another one, over the same link.
    pub fn lead(&self, client: u32, server: u32, to: u32) {
        self.share((client, server), (client, to));
        self.led.borrow_mut().insert((client, server), to);
    }

    /// Returns the server that a client reaches when it dials this one.
    pub fn led_to(&self, client: u32, server: u32) -> u32 {
        *self.led.borrow().get(&(client, server)).unwrap_or(&server)
    }
}
