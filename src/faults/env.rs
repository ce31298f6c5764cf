//! `FaultEnv`: the parts of a run that faults act on. Links and the processes of clients and servers, each through the smallest
//! handle that suffices; a fault does not know the runtime.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::points::MessagePoints;
use crate::clock::GroundClock;
use crate::cluster::{NodeControl, ObservedEndpoint};
use crate::disks::{DiskGate, DiskLosses};
use crate::wall_clock::WallClockControl;
use harness_proxy::{AnyLink, MatchedMessage};

/// Proxied links by dialler and destination: `clients × servers`, or `servers × servers`.
pub type Links = BTreeMap<(u32, u32), AnyLink>;

/// The parts of a run that faults act on.
#[derive(Clone)]
pub struct FaultEnv {
    pub clock: GroundClock,
    pub links: Links,
    /// The links between servers; empty if servers connect directly.
    pub peer_links: Links,
    pub clients: Arc<dyn ClientHosts>,
    pub servers: NodeControl,
    /// The server that the observer watches, if it watches only one of several.
    pub observed: ObservedEndpoint,
    /// The wall clocks of the servers, if the plan steps clocks.
    pub server_clocks: Vec<Arc<dyn WallClockControl>>,
    /// The disks of the nodes, if the plan slows disks.
    pub server_disks: Vec<Arc<DiskGate>>,
    /// The messages that clients send.
    pub points: Arc<MessagePoints>,
}

impl FaultEnv {
    /// Returns the client and the server of a message that a rule matched.
    pub fn ends_of(&self, found: &MatchedMessage) -> Option<(u32, u32)> {
        let mut links = self.links.iter();
        links.find(|(_, link)| link.name() == found.link).map(|(ends, _)| *ends)
    }

    /// Returns the losses on all disks so far.
    pub fn losses(&self) -> DiskLosses {
        let seen = self.server_disks.iter().map(|disk| *disk.losses());
        seen.fold(DiskLosses::default(), DiskLosses::plus)
    }

    /// Redirects the links of a node, if clients use it, to its current address: a container may start with another one.
    pub fn redirect(&self, node: u32) {
        let Some(server) = self.servers.endpoints().server_of(node) else {
            return;
        };
        let address = self.servers.address(node);
        for (_, link) in self.links.iter().filter(|((_, to), _)| *to == server) {
            link.redirect(address);
        }
    }
}

/// The map from clients to their processes.
pub trait ClientHosts: Send + Sync {
    /// Returns the process that hosts a client now, if there is one.
    fn process_of(&self, client: u32) -> Option<Arc<dyn ProcessControl>>;
}

impl dyn ClientHosts + '_ {
    /// Returns the processes that host these clients, each once.
    pub fn processes_of(&self, clients: &[u32]) -> Vec<Arc<dyn ProcessControl>> {
        let mut hosted: Vec<u32> = Vec::new();
        let mut processes = Vec::new();
        for client in clients {
            if !hosted.contains(client)
                && let Some(process) = self.process_of(*client)
            {
                hosted.extend(process.clients());
                processes.push(process);
            }
        }
        processes
    }
}

/// A process with clients in it. An act on it concerns all of them.
pub trait ProcessControl: Send + Sync {
    fn clients(&self) -> Vec<u32>;

    /// Stops it (SIGSTOP). Stops add up: the process continues after as many calls of [`ProcessControl::go_on`]. Returns whether
    /// there was a process to stop.
    fn stop(&self) -> bool;

    fn is_stopped(&self) -> bool;

    /// Ends one stop. It does not wait, and does nothing to an ended process.
    fn go_on(&self);

    /// Returns its wall clock, if the plan steps clocks.
    fn wall_clock(&self) -> Option<Arc<dyn WallClockControl>>;

    /// Kills it. Returns whether there was a process to kill.
    fn kill(&self) -> bool;
}
