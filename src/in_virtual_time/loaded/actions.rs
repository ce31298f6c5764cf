//! The actions of signals ([`Action`]) and the signal mask of a thread, as the kernel has them.

use super::call;
use super::gate::{restorer, system};

pub const SIGSEGV: usize = 11;
/// The signal that the system calls of the program raise.
pub const SIGSYS: usize = 31;
/// The set of both; no thread may block them, since the kernel would end it.
pub const OWN: u64 = 1 << (SIGSYS - 1) | 1 << (SIGSEGV - 1);
pub const SET_SIZE: usize = size_of::<u64>();
/// The argument `how` of `rt_sigprocmask`.
pub const BLOCK: usize = 0;
pub const UNBLOCK: usize = 1;
pub const SET: usize = 2;

/// `struct kernel_sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Action {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

impl Action {
    pub const DEFAULT: Self = Self {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
}

/// Sets the handler of a signal; 0: the default action. Returns 0 or the kernel's error.
pub fn set_action(signal: usize, handler: usize, mask: u64) -> isize {
    // SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTORER
    const FLAGS: u64 = 4 | 0x0800_0000 | 0x4000_0000 | 0x0400_0000;
    let action = Action {
        handler,
        flags: FLAGS,
        restorer: restorer(),
        mask,
    };
    system(call::RT_SIGACTION, [signal, &raw const action as usize, 0, SET_SIZE])
}

/// Changes the signal mask of this thread.
pub fn change_mask(how: usize, signals: u64) {
    system(call::RT_SIGPROCMASK, [how, &raw const signals as usize, 0, SET_SIZE]);
}
