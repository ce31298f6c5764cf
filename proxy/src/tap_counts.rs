//! Messages that taps counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::label::LabelScheme;

/// Messages, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapCounts {
    pub requests: u64,
    pub replies: u64,
    pub notifications: u64,
    /// Requests that a client repeated, byte for byte, while its label says that it retries ([`LabelScheme::retrying`]).
    pub retries: u64,
}

impl TapCounts {
    /// As a history has it: requests, replies, notifications, retries.
    pub fn columns(self) -> [u64; 4] {
        [self.requests, self.replies, self.notifications, self.retries]
    }

    /// Requests and what came back.
    pub fn messages(self) -> u64 {
        self.requests + self.replies + self.notifications
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            replies: self.replies + other.replies,
            notifications: self.notifications + other.notifications,
            retries: self.retries + other.retries,
        }
    }
}

/// The same, counted by many at once.
#[derive(Debug, Default)]
pub(super) struct MessageCounters {
    pub requests: AtomicU64,
    pub replies: AtomicU64,
    pub notifications: AtomicU64,
    pub retries: AtomicU64,
}

impl MessageCounters {
    pub fn read(&self) -> TapCounts {
        TapCounts {
            requests: self.requests.load(Relaxed),
            replies: self.replies.load(Relaxed),
            notifications: self.notifications.load(Relaxed),
            retries: self.retries.load(Relaxed),
        }
    }
}
