//! The two directions of a connection, and its two ends.

use super::behaviour::{Behaviour, Flow};
use super::tap::Sender;

/// Which of the two directions of a link a pump carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    pub fn of(self, behaviour: &Behaviour) -> Flow {
        match self {
            Self::ToServer => behaviour.to_server,
            Self::ToClient => behaviour.to_client,
        }
    }

    /// Who sends what the pump carries.
    pub fn sender(self) -> Sender {
        match self {
            Self::ToServer => Sender::Client,
            Self::ToClient => Sender::Server,
        }
    }

    /// Where its bytes come from, and where they go.
    pub fn ends(self) -> [ConnectionEnd; 2] {
        match self {
            Self::ToServer => [ConnectionEnd::Client, ConnectionEnd::Upstream],
            Self::ToClient => [ConnectionEnd::Upstream, ConnectionEnd::Client],
        }
    }
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    Client,
    Upstream,
}
