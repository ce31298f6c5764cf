//! The shared page of this process and harness ([`page`]), and functions that need only the kernel.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicPtr, AtomicU32};

use super::call;
use super::gate::system;
use super::page::FamilyPage;

static PAGE: AtomicPtr<FamilyPage> = AtomicPtr::new(core::ptr::null_mut());
/// The process id of this process in the kernel; the program sees another number.
pub static PID: AtomicU32 = AtomicU32::new(0);

/// Flags of `open`.
pub const READ_WRITE: usize = 2;
pub const CLOSE_ON_EXEC: usize = 0o2_000_000;
/// `O_NONBLOCK`.
pub const NONBLOCKING: usize = 0o4000;
/// `AT_FDCWD`.
pub const HERE: isize = -100;

/// Operations of `futex`.
pub const WAIT: usize = 0;
pub const WAKE: usize = 1;

/// A cell that only the thread with the turn accesses.
pub struct TurnCell<T>(UnsafeCell<T>);

// SAFETY: the other threads of the process wait.
unsafe impl<T> Sync for TurnCell<T> {}

impl<T> TurnCell<T> {
    pub const fn new(kept: T) -> Self {
        Self(UnsafeCell::new(kept))
    }

    pub fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// Returns the page of the family. [`map_page`] must have returned `true`.
pub fn page() -> &'static FamilyPage {
    // SAFETY: it is mapped before the gate is closed, and for good; all that is in it is atomic.
    unsafe { &*PAGE.load(SeqCst) }
}

/// Maps the page in `file`, which is closed: at `here`, over the page before, or anywhere if that is 0. Returns whether it could.
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
    system(
        call::OPENAT,
        [HERE as usize, path.as_ptr() as usize, flags | CLOSE_ON_EXEC, 0],
    )
}

/// Returns the flags with which a file is open, or an error.
pub fn flags_of(file: usize) -> isize {
    const GET_FLAGS: usize = 3;
    system(call::FCNTL, [file, GET_FLAGS])
}

/// Returns whether the text at an address, which ends with a zero, begins with `with`.
pub fn begins(text: usize, with: &[u8]) -> bool {
    let mut bytes = with.iter().enumerate();
    // SAFETY: it stops at the first byte that differs, so at the zero that ends the text at the latest.
    bytes.all(|(place, byte)| unsafe { *(text as *const u8).add(place) } == *byte)
}

/// Returns the addresses of the values of a variable in an environment of the program: texts, in a list that ends with a null.
pub fn values(environment: usize, name: &[u8]) -> impl Iterator<Item = usize> {
    // SAFETY: nothing is looked at behind the null.
    let texts = (0..).map(move |number| unsafe { *(environment as *const usize).add(number) });
    let texts = texts.take_while(|text| *text != 0);
    let named = texts.filter(move |text| begins(*text, name) && begins(text + name.len(), b"="));
    named.map(move |text| text + name.len() + 1)
}

/// Returns the address at which the stack of this program began: of `argc`; `argv`, the environment and the auxiliary vector follow.
pub fn first_stack() -> Option<usize> {
    /// The index of `startstack`, the 28th field of `/proc/PID/stat`, among those behind the name.
    const FIELD: usize = 28 - 3;
    let file = open(b"/proc/self/stat\0", 0);
    let mut text = [0u8; 512];
    let read = system(call::READ, [file as usize, text.as_mut_ptr() as usize, text.len()]);
    system(call::CLOSE, [file as usize]);
    let text = text.get(..usize::try_from(read).ok()?)?;
    let name = text.iter().rposition(|byte| *byte == b')')?;
    let field = text[name + 2..].split(|byte| *byte == b' ').nth(FIELD)?;
    let digits = field.iter().map(|byte| usize::from(byte.wrapping_sub(b'0')));
    let stack = digits.fold(0, |number: usize, digit| number.wrapping_mul(10).wrapping_add(digit));
    (stack != 0).then_some(stack)
}

/// Returns the address of the environment behind the first stack.
pub fn environment(stack: usize) -> usize {
    // SAFETY: `argc`.
    let arguments = unsafe { *(stack as *const usize) };
    stack + (arguments + 2) * size_of::<usize>()
}

/// Returns the addresses of the entries of the auxiliary vector behind the first stack, each a kind and a value.
pub fn auxiliary(stack: usize) -> impl Iterator<Item = *mut [u64; 2]> {
    let environment = environment(stack) as *const usize;
    // SAFETY: nothing is looked at behind the null.
    let variables = (0..).take_while(|number| unsafe { *environment.add(*number) } != 0);
    let first = environment.wrapping_add(variables.count() + 1) as *mut [u64; 2];
    // SAFETY: nothing is looked at behind the last entry, of kind 0.
    let is_entry = |entry: &*mut [u64; 2]| unsafe { (**entry)[0] } != 0;
    (0..).map(move |number| first.wrapping_add(number)).take_while(is_entry)
}

/// Writes the number of a thread to an address of the program, unless that is 0.
pub fn write_number(at: usize, number: u32) {
    if at != 0 {
        // SAFETY: the program gave its address to the kernel to have it written.
        unsafe { *(at as *mut u32) = number };
    }
}

/// Waits, in real time, while a word has this value, for a second at most.
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
