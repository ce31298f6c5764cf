//! Progress events, for the screen of a run. They may be dropped, are not stored, and decide nothing.

use std::time::Duration;

use tokio::sync::mpsc;

/// Progress events that may wait for the screen. More are dropped, because nothing is decided from progress.
const PROGRESS_QUEUE: usize = 1024;

/// A progress event of a run.
#[derive(Debug, Clone)]
pub enum ProgressEvent {
    /// The plan is made. The header shows it.
    Begin {
        title: String,
        plan: String,
    },
    /// The runtime is chosen, for this reason.
    Chosen {
        name: &'static str,
        why: String,
    },
    /// A note that is not an error.
    Note(String),
    /// A step begins that may take seconds.
    Starting(String),
    /// The current wait has this subject.
    Waiting(String),
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
    /// An act on one message is over, or its message did not come.
    Struck {
        title: String,
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

/// The running system at one moment.
#[derive(Debug, Clone, Default)]
pub struct ProgressSnapshot {
    pub elapsed: Duration,
    pub total: Duration,
    pub acquires: u64,
    pub acquires_per_second: u64,
    pub unknown: u64,
    pub refused: u64,
    pub waiting: u64,
    pub holding: u64,
    /// `l0: c7 (token 2318, 0.4s)`
    pub holders: Vec<String>,
    /// The number of grants of a lock that another client held.
    pub overlaps: u64,
    /// `n1 follower`, at the last poll.
    pub nodes: Vec<String>,
    pub p50: Duration,
    pub p99: Duration,
    /// The largest lateness of a timer of harness since the previous snapshot.
    pub delay: Duration,
    /// The number of stalls of harness.
    pub stalls: u64,
}

/// Sends progress events. Sending never waits: an event that does not fit is dropped.
#[derive(Debug, Clone)]
pub struct ProgressSender(Option<mpsc::Sender<TimedEvent>>);

/// An event with the time at which it was sent.
pub type TimedEvent = (std::time::Instant, ProgressEvent);

impl ProgressSender {
    pub fn channel() -> (Self, mpsc::Receiver<TimedEvent>) {
        let (sender, receiver) = mpsc::channel(PROGRESS_QUEUE);
        (Self(Some(sender)), receiver)
    }

    /// Returns a sender without a receiver.
    pub fn unheard() -> Self {
        Self(None)
    }

    pub fn send(&self, event: ProgressEvent) {
        if let Some(sender) = &self.0 {
            let _ = sender.try_send((std::time::Instant::now(), event));
        }
    }
}
