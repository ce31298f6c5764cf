//! What a fault did, in numbers: counted by links, written into the history, read again by reports.

use harness_proxy::LinkCounts;
use serde::{Deserialize, Serialize};

/// What a window did. What is not about links is written only where it happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub links: u64,
    #[serde(flatten)]
    pub counts: LinkCounts,
    /// Messages that never arrived.
    #[serde(default, skip_serializing_if = "is_none")]
    pub messages_dropped: u64,
    /// Messages that arrived late.
    #[serde(default, skip_serializing_if = "is_none")]
    pub messages_delayed: u64,
    /// Client processes that were stopped.
    #[serde(default, skip_serializing_if = "is_none")]
    pub clients_stopped: u64,
    /// How long each of them, or each server that was paused, surely stood still.
    #[serde(default, skip_serializing_if = "is_none")]
    pub stopped_ms: u64,
    /// Client processes that were killed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub clients_killed: u64,
    /// How many of the struck clients held a lock.
    #[serde(default, skip_serializing_if = "is_none")]
    pub holders: u64,
    /// Servers that were paused.
    #[serde(default, skip_serializing_if = "is_none")]
    pub servers_paused: u64,
    /// Servers that were killed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub servers_killed: u64,
    /// Replicas that took the place of their master.
    #[serde(default, skip_serializing_if = "is_none")]
    pub servers_promoted: u64,
    /// Servers that served again after that, by the heal.
    #[serde(default, skip_serializing_if = "is_none")]
    pub servers_back: u64,
    /// Wall clocks that were stepped.
    #[serde(default, skip_serializing_if = "is_none")]
    pub clocks_stepped: u64,
    /// How often somebody read such a clock meanwhile.
    #[serde(default, skip_serializing_if = "is_none")]
    pub clock_readings: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the serializer gives a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Evidence {
    /// Whether the fault left a trace.
    pub fn touched(&self) -> bool {
        let paused = self.clients_stopped + self.servers_paused > 0 && self.stopped_ms > 0;
        let killed = self.clients_killed + self.servers_killed + self.servers_promoted > 0;
        let messages = self.messages_dropped + self.messages_delayed > 0;
        self.counts.touched() || paused || killed || messages || self.clock_readings > 0
    }

    /// `3 links, 310 KiB held back, 2 connections reset`
    pub fn in_words(&self) -> String {
        let counts = &self.counts;
        let parts = [
            (self.links, "link", ""),
            (self.messages_dropped, "message", " dropped"),
            (self.messages_delayed, "message", " delayed"),
            (counts.held_connects, "connect", " unanswered"),
            (counts.refused, "connect", " refused"),
            (counts.resets, "connection", " reset"),
            (self.clients_stopped, "client process", " stopped"),
            (self.servers_paused, "server", " paused"),
            (self.stopped_ms, "ms", " stopped"),
            (self.clients_killed, "client process", " killed"),
            (self.holders, "of the struck", " held a lock"),
            (self.servers_killed, "server", " killed"),
            (self.servers_promoted, "replica", " promoted"),
            (self.servers_back, "server", " back"),
            (self.clocks_stepped, "clock", " stepped"),
            (self.clock_readings, "reading", " of a stepped clock"),
        ];
        let mut words: Vec<String> = parts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, what, became)| format!("{count} {what}{}{became}", plural(*count, what)))
            .collect();
        for (bytes, what) in [(counts.held_bytes, "held back"), (counts.delayed_bytes, "delayed")] {
            if bytes > 0 {
                words.push(format!("{} {what}", bytes_in_words(bytes)));
            }
        }
        words.join(", ")
    }
}

/// What a word ends with for so many of it.
fn plural(count: u64, what: &str) -> &'static str {
    match what {
        "ms" | "of the struck" => "",
        _ if count == 1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    }
}

/// `310 KiB`
pub fn bytes_in_words(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
