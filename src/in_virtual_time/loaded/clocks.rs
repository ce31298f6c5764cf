//! Clocks, as a program reads them by a system call or in the vDSO, whose functions are replaced in memory.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::call::{self, error};
use super::elf::{DYNAMIC, ElfImage, LOAD};
use super::gate::system;
use super::page::{LOOK, NEVER};
use super::shared::begins;
use super::turns::{LOOKS, page};

pub const SECOND: u64 = 1_000_000_000;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelTime {
    seconds: i64,
    nanoseconds: i64,
}

impl KernelTime {
    pub fn of(time: u64) -> Self {
        Self {
            seconds: (time / SECOND) as i64,
            nanoseconds: (time % SECOND) as i64,
        }
    }
}

const REALTIME: usize = 0;
const REALTIME_COARSE: usize = 5;
const REALTIME_ALARM: usize = 8;
const TAI: usize = 11;

fn is_wall_clock(clock: usize) -> bool {
    matches!(clock, REALTIME | REALTIME_COARSE | REALTIME_ALARM | TAI)
}

/// Returns the time of the world, without the cost of a reading ([`look`]).
pub fn now() -> u64 {
    page().now.load(SeqCst) + page().looked.load(SeqCst)
}

/// Advances the clock of the family by `time`, in nanoseconds.
pub fn spend(time: u64) {
    page().looked.fetch_add(time, SeqCst);
}

/// Advances the clock by the time of one reading: more after many readings, since a thread that does nothing else waits for a time.
pub fn look() {
    const MANY: u32 = 2048;
    const ONE_OF_MANY: u64 = 1000;
    let looks = LOOKS.load(Relaxed).min(MANY);
    LOOKS.store(looks + 1, Relaxed);
    spend(if looks < MANY { LOOK } else { ONE_OF_MANY });
}

fn wall_clock_is_ahead() -> i64 {
    page().epoch.load(SeqCst) + page().offset.load(SeqCst)
}

fn reading(clock: usize) -> u64 {
    look();
    if !is_wall_clock(clock) {
        return now();
    }
    if page().offset.load(SeqCst) != 0 {
        page().shifted.fetch_add(1, SeqCst);
    }
    now().saturating_add_signed(wall_clock_is_ahead())
}

/// Returns the time of the world at which a clock shows `reading`.
pub fn time_of(clock: usize, reading: u64) -> u64 {
    match is_wall_clock(clock) {
        true => reading.saturating_add_signed(-wall_clock_is_ahead()),
        false => reading,
    }
}

/// Reads a duration or a time from an address of the program. The error is EINVAL.
pub fn time_at(address: usize) -> Result<u64, isize> {
    // SAFETY: the program gave its address to have it read.
    let KernelTime { seconds, nanoseconds } = unsafe { *(address as *const KernelTime) };
    if seconds < 0 || !(0..SECOND as i64).contains(&nanoseconds) {
        return Err(error::EINVAL);
    }
    let time = (seconds as u64).saturating_mul(SECOND);
    Ok(time.saturating_add(nanoseconds as u64))
}

/// Returns the deadline of a call with a timeout, or [`NEVER`] where its address is 0.
pub fn deadline_after(address: usize) -> Result<u64, isize> {
    match address {
        0 => Ok(NEVER),
        address => Ok(now().saturating_add(time_at(address)?)),
    }
}

/// Writes the time until a deadline to an address of the program, unless that is 0.
pub fn write_rest(address: usize, deadline: u64) {
    if address != 0 {
        // SAFETY: the program gave its address to have it written.
        unsafe { *(address as *mut KernelTime) = KernelTime::of(deadline.saturating_sub(now())) };
    }
}

/// Answers `clock_gettime`. Clocks of processor time show the time of the world, too: computing takes none.
pub extern "C" fn clock_gettime(clock: usize, into: *mut KernelTime) -> i32 {
    // dynamic clocks of devices are below 0
    const KNOWN: usize = 12;
    let clock = clock as i32;
    if clock >= KNOWN as i32 {
        return error::EINVAL as i32;
    }
    let reading = reading(clock as usize);
    if into.is_null() {
        return error::EFAULT as i32;
    }
    // SAFETY: the program gave its address to have it written.
    unsafe { *into = KernelTime::of(reading) };
    0
}

pub extern "C" fn gettimeofday(into: *mut KernelTime, zone: *mut u64) -> i32 {
    let mut read = KernelTime::of(reading(REALTIME));
    read.nanoseconds /= 1000;
    // SAFETY: as above; a `timeval` is as large as a `timespec`, a `timezone` is two zeros of four bytes.
    unsafe {
        if !into.is_null() {
            *into = read;
        }
        if !zone.is_null() {
            *zone = 0;
        }
    }
    0
}

pub extern "C" fn time(into: *mut i64) -> i64 {
    let seconds = (reading(REALTIME) / SECOND) as i64;
    if !into.is_null() {
        // SAFETY: as above.
        unsafe { *into = seconds };
    }
    seconds
}

/// Answers `getcpu` with processor 0: the real one depends on the load of the machine.
pub extern "C" fn getcpu(cpu: *mut u32, node: *mut u32) -> i32 {
    for into in [cpu, node] {
        if !into.is_null() {
            // SAFETY: as above.
            unsafe { *into = 0 };
        }
    }
    0
}

/// Answers `getrandom` of the vDSO, which is missing: programs make the system call instead.
extern "C" fn getrandom(_: usize, _: usize, _: u32, _: usize, _: usize) -> isize {
    error::ENOSYS
}

/// The functions of the vDSO that are replaced, without `__vdso_`, and their replacements.
const REPLACED: [(&[u8], *const ()); 5] = [
    (b"clock_gettime\0", clock_gettime as *const ()),
    (b"gettimeofday\0", gettimeofday as *const ()),
    (b"time\0", time as *const ()),
    (b"getcpu\0", getcpu as *const ()),
    (b"getrandom\0", getrandom as *const ()),
];

#[repr(C)]
struct ElfSymbol {
    name: u32,
    _info: u16,
    section: u16,
    value: u64,
    _size: u64,
}

/// Replaces the functions of the vDSO at `base`. Returns `false` if it has another layout, or the kernel does not permit the change.
pub fn replace_vdso(base: usize) -> bool {
    const STRINGS: u64 = 5;
    const SYMBOLS: u64 = 6;
    const READ_WRITE_EXECUTE: usize = 7;
    const READ_EXECUTE: usize = 5;
    if base == 0 {
        // without a vDSO each reading is a system call
        return true;
    }
    // SAFETY: the kernel mapped this ELF image, which is whole.
    unsafe {
        let Some(image) = ElfImage::at(base) else {
            return false;
        };
        let (mut bias, mut dynamic, mut size) = (base, 0, 0);
        for segment in image.programs() {
            match segment.kind {
                LOAD => {
                    bias = base + segment.offset as usize - segment.address as usize;
                    size = (segment.size as usize).next_multiple_of(4096);
                }
                DYNAMIC => dynamic = base + segment.offset as usize,
                _ => {}
            }
        }
        let (mut strings, mut symbols) = (0, 0);
        let mut entry = dynamic as *const [u64; 2];
        while !entry.is_null() && (*entry)[0] != 0 {
            match (*entry)[0] {
                STRINGS => strings = bias + (*entry)[1] as usize,
                SYMBOLS => symbols = bias + (*entry)[1] as usize,
                _ => {}
            }
            entry = entry.add(1);
        }
        // the strings follow the symbols
        if symbols == 0 || strings <= symbols {
            return false;
        }
        if system(call::MPROTECT, [base, size, READ_WRITE_EXECUTE]) != 0 {
            return false;
        }
        for number in 0..(strings - symbols) / size_of::<ElfSymbol>() {
            let symbol = &*(symbols as *const ElfSymbol).add(number);
            if symbol.section == 0 {
                continue;
            }
            if let Some(function) = replaced(strings + symbol.name as usize) {
                jump_from((bias + symbol.value as usize) as *mut u8, function);
            }
        }
        system(call::MPROTECT, [base, size, READ_EXECUTE]);
    }
    true
}

/// Returns the replacement of the function with this name, if it is replaced.
fn replaced(name: usize) -> Option<usize> {
    let prefix = b"__vdso_";
    let plain = if begins(name, prefix) { name + prefix.len() } else { name };
    let found = REPLACED.iter().find(|(function, _)| begins(plain, function));
    found.map(|(_, function)| *function as usize)
}

/// Writes `movabs rax, to; jmp rax`.
///
/// # Safety
///
/// `at` is the address of a function of at least 12 bytes, which can be written and which no thread executes.
unsafe fn jump_from(at: *mut u8, to: usize) {
    let mut code = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0];
    code[2..10].copy_from_slice(&to.to_le_bytes());
    // SAFETY: the caller's.
    unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), at, code.len()) };
}
