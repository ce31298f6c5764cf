//! The processor's counter of cycles (`rdtsc`), which programs read without a system call: it counts the nanoseconds of the world.
//!
//! The kernel raises `SIGSEGV` where a program reads it. So the library handles that signal, and calls the handler of the program, if there
//! is one, for all other faults.

use core::sync::atomic::Ordering::SeqCst;

use super::actions::{Action, BLOCK, SIGSEGV, change_mask, set_action};
use super::call;
use super::clocks::{look, now};
use super::gate::{Registers, system};
use super::shared::{PID, TurnCell};
use super::trap::TrapContext;

/// `PR_SET_TSC` of `prctl`.
const SET_TSC: usize = 26;
const READABLE: usize = 1;
const RAISES: usize = 2;

/// The action of the program for `SIGSEGV`.
static THEIRS: TurnCell<Action> = TurnCell::new(Action::DEFAULT);

/// Makes reads of the counter raise `SIGSEGV`, and handles that.
pub fn trap() {
    set_action(SIGSEGV, on_fault as *const () as usize, 0);
    system(call::PRCTL, [SET_TSC, RAISES]);
}

/// Permits reads of the counter: the next program reads it before it loads the library.
pub fn let_go() {
    system(call::PRCTL, [SET_TSC, READABLE]);
}

/// Returns the action of the program for `SIGSEGV`, and replaces it if there is a new one.
pub fn replace_handler(new: Option<Action>) -> Action {
    // SAFETY: only the thread that has the turn looks at it.
    let theirs = unsafe { &mut *THEIRS.get() };
    let before = *theirs;
    if let Some(new) = new {
        *theirs = new;
    }
    before
}

extern "C" fn on_fault(signal: i32, about: *const [i32; 4], context: *mut TrapContext) {
    const BY_KERNEL: i32 = 0x80;
    const IGNORED: usize = 1;
    // SAFETY: the kernel made them for this handler alone.
    let (code, registers) = unsafe { ((*about)[2], &mut (*context).registers.0) };
    let at = registers[Registers::IP] as *const u8;
    // SAFETY: the processor has just read this instruction.
    let length = if code == BY_KERNEL { unsafe { length_of_look(at) } } else { 0 };
    if length > 0 {
        look();
        let cycles = now();
        registers[Registers::AX] = cycles & 0xffff_ffff;
        registers[Registers::DX] = cycles >> 32;
        if length == 3 {
            // of processor 0
            registers[Registers::CX] = 0;
        }
        registers[Registers::IP] += length;
        return;
    }
    let theirs = replace_handler(None);
    let is_sent = code <= 0;
    if theirs.handler == IGNORED && is_sent {
        return;
    }
    if theirs.handler <= IGNORED {
        // the fault is raised again, and ends the program
        set_action(SIGSEGV, 0, 0);
        if is_sent {
            system(call::KILL, [PID.load(SeqCst) as usize, SIGSEGV]);
        }
        return;
    }
    change_mask(BLOCK, theirs.mask);
    // SAFETY: the program gave it for this.
    let handler: extern "C" fn(i32, *const [i32; 4], *mut TrapContext) =
        unsafe { core::mem::transmute(theirs.handler) };
    handler(signal, about, context);
}

/// Returns the length of the instruction if it is `rdtsc` or `rdtscp`, and 0 if it is another.
///
/// # Safety
///
/// `at` is the address of an instruction.
unsafe fn length_of_look(at: *const u8) -> u64 {
    // SAFETY: the caller's; the second and third byte are there where those before them say so.
    unsafe {
        match (*at, *at.add(1)) {
            (0x0f, 0x31) => 2,
            (0x0f, 0x01) if *at.add(2) == 0xf9 => 3,
            _ => 0,
        }
    }
}
