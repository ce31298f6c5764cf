//! One lock client through a whole run ([`LogicalClient`]), and the events that end its hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::protocol::OpenRequest;
use tokio::sync::watch;

use crate::run::recorder::Recorder;

/// The events that end the hold of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// The number of losses that its library reported.
    pub losses: u64,
    /// The time of the last of these reports, a reading of `CLOCK_MONOTONIC` in nanoseconds.
    pub lost_at: Option<u64>,
    /// The time at which its child process ended, a reading of `CLOCK_MONOTONIC` in nanoseconds.
    pub died_at: Option<u64>,
}

impl Health {
    /// Returns the time of the last reported loss, if there was one since `before`. The end of the process is none.
    pub(super) fn lost_since(self, before: Self) -> Option<u64> {
        self.lost_at.filter(|_| self.losses > before.losses)
    }
}

/// The state of a hold, as the holder knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tenure {
    Holds,
    /// It gave the lock up, and has it again.
    HoldsAgain,
    /// It learned of the loss of its lock, or its lease is over by its own clock.
    Lost,
    /// Its lease was over, and it is unknown whether it has the lock again.
    Unknown,
}

/// One lock client through the whole run, in any process: `c3` in the history.
pub struct LogicalClient {
    pub number: u32,
    pub(super) open: OpenRequest,
    /// Its process number in the history: another one after each operation whose outcome is unknown.
    process: AtomicU32,
    pub(super) health: watch::Sender<Health>,
    /// The number of its acquires.
    pub acquired: AtomicU64,
    /// The number of its acquires that were answered by an error, and not as a lock answers.
    pub failed: AtomicU64,
}

impl LogicalClient {
    pub(super) fn new(number: u32, open: OpenRequest) -> Arc<Self> {
        Arc::new(Self {
            number,
            open,
            process: AtomicU32::new(number),
            health: watch::channel(Health::default()).0,
            acquired: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    pub fn process(&self) -> u32 {
        self.process.load(Relaxed)
    }

    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Records a signal under its current process number, raised `at` this reading; see [`Recorder::signal`].
    pub fn signal(&self, f: &str, fields: Fields<'_>, at: Option<u64>, recorder: &Recorder) {
        recorder.signal(Process::Client(self.process()), Some(self.number), f, fields, at);
    }

    /// Acts under another process number from now on.
    pub(super) fn become_process(&self, number: u32) {
        self.process.store(number, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_no_loss_that_its_library_reported() {
        let before = Health {
            losses: 1,
            lost_at: Some(3),
            died_at: None,
        };
        let died_at = Some(5);
        assert_eq!(Health { died_at, ..before }.lost_since(before), None);
        let lost = Health {
            losses: 2,
            lost_at: Some(4),
            died_at,
        };
        assert_eq!(lost.lost_since(before), Some(4));
    }
}
