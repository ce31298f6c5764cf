//! A trapped system call of the program ([`TrappedCall`]), as the kernel gives it to the handler of `SIGSYS`.

use super::gate::{Registers, system};

/// `struct ucontext`, which the kernel gives a signal handler, and restores when that returns.
#[repr(C)]
pub struct TrapContext {
    _flags: u64,
    _link: u64,
    _alternate_stack: [u64; 3],
    pub registers: Registers,
    _floating_point: u64,
    _reserved: [u64; 8],
    /// The signal mask of the program.
    pub mask: u64,
}

/// One system call of the program.
pub struct TrappedCall<'a> {
    pub number: usize,
    pub arguments: [usize; 6],
    pub context: &'a mut TrapContext,
}

impl TrappedCall<'_> {
    /// Makes the call.
    pub fn ask_kernel(&self) -> isize {
        system(self.number, self.arguments)
    }

    /// Makes the call with another argument at `place`.
    pub fn with(&self, place: usize, argument: usize) -> isize {
        let mut arguments = self.arguments;
        arguments[place] = argument;
        system(self.number, arguments)
    }
}
