//! Waits for a time or a signal (`nanosleep`, `pause`), or for the lock of a file (`flock`), and `sched_yield`.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EAGAIN, EINTR};
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

/// The commands of `fcntl` that wait for a lock: `F_SETLKW` and `F_OFD_SETLKW`. The number before each is that of the one which does not.
pub const LOCKING: [usize; 2] = [7, 38];

/// Answers `flock`, and `fcntl` with one of [`LOCKING`]: the kernel is asked without a wait, again and again.
pub fn lock(call: &TrappedCall<'_>) -> isize {
    /// `LOCK_NB` of `flock`.
    const AT_ONCE: usize = 4;
    /// The time between two questions, in nanoseconds.
    const AGAIN: u64 = 1_000_000;
    let [_, operation, ..] = call.arguments;
    let at_once = match call.number {
        call::FLOCK => operation | AT_ONCE,
        _ => operation - 1,
    };
    let seen = page().signals.load(SeqCst);
    loop {
        let answer = call.with(1, at_once);
        if answer != EAGAIN || at_once == operation {
            return answer;
        }
        wait(ThreadWait::until(now() + AGAIN));
        if is_signalled(seen, call.context.mask) {
            return EINTR;
        }
    }
}
