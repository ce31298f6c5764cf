//! Facts about the beginnings of phases, with the numbers that are known by then: at the end, the taps' counts of the whole run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::window_facts::lenient;

/// The beginning of a phase, with the numbers that are known by then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum PhaseFact {
    /// Without faults, to see that the lock works at all.
    Control {
        /// Acquires that each client must make, if the run has that option.
        #[serde(default, deserialize_with = "lenient")]
        each: Option<u32>,
    },
    /// Control passed.
    WarmUp {
        /// Acquires that were answered in the control phase.
        #[serde(default, deserialize_with = "lenient")]
        control_acquires: u64,
    },
    /// The first fault window may open.
    Faults {
        /// The number of planned fault windows.
        #[serde(default, deserialize_with = "lenient")]
        windows: u32,
        /// Whether the faults are all that fit, and none was chosen by name.
        #[serde(default, deserialize_with = "lenient", skip_serializing_if = "std::ops::Not::not")]
        any: bool,
    },
    /// All faults are healed, and every client must acquire once more.
    Recovery,
    /// A violation was seen during the run and ends it: faults heal, and clients release what they hold. There is no recovery.
    Violation(SeenViolation),
    /// The end of the run.
    End {
        /// Clients that acquired less often than they should have: `c3`.
        #[serde(default, deserialize_with = "lenient")]
        unfinished: Vec<String>,
        /// The counts of the taps, if there were any.
        #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
        wire: Option<TapTotals>,
    },
}

/// A violation that was seen during the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenViolation {
    /// The id of the property: `HL002`.
    pub property: String,
    /// The kind of the violation: `two-holders`.
    pub class: String,
    /// The lock.
    pub lock: String,
    /// Its time, in nanoseconds of the history.
    pub at_ns: u64,
    /// The violation in one sentence.
    pub summary: String,
}

/// The counts of the taps on all links of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TapTotals {
    /// By client: `c3`.
    pub clients: BTreeMap<String, MessageCounts>,
    /// The requests of all clients together, by name and state of the client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestCount>,
    /// Requests that clients repeated after a reply was dropped whose request was accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked_again: Vec<AskedAgain>,
    /// The sessions and leases that servers gave to clients, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<ClientSession>,
    /// Connections on which a tap lost its place in the protocol, so that their counts are too low.
    pub lost: u64,
    /// The place and the reason of the first one.
    pub why: Option<String>,
}

/// Requests of one name that were refused after a fault had dropped the reply to an accepted one, in the same acquire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedAgain {
    /// `c3`
    pub client: String,
    /// The name in its protocol: `SET`, `create`.
    pub message: String,
    /// The time at which the request with the dropped reply passed, in nanoseconds of the history.
    #[serde(rename = "time")]
    pub time_ns: u64,
    /// The number of refused requests.
    pub refused: u64,
    /// Times of refusals, in nanoseconds of the history: of each, or of each second, fourth, … one.
    pub refused_ns: Vec<u64>,
    /// The words of the request with the dropped reply, its name first, if the protocol has words and the history records them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

/// A session or a lease that a server gave to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSession {
    /// `c3`
    pub client: String,
    /// The name by which a server shows the owner of a lock: `0x1a2b`.
    pub name: String,
    /// The time of the first reply with it, in nanoseconds of the history.
    #[serde(rename = "time")]
    pub time_ns: u64,
}

/// The number of requests of one name by clients in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCount {
    /// The name in its protocol: `SET`, `create`.
    pub message: String,
    /// The state of the client: `idle`, `a waiter`, `the holder`.
    pub role: String,
    /// The number of requests that passed.
    pub count: u64,
}

/// Messages of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageCounts {
    /// Messages from clients to servers.
    pub requests: u64,
    /// Messages that answer a request.
    pub replies: u64,
    /// Messages that answer none.
    pub notifications: u64,
    /// Requests that a waiting client had sent before, word for word, since it began to wait.
    pub retries: u64,
}

impl PhaseFact {
    /// Returns the name: `control`, `warm-up`, `faults`, `recovery`, `violation` or `end`.
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
