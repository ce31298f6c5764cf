//! The two directions of a connection ([`Direction`]), with the sender and the receiver of each.

use serde::Serialize;

use super::behaviour::{Behaviour, Flow};
use super::tap::Sender;

/// The direction of a pump or of a toxic. Toxiproxy calls it a stream.
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

    pub fn of(self, behaviour: &Behaviour) -> Flow {
        match self {
            Self::ToServer => behaviour.to_server,
            Self::ToClient => behaviour.to_client,
        }
    }

    /// Returns the sender of the bytes that the pump carries.
    pub fn sender(self) -> Sender {
        match self {
            Self::ToServer => Sender::Client,
            Self::ToClient => Sender::Server,
        }
    }

    pub fn receiver(self) -> Sender {
        match self {
            Self::ToServer => Sender::Server,
            Self::ToClient => Sender::Client,
        }
    }
}
