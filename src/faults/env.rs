//! `FaultEnv`: what a fault may touch. Links, the processes of clients and servers, each through the smallest handle that
//! suffices; a fault does not learn what runs the experiment.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::points::MessagePoints;
use crate::clock::GroundClock;
use crate::cluster::{NodeControl, ObservedEndpoint};
use crate::disks::DiskGate;
use crate::wall_clock::WallClockControl;
use harness_proxy::{AnyLink, MatchedMessage};

/// Proxied links, by the one that dials and the one that is dialled: `clients × servers`, or `servers × servers`.
pub type Links = BTreeMap<(u32, u32), AnyLink>;

/// What faults act on.
#[derive(Clone)]
pub struct FaultEnv {
    pub clock: GroundClock,
    pub links: Links,
    /// The links between servers, by the one that dials and the one that is dialled; empty where they are direct.
    pub peer_links: Links,
    pub clients: Arc<dyn ClientHosts>,
    pub servers: NodeControl,
    /// The server that the observer watches, where it watches one of several.
    pub observed: ObservedEndpoint,
    /// By server: its wall clock, where the plan steps clocks.
    pub server_clocks: Vec<Arc<dyn WallClockControl>>,
    /// By node: its disk, where the plan slows disks down.
    pub server_disks: Vec<Arc<DiskGate>>,
    /// The messages that clients send.
    pub points: Arc<MessagePoints>,
}

impl FaultEnv {
    /// The client and the server of a message that a rule found.
    pub fn ends_of(&self, found: &MatchedMessage) -> Option<(u32, u32)> {
        let mut links = self.links.iter();
        links.find(|(_, link)| link.name() == found.link).map(|(ends, _)| *ends)
    }

    /// Points the links at where a node serves now, if clients are led to it: a container may come back with another address.
    pub fn redirect(&self, node: u32) {
        let Some(server) = self.servers.endpoints().server_of(node) else {
            return;
        };
        let address = self.servers.address(node);
        for (_, link) in self.links.iter().filter(|((_, to), _)| *to == server) {
            link.redirect(address.into());
        }
    }
}

/// Knows in which process each client lives.
pub trait ClientHosts: Send + Sync {
    /// The process that hosts a client now; `None` while it has none.
    fn process_of(&self, client: u32) -> Option<Arc<dyn ProcessControl>>;
}

impl dyn ClientHosts + '_ {
    /// The processes that host these clients, each once.
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

/// A process with clients in it. What is done to one of them is done to all.
pub trait ProcessControl: Send + Sync {
    fn clients(&self) -> Vec<u32>;

    /// Stops it (SIGSTOP). Stops add up: the process continues when each was followed by [`ProcessControl::go_on`].
    /// Returns whether there was a process to stop.
    fn stop(&self) -> bool;

    fn is_stopped(&self) -> bool;

    /// Ends one stop. It does not wait, and does nothing to a process that is gone.
    fn go_on(&self);

    /// Its wall clock, where the plan steps clocks.
    fn wall_clock(&self) -> Option<Arc<dyn WallClockControl>>;

    /// Kills it. Returns whether there was a process to kill.
    fn kill(&self) -> bool;
}
