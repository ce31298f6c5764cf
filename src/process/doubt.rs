//! Doubt whether a process that runs is about to end ([`EndDoubt`]): a shell whose program has ended is about to end, too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Activity;

/// The time for which a process that seemed to be about to end does not count as alive, in nanoseconds.
const AFTER_DOUBT_NS: u64 = 50_000_000;

/// The last time at which a process seemed to be about to end, by `CLOCK_MONOTONIC`. A shell sleeps between the end of its
/// program and its own, as one does that serves by itself.
#[derive(Debug, Default)]
pub struct EndDoubt(AtomicU64);

impl EndDoubt {
    /// Returns the activity of a process, given the activity observed at a time in nanoseconds.
    pub fn judge(&self, activity: Activity, now: u64) -> Activity {
        match activity {
            Activity::Running if now.saturating_sub(self.0.load(Relaxed)) < AFTER_DOUBT_NS => Activity::Doubtful,
            Activity::Doubtful | Activity::Ending => {
                self.0.fetch_max(now, Relaxed);
                activity
            }
            Activity::Running | Activity::Stopped => activity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_seemed_to_end_is_not_alive_for_a_moment() {
        let doubt = EndDoubt::default();
        assert_eq!(doubt.judge(Activity::Running, 1_000_000_000), Activity::Running);
        assert_eq!(doubt.judge(Activity::Doubtful, 1_000_000_001), Activity::Doubtful);
        assert_eq!(doubt.judge(Activity::Running, 1_049_000_000), Activity::Doubtful);
        assert_eq!(doubt.judge(Activity::Stopped, 1_049_000_000), Activity::Stopped);
        assert_eq!(doubt.judge(Activity::Running, 1_051_000_000), Activity::Running);
    }
}
