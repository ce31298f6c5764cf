//! The clock of a run. Everything in a run that waits or stamps asks this value, so that another clock can take its place.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clock::monotonic_ns;

/// The time since a run began, and timers on it.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    began: Instant,
    /// The same moment by `CLOCK_MONOTONIC`, with which client processes stamp their signals.
    began_ns: u64,
}

impl RunClock {
    /// A clock that shows zero now.
    pub fn start() -> Self {
        Self {
            began: Instant::now(),
            began_ns: monotonic_ns(),
        }
    }

    /// The time since the run began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The runtime's own name for a time of this clock, for what cannot be given the clock.
    pub fn instant(&self, at: Duration) -> Instant {
        self.began + at
    }

    /// The stamp of a line that is written now: nanoseconds since the run began.
    pub fn stamp(&self) -> u64 {
        self.stamp_of(monotonic_ns())
    }

    /// The stamp of a reading of `CLOCK_MONOTONIC` by any process of this machine; 0 when the run had not begun.
    pub fn stamp_of(&self, reading: u64) -> u64 {
        reading.saturating_sub(self.began_ns)
    }

    /// Whether a reading of `CLOCK_MONOTONIC` lies between the beginning of the run and now.
    pub fn is_of_this_run(&self, reading: u64) -> bool {
        self.stamp_of(reading) > 0 && reading <= monotonic_ns()
    }

    pub async fn sleep(&self, time: Duration) {
        sleep(time).await;
    }

    /// Waits until [`RunClock::now`] is `due`. Sets no timer when it is already, since the shortest one takes a millisecond.
    pub async fn sleep_until(&self, due: Duration) {
        if due > self.now() {
            sleep_until(self.instant(due)).await;
        }
    }

    /// The answer of `work` if it comes within `time`.
    pub async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        timeout(time, work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_from_before_the_run_is_zero_and_not_a_huge_number() {
        let clock = RunClock::start();
        assert_eq!(clock.stamp_of(0), 0);
        assert!(!clock.is_of_this_run(0) && clock.is_of_this_run(monotonic_ns()));
    }
}
