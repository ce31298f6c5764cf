//! The trace of a family: a line for each system call of the program, for the comparison of two runs ([`note`]).
//!
//! A line has the time, the thread in the order of creation, the number of the call, its arguments, and the answer. It is written in one
//! piece by the thread that has the turn, to a file that is open for no longer than that: the program has no descriptor more.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::call;
use super::clocks::now;
use super::gate::system;
use super::page::PATH;
use super::shared::{open, page};
use super::turns::slot;

const ENDING: &[u8] = b".trace\0";
/// The lowest address of programs and of their mappings.
const FIRST_ADDRESS: usize = 0x40_0000;
/// Calls that do not return if they succeed: they are noted before.
const LAST: [usize; 5] = [
    call::EXECVE,
    call::EXECVEAT,
    call::EXIT,
    call::EXIT_GROUP,
    call::RT_SIGRETURN,
];

pub fn is_last(number: usize) -> bool {
    LAST.contains(&number)
}

/// Notes a call with its answer, if the family is traced.
pub fn note(number: usize, arguments: [usize; 6], answer: isize) {
    if page().traced.load(Relaxed) == 0 {
        return;
    }
    let thread = slot().number.load(SeqCst).wrapping_sub(page().numbers.load(SeqCst));
    let mut line = TraceLine::EMPTY;
    line.add_number(now());
    line.add(b" t");
    line.add_number(thread.into());
    line.add(b" call ");
    line.add_number(number as u64);
    for argument in arguments {
        line.add(b" ");
        line.add_value(argument as isize);
    }
    line.add(b" = ");
    line.add_value(answer);
    line.add(b"\n");
    line.write();
}

struct TraceLine {
    bytes: [u8; Self::LONGEST],
    length: usize,
}

impl TraceLine {
    const LONGEST: usize = 256;
    const EMPTY: Self = Self {
        bytes: [0; Self::LONGEST],
        length: 0,
    };

    fn add(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(text);
            self.length = end;
        }
    }

    fn add_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let (mut left, mut first) = (number, digits.len());
        loop {
            first -= 1;
            digits[first] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.add(&digits[first..]);
    }

    /// Adds a number, or `*` for an address, which may be another one in each run.
    fn add_value(&mut self, value: isize) {
        let size = value.unsigned_abs();
        if size >= FIRST_ADDRESS {
            return self.add(b"*");
        }
        if value < 0 {
            self.add(b"-");
        }
        self.add_number(size as u64);
    }

    /// Appends the line to the file, which harness has made.
    fn write(&self) {
        const WRITE_AT_END: usize = 1 | 0o2000;
        let mut path = [0u8; PATH + ENDING.len()];
        page().path.copy_to(&mut path, ENDING);
        let file = open(&path, WRITE_AT_END);
        if file >= 0 {
            system(call::WRITE, [file as usize, self.bytes.as_ptr() as usize, self.length]);
            system(call::CLOSE, [file as usize]);
        }
    }
}
