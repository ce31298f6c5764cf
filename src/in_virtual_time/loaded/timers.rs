//! Timers (`setitimer`, `alarm`): harness raises `SIGALRM` when the time of the world has come.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::EINVAL;
use super::clocks::{SECOND, now};
use super::page::ProcessEntry;
use super::trap::TrappedCall;
use super::turns::{page, pid, refuse};

/// `ITIMER_REAL`; the others count the processor time of a process.
const REAL: usize = 0;

/// `struct itimerval`: the interval, and the time until the next signal, in seconds and microseconds.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IntervalTimer {
    every: [u64; 2],
    next: [u64; 2],
}

fn nanoseconds([seconds, micros]: [u64; 2]) -> Option<u64> {
    let time = seconds.saturating_mul(SECOND).saturating_add(micros * 1000);
    (micros < 1_000_000).then_some(time)
}

fn own() -> Option<&'static ProcessEntry> {
    page().process(pid())
}

/// Returns the time until the next signal and the interval, in nanoseconds; both are 0 without a timer.
fn current() -> (u64, u64) {
    let Some(own) = own() else { return (0, 0) };
    match own.alarm.load(SeqCst) {
        0 => (0, 0),
        at => (at.saturating_sub(now()).max(1000), own.alarm_every.load(SeqCst)),
    }
}

/// Sets the timer of this process; a `next` of 0 disarms it.
pub fn set(next: u64, every: u64) {
    if let Some(own) = own() {
        let at = if next == 0 { 0 } else { now().saturating_add(next) };
        own.alarm.store(at, SeqCst);
        own.alarm_every.store(every, SeqCst);
    }
}

/// Answers `setitimer`, `getitimer` and `alarm`.
pub fn answer(call: &TrappedCall<'_>) -> isize {
    let [first, second, third, ..] = call.arguments;
    let (next, every) = current();
    if call.number == call::ALARM {
        set(first as u64 * SECOND, 0);
        return next.div_ceil(SECOND) as isize;
    }
    let sets = call.number == call::SETITIMER;
    let (new, old) = if sets { (second, third) } else { (0, second) };
    // SAFETY: the program gave its address to have it read.
    let given = (new != 0).then(|| unsafe { *(new as *const IntervalTimer) });
    let given = given.unwrap_or_default();
    if first != REAL {
        // one of processor time would expire at another time in each run; it may be disarmed
        if given.next != [0, 0] {
            refuse(call.number);
        }
        return call.ask_kernel();
    }
    let (Some(wanted), Some(interval)) = (nanoseconds(given.next), nanoseconds(given.every)) else {
        return EINVAL;
    };
    if old != 0 {
        let micros = |time: u64| [time / SECOND, time % SECOND / 1000];
        let left = IntervalTimer {
            every: micros(every),
            next: micros(next),
        };
        // SAFETY: the program gave its address to have it written.
        unsafe { *(old as *mut IntervalTimer) = left };
    }
    if sets {
        set(wanted, interval);
    }
    0
}
