//! What a link does with bytes: pure descriptions, and how several faults on one link add up.
//!
//! A stream never loses or reorders bytes. What can be decided is when a chunk goes on (now, later, never until the
//! heal) and whether the connection lives; a flow that throws bytes away takes the connection with it.

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
    /// Cut chunks into slices of about this many bytes, each sent on its own.
    pub slice: Option<Slice>,
    /// Hold every chunk back until this is taken away; new connections and an end with nothing before it pass.
    pub freeze: bool,
    /// Hold the end of the stream back for so long.
    pub end_delay: Duration,
    /// Throw away what comes. The connection ends when this is taken away: what came next would not follow what arrived.
    pub discard: bool,
    /// End the connection when nothing came for so long.
    pub close_after_silence: Option<Duration>,
    /// Hold everything back, and reset the connection so long after this began.
    pub reset_after: Option<Duration>,
    /// End the connection when so many bytes have passed since this began.
    pub limit: Option<u64>,
}

/// How chunks are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// Bytes, at least 1.
    pub size: u32,
    /// The seed draws each slice's size from so many bytes less to so many more.
    pub variation: u32,
    /// Time between two slices.
    pub gap: Duration,
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
    /// Bytes go straight through.
    pub const PASS: Self = Self {
        stall: false,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        bytes_per_second: None,
        slice: None,
        freeze: false,
        end_delay: Duration::ZERO,
        discard: false,
        close_after_silence: None,
        reset_after: None,
        limit: None,
    };

    pub const STALL: Self = Self {
        stall: true,
        ..Self::PASS
    };

    /// Whether bytes go straight through.
    pub fn is_pass(&self) -> bool {
        *self == Self::PASS
    }

    /// Whether bytes that pass come later, or in other pieces.
    pub fn delays(&self) -> bool {
        !self.delay.is_zero() || !self.jitter.is_zero() || self.bytes_per_second.is_some() || self.slice.is_some()
    }

    /// Both at once: see [`Behaviour::join`].
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            stall: self.stall || other.stall,
            delay: self.delay + other.delay,
            jitter: self.jitter + other.jitter,
            bytes_per_second: least(self.bytes_per_second, other.bytes_per_second),
            slice: least(self.slice, other.slice),
            freeze: self.freeze || other.freeze,
            end_delay: self.end_delay + other.end_delay,
            discard: self.discard || other.discard,
            close_after_silence: least(self.close_after_silence, other.close_after_silence),
            reset_after: least(self.reset_after, other.reset_after),
            limit: least(self.limit, other.limit),
        }
    }
}

impl Slice {
    /// Slices of one size, far enough apart that the receiver reads them one by one.
    pub const fn of(size: u32) -> Self {
        Self {
            size,
            variation: 0,
            gap: Duration::from_micros(500),
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
