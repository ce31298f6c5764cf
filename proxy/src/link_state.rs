//! The state of a link ([`LinkState`]), which its connections obey: behaviours, toxics, the server, and the end of connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::behaviour::{Behaviour, Flow};
use super::bottleneck::Bottleneck;
use super::direction::Direction;
use super::toxic::{Toxic, with_toxics};

/// The name of a layer: the number of the fault window that put it on.
pub type Layer = u32;

/// Bandwidth that is shared with other links, by layer and direction.
pub type SharedBandwidth = BTreeMap<Layer, [Arc<Bottleneck>; 2]>;

/// The state of a link, which its connections obey.
#[derive(Debug, Clone)]
pub struct LinkState {
    pub behaviour: Behaviour,
    /// The behaviour of an external proxy next to this link, which is counted and not obeyed.
    pub shadow: Behaviour,
    pub bottlenecks: Arc<SharedBandwidth>,
    /// Toxics of clients of the API.
    pub toxics: Arc<[Toxic]>,
    /// The server, as `host:port`: looked up for each connection.
    pub upstream: Arc<str>,
    /// Connections from before the current epoch end.
    pub epoch: u64,
    /// The way in which they end.
    pub ending: Disconnect,
}

impl LinkState {
    /// Returns the flow of this direction on the connection with this seed.
    pub fn flow(&self, direction: Direction, connection: u64) -> Flow {
        with_toxics(*direction.of(&self.behaviour), &self.toxics, direction, connection)
    }
}

/// The reason for which a pump ended before the end of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// One of the two peers reset or is gone: the other one must see a reset.
    Peer,
    /// The link resets the connection: its byte budget is used up, its time is over, or a rule ends it.
    Cut,
    /// The link ends the connection with an end of stream, as a peer would.
    Closed,
}
