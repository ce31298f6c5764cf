//! What the connections of a link obey, as it is now: behaviours and toxics, where they lead, and how they end.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::behaviour::{Behaviour, Flow};
use super::bottleneck::Bottleneck;
use super::direction::Direction;
use super::toxic::{Toxic, with_toxics};

/// The name of a layer: the number of the fault window that put it on.
pub type Layer = u32;

/// What the connections of a link obey.
#[derive(Debug, Clone)]
pub struct LinkState {
    pub behaviour: Behaviour,
    /// What an external proxy next to this link does, to be counted and not obeyed.
    pub shadow: Behaviour,
    /// Bandwidth that is shared with other links, by layer.
    pub bottlenecks: Arc<[SharedBandwidth]>,
    /// What the API put on.
    pub toxics: Arc<[Toxic]>,
    pub upstream: Upstream,
    /// Connections from before the current epoch end.
    pub epoch: u64,
    /// How they do.
    pub end_mode: EndMode,
}

impl LinkState {
    pub fn drop_bottlenecks(&mut self, layer: Layer) {
        let stay = self.bottlenecks.iter().filter(|shared| shared.layer != layer);
        self.bottlenecks = stay.cloned().collect();
    }

    /// What bytes of this direction obey on the connection with this seed.
    pub fn flow(&self, direction: Direction, connection: u64) -> Flow {
        with_toxics(direction.of(&self.behaviour), &self.toxics, direction, connection)
    }
}

/// A bottleneck of a layer, both ways.
#[derive(Debug, Clone)]
pub struct SharedBandwidth {
    pub layer: Layer,
    pub to_server: Arc<Bottleneck>,
    pub to_client: Arc<Bottleneck>,
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    Address(SocketAddr),
    /// `host:port`, looked up for each connection.
    Name(Arc<str>),
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// How the link ends connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndMode {
    Reset,
    /// As a peer would.
    Close,
}

impl EndMode {
    pub fn disconnect(self) -> Disconnect {
        match self {
            Self::Reset => Disconnect::Cut,
            Self::Close => Disconnect::Closed,
        }
    }
}

/// How a pump ended when it did not end with the end of its stream.
#[derive(Debug)]
pub enum Disconnect {
    /// One of the two peers reset or is gone: the other one must see a reset.
    Peer,
    /// The link resets the connection: its byte budget is used up, its time is over, or a rule ends it.
    Cut,
    /// The link ends the connection as a peer would.
    Closed,
}
