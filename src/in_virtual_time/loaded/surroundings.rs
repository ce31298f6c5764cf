//! The surroundings of a program: files and calls that show the load of the machine are hidden, or show an idle machine.

use core::fmt;
use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EINVAL, ENOENT};
use super::clocks::{SECOND, now};
use super::files;
use super::gate::system;
use super::shared::{self, begins};
use super::text::ShortText;
use super::trap::TrappedCall;
use super::turns::{page, pid};

/// Prefixes of paths that a program does not find: they show the load, the memory, the control groups, the disks and the network of the
/// machine.
const HIDDEN: [&[u8]; 18] = [
    b"/sys/fs/cgroup",
    b"/proc/cgroups",
    b"/proc/self/cgroup",
    b"/proc/self/io",
    b"/proc/self/sched",
    b"/proc/self/smaps",
    b"/proc/self/statm",
    b"/proc/meminfo",
    b"/proc/loadavg",
    b"/proc/uptime",
    b"/proc/stat",
    b"/proc/vmstat",
    b"/proc/pressure/",
    b"/proc/net",
    b"/proc/self/net",
    b"/sys/class/net",
    // MariaDB opens two files for each disk
    b"/sys/block",
    // where each JVM looks for files of other JVMs that have ended
    b"/tmp/hsperfdata_",
];

/// Answers `open` and `openat`.
pub fn open(call: &TrappedCall<'_>) -> isize {
    let (path, flags) = match call.number {
        call::OPEN => (call.arguments[0], call.arguments[1]),
        _ => (call.arguments[1], call.arguments[2]),
    };
    if path == 0 {
        return call.ask_kernel();
    }
    if HIDDEN.iter().any(|name| begins(path, name)) {
        return ENOENT;
    }
    if begins(path, b"/dev/urandom\0") || begins(path, b"/dev/random\0") {
        return files::random_file(flags);
    }
    if begins(path, b"/proc/sys/kernel/random/uuid\0") {
        return files::uuid_file(flags);
    }
    if begins(path, OWN_STATUS) {
        return own_status(flags);
    }
    call.ask_kernel()
}

const OWN_STATUS: &[u8] = b"/proc/self/stat\0";

/// Opens the file with the status of this process.
fn own_status(flags: usize) -> isize {
    const LONGEST: usize = 1024;
    let file = shared::open(OWN_STATUS, 0);
    if file < 0 {
        return file;
    }
    let mut text = [0u8; LONGEST];
    let read = system(call::READ, [file as usize, text.as_mut_ptr() as usize, LONGEST]);
    system(call::CLOSE, [file as usize]);
    let text = &text[..usize::try_from(read).unwrap_or_default()];
    let text = OwnStatus(core::str::from_utf8(text).unwrap_or_default());
    files::text_file(ShortText::<LONGEST>::of(format_args!("{text}")).bytes(), flags)
}

/// The text of `/proc/self/stat`, shown as that of a process that has used no time, and the same memory each time.
struct OwnStatus<'a>(&'a str);

impl fmt::Display for OwnStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, fields) = self.0.rsplit_once(')').unwrap_or_default();
        let (_, name) = name.split_once('(').unwrap_or_default();
        let number = page().process(pid()).map_or(0, |process| process.number.load(SeqCst));
        write!(f, "{number} ({name})")?;
        for (place, field) in (3..).zip(fields.split_ascii_whitespace()) {
            let shown = match place {
                // other processes; faults and times; its start; signals; the processor; delays and times of guests
                4..=8 | 10..=17 | 22 | 31 | 39 | 42..=44 => "0",
                // its memory in bytes, and in pages the part that is not swapped out
                23 => "268435456",
                24 => "16384",
                _ => field,
            };
            write!(f, " {shown}")?;
        }
        f.write_str("\n")
    }
}

/// Writes zeros, and over them `words`, to a structure of the program.
fn write_words<const N: usize>(into: usize, bytes: usize, words: [u64; N]) {
    if into != 0 {
        // SAFETY: the program gave its address to have so many bytes written.
        unsafe {
            core::ptr::write_bytes(into as *mut u8, 0, bytes);
            core::ptr::copy_nonoverlapping(words.as_ptr(), into as *mut u64, N.min(bytes / 8));
        }
    }
}

/// Answers `sysinfo`: half of the memory is free, and nothing else runs.
pub fn sysinfo(call: &TrappedCall<'_>) -> isize {
    const SIZE: usize = 112;
    /// The index of the word `totalram`; its unit is one byte on 64-bit machines.
    const TOTAL: usize = 4;
    let into = call.arguments[0];
    let answer = call.ask_kernel();
    if answer == 0 {
        // SAFETY: the kernel has written it.
        let total = unsafe { *(into as *const u64).add(TOTAL) };
        write_words(into, SIZE, [now() / SECOND, 0, 0, 0, total, total / 2]);
        // SAFETY: the program gave its address to have it written: `procs` and `mem_unit`.
        unsafe {
            *((into + 80) as *mut u16) = 1;
            *((into + 104) as *mut u32) = 1;
        }
    }
    answer
}

/// Answers `statfs` and `fstatfs`: half of a disk is free, whatever other programs write to it, or nothing of a full one.
pub fn disk(call: &TrappedCall<'_>) -> isize {
    /// The indices of counts in `struct statfs`: of blocks or files, and of those that are free, or free for this user.
    const PARTS: [(usize, usize); 3] = [(2, 3), (2, 4), (5, 6)];
    let answer = call.ask_kernel();
    if answer == 0 {
        let words = call.arguments[1] as *mut u64;
        let is_full = page().disk.full.load(SeqCst) != 0;
        for (all, free) in PARTS {
            // SAFETY: the kernel has written it.
            unsafe { *words.add(free) = if is_full { 0 } else { *words.add(all) / 2 } };
        }
    }
    answer
}

/// Answers `sched_getaffinity` and `sched_setaffinity`: processor 0 is the only one.
pub fn processors(call: &TrappedCall<'_>) -> isize {
    const SIZE: usize = 8;
    let [_, size, into, ..] = call.arguments;
    match call.number {
        call::SCHED_SETAFFINITY => 0,
        _ if size < SIZE => EINVAL,
        _ => {
            write_words(into, SIZE, [1]);
            SIZE as isize
        }
    }
}

/// Writes a `struct rusage` of a process that has used nothing.
pub fn no_usage(into: usize) {
    const USAGE: usize = 144;
    write_words(into, USAGE, [0]);
}

/// Answers `getrusage` and `times`: computing takes no time.
pub fn usage(call: &TrappedCall<'_>) -> isize {
    const TIMES: usize = 32;
    const TICK: u64 = SECOND / 100;
    match call.number {
        call::TIMES => {
            write_words(call.arguments[0], TIMES, [0]);
            (now() / TICK) as isize
        }
        _ => {
            let answer = call.ask_kernel();
            if answer == 0 {
                no_usage(call.arguments[1]);
            }
            answer
        }
    }
}
