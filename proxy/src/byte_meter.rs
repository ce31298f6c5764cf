//! Byte meters: links that carry bytes as they come and count what an external proxy does to them.
//!
//! A Toxiproxy does not report the bytes that it holds back. So each of its proxies is placed between two meters, one at the client and one
//! at the server: bytes that went in on one side and did not come out on the other are held back. Meters count by the rules of the built-in
//! proxy: a connection that begins in a partition counts as a connect that was left unanswered, and its bytes until the heal do not count.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::watch;

use super::behaviour::{Behaviour, Cut};
use super::counters::{LinkCounters, count};
use super::direction::Direction;
use super::link_state::LinkState;

/// The side of an external proxy that a link is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterSide {
    /// It obeys its own layers; there is no external proxy.
    Own,
    /// The client connects to it, and it connects to the proxy.
    Front,
    /// The proxy connects to it, and it connects to the server.
    #[cfg_attr(
        not(feature = "toxiproxy"),
        expect(dead_code, reason = "only a Toxiproxy has meters")
    )]
    Back,
}

/// Counts the bytes of one connection of a link for an external proxy.
#[derive(Debug)]
pub struct ByteMeter {
    side: MeterSide,
    /// Whether the connection began while connects were held, and they still are.
    unanswered: AtomicBool,
    /// The end of the connection that ended first, by the direction of what it sends.
    gone: OnceLock<Direction>,
}

impl ByteMeter {
    /// Returns the meter of a connection that begins now.
    pub fn begin(side: MeterSide, shadow: &Behaviour, stats: &LinkCounters) -> Self {
        let unanswered = side != MeterSide::Own && shadow.holds_connects();
        if unanswered && side == MeterSide::Front {
            count(&stats.held_connects, 1);
        }
        Self {
            side,
            unanswered: AtomicBool::new(unanswered),
            gone: OnceLock::new(),
        }
    }

    /// Whether bytes of this direction are past the proxy when they leave this link.
    pub fn counts_passed(&self, direction: Direction) -> bool {
        match self.side {
            MeterSide::Own => true,
            MeterSide::Front => direction == Direction::ToClient,
            MeterSide::Back => direction == Direction::ToServer,
        }
    }

    /// Counts a chunk that is about to enter the proxy.
    pub fn read(&self, direction: Direction, bytes: usize, state: &watch::Receiver<LinkState>, stats: &LinkCounters) {
        if self.side == MeterSide::Own || self.counts_passed(direction) {
            return;
        }
        count(&stats.entered, bytes as u64);
        let shadow = state.borrow().shadow;
        if !shadow.holds_connects() {
            self.unanswered.store(false, Relaxed);
        }
        let flow = direction.of(&shadow);
        if self.unanswered.load(Relaxed) {
            count(&stats.unanswered, bytes as u64);
        } else if !flow.stall && flow.delays() {
            count(&stats.delayed_bytes, bytes as u64);
        }
    }

    /// Notes that the end which sends in this direction ended its stream, or takes no more.
    pub fn gone(&self, sends: Direction) {
        let _ = self.gone.set(sends);
    }

    /// Counts the end of a connection that the proxy broke as it was ordered to.
    pub fn ended(&self, shadow: &Behaviour, stats: &LinkCounters) {
        let by_proxy = self.gone.get() == Some(&Direction::ToClient);
        if self.side == MeterSide::Front && by_proxy && shadow.cut != Cut::default() {
            count(&stats.resets, 1);
        }
    }
}
