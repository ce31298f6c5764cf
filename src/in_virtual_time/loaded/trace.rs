//! The trace of a family: a line for each system call of the program, for the comparison of two runs ([`note`]).
//!
//! A line has the time, the thread in the order of creation, the number of the call, its arguments, and the answer. It is written in one
//! piece by the thread that has the turn, to a file that is open for no longer than that: the program has no descriptor more.

use core::fmt;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::call;
use super::clocks::now;
use super::gate::system;
use super::page::PATH;
use super::shared::{open, page};
use super::text::ShortText;
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
    let [a, b, c, d, e, f] = arguments.map(|argument| TracedValue(argument as isize));
    let (time, answer) = (now(), TracedValue(answer));
    let line = ShortText::<256>::of(format_args!(
        "{time} t{thread} call {number} {a} {b} {c} {d} {e} {f} = {answer}\n"
    ));
    write(line.bytes());
}

/// A number, or `*` for an address, which may be another one in each run.
struct TracedValue(isize);

impl fmt::Display for TracedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.unsigned_abs() >= FIRST_ADDRESS {
            true => f.write_str("*"),
            false => fmt::Display::fmt(&self.0, f),
        }
    }
}

/// Appends a line to the file, which harness has made.
fn write(line: &[u8]) {
    const WRITE_AT_END: usize = 1 | 0o2000;
    let mut path = [0u8; PATH + ENDING.len()];
    page().path.copy_to(&mut path, ENDING);
    let file = open(&path, WRITE_AT_END);
    if file >= 0 {
        system(call::WRITE, [file as usize, line.as_ptr() as usize, line.len()]);
        system(call::CLOSE, [file as usize]);
    }
}
