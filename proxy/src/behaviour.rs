//! The behaviour of a link ([`Behaviour`]): pure descriptions of its effect on bytes, and the sum of several faults on one link.
//!
//! A stream never loses or reorders bytes. A flow decides when a chunk goes on (now, later, never until the heal) and whether the
//! connection lives; a flow that discards bytes ends the connection.

use std::time::Duration;

/// The effect of a link on the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Hold everything back, end of stream and resets included, until this is taken away.
    pub stall: bool,
    /// Let the kernel drop the sender's packets before it acknowledges them; used together with `stall`.
    pub blackhole: bool,
    /// Hold each chunk back for this long, give or take `jitter`.
    pub delay: Duration,
    pub jitter: Duration,
    /// Lose packets: a chunk waits until TCP would have retransmitted it.
    pub loss: Option<Loss>,
    /// Hold chunks back longer in bursts.
    pub bursts: Option<Bursts>,
    /// Reset the connection when bytes arrive after this time without traffic, as a NAT does that has forgotten it.
    pub forget_after: Option<Duration>,
    /// Let at most this many bytes a second pass.
    pub bytes_per_second: Option<u32>,
    /// Cut chunks into slices of about this many bytes, each sent on its own.
    pub slice: Option<Slice>,
    /// Hold every chunk back until this is taken away; new connections and an end with nothing before it pass.
    pub freeze: bool,
    /// Hold the end of the stream back for this time.
    pub end_delay: Duration,
    /// Discard all bytes. The connection ends when this is removed: later bytes would not follow those that arrived.
    pub discard: bool,
    /// End the connection when nothing arrived for this time.
    pub close_after_silence: Option<Duration>,
    /// Hold everything back, and reset the connection this time after it began.
    pub reset_after: Option<Duration>,
    /// End the connection when this many bytes have passed since this began.
    pub limit: Option<u64>,
}

/// The slices into which chunks are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// Bytes, at least 1.
    pub size: u32,
    /// The seed draws the size of each slice from `size` - `variation` to `size` + `variation` bytes.
    pub variation: u32,
    /// Time between two slices.
    pub gap: Duration,
}

/// The time and the bytes after which the link itself resets a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cut {
    /// After about this long; the seed draws between half and one and a half times it.
    pub after: Option<Duration>,
    /// After about this many bytes, both directions together; drawn likewise.
    pub after_bytes: Option<u32>,
}

/// The effect of a link on both directions of its connections.
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
        blackhole: false,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        loss: None,
        bursts: None,
        forget_after: None,
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

    /// A stall without acknowledgements, which the sender's TCP notices.
    pub const BLACKHOLE: Self = Self {
        blackhole: true,
        ..Self::STALL
    };

    /// Chunks are held back; new connections and ends pass.
    pub const FREEZE: Self = Self {
        freeze: true,
        ..Self::PASS
    };

    /// Delays each chunk by this time.
    pub const fn delayed(delay: Duration) -> Self {
        Self { delay, ..Self::PASS }
    }

    pub const fn slowed(bytes_per_second: u32) -> Self {
        Self {
            bytes_per_second: Some(bytes_per_second),
            ..Self::PASS
        }
    }

    pub const fn sliced(slice: Slice) -> Self {
        Self {
            slice: Some(slice),
            ..Self::PASS
        }
    }

    pub const fn lossy(loss: Loss) -> Self {
        Self {
            loss: Some(loss),
            ..Self::PASS
        }
    }

    pub const fn bursty(bursts: Bursts) -> Self {
        Self {
            bursts: Some(bursts),
            ..Self::PASS
        }
    }

    /// Resets a connection that carries bytes again after this time without traffic.
    pub const fn forgetful(idle: Duration) -> Self {
        Self {
            forget_after: Some(idle),
            ..Self::PASS
        }
    }

    /// Returns the delay of a chunk that arrived `age` after its connection began and drew `draw`.
    pub fn delay_of(&self, age: Duration, draw: u64) -> Duration {
        let lost = self.loss.map_or(Duration::ZERO, |loss| loss.delay_of(draw));
        let burst = self.bursts.filter(|bursts| bursts.is_on(age));
        let delay = self.delay + lost + burst.map_or(Duration::ZERO, |bursts| bursts.delay);
        if self.jitter.is_zero() {
            return delay;
        }
        let spread = 2.0 * self.jitter.as_secs_f64() * (draw as f64 / u64::MAX as f64);
        (delay + Duration::from_secs_f64(spread)).saturating_sub(self.jitter)
    }

    /// Whether bytes go straight through.
    pub fn is_pass(&self) -> bool {
        *self == Self::PASS
    }

    /// Whether bytes are late, or in other pieces.
    pub fn delays(&self) -> bool {
        !self.delay.is_zero() || !self.jitter.is_zero() || self.bytes_per_second.is_some() || self.slice.is_some()
    }

    /// Whether the flow delays only some chunks, this one among them; see [`Flow::delay_of`].
    pub fn delays_this(&self, age: Duration, draw: u64) -> bool {
        let lost = self.loss.is_some_and(|loss| !loss.delay_of(draw).is_zero());
        let in_burst = self.bursts.is_some_and(|bursts| bursts.is_on(age));
        !self.delays() && (lost || in_burst)
    }

    /// Joins two flows; see [`Behaviour::join`].
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            stall: self.stall || other.stall,
            blackhole: self.blackhole || other.blackhole,
            delay: self.delay + other.delay,
            jitter: self.jitter + other.jitter,
            loss: self.loss.max(other.loss),
            bursts: self.bursts.max(other.bursts),
            forget_after: least(self.forget_after, other.forget_after),
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

/// Packet loss as the two ends of a TCP connection see it: a lost packet is sent again after a timeout, which doubles each
/// time (RFC 6298), and everything that follows it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// Packets lost of a thousand.
    pub per_mille: u16,
    /// The first retransmission timeout; 200 ms is the least of Linux.
    pub timeout: Duration,
}

/// The most losses of one packet in a row.
const MAX_LOSSES: u32 = 6;

impl Loss {
    fn delay_of(self, draw: u64) -> Duration {
        let mut draw = draw;
        let mut losses = 0;
        // one multiplication and shift for each further draw (Knuth's MMIX generator)
        while losses < MAX_LOSSES && (draw >> 32) % 1000 < u64::from(self.per_mille) {
            losses += 1;
            draw = draw
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
        }
        self.timeout * ((1 << losses) - 1)
    }
}

/// Bursts of delay: `length` of each `every` is slow, counted from the beginning of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bursts {
    pub every: Duration,
    pub length: Duration,
    pub delay: Duration,
}

impl Bursts {
    fn is_on(self, age: Duration) -> bool {
        let every = self.every.as_nanos().max(1);
        age.as_nanos() % every < self.length.as_nanos()
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
    /// No bytes pass either way, and no connect is answered.
    pub const STALL: Self = Self::both(Flow::STALL);

    /// No connect is answered, and no bytes are acknowledged: the network is gone.
    pub const BLACKHOLE: Self = Self::both(Flow::BLACKHOLE);

    /// The same flow both ways.
    pub const fn both(flow: Flow) -> Self {
        Self::each_way(flow, flow)
    }

    /// A flow for each direction.
    pub const fn each_way(to_server: Flow, to_client: Flow) -> Self {
        Self {
            to_server,
            to_client,
            cut: Cut {
                after: None,
                after_bytes: None,
            },
        }
    }

    /// Whether connects are held back: a connect needs packets in both directions.
    pub fn holds_connects(&self) -> bool {
        self.to_server.stall || self.to_client.stall
    }

    /// Whether nothing is acknowledged either way.
    pub fn is_blackhole(&self) -> bool {
        self.to_server.blackhole && self.to_client.blackhole
    }

    /// Joins two behaviours: stalls win, delays add up, the stricter limit counts.
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
        let joined = slow.join(slower).join(Behaviour::each_way(Flow::PASS, Flow::STALL));
        assert_eq!(joined.to_server.bytes_per_second, Some(10));
        assert_eq!(joined.to_server.delay, Duration::from_millis(12));
        assert!(joined.to_client.stall && !joined.to_server.stall);
        assert!(joined.holds_connects());
    }

    #[test]
    fn a_delay_is_drawn_within_its_jitter() {
        let flow = Flow {
            delay: Duration::from_millis(10),
            jitter: Duration::from_millis(4),
            ..Flow::PASS
        };
        let age = Duration::ZERO;
        let drawn = [0, u64::MAX / 2, u64::MAX].map(|draw| flow.delay_of(age, draw).as_millis());
        assert_eq!(drawn, [6, 10, 14]);
    }

    #[test]
    fn a_lost_packet_waits_for_its_retransmission_and_one_lost_again_twice_as_long() {
        let timeout = Duration::from_millis(200);
        let delays = |per_mille| {
            let loss = Loss { per_mille, timeout };
            let draw = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..10_000).map(move |number| loss.delay_of(draw(number)).as_millis())
        };
        assert!(delays(0).all(|delay| delay == 0));
        assert!(delays(1000).all(|delay| delay == 200 * 63), "every attempt is lost");
        let lost = delays(100).filter(|delay| *delay > 0).count();
        assert!((800..1200).contains(&lost), "{lost} of 10,000 at 10 %");
        let twice = delays(100).filter(|delay| *delay >= 600).count();
        assert!((50..200).contains(&twice), "{twice} of 10,000 lost twice");
    }

    #[test]
    fn a_burst_is_on_for_its_length_of_each_turn() {
        let bursts = Bursts {
            every: Duration::from_secs(1),
            length: Duration::from_millis(100),
            delay: Duration::from_millis(70),
        };
        let flow = Flow::bursty(bursts);
        let delays = [50, 150, 1099, 1100].map(|age| flow.delay_of(Duration::from_millis(age), 0).as_millis());
        assert_eq!(delays, [70, 0, 70, 0]);
    }

    #[test]
    fn no_fault_passes() {
        assert!(Behaviour::default().to_server.is_pass());
        assert!(Behaviour::default().join(Behaviour::default()).to_client.is_pass());
    }
}
