//! A library that is loaded into a process before all others and shifts its wall clock.
//!
//! It replaces the three functions of the C library that read the wall clock and adds an offset, which it reads from a page of
//! memory shared with harness. All other clocks are the kernel's. It makes system calls itself and needs no other library, so it
//! works in any dynamically linked program with any C library. `build.rs` compiles it.

#![no_std]

mod kernel;

use core::panic::PanicInfo;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed};

use kernel::system;

/// The page that harness reads and writes: see `WallClock`.
#[repr(C)]
struct Page {
    offset_ns: AtomicI64,
    /// Readings of the wall clock with an offset.
    shifted: AtomicU64,
}

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

#[repr(C)]
pub struct Timeval {
    seconds: i64,
    microseconds: i64,
}

const REALTIME: i32 = 0;
const REALTIME_COARSE: i32 = 5;
const REALTIME_ALARM: i32 = 8;
const TAI: i32 = 11;
const SECOND: i64 = 1_000_000_000;
const PAGE_SIZE: usize = 4096;
const VARIABLE: &[u8] = b"HARNESS_WALL_CLOCK";
/// The longest path of a page.
const PATH: usize = 4096;

static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = find_page;

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

#[cfg(target_arch = "x86_64")]
mod call {
    pub const READ: usize = 0;
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const CLOCK_GETTIME: usize = 228;
    pub const OPENAT: usize = 257;
}

#[cfg(target_arch = "aarch64")]
mod call {
    pub const READ: usize = 63;
    pub const CLOSE: usize = 57;
    pub const MMAP: usize = 222;
    pub const CLOCK_GETTIME: usize = 113;
    pub const OPENAT: usize = 56;
}

/// Maps the page when the library is loaded. Without the variable, or without its page, the time is not shifted.
extern "C" fn find_page() {
    let mut path = [0u8; PATH];
    if !page_path(&mut path) {
        return;
    }
    const READ_WRITE: usize = 2;
    const SHARED: usize = 1;
    let file = open(&path, READ_WRITE);
    if file < 0 {
        return;
    }
    let protection = 1 | 2;
    let page = system(call::MMAP, [0, PAGE_SIZE, protection, SHARED, file as usize]);
    system(call::CLOSE, [file as usize]);
    if page > 0 {
        PAGE.store(page as *mut Page, Relaxed);
    }
}

fn open(path: &[u8], flags: usize) -> isize {
    const HERE: isize = -100;
    const CLOSE_ON_EXEC: usize = 0o2_000_000;
    system(call::OPENAT, [HERE as usize, path.as_ptr() as usize, flags | CLOSE_ON_EXEC])
}

/// Copies the value of the variable to `path`, ended by a zero. Returns `false` if there is none, or if it is empty.
fn page_path(path: &mut [u8; PATH]) -> bool {
    let file = open(b"/proc/self/environ\0", 0);
    if file < 0 {
        return false;
    }
    let mut piece = [0u8; 1024];
    // the length of the name that matched; `None`: this is another variable
    let (mut matched, mut length) = (Some(0), 0);
    let found = 'read: loop {
        let read = system(call::READ, [file as usize, piece.as_mut_ptr() as usize, piece.len()]);
        if read <= 0 {
            break false;
        }
        for &byte in piece.iter().take(read as usize) {
            match matched {
                Some(all) if all > VARIABLE.len() => {
                    if byte == 0 {
                        break 'read length > 0;
                    }
                    if length + 1 < path.len() {
                        path[length] = byte;
                        length += 1;
                    }
                }
                _ if byte == 0 => matched = Some(0),
                Some(some) if VARIABLE.get(some).copied().unwrap_or(b'=') == byte => matched = Some(some + 1),
                _ => matched = None,
            }
        }
    };
    system(call::CLOSE, [file as usize]);
    found
}

fn kernel_time(clock: i32, time: &mut Timespec) -> isize {
    system(call::CLOCK_GETTIME, [clock as usize, time as *mut Timespec as usize])
}

/// Adds the offset to a reading of the wall clock, and counts it.
fn shift(time: &mut Timespec) {
    let page = PAGE.load(Relaxed);
    if page.is_null() {
        return;
    }
    let page = unsafe { &*page };
    let offset = page.offset_ns.load(Relaxed);
    if offset == 0 {
        return;
    }
    page.shifted.fetch_add(1, Relaxed);
    let nanoseconds = time.nanoseconds + offset.rem_euclid(SECOND);
    time.seconds += offset.div_euclid(SECOND) + nanoseconds / SECOND;
    time.nanoseconds = nanoseconds % SECOND;
}

fn now() -> Timespec {
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    kernel_time(REALTIME, &mut time);
    shift(&mut time);
    time
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, time: *mut Timespec) -> i32 {
    let time = unsafe { &mut *time };
    let answer = kernel_time(clock, time);
    if answer < 0 {
        unsafe { *__errno_location() = -answer as i32 };
        return -1;
    }
    if [REALTIME, REALTIME_COARSE, REALTIME_ALARM, TAI].contains(&clock) {
        shift(time);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut Timeval, _zone: *mut u8) -> i32 {
    let now = now();
    if !time.is_null() {
        unsafe {
            *time = Timeval {
                seconds: now.seconds,
                microseconds: now.nanoseconds / 1000,
            };
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(into: *mut i64) -> i64 {
    let seconds = now().seconds;
    if !into.is_null() {
        unsafe { *into = seconds };
    }
    seconds
}

/// Referenced by the tables of the core library; nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn never(_: &PanicInfo<'_>) -> ! {
    loop {}
}
