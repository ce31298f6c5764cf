//! The processor's counter of cycles (`rdtsc`), which programs read without a system call: it counts the nanoseconds of the world.
//!
//! The kernel raises `SIGSEGV` where a program reads it. So that signal is the library's, and what else raises it is given to the handler
//! of the program, if it has one.

use super::actions::{Action, BLOCK, SIGSEGV, change_mask, set_action};
use super::call;
use super::clocks::{look, now};
use super::gate::{Registers, system};
use super::shared::TurnCell;
use super::trap::TrapContext;

/// `prctl`
const SET_TSC: usize = 26;
const READABLE: usize = 1;
const RAISES: usize = 2;

/// The handler of the program.
static THEIRS: TurnCell<Action> = TurnCell::new(Action::DEFAULT);

/// From here on a look at the counter comes here.
pub fn trap() {
    set_action(SIGSEGV, on_fault as *const () as usize, 0);
    system(call::PRCTL, [SET_TSC, RAISES]);
}

/// A program that begins looks at it before it has the library.
pub fn let_go() {
    system(call::PRCTL, [SET_TSC, READABLE]);
}

/// Takes the program's handler in place of an earlier one, which it returns.
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
    // SAFETY: the kernel's, for this handler alone.
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
    if theirs.handler <= 1 {
        // it ends the program when it is raised again
        set_action(SIGSEGV, 0, 0);
        return;
    }
    change_mask(BLOCK, theirs.mask);
    // SAFETY: the program gave it for this.
    let handler: extern "C" fn(i32, *const [i32; 4], *mut TrapContext) =
        unsafe { core::mem::transmute(theirs.handler) };
    handler(signal, about, context);
}

/// How many bytes `rdtsc` or `rdtscp` has, where it is one.
///
/// # Safety
///
/// An instruction is there.
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
