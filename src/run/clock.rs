//! The clock of a run. Code of a run that waits or takes a timestamp uses this value, so that another clock can take its place.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::GroundClock;

/// The time since a run began, and timers on it.
#[derive(Debug, Clone, Copy)]
pub struct RunClock {
    /// Client processes stamp their signals with its readings.
    pub by: GroundClock,
    began_ns: u64,
    /// The same moment by tokio's clock, which unit tests can stop and advance.
    began: Instant,
}

impl RunClock {
    /// Starts a clock at zero.
    pub fn start(by: GroundClock) -> Self {
        Self {
            by,
            began_ns: by.now_ns(),
            began: Instant::now(),
        }
    }

    /// Returns the time since the run began.
    pub fn now(&self) -> Duration {
        match self.by {
            GroundClock::Real => self.began.elapsed(),
            GroundClock::Virtual(_) => Duration::from_nanos(self.stamp()),
        }
    }

    /// Returns the reading at this time of the run.
    pub fn reading(&self, at: Duration) -> u64 {
        self.began_ns
            .saturating_add(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the timestamp of a line that is written now: nanoseconds since the run began.
    pub fn stamp(&self) -> u64 {
        self.stamp_of(self.by.now_ns())
    }

    /// Returns the timestamp of a reading by any process of this machine; 0 if the run had not begun.
    pub fn stamp_of(&self, reading: u64) -> u64 {
        reading.saturating_sub(self.began_ns)
    }

    /// Whether a reading lies between the beginning of the run and now.
    pub fn is_of_this_run(&self, reading: u64) -> bool {
        self.stamp_of(reading) > 0 && reading <= self.by.now_ns()
    }

    pub async fn sleep(&self, time: Duration) {
        self.by.sleep(time).await;
    }

    /// Waits until [`RunClock::now`] is `due`. Sets no timer if it is already, since the shortest one takes a millisecond.
    pub async fn sleep_until(&self, due: Duration) {
        let left = due.saturating_sub(self.now());
        if !left.is_zero() {
            self.sleep(left).await;
        }
    }

    /// Returns the answer of `work` if it comes within `time`.
    pub async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.by.within(time, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic_ns;

    #[test]
    fn a_reading_from_before_the_run_is_zero_and_not_a_huge_number() {
        let clock = RunClock::start(GroundClock::Real);
        assert_eq!(clock.stamp_of(0), 0);
        assert!(!clock.is_of_this_run(0) && clock.is_of_this_run(monotonic_ns()));
    }
}
