//! Meters: links that carry bytes as they come and count what somebody else's proxy, on their other side, does to them.
//!
//! A Toxiproxy tells nothing of what it holds back. So each of its proxies stands between two meters, one that the client
//! talks to and one that talks to the server: what went in on one side and did not come out on the other is held back. They
//! count by the same rules as the built-in proxy: a connection that begins in a partition counts as a connect that was left
//! unanswered, and what it sends until the heal counts as nothing more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::watch;

use super::behaviour::{Behaviour, Cut};
use super::lane::Direction;
use super::link::State;
use super::stats::{Stats, count};

/// On which side of somebody else's proxy a link stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It obeys its own layers; there is nobody else.
    Own,
    /// The client talks to it, and it talks to the proxy.
    Front,
    /// The proxy talks to it, and it talks to the server.
    #[cfg_attr(
        not(feature = "toxiproxy"),
        expect(dead_code, reason = "only a Toxiproxy has meters")
    )]
    Back,
}

/// What one connection of a link counts for somebody else.
#[derive(Debug)]
pub struct Meter {
    side: Side,
    /// It began while connects were held, and that lasts.
    unanswered: AtomicBool,
    /// Which of the two ends of the connection went first.
    gone: OnceLock<End>,
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Client,
    Upstream,
}

impl Meter {
    /// Of a connection that begins now.
    pub fn begin(side: Side, shadow: &Behaviour, stats: &Stats) -> Self {
        let unanswered = side != Side::Own && shadow.holds_connects();
        if unanswered && side == Side::Front {
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
            Side::Own => true,
            Side::Front => direction == Direction::ToClient,
            Side::Back => direction == Direction::ToServer,
        }
    }

    /// Counts a chunk that is about to enter the proxy.
    pub fn read(&self, direction: Direction, bytes: usize, state: &watch::Receiver<State>, stats: &Stats) {
        if self.side == Side::Own || self.counts_passed(direction) {
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

    /// An end of the connection ended its stream, or takes no more.
    pub fn gone(&self, end: End) {
        let _ = self.gone.set(end);
    }

    /// Counts the end of a connection that the proxy broke, since it is told to.
    pub fn ended(&self, shadow: &Behaviour, stats: &Stats) {
        let by_proxy = self.gone.get() == Some(&End::Upstream);
        if self.side == Side::Front && by_proxy && shadow.cut != Cut::default() {
            count(&stats.resets, 1);
        }
    }
}
