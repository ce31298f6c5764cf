//! What strikes act on: the links, the processes of the clients and the servers, each through the smallest handle that
//! will do. Whoever runs an experiment lays the field out; a fault never learns who that is.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{NodeControl, ObservedEndpoint};
use crate::network::Link;
use crate::wall_clock::WallClock;

/// Proxied links, by who dials and who is dialled: `clients × servers`, or `servers × servers`.
pub type Links = BTreeMap<(u32, u32), Arc<Link>>;

/// Everything that can be struck.
#[derive(Clone)]
pub struct Field {
    pub links: Links,
    /// The links between servers, by the one that dials and the one that is dialled; empty where they are direct.
    pub between: Links,
    pub clients: Arc<dyn Hosts>,
    pub servers: NodeControl,
    /// The server that the observer watches, where it watches one of several.
    pub observed: ObservedEndpoint,
    /// By server: its wall clock, where the plan steps clocks.
    pub server_clocks: Vec<Arc<WallClock>>,
}

/// Whoever knows in which process a client lives.
pub trait Hosts: Send + Sync {
    /// The process that hosts a client now; `None` while it has none.
    fn process_of(&self, client: u32) -> Option<Arc<dyn ClientProcess>>;
}

/// A process with clients in it. What strikes one of them strikes them all.
pub trait ClientProcess: Send + Sync {
    fn clients(&self) -> Vec<u32>;

    /// Stops it where it stands. Stops add up: it goes on when each was followed by [`ClientProcess::go_on`]. Returns
    /// whether there was a process to stop.
    fn stop(&self) -> bool;

    /// Whether it stands still.
    fn is_stopped(&self) -> bool;

    /// Ends one stop. It does not wait, and does nothing to a process that is gone.
    fn go_on(&self);

    /// Its wall clock, where the plan steps clocks.
    fn wall_clock(&self) -> Option<Arc<WallClock>>;

    /// Kills it. Returns whether there was a process to kill.
    fn kill(&self) -> bool;
}
