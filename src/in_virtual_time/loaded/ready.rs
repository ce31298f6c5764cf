//! The readiness of descriptors (`poll`, `select`, `epoll_wait`). No thread waits in the kernel: a call asks it with a timeout of 0, and if
//! no descriptor is ready, the thread passes its turn until one may be.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EAGAIN, EINTR, EINVAL};
use super::clocks::{SECOND, deadline_after, now, spend, write_rest};
use super::descriptors::{about, about_set};
use super::gate::system;
use super::page::{NEVER, about};
use super::signals::is_signalled;
use super::trap::TrappedCall;
use super::turns::{ThreadWait, page, wait};

const MILLISECOND: u64 = 1_000_000;
/// The time of a call that ends without a ready descriptor, in nanoseconds.
const GLANCE: u64 = 1000;
pub const READABLE: u16 = 1;
pub const WRITABLE: u16 = 4;

/// Repeats `ask` until it answers other than 0, or until the deadline or a signal; `about` is the event on which the answer depends.
fn until_ready(call: &TrappedCall<'_>, about: u64, deadline: u64, mut ask: impl FnMut() -> isize) -> isize {
    let seen = page().signals.load(SeqCst);
    loop {
        let answer = ask();
        if answer != 0 {
            return answer;
        }
        if now() >= deadline {
            spend(GLANCE);
            return 0;
        }
        wait(ThreadWait::for_descriptors(deadline).about(about));
        if is_signalled(seen, call.context.mask) {
            return EINTR;
        }
    }
}

/// Waits until a descriptor is ready or has an error. Returns EAGAIN if the deadline comes first, EINTR if a signal does.
pub fn await_ready(call: &TrappedCall<'_>, descriptor: usize, event: u16, deadline: u64) -> Result<(), isize> {
    let ready = until_ready(call, about(descriptor), deadline, || {
        let mut wanted = PollEntry::of(descriptor, event);
        system(call::POLL, [&raw mut wanted as usize, 1, 0])
    });
    match ready {
        0 => Err(EAGAIN),
        EINTR => Err(EINTR),
        _ => Ok(()),
    }
}

#[repr(C)]
struct PollEntry {
    descriptor: i32,
    wanted: u16,
    found: u16,
}

impl PollEntry {
    fn of(descriptor: usize, wanted: u16) -> Self {
        Self {
            descriptor: descriptor as i32,
            wanted,
            found: 0,
        }
    }
}

/// Returns the deadline of a timeout of `poll`, in milliseconds.
fn milliseconds(time: usize) -> u64 {
    match time as i32 {
        time if time < 0 => NEVER,
        time => now() + time as u64 * MILLISECOND,
    }
}

/// Returns the event for which `poll` waits, one of `page::about`.
fn about_all(call: &TrappedCall<'_>) -> u64 {
    let [entries, many, ..] = call.arguments;
    match many {
        // SAFETY: the program gave its address to have it read.
        1 => about(unsafe { (*(entries as *const PollEntry)).descriptor } as usize),
        _ => about::ANY,
    }
}

pub fn poll(call: &TrappedCall<'_>) -> isize {
    until_ready(call, about_all(call), milliseconds(call.arguments[2]), || call.with(2, 0))
}

/// A timeout of 0, in which the kernel writes nothing.
static AT_ONCE: [u64; 2] = [0; 2];

pub fn ppoll(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let deadline = deadline_after(call.arguments[2])?;
    Ok(until_ready(call, about_all(call), deadline, || {
        call.with(2, AT_ONCE.as_ptr() as usize)
    }))
}

pub fn epoll_wait(call: &TrappedCall<'_>) -> isize {
    let about = about_set(call.arguments[0]);
    until_ready(call, about, milliseconds(call.arguments[3]), || call.with(3, 0))
}

/// The length of a set of `select` in words: 1,024 descriptors.
const WORDS: usize = 16;

/// Copies the sets of `select`, which the kernel overwrites, to `kept`, or back.
fn copy_sets(call: &TrappedCall<'_>, kept: &mut [[u64; WORDS]; 3], back: bool) {
    let words = call.arguments[0].div_ceil(64).min(WORDS);
    for (kept, given) in kept.iter_mut().zip(&call.arguments[1..4]) {
        let (kept, given) = (kept.as_mut_ptr(), *given as *mut u64);
        let (from, to) = if back { (kept, given) } else { (given, kept) };
        if !given.is_null() {
            // SAFETY: the program gave sets of this size to be read and written.
            unsafe { core::ptr::copy_nonoverlapping(from, to, words) };
        }
    }
}

pub fn select(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let time = call.arguments[4] as *mut [i64; 2];
    // SAFETY: a `timeval`, which the program gave to be read.
    let deadline = match unsafe { time.as_ref() } {
        None => NEVER,
        Some(&[seconds, micros]) if seconds >= 0 && micros >= 0 => {
            now().saturating_add(seconds as u64 * SECOND + micros as u64 * 1000)
        }
        Some(_) => return Err(EINVAL),
    };
    let answer = selected(call, deadline);
    if !time.is_null() {
        let rest = deadline.saturating_sub(now());
        // SAFETY: as the kernel does.
        unsafe { *time = [(rest / SECOND) as i64, (rest % SECOND / 1000) as i64] };
    }
    Ok(answer)
}

pub fn pselect(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let time = call.arguments[4];
    let deadline = deadline_after(time)?;
    let answer = selected(call, deadline);
    write_rest(time, deadline);
    Ok(answer)
}

fn selected(call: &TrappedCall<'_>, deadline: u64) -> isize {
    let mut sets = [[0; WORDS]; 3];
    copy_sets(call, &mut sets, false);
    let answer = until_ready(call, about::ANY, deadline, || {
        copy_sets(call, &mut sets, true);
        call.with(4, AT_ONCE.as_ptr() as usize)
    });
    if answer < 0 {
        // a program may repeat the call
        copy_sets(call, &mut sets, true);
    }
    answer
}
