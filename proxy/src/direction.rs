//! The two directions of a connection ([`Direction`]).

use serde::Serialize;

use super::behaviour::{Behaviour, Flow};

/// The direction of a pump, of a toxic, or of the bytes that a tap reads. Toxiproxy calls it a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Direction {
    #[serde(rename = "upstream")]
    ToServer,
    #[serde(rename = "downstream")]
    ToClient,
}

impl Direction {
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// Toxiproxy's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToServer => "upstream",
            Self::ToClient => "downstream",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::BOTH.into_iter().find(|direction| direction.name() == name)
    }

    /// Returns the flow of a behaviour for this direction.
    pub fn of(self, behaviour: &Behaviour) -> &Flow {
        match self {
            Self::ToServer => &behaviour.to_server,
            Self::ToClient => &behaviour.to_client,
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}
