//! Progress events: what a user sees while a run goes on. They may be dropped, are not stored, and decide nothing.

use std::time::Duration;

use tokio::sync::mpsc;

/// Progress events that may wait for the screen. More are dropped, because nothing is decided from progress.
const PROGRESS_QUEUE: usize = 1024;

/// What happened in a run.
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
    /// Something begins that may take seconds.
    Starting(String),
    /// What it waits for now.
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
    /// How often a client was granted a lock that another one held.
    pub overlaps: u64,
    /// `n1 follower`, as last asked.
    pub nodes: Vec<String>,
    pub p50: Duration,
    pub p99: Duration,
    /// How late a timer of harness was at most since the snapshot before.
    pub delay: Duration,
    /// How often harness stood still.
    pub stalls: u64,
}

/// Sends progress events. Sending never waits: an event that does not fit is dropped.
#[derive(Debug, Clone)]
pub struct ProgressSender(Option<mpsc::Sender<TimedEvent>>);

/// An event and when it was sent.
pub type TimedEvent = (std::time::Instant, ProgressEvent);

impl ProgressSender {
    pub fn channel() -> (Self, mpsc::Receiver<TimedEvent>) {
        let (sender, receiver) = mpsc::channel(PROGRESS_QUEUE);
        (Self(Some(sender)), receiver)
    }

    /// A sender that nobody hears.
    pub fn unheard() -> Self {
        Self(None)
    }

    pub fn send(&self, event: ProgressEvent) {
        if let Some(sender) = &self.0 {
            let _ = sender.try_send((std::time::Instant::now(), event));
        }
    }
}
