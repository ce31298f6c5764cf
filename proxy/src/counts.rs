//! [`LinkCounts`]: the counts of a link as numbers that add up and subtract.

use serde::{Deserialize, Serialize};

/// A reading of the counters, and the difference of two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Bytes that passed, both ways.
    pub bytes: u64,
    /// Bytes that were held back by a stall.
    pub held_bytes: u64,
    /// Bytes that were delayed, slowed or sliced.
    pub delayed_bytes: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connection attempts that were left unanswered; the kernel's own repetitions of an attempt count.
    pub held_connects: u64,
    /// Connections that the server did not take.
    pub refused: u64,
    /// Connections that the link reset.
    pub resets: u64,
    /// Packets that were dropped without being acknowledged, retransmissions among them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_packets: u64,
}

impl LinkCounts {
    /// Returns the counts between `earlier` and this reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// Whether the counts show an effect of a fault.
    pub fn touched(&self) -> bool {
        self.held_bytes + self.delayed_bytes + self.held_connects + self.refused + self.resets + self.dropped_packets
            > 0
    }

    fn zip(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: op(self.bytes, other.bytes),
            held_bytes: op(self.held_bytes, other.held_bytes),
            delayed_bytes: op(self.delayed_bytes, other.delayed_bytes),
            connections: op(self.connections, other.connections),
            held_connects: op(self.held_connects, other.held_connects),
            refused: op(self.refused, other.refused),
            resets: op(self.resets, other.resets),
            dropped_packets: op(self.dropped_packets, other.dropped_packets),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the serializer gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
