//! The counters of a link ([`LinkCounters`]): the evidence that a fault had an effect.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::behaviour::Flow;
#[cfg(feature = "api")]
use super::direction::Direction;
use crate::counts::LinkCounts;

/// Counters of one link, written by its connections and read when a fault is applied and healed.
#[derive(Debug, Default)]
pub struct LinkCounters {
    pub bytes: AtomicU64,
    pub held_bytes: AtomicU64,
    pub delayed_bytes: AtomicU64,
    pub connections: AtomicU64,
    pub held_connects: AtomicU64,
    pub refused: AtomicU64,
    pub resets: AtomicU64,
    pub dropped_packets: AtomicU64,
    /// Bytes that arrived, and bytes that were sent on, by direction.
    pub received: [AtomicU64; 2],
    pub sent: [AtomicU64; 2],
    /// Connections that are carried at this moment.
    pub live: AtomicU64,
    /// Of a meter: bytes that went into the proxy on its other side.
    pub entered: AtomicU64,
    /// Of a meter: those among them that came over connections which began in a partition.
    pub unanswered: AtomicU64,
}

impl LinkCounters {
    pub fn read(&self) -> LinkCounts {
        LinkCounts {
            bytes: self.bytes.load(Relaxed),
            held_bytes: self.held_bytes.load(Relaxed),
            delayed_bytes: self.delayed_bytes.load(Relaxed),
            connections: self.connections.load(Relaxed),
            held_connects: self.held_connects.load(Relaxed),
            refused: self.refused.load(Relaxed),
            resets: self.resets.load(Relaxed),
            dropped_packets: self.dropped_packets.load(Relaxed),
        }
    }

    /// Returns the bytes of one direction that arrived, and those that were sent on.
    #[cfg(feature = "api")]
    pub fn carried(&self, direction: Direction) -> [u64; 2] {
        [&self.received, &self.sent].map(|counters| counters[direction as usize].load(Relaxed))
    }

    /// Counts bytes that arrived while `flow` was on.
    pub fn obeyed(&self, flow: &Flow, bytes: usize) {
        if flow.stall || flow.freeze || flow.discard || flow.reset_after.is_some() {
            count(&self.held_bytes, bytes as u64);
        } else if flow.delays() {
            count(&self.delayed_bytes, bytes as u64);
        }
    }
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// A connection that is carried, until it is dropped.
pub struct LiveConnection<'a>(&'a AtomicU64);

impl<'a> LiveConnection<'a> {
    pub fn begin(stats: &'a LinkCounters) -> Self {
        count(&stats.live, 1);
        Self(&stats.live)
    }
}

impl Drop for LiveConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
