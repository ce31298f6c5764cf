//! A system call of the program, as the kernel hands it back ([`TrappedCall`]).

use super::gate::{Registers, system};

/// What the kernel gives a signal handler, and takes back when it returns: `ucontext`.
#[repr(C)]
pub struct TrapContext {
    _flags: u64,
    _link: u64,
    _alternate_stack: [u64; 3],
    pub registers: Registers,
    _floating_point: u64,
    _reserved: [u64; 8],
    /// The signals that the program blocks.
    pub mask: u64,
}

/// One system call of the program.
pub struct TrappedCall<'a> {
    pub number: usize,
    pub arguments: [usize; 6],
    pub context: &'a mut TrapContext,
}

impl TrappedCall<'_> {
    /// As the program asked the kernel.
    pub fn ask_kernel(&self) -> isize {
        system(self.number, self.arguments)
    }

    /// The same with another argument.
    pub fn with(&self, place: usize, argument: usize) -> isize {
        let mut arguments = self.arguments;
        arguments[place] = argument;
        system(self.number, arguments)
    }
}
