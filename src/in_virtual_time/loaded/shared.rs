//! The page that this process shares with harness ([`page`]), and what needs nothing but the kernel.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicPtr, AtomicU32};

use super::call;
use super::gate::system;
use super::page::FamilyPage;

static PAGE: AtomicPtr<FamilyPage> = AtomicPtr::new(core::ptr::null_mut());
/// The number that the kernel gave to this process.
pub static PID: AtomicU32 = AtomicU32::new(0);

/// Of `open`.
pub const READ_WRITE: usize = 2;
pub const CLOSE_ON_EXEC: usize = 0o2_000_000;

const WAIT: usize = 0;
const WAKE: usize = 1;

/// What the family shares with harness. Only asked for after [`map_page`].
pub fn page() -> &'static FamilyPage {
    // SAFETY: it is mapped before the gate is closed, and for good; all that is in it is atomic.
    unsafe { &*PAGE.load(SeqCst) }
}

/// Maps the page that is in this file, which is closed: here, in the place of the one before, or where there is room if this is 0.
pub fn map_page(file: usize, here: usize) -> bool {
    const READ_AND_WRITE: usize = 3;
    const SHARED: usize = 1;
    const FIXED: usize = 0x10;
    let length = size_of::<FamilyPage>().next_multiple_of(4096);
    let kind = if here == 0 { SHARED } else { SHARED | FIXED };
    let mapped = system(call::MMAP, [here, length, READ_AND_WRITE, kind, file, 0]);
    system(call::CLOSE, [file]);
    if mapped > 0 {
        PAGE.store(mapped as *mut FamilyPage, SeqCst);
    }
    mapped > 0
}

/// Opens a path that ends with a zero.
pub fn open(path: &[u8], flags: usize) -> isize {
    const HERE: isize = -100;
    system(
        call::OPENAT,
        [HERE as usize, path.as_ptr() as usize, flags | CLOSE_ON_EXEC, 0],
    )
}

/// Writes a number where the program finds that of a thread.
pub fn write_number(at: usize, number: u32) {
    if at != 0 {
        // SAFETY: the program gave its address to the kernel to have it written.
        unsafe { *(at as *mut u32) = number };
    }
}

/// Sleeps while a word has this value, in real time, for a second at most.
pub fn sleep_on(word: &AtomicU32, value: u32) -> isize {
    let most = [1u64, 0];
    system(
        call::FUTEX,
        [word.as_ptr() as usize, WAIT, value as usize, most.as_ptr() as usize],
    )
}

pub fn wake(word: &AtomicU32) {
    system(call::FUTEX, [word.as_ptr() as usize, WAKE, 1]);
}
