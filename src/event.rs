//! Progress: what the eyes of a user get while a run goes on. Lossy, never read again, never a verdict.

use std::time::Duration;

use tokio::sync::mpsc;

/// Progress events that may wait for the screen. More are dropped, because nothing is decided from progress.
const PROGRESS_QUEUE: usize = 1024;

/// One piece of news.
#[derive(Debug, Clone)]
pub enum ProgressEvent {
    /// The plan is made: what the header shows.
    Begin {
        title: String,
        plan: String,
    },
    /// Which runtime, and why.
    Chosen {
        name: &'static str,
        why: String,
    },
    /// Something to know that is not an error.
    Note(String),
    ClusterReady {
        took: Duration,
        summary: String,
    },
    Phase {
        name: &'static str,
        text: String,
    },
    WindowOpened {
        number: u32,
        title: String,
    },
    WindowHealed {
        number: u32,
        title: String,
        lasted: Duration,
        evidence: String,
    },
    Lost {
        client: u32,
        cause: String,
    },
    Snapshot(ProgressSnapshot),
    /// The run is over; nothing follows.
    End,
}

/// A reading of the running system.
#[derive(Debug, Clone, Default)]
pub struct ProgressSnapshot {
    pub elapsed: Duration,
    pub total: Duration,
    pub acquires: u64,
    pub acquires_per_second: u64,
    pub unknown: u64,
    pub refused: u64,
    pub waiting: u64,
    /// `l0: c7 (token 2318, 0.4s)`
    pub holders: Vec<String>,
    /// How often a client got a lock that another one held.
    pub overlaps: u64,
    /// `n1 follower`, as last asked.
    pub nodes: Vec<String>,
    pub p50: Duration,
    pub p99: Duration,
}

/// The sending end. Sending never waits: what does not fit is dropped.
#[derive(Debug, Clone)]
pub struct ProgressSender(mpsc::Sender<TimedEvent>);

/// An event and when it was sent, since the progress began.
pub type TimedEvent = (std::time::Instant, ProgressEvent);

impl ProgressSender {
    pub fn channel() -> (Self, mpsc::Receiver<TimedEvent>) {
        let (sender, receiver) = mpsc::channel(PROGRESS_QUEUE);
        (Self(sender), receiver)
    }

    pub fn send(&self, event: ProgressEvent) {
        let _ = self.0.try_send((std::time::Instant::now(), event));
    }
}
