//! The target of an injection: as it is planned, and as it is resolved when its window starts.

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
    /// A client that waits for a lock then.
    Waiter,
    AtMessage(AtMessage),
    /// The server that leads then.
    Leader,
    /// A server that does not lead then: the one at this place among those, counted round and round.
    Follower(u32),
    /// The server that is to be upgraded next: one that is not yet and does not lead then, or the one that leads where it is the last.
    NextUpgrade,
    Everyone,
}

/// Who sends or gets one message, at a moment in the course of that message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AtMessage {
    /// From 1, of all that clients send, pings aside.
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
    /// When the request is sent, which is lost.
    Sent,
    /// When the request was carried out, whose reply is lost.
    CarriedOut,
    /// When the reply is on its way.
    Answered,
    /// When the client has the reply.
    Received,
}

/// The client that sends the message with this number, at a moment in its course.
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
    /// The servers it names; none when it names clients.
    pub fn servers(&self) -> Vec<u32> {
        match self {
            Self::Servers(servers) => servers.clone(),
            Self::Clients(_) | Self::Everyone => Vec::new(),
        }
    }

    /// The clients it names; none when it names servers.
    pub fn clients(&self) -> Vec<u32> {
        match self {
            Self::Clients(clients) => clients.clone(),
            Self::Servers(_) | Self::Everyone => Vec::new(),
        }
    }

    /// Whether the link from this client to this server belongs to it.
    pub fn has_link(&self, client: u32, server: u32) -> bool {
        match self {
            Self::Clients(clients) => clients.contains(&client),
            Self::Servers(servers) => servers.contains(&server),
            Self::Everyone => true,
        }
    }
}
