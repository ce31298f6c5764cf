//! What a link does with bytes: pure descriptions, and how several faults on one link add up.
//!
//! A stream never loses or reorders bytes. What can be decided is when a chunk goes on (now, later, never until the
//! heal) and whether the connection lives.

use std::time::Duration;

/// What one direction of a link does with the bytes that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Hold everything back, end of stream and resets included, until this is taken away.
    pub stall: bool,
    /// Hold each chunk back for this long, give or take `jitter`.
    pub delay: Duration,
    pub jitter: Duration,
    /// Let at most this many bytes a second pass.
    pub bytes_per_second: Option<u32>,
    /// Cut chunks into slices of at most this many bytes, each sent on its own.
    pub slice: Option<u32>,
}

/// When a connection is reset by the link itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cut {
    /// After about this long; the seed draws between half and one and a half times it.
    pub after: Option<Duration>,
    /// After about this many bytes, both directions together; drawn likewise.
    pub after_bytes: Option<u32>,
}

/// What a link does, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behaviour {
    pub to_server: Flow,
    pub to_client: Flow,
    pub cut: Cut,
}

impl Flow {
    pub const STALL: Self = Self {
        stall: true,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        bytes_per_second: None,
        slice: None,
    };

    /// Whether bytes go straight through.
    pub fn is_pass(&self) -> bool {
        *self == Self::default()
    }

    fn join(self, other: Self) -> Self {
        Self {
            stall: self.stall || other.stall,
            delay: self.delay + other.delay,
            jitter: self.jitter + other.jitter,
            bytes_per_second: least(self.bytes_per_second, other.bytes_per_second),
            slice: least(self.slice, other.slice),
        }
    }
}

impl Behaviour {
    /// Bytes stand still both ways.
    pub const STALL: Self = Self {
        to_server: Flow::STALL,
        to_client: Flow::STALL,
        cut: Cut {
            after: None,
            after_bytes: None,
        },
    };

    /// The same flow both ways.
    pub fn both(flow: Flow) -> Self {
        Self {
            to_server: flow,
            to_client: flow,
            cut: Cut::default(),
        }
    }

    /// A new connection needs bytes to travel both ways before it is one.
    pub fn holds_connects(&self) -> bool {
        self.to_server.stall || self.to_client.stall
    }

    /// Both at once: stalls win, delays add up, the tighter limit counts.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            to_server: self.to_server.join(other.to_server),
            to_client: self.to_client.join(other.to_client),
            cut: Cut {
                after: least(self.cut.after, other.cut.after),
                after_bytes: least(self.cut.after_bytes, other.cut.after_bytes),
            },
        }
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_faults_on_one_link_add_up_and_the_tighter_limit_counts() {
        let slow = Behaviour::both(Flow {
            bytes_per_second: Some(100),
            delay: Duration::from_millis(5),
            ..Flow::default()
        });
        let slower = Behaviour::both(Flow {
            bytes_per_second: Some(10),
            delay: Duration::from_millis(7),
            ..Flow::default()
        });
        let joined = slow.join(slower).join(Behaviour {
            to_client: Flow::STALL,
            ..Behaviour::default()
        });
        assert_eq!(joined.to_server.bytes_per_second, Some(10));
        assert_eq!(joined.to_server.delay, Duration::from_millis(12));
        assert!(joined.to_client.stall && !joined.to_server.stall);
        assert!(joined.holds_connects());
    }

    #[test]
    fn no_fault_passes() {
        assert!(Behaviour::default().to_server.is_pass());
        assert!(Behaviour::default().join(Behaviour::default()).to_client.is_pass());
    }
}
