//! `CLOCK_MONOTONIC`, which is shared by every process of the machine: a reading taken here can be compared with one that a
//! client took.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC is there on every system we build for");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
