//! The beginnings of phases in a history, with what was known by then: of the last one, what taps counted in the whole run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::window_facts::lenient;

/// The beginning of a phase, with what is known by then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum PhaseFact {
    /// No faults, to see that the lock works at all.
    Control {
        /// Acquires that each client has to make, where that was asked for.
        #[serde(default, deserialize_with = "lenient")]
        each: Option<u32>,
    },
    /// Control passed.
    WarmUp {
        /// Acquires that were answered in the control phase.
        #[serde(default, deserialize_with = "lenient")]
        control_acquires: u64,
    },
    /// Faults are on from here.
    Faults {
        /// Fault windows that are planned.
        #[serde(default, deserialize_with = "lenient")]
        windows: u32,
        /// They are of whatever faults fit, and none was asked for by name.
        #[serde(default, deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
        any: bool,
    },
    /// All faults are healed, and every client is to acquire once more. Older histories have it as `calm`.
    #[serde(alias = "calm")]
    Recovery,
    /// A violation was seen while the run went on, and ends it: faults heal, and clients release what they hold. There is no recovery.
    Violation(SeenViolation),
    /// The run came to its end.
    End {
        /// Clients that acquired less often than they should have: `c3`.
        #[serde(default, deserialize_with = "lenient")]
        unfinished: Vec<String>,
        /// What taps counted, where there were any.
        #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
        wire: Option<TapTotals>,
    },
}

/// A violation as it was seen while the run went on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenViolation {
    /// The id of the property: `HL002`.
    pub property: String,
    /// What kind of violation it is: `two-holders`.
    pub class: String,
    /// The lock.
    pub lock: String,
    /// When it happened, in nanoseconds of the history.
    pub at_ns: u64,
    /// The violation in one sentence.
    pub summary: String,
}

/// What taps counted on all links of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TapTotals {
    /// By client: `c3`.
    pub clients: BTreeMap<String, MessageCounts>,
    /// The requests of all clients together, by name and state of the client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestCount>,
    /// What clients asked again after a reply that was dropped though its request was accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked_again: Vec<AskedAgain>,
    /// The sessions and leases that servers gave to clients, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<ClientSession>,
    /// Connections on which a tap lost its place in the protocol, so that their counts are too low.
    pub lost: u64,
    /// Where and why the first of them did.
    pub why: Option<String>,
}

/// Requests of the same name that were refused after a fault had dropped a reply which did not say that nothing was done; in the same
/// acquire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedAgain {
    /// `c3`
    pub client: String,
    /// By the name of its protocol: `SET`, `create`.
    pub message: String,
    /// When the request passed whose reply was dropped, in nanoseconds of the history.
    #[serde(rename = "time")]
    pub time_ns: u64,
    /// How many were refused.
    pub refused: u64,
    /// When they were refused, in nanoseconds of the history: each, or each second, fourth, … of them.
    pub refused_ns: Vec<u64>,
    /// The words of the request whose reply was dropped, its name first, where the protocol has them and the history keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

/// A session or a lease that a server gave to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSession {
    /// `c3`
    pub client: String,
    /// As a server shows the owner of a lock: `0x1a2b`.
    pub name: String,
    /// When the client was told first, in nanoseconds of the history.
    #[serde(rename = "time")]
    pub time_ns: u64,
}

/// How often clients in one state sent a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCount {
    /// By the name of its protocol: `SET`, `create`.
    pub message: String,
    /// What the client was doing: `idle`, `a waiter`, `the holder`.
    pub role: String,
    /// How many of them passed.
    pub count: u64,
}

/// Messages of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageCounts {
    /// Messages from clients to servers.
    pub requests: u64,
    /// Messages that answer one.
    pub replies: u64,
    /// Messages that no client asked for.
    pub notifications: u64,
    /// Requests that a client which waits for a lock had asked before, word for word, since it began to wait.
    pub retries: u64,
}

impl PhaseFact {
    /// `control`, `warm-up`, `faults`, `recovery`, `violation` or `end`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Control { .. } => "control",
            Self::WarmUp { .. } => "warm-up",
            Self::Faults { .. } => "faults",
            Self::Recovery => "recovery",
            Self::Violation(_) => "violation",
            Self::End { .. } => "end",
        }
    }
}
