//! Calls that wait for descriptors, and where random bytes come from. Nothing waits in the kernel: a call asks it with no time to wait,
//! and where there is nothing yet the thread gives its turn away until something may have happened.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EAGAIN, EINTR, EINVAL};
use super::calls::{TrappedCall, is_signalled};
use super::clocks::{KernelTime, now, spend};
use super::descriptors::{Descriptor, DescriptorKind, blocks, get, used};
use super::gate::system;
use super::page::NEVER;
use super::transfers;
use super::turns::{ThreadWait, page, wait};
use super::waits::deadline_after;

const MILLISECOND: u64 = 1_000_000;
/// What a look at descriptors takes that finds nothing and does not wait, in nanoseconds.
const GLANCE: u64 = 1000;
pub const READABLE: u16 = 1;
pub const WRITABLE: u16 = 4;

/// Asks again and again until there is an answer other than 0, or the deadline comes.
pub fn until_ready(call: &TrappedCall<'_>, deadline: u64, mut ask: impl FnMut() -> isize) -> isize {
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
        wait(ThreadWait::for_descriptors(deadline));
        if is_signalled(seen, call.context.mask) {
            return EINTR;
        }
    }
}

/// Waits until a descriptor is ready, or until there is an error; `Err`: the deadline or a signal came first.
pub fn await_ready(call: &TrappedCall<'_>, descriptor: usize, event: u16, deadline: u64) -> Result<(), isize> {
    let ready = until_ready(call, deadline, || {
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

pub fn read(call: &TrappedCall<'_>) -> isize {
    let descriptor = get(call.arguments[0]);
    match descriptor.kind {
        DescriptorKind::File | DescriptorKind::Unknown => call.ask_kernel(),
        DescriptorKind::Network => transfers::receive(call),
        DescriptorKind::Local => {
            if blocks(call.arguments[0])
                && let Err(error) = await_ready(call, call.arguments[0], READABLE, NEVER)
            {
                return error;
            }
            let read = call.ask_kernel();
            // what waits for room goes on
            used(descriptor);
            read
        }
    }
}

pub fn write(call: &TrappedCall<'_>) -> isize {
    let descriptor = get(call.arguments[0]);
    match descriptor.kind {
        DescriptorKind::File | DescriptorKind::Unknown => call.ask_kernel(),
        DescriptorKind::Network => transfers::send(call),
        DescriptorKind::Local => {
            if blocks(call.arguments[0])
                && let Err(error) = await_ready(call, call.arguments[0], WRITABLE, NEVER)
            {
                return error;
            }
            let is_long = call.number == call::WRITE && call.arguments[2] > AT_ONCE_WRITTEN;
            let written = match is_long && blocks(call.arguments[0]) {
                true => write_all(call, descriptor),
                false => call.ask_kernel(),
            };
            used(descriptor);
            written
        }
    }
}

/// What the kernel writes to a pipe as a whole, so that it waits for no room once there is some: `PIPE_BUF`.
const AT_ONCE_WRITTEN: usize = 4096;

/// Writes in pieces, as far as there is room, where the kernel would wait.
fn write_all(call: &TrappedCall<'_>, kind: Descriptor) -> isize {
    const SET_FLAGS: usize = 4;
    const NONBLOCKING: usize = 0o4000;
    let [descriptor, bytes, length, ..] = call.arguments;
    let flags = |more: usize| {
        let flags = system(call::FCNTL, [descriptor, 3]) as usize & !NONBLOCKING;
        system(call::FCNTL, [descriptor, SET_FLAGS, flags | more]);
    };
    let mut written = 0;
    while written < length {
        // nobody else runs meanwhile who could see it
        flags(NONBLOCKING);
        let more = system(call::WRITE, [descriptor, bytes + written, length - written]);
        flags(0);
        match more {
            EAGAIN => {
                used(kind);
                if let Err(error) = await_ready(call, descriptor, WRITABLE, NEVER) {
                    return if written > 0 { written as isize } else { error };
                }
            }
            error if error < 0 => return if written > 0 { written as isize } else { error },
            more => written += more as usize,
        }
    }
    written as isize
}

/// A deadline in milliseconds as `poll` has it.
fn milliseconds(time: usize) -> u64 {
    match time as i32 {
        time if time < 0 => NEVER,
        time => now() + time as u64 * MILLISECOND,
    }
}

pub fn poll(call: &TrappedCall<'_>) -> isize {
    until_ready(call, milliseconds(call.arguments[2]), || call.with(2, 0))
}

const AT_ONCE: KernelTime = KernelTime {
    seconds: 0,
    nanoseconds: 0,
};

/// A time that is over, for the kernel to write to.
fn at_once(time: &mut KernelTime) -> usize {
    *time = AT_ONCE;
    &raw mut *time as usize
}

pub fn ppoll(call: &TrappedCall<'_>) -> isize {
    let mut none = AT_ONCE;
    match deadline_after(call.arguments[2]) {
        Ok(deadline) => until_ready(call, deadline, || call.with(2, at_once(&mut none))),
        Err(error) => error,
    }
}

pub fn epoll_wait(call: &TrappedCall<'_>) -> isize {
    until_ready(call, milliseconds(call.arguments[3]), || call.with(3, 0))
}

/// The sets of `select`, which the kernel writes to.
struct Sets([[u64; Self::WORDS]; 3]);

impl Sets {
    /// 1,024 descriptors.
    const WORDS: usize = 16;

    fn copy(call: &TrappedCall<'_>) -> Self {
        let mut sets = Self([[0; Self::WORDS]; 3]);
        sets.each(call, |kept, given| *kept = *given);
        sets
    }

    fn restore(&mut self, call: &TrappedCall<'_>) {
        self.each(call, |kept, given| *given = *kept);
    }

    fn each(&mut self, call: &TrappedCall<'_>, act: impl Fn(&mut u64, &mut u64)) {
        let words = call.arguments[0].div_ceil(64).min(Self::WORDS);
        for (set, kept) in self.0.iter_mut().enumerate() {
            let given = call.arguments[set + 1] as *mut u64;
            for (word, kept) in kept.iter_mut().enumerate().take(words) {
                if !given.is_null() {
                    // SAFETY: the program gave sets of this size to be read and written.
                    act(kept, unsafe { &mut *given.add(word) });
                }
            }
        }
    }
}

pub fn select(call: &TrappedCall<'_>) -> isize {
    let time = call.arguments[4];
    let deadline = match time {
        0 => NEVER,
        // SAFETY: a `timeval`, which the program gave to be read.
        time => match unsafe { *(time as *const [i64; 2]) } {
            [seconds, micros] if seconds >= 0 && micros >= 0 => {
                now().saturating_add(seconds as u64 * 1_000_000_000 + micros as u64 * 1000)
            }
            _ => return EINVAL,
        },
    };
    selected(call, deadline)
}

pub fn pselect(call: &TrappedCall<'_>) -> isize {
    match deadline_after(call.arguments[4]) {
        Ok(deadline) => selected(call, deadline),
        Err(error) => error,
    }
}

fn selected(call: &TrappedCall<'_>, deadline: u64) -> isize {
    let mut sets = Sets::copy(call);
    let mut none = AT_ONCE;
    until_ready(call, deadline, || {
        sets.restore(call);
        call.with(4, at_once(&mut none))
    })
}

/// Fills memory with random bytes of the family.
pub fn getrandom(into: usize, length: usize) -> isize {
    let mut at = 0;
    while at < length {
        let bits = page().draw().to_le_bytes();
        for byte in &bits[..bits.len().min(length - at)] {
            // SAFETY: the program gave its address to have it written.
            unsafe { *((into + at) as *mut u8) = *byte };
            at += 1;
        }
    }
    length as isize
}

/// The devices of random bytes are files of the family's.
pub fn openat(call: &TrappedCall<'_>) -> isize {
    const RANDOM: [&[u8]; 2] = [b"/dev/urandom\0", b"/dev/random\0"];
    let path = call.arguments[1] as *const u8;
    let is = |name: &[u8]| {
        let mut bytes = name.iter().enumerate();
        // SAFETY: it stops at the first byte that differs, so at the zero that ends the path at the latest.
        bytes.all(|(place, byte)| unsafe { *path.add(place) } == *byte)
    };
    match path.is_null() || !RANDOM.iter().any(|name| is(name)) {
        true => call.ask_kernel(),
        false => random_file(call.arguments[2]),
    }
}

/// A file in memory with as many random bytes as a program reads at its start.
fn random_file(flags: usize) -> isize {
    const CLOSE_ON_EXEC: usize = 0o2_000_000;
    const PORTION: usize = 1024;
    const PORTIONS: usize = 16;
    let name = b"random\0";
    let file = system(
        call::MEMFD_CREATE,
        [name.as_ptr() as usize, usize::from(flags & CLOSE_ON_EXEC != 0)],
    );
    if file < 0 {
        return file;
    }
    for _ in 0..PORTIONS {
        let mut bytes = [0u8; PORTION];
        getrandom(bytes.as_mut_ptr() as usize, PORTION);
        system(call::WRITE, [file as usize, bytes.as_ptr() as usize, PORTION]);
    }
    const SEEK: usize = 8;
    system(SEEK, [file as usize, 0, 0]);
    file
}
