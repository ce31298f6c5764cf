//! Signals: their actions, the signal mask, and waits for them. The program must not block or handle `SIGSYS`, which its calls raise.

use core::sync::atomic::Ordering::SeqCst;

use super::actions::{Action, BLOCK, OWN, SET, SET_SIZE, SIGSEGV, SIGSYS, UNBLOCK, change_mask, set_action};
use super::call;
use super::call::error::{EAGAIN, EINTR, EINVAL};
use super::clocks::{deadline_after, now};
use super::cycles::replace_handler;
use super::gate::{call_alternate_stack, system};
use super::page::NEVER;
use super::trap::{TrapContext, TrappedCall};
use super::turns::{ThreadWait, page, wait};

/// Installs the handler of the program's system calls. Returns 0 or the kernel's error.
pub fn install(on_call: extern "C" fn(i32, usize, *mut TrapContext)) -> isize {
    // a handler of the program runs between its calls and not within them
    let set = set_action(SIGSYS, on_call as *const () as usize, !OWN);
    change_mask(UNBLOCK, OWN);
    set
}

/// Returns whether the program ignores a signal, which then interrupts no call.
fn is_ignored(signal: usize) -> bool {
    /// SIGCHLD, SIGCONT, SIGURG, SIGWINCH
    const IGNORED_BY_DEFAULT: [usize; 4] = [17, 18, 23, 28];
    let mut action = Action::DEFAULT;
    system(call::RT_SIGACTION, [signal, 0, &raw mut action as usize, SET_SIZE]);
    match action.handler {
        0 => IGNORED_BY_DEFAULT.contains(&signal),
        handler => handler == 1,
    }
}

/// Returns whether a signal is pending that `mask` does not block and the program does not ignore.
fn is_raised(mask: u64) -> bool {
    let mut pending = 0u64;
    system(call::RT_SIGPENDING, [&raw mut pending as usize, SET_SIZE]);
    let waits = pending & !mask;
    (1..=64).any(|signal| waits >> (signal - 1) & 1 != 0 && !is_ignored(signal))
}

/// Returns the same, if any signal was sent since `seen` was read.
pub fn is_signalled(seen: u32, mask: u64) -> bool {
    page().signals.load(SeqCst) != seen && is_raised(mask)
}

/// Sets the signal mask of this thread, without the signals of the library.
pub fn block(mask: u64) {
    change_mask(SET, mask & !OWN);
}

/// Answers `rt_sigaction`. The library's own handler of `SIGSEGV` calls that of the program.
pub fn action(call: &TrappedCall<'_>) -> isize {
    let [signal, new, old, ..] = call.arguments;
    let wanted = (new != 0).then(|| {
        // SAFETY: the program gave its address to have it read.
        let given = unsafe { *(new as *const Action) };
        Action {
            mask: given.mask & !OWN,
            ..given
        }
    });
    let before = match (signal, wanted) {
        (SIGSYS, _) => Action::DEFAULT,
        (SIGSEGV, _) => replace_handler(wanted),
        (_, None) => return call.ask_kernel(),
        (_, Some(wanted)) => return call.with(1, &raw const wanted as usize),
    };
    if old != 0 {
        // SAFETY: the program gave its address to have it written.
        unsafe { *(old as *mut Action) = before };
    }
    0
}

/// Answers `rt_sigprocmask`: the mask is set when the thread leaves the handler.
pub fn mask(call: &mut TrappedCall<'_>) -> isize {
    let [how, new, old, ..] = call.arguments;
    let before = call.context.mask;
    if new != 0 {
        // SAFETY: the program gave its address to have it read.
        let set = unsafe { *(new as *const u64) };
        let after = match how {
            BLOCK => before | set,
            UNBLOCK => before & !set,
            SET => set,
            _ => return EINVAL,
        };
        call.context.mask = after & !OWN;
    }
    if old != 0 {
        // SAFETY: the program gave its address to have it written.
        unsafe { *(old as *mut u64) = before };
    }
    0
}

/// Makes the thread call `sigaltstack` itself after it has left the handler: the handler is on the alternate stack, and a kernel of 6.12 or
/// later (its commit "x86/pkeys: Restore altstack access in sigreturn()") does not change it on the return from there.
pub fn alternate_stack(call: &mut TrappedCall<'_>) -> isize {
    call_alternate_stack(&mut call.context.registers);
    0
}

/// Answers `rt_sigsuspend`.
pub fn suspend(call: &TrappedCall<'_>) -> isize {
    // SAFETY: the program gave its address to have it read.
    let mask = unsafe { *(call.arguments[0] as *const u64) };
    // the kernel would wait on after a signal that is ignored
    while !is_raised(mask) {
        wait(ThreadWait::for_descriptors(NEVER));
    }
    let mask = mask & !OWN;
    call.with(0, &raw const mask as usize)
}

/// Answers `rt_sigtimedwait`, which `sigwait` calls, too.
pub fn timed_wait(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let deadline = deadline_after(call.arguments[2])?;
    let seen = page().signals.load(SeqCst);
    let none = [0u64; 2];
    loop {
        let answer = call.with(2, none.as_ptr() as usize);
        if answer != EAGAIN || now() >= deadline {
            return Ok(answer);
        }
        wait(ThreadWait::for_descriptors(deadline));
        // SAFETY: the program gave its address to have it read.
        let wanted = unsafe { *(call.arguments[0] as *const u64) };
        if is_signalled(seen, call.context.mask | wanted) {
            return Err(EINTR);
        }
    }
}
