//! The target of an injection: as it is planned, and as targeting resolves it when the window starts.

use serde::Serialize;

/// The planned target. `Holder`, `Waiter`, `AtMessage`, `Leader`, `Follower` and `NextUpgrade` are resolved when the window starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    Clients(Vec<u32>),
    /// These servers, from 0; for a fault on links, every client's link to them.
    Servers(Vec<u32>),
    /// The client that holds a lock when the window starts.
    Holder,
    /// A client that waits for a lock when the window starts.
    Waiter,
    AtMessage(AtMessage),
    /// The server that leads when the window starts.
    Leader,
    /// A server that does not lead then: the one with this number among those, modulo their count.
    Follower(u32),
    /// The next server to be upgraded: one that is not upgraded and does not lead, or the leader if it is the last.
    NextUpgrade,
    Everyone,
}

/// The client or the server of one message, at a moment of that message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AtMessage {
    /// Its number, from 1, among the messages of all clients without pings.
    pub number: u32,
    pub end: MessageEnd,
    pub moment: MessageMoment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageEnd {
    Client,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageMoment {
    /// The request is sent, and is lost.
    Sent,
    /// The server executed the request, and the reply is lost.
    CarriedOut,
    /// The reply is on its way.
    Answered,
    /// The client has the reply.
    Received,
}

/// Returns the client of the message with this number, at a moment of that message.
pub(super) fn client_at(number: u32, moment: MessageMoment) -> Target {
    let end = MessageEnd::Client;
    Target::AtMessage(AtMessage { number, end, moment })
}

/// A target whose roles are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedTarget {
    Clients(Vec<u32>),
    /// From 0.
    Servers(Vec<u32>),
    Everyone,
}

impl ResolvedTarget {
    /// Returns its servers; none if it has clients.
    pub fn servers(&self) -> Vec<u32> {
        match self {
            Self::Servers(servers) => servers.clone(),
            Self::Clients(_) | Self::Everyone => Vec::new(),
        }
    }

    /// Returns its clients; none if it has servers.
    pub fn clients(&self) -> Vec<u32> {
        match self {
            Self::Clients(clients) => clients.clone(),
            Self::Servers(_) | Self::Everyone => Vec::new(),
        }
    }

    /// Whether it includes the link from this client to this server.
    pub fn has_link(&self, client: u32, server: u32) -> bool {
        match self {
            Self::Clients(clients) => clients.contains(&client),
            Self::Servers(servers) => servers.contains(&server),
            Self::Everyone => true,
        }
    }
}
