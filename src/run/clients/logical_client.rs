//! One lock client through a whole run ([`LogicalClient`]), and what it must notice while it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::protocol::OpenRequest;
use tokio::sync::watch;

use crate::run::recorder::Recorder;

/// What a client must notice while it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// How often its library reported that the lock is lost.
    pub losses: u64,
    /// When it raised the last of these reports, a reading of `CLOCK_MONOTONIC` in nanoseconds.
    pub lost_at: Option<u64>,
    /// When its child process ended, a reading of `CLOCK_MONOTONIC` in nanoseconds.
    pub died_at: Option<u64>,
}

/// What a holder knows of its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tenure {
    Holds,
    /// It had given the lock up, and has it again.
    HoldsAgain,
    /// It was told that it lost the lock, or its lease is over by its own clock.
    Lost,
    /// Its lease was over, and whether it has the lock again is unknown.
    Unknown,
}

/// One lock client through the whole run, whatever process it lives in: `c3` in the history.
pub struct LogicalClient {
    pub number: u32,
    pub(super) open: OpenRequest,
    /// Its process number in the history, another one after each operation whose outcome is unknown.
    process: AtomicU32,
    pub(super) health: watch::Sender<Health>,
    /// How often it acquired.
    pub acquired: AtomicU64,
    /// How often the answer to its acquire was an error, and nothing that a lock says.
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

    /// Records a signal of the process that it is now, raised `at` this reading; see [`Recorder::signal`].
    pub fn signal(&self, f: &str, fields: Fields<'_>, at: Option<u64>, recorder: &Recorder) {
        recorder.signal(Process::Client(self.process()), Some(self.number), f, fields, at);
    }

    /// Acts under another process number from now on.
    pub(super) fn become_process(&self, number: u32) {
        self.process.store(number, Relaxed);
    }
}
