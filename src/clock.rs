//! `CLOCK_MONOTONIC`, which all processes of a machine share: a stamp of a client process can be compared with ours.
//!
//! Wall-clock time is used for the names of runs and for nothing else.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists on every supported system");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
