//! A client on models that loops or polls without letting virtual time pass ([`Looping`]), found by the number of its polls in a stretch of
//! virtual time.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Core, World};

/// The most readings of the clock and timers in one poll, and the most polls of a process within [`WINDOW`]. Each takes 100 ns in the
/// world: it has room for ten times as many polls in a window. Recipes come to a few dozen.
pub(crate) const MOST_READINGS: u32 = 200_000;
const MOST_POLLS: u32 = 100_000;
const WINDOW: Duration = Duration::from_millis(100);

/// A process that loops, which ended its world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looping {
    /// Its name.
    pub process: String,
    /// The time at which that was seen, from the beginning of the world.
    pub at: Duration,
}

impl fmt::Display for Looping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(f, "{} loops without letting time pass, at {at:.3}s", self.process)
    }
}

impl std::error::Error for Looping {}

impl Core {
    /// Unwinds to [`World::try_run`]: there is no other way out of a poll that does not return.
    pub(super) fn end_looping(&self, process: usize) -> ! {
        let name = self.processes.borrow().name(process).unwrap_or_default().to_owned();
        resume_unwind(Box::new(Looping {
            process: name,
            at: Duration::from_nanos(self.clock.get()),
        }));
    }
}

/// The polls of one process in one window.
#[derive(Debug, Default)]
pub(crate) struct PollCount {
    /// The beginning of the window, in nanoseconds since the beginning of the world.
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

impl World {
    /// Returns the pulse of the world, for a thread that watches it.
    pub fn pulse(self) -> Arc<WorldPulse> {
        self.with(|core| core.pulse.clone())
    }
}

/// The number for no process.
const NOBODY: usize = usize::MAX;

/// The poll that a world makes now, for another thread: the world itself cannot see a poll that neither returns nor reads the clock.
#[derive(Debug)]
pub struct WorldPulse {
    polls: AtomicU64,
    polled: AtomicUsize,
    names: Mutex<Vec<String>>,
}

impl Default for WorldPulse {
    fn default() -> Self {
        Self {
            polls: AtomicU64::new(0),
            polled: AtomicUsize::new(NOBODY),
            names: Mutex::default(),
        }
    }
}

impl WorldPulse {
    /// Returns the number of the current poll and its process, if it is one of a process.
    pub fn poll(&self) -> Option<(u64, String)> {
        let (poll, process) = (self.polls.load(Relaxed), self.polled.load(Relaxed));
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        Some((poll, names.get(process)?.clone()))
    }

    /// Adds the name of a process; the processes of a world are numbered in the order in which they begin.
    pub(crate) fn name(&self, process: &str) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(process.to_owned());
    }

    /// Polls a task of this process.
    pub(crate) fn during<T>(&self, process: Option<usize>, poll: impl FnOnce() -> T) -> T {
        self.polls.store(self.polls.load(Relaxed) + 1, Relaxed);
        self.polled.store(process.unwrap_or(NOBODY), Relaxed);
        let polled = poll();
        self.polled.store(NOBODY, Relaxed);
        polled
    }
}
