//! A process that executes without letting time pass ([`Looping`]): the program in it loops, and its world would stand still for good.

use std::fmt;
use std::time::Duration;

/// Readings of the clock and timers in one poll, and polls within [`WINDOW`], of which a process makes no more. Each takes 100 ns in the world: it
/// has room for ten times as many polls in a window. Recipes come to a few dozen.
pub(crate) const MOST_READINGS: u32 = 200_000;
const MOST_POLLS: u32 = 100_000;
const WINDOW: Duration = Duration::from_millis(100);

/// A process that loops, which ended its world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looping {
    /// Its name.
    pub process: String,
    /// When that was seen, from the beginning of the world.
    pub at: Duration,
}

impl fmt::Display for Looping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(f, "{} loops without letting time pass, at {at:.3}s", self.process)
    }
}

impl std::error::Error for Looping {}

/// The polls of one process in one window.
#[derive(Debug, Default)]
pub(crate) struct PollCount {
    /// Nanoseconds since the beginning of the world.
    since: u64,
    polls: u32,
}

impl PollCount {
    /// Counts a poll at this time, in nanoseconds. Returns whether the process loops.
    pub fn is_one_too_many(&mut self, now: u64) -> bool {
        if now - self.since > WINDOW.as_nanos() as u64 {
            *self = Self { since: now, polls: 0 };
        }
        self.polls += 1;
        self.polls > MOST_POLLS
    }
}
