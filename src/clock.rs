//! The one clock: `CLOCK_MONOTONIC`, shared by every process of the machine, so that a child's stamp means here what it
//! means there. Wall-clock time is used for names of runs and nowhere else.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC is there on every system we build for");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// The zero of a history.
#[derive(Debug, Clone, Copy)]
pub struct RunOrigin(u64);

impl RunOrigin {
    pub fn now() -> Self {
        Self(monotonic_ns())
    }

    /// Nanoseconds since the origin.
    pub fn elapsed_ns(self) -> u64 {
        self.since_ns(monotonic_ns())
    }

    /// A reading of `CLOCK_MONOTONIC`, perhaps another process's, as nanoseconds since the origin.
    pub fn since_ns(self, reading: u64) -> u64 {
        reading.saturating_sub(self.0)
    }

    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(self.elapsed_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_from_before_the_origin_is_zero_and_not_a_huge_number() {
        let origin = RunOrigin::now();
        assert_eq!(origin.since_ns(0), 0);
    }
}
