//! Waits for a time or a signal (`nanosleep`, `pause`), and `sched_yield`.

use core::sync::atomic::Ordering::SeqCst;

use super::call::error::EINTR;
use super::clocks::{deadline_after, now, spend, time_at, time_of, write_rest};
use super::page::NEVER;
use super::signals::is_signalled;
use super::trap::TrappedCall;
use super::turns::{ThreadWait, let_others_go, page, wait};

/// The time that `sched_yield` takes where no other thread is in the queue, in nanoseconds.
const YIELD: u64 = 1000;

pub fn nanosleep(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let [time, rest, ..] = call.arguments;
    Ok(sleep(call, deadline_after(time)?, rest))
}

pub fn clock_nanosleep(call: &TrappedCall<'_>) -> Result<isize, isize> {
    const ABSOLUTE: usize = 1;
    let [clock, flags, time, rest, ..] = call.arguments;
    let given = time_at(time)?;
    Ok(match flags & ABSOLUTE != 0 {
        true => sleep(call, time_of(clock, given), 0),
        false => sleep(call, now().saturating_add(given), rest),
    })
}

fn sleep(call: &TrappedCall<'_>, deadline: u64, rest: usize) -> isize {
    let seen = page().signals.load(SeqCst);
    while now() < deadline {
        wait(ThreadWait::until(deadline));
        if is_signalled(seen, call.context.mask) {
            write_rest(rest, deadline);
            return EINTR;
        }
    }
    0
}

/// Answers `sched_yield`: other threads of the queue run first. If there are none, some time passes, for a thread that spins.
pub fn sched_yield() -> isize {
    if !let_others_go() {
        spend(YIELD);
    }
    0
}

pub fn pause(call: &TrappedCall<'_>) -> isize {
    let seen = page().signals.load(SeqCst);
    while !is_signalled(seen, call.context.mask) {
        wait(ThreadWait::for_descriptors(NEVER));
    }
    EINTR
}
