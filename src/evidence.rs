//! Evidence: the effect of a window in numbers. Links and faults count it, the history has it, reports read it.

use std::collections::BTreeMap;

pub use harness_checkers::history::EvidenceCounter;
use harness_proxy::LinkCounts;
use serde::{Deserialize, Serialize};

/// The effect of a window. Counters other than those of links are written only if they are above zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Links that the fault acted on.
    pub links: u64,
    #[serde(flatten)]
    pub counts: LinkCounts,
    /// Counters of the fault itself, by key.
    #[serde(flatten)]
    pub counters: BTreeMap<String, u64>,
}

pub const LINKS: EvidenceCounter = EvidenceCounter::new("links", "link", "");
/// The bytes held back. The sentence has them in a unit that fits.
pub const HELD_BYTES: EvidenceCounter = EvidenceCounter::new("held_bytes", "", "held back");
pub const DELAYED_BYTES: EvidenceCounter = EvidenceCounter::new("delayed_bytes", "", "delayed");
pub const HELD_CONNECTS: EvidenceCounter = EvidenceCounter::new("held_connects", "connect", "unanswered");
pub const DROPPED_PACKETS: EvidenceCounter = EvidenceCounter::new("dropped_packets", "packet", "dropped");
pub const REFUSED: EvidenceCounter = EvidenceCounter::new("refused", "connect", "refused");
pub const RESETS: EvidenceCounter = EvidenceCounter::new("resets", "connection", "reset");

/// Requests that clients sent while faults could act on them, by taps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentUnderFaults {
    /// The number of requests.
    pub requests: u64,
    /// The states in which requests were sent: `SET of a waiter, others: idle, the holder`.
    pub states: Vec<String>,
}

/// Counters of links that prove a fault's effect.
pub const LINK_COUNTERS: [EvidenceCounter; 7] = [
    LINKS,
    DROPPED_PACKETS,
    HELD_CONNECTS,
    REFUSED,
    RESETS,
    HELD_BYTES,
    DELAYED_BYTES,
];

/// The certain stop of each process of the target.
pub const STOPPED_MS: EvidenceCounter = EvidenceCounter::new("stopped_ms", "ms", "stopped");
/// The number of the target's clients that held a lock.
pub const HOLDERS: EvidenceCounter = EvidenceCounter::new("holders", "target", "held a lock");
/// Servers that served again at the end of the heal.
pub const SERVERS_BACK: EvidenceCounter = EvidenceCounter::new("servers_back", "server", "back");
/// Replicas that became masters.
pub const SERVERS_PROMOTED: EvidenceCounter = EvidenceCounter::new("servers_promoted", "replica", "promoted");
/// Client processes that a fault killed.
pub const CLIENTS_KILLED: EvidenceCounter = EvidenceCounter::new("clients_killed", "client process", "killed");

impl Evidence {
    /// Returns the evidence of links.
    pub fn of_links(links: usize, counts: LinkCounts) -> Self {
        Self {
            links: links as u64,
            counts,
            counters: BTreeMap::new(),
        }
    }

    /// Returns the evidence of counters by key.
    pub fn from_counters<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let mut evidence = Self::default();
        for (key, count) in counters {
            let links = &mut evidence.counts;
            let field = match key {
                "links" => &mut evidence.links,
                "bytes" => &mut links.bytes,
                "held_bytes" => &mut links.held_bytes,
                "delayed_bytes" => &mut links.delayed_bytes,
                "connections" => &mut links.connections,
                "held_connects" => &mut links.held_connects,
                "refused" => &mut links.refused,
                "resets" => &mut links.resets,
                "dropped_packets" => &mut links.dropped_packets,
                _ => evidence.counters.entry(key.to_owned()).or_default(),
            };
            *field = count;
        }
        evidence
    }

    /// Returns all counters by key, most of those of links even if they are 0.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        let dropped = Some(("dropped_packets", self.counts.dropped_packets)).filter(|(_, count)| *count > 0);
        let of_links = [
            "links",
            "bytes",
            "held_bytes",
            "delayed_bytes",
            "connections",
            "held_connects",
            "refused",
            "resets",
        ];
        let own = self.counters.iter().map(|(key, count)| (key.as_str(), *count));
        of_links
            .into_iter()
            .map(|key| (key, self.get(key)))
            .chain(dropped)
            .chain(own)
    }

    /// Adds a counter of the fault's own.
    #[must_use]
    pub fn with(mut self, counter: &EvidenceCounter, count: u64) -> Self {
        if count > 0 {
            self.counters.insert(counter.key.to_owned(), count);
        }
        self
    }

    /// Returns the count of the counter with this key.
    pub fn get(&self, key: &str) -> u64 {
        match key {
            "links" => self.links,
            "bytes" => self.counts.bytes,
            "held_bytes" => self.counts.held_bytes,
            "delayed_bytes" => self.counts.delayed_bytes,
            "connections" => self.counts.connections,
            "held_connects" => self.counts.held_connects,
            "refused" => self.counts.refused,
            "resets" => self.counts.resets,
            "dropped_packets" => self.counts.dropped_packets,
            _ => self.counters.get(key).copied().unwrap_or(0),
        }
    }

    /// Whether one of these counters is above zero.
    pub fn has_any(&self, counters: &[EvidenceCounter]) -> bool {
        counters.iter().any(|counter| self.get(counter.key) > 0)
    }

    /// Returns the sums of the counters of two windows.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.links += other.links;
        self.counts = self.counts.plus(other.counts);
        for (key, count) in &other.counters {
            *self.counters.entry(key.clone()).or_default() += count;
        }
        self
    }

    /// Returns `3 links, 2 connections reset, 310 KiB held back`, with the words of `declared` for the fault's own counters.
    pub fn in_words<Text: AsRef<str>>(&self, declared: &[EvidenceCounter<Text>]) -> String {
        let mut words: Vec<String> = Vec::new();
        let mut add = |counter: EvidenceCounter<&str>| {
            let count = self.get(counter.key);
            if count > 0 {
                words.push(counted(counter, count));
            }
        };
        add(LINKS);
        let mut own: Vec<&String> = self.counters.keys().collect();
        for counter in declared.iter().map(EvidenceCounter::as_ref) {
            if let Some(at) = own.iter().position(|key| *key == counter.key) {
                own.remove(at);
                add(counter);
            }
        }
        for key in own {
            add(counter_of_key(key));
        }
        LINK_COUNTERS.into_iter().skip(1).for_each(add);
        words.join(", ")
    }
}

/// Derives a counter from its key, for a history without its declaration: `servers_killed` counts servers, killed.
fn counter_of_key(key: &str) -> EvidenceCounter<&str> {
    let (noun, outcome) = match key.strip_suffix("_ms") {
        Some(outcome) => ("ms", outcome),
        None => key.split_once('_').unwrap_or((key, "")),
    };
    EvidenceCounter {
        key,
        noun: noun.strip_suffix('s').filter(|_| noun != "ms").unwrap_or(noun),
        outcome,
    }
}

/// Returns `2 servers killed`.
fn counted(counter: EvidenceCounter<&str>, count: u64) -> String {
    let EvidenceCounter { key, noun, outcome } = counter;
    let counted = if key.ends_with("_bytes") {
        bytes_in_words(count)
    } else {
        format!("{count} {noun}{}", plural(count, noun))
    };
    let outcome = outcome.replace('_', " ");
    format!("{counted} {outcome}").trim_end().to_owned()
}

/// Returns the plural ending of a noun for this count.
fn plural(count: u64, noun: &str) -> &'static str {
    match noun {
        "ms" => "",
        _ if count == 1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    }
}

/// Returns `310 KiB`.
pub fn bytes_in_words(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK: EvidenceCounter = EvidenceCounter::new("doors_stuck", "trap door", "stuck half-way");

    #[test]
    fn a_counter_has_the_words_that_were_declared_and_else_those_of_its_key() {
        let evidence = Evidence::of_links(1, LinkCounts::default())
            .with(&STUCK, 2)
            .with(&STOPPED_MS, 40)
            .with(&SERVERS_BACK, 0);
        assert_eq!(
            evidence.in_words(&[STUCK]),
            "1 link, 2 trap doors stuck half-way, 40 ms stopped"
        );
        assert_eq!(evidence.in_words::<&str>(&[]), "1 link, 2 doors stuck, 40 ms stopped");
    }

    #[test]
    fn evidence_is_one_flat_object_and_is_read_again_as_it_was() {
        let evidence = Evidence::of_links(
            3,
            LinkCounts {
                resets: 5,
                ..LinkCounts::default()
            },
        )
        .with(&HOLDERS, 1);
        let json = serde_json::to_value(&evidence).unwrap();
        assert_eq!((&json["resets"], &json["holders"]), (&5.into(), &1.into()));
        assert_eq!(serde_json::from_value::<Evidence>(json).unwrap(), evidence);
    }
}
