//! Reads, and random bytes (`getrandom`, `/dev/urandom`).

use super::call;
use super::descriptors::{DescriptorKind, add_random, get};
use super::gate::system;
use super::shared::CLOSE_ON_EXEC;
use super::transfers;
use super::trap::TrappedCall;
use super::turns::page;

/// Answers `read` and `readv`.
pub fn read(call: &TrappedCall<'_>) -> isize {
    match get(call.arguments[0]).kind {
        DescriptorKind::Random => read_random(call),
        _ => transfers::receive(call),
    }
}

/// Fills memory with random bytes of the family.
pub fn getrandom(into: usize, length: usize) -> isize {
    let mut at = 0;
    while at < length {
        let bits = page().draw().to_le_bytes();
        for byte in &bits[..bits.len().min(length - at)] {
            // SAFETY: the program gave its address to have it written.
            unsafe { *((into + at) as *mut u8) = *byte };
            at += 1;
        }
    }
    length as isize
}

/// Answers `read` and `readv` of a device of random bytes.
fn read_random(call: &TrappedCall<'_>) -> isize {
    let [_, into, length, ..] = call.arguments;
    if call.number == call::READ {
        return getrandom(into, length);
    }
    let parts = (0..length).map(|number| {
        // SAFETY: the program gave so many `iovec`s to be read.
        let [at, length] = unsafe { *(into as *const [usize; 2]).add(number) };
        getrandom(at, length)
    });
    parts.sum()
}

/// Opens a device of random bytes: a file in memory, whose bytes are for a program that this one executes.
pub fn random_file(flags: usize) -> isize {
    const PORTION: usize = 1024;
    const PORTIONS: usize = 4;
    let file = file_in_memory(flags);
    if file < 0 {
        return file;
    }
    for portion in 0..PORTIONS {
        let mut bytes = [0u8; PORTION];
        getrandom(bytes.as_mut_ptr() as usize, PORTION);
        write_at(file, &bytes, portion * PORTION);
    }
    add_random(file as usize);
    file
}

/// Opens the file of the kernel that has another UUID each time.
pub fn uuid_file(flags: usize) -> isize {
    let mut text = *b"xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx\n";
    for letter in text.iter_mut().filter(|letter| **letter == b'x') {
        *letter = b"0123456789abcdef"[(page().draw() % 16) as usize];
    }
    text_file(&text, flags)
}

/// Opens a file with this text, or returns an error.
pub fn text_file(text: &[u8], flags: usize) -> isize {
    let file = file_in_memory(flags);
    write_at(file, text, 0);
    file
}

/// Returns an empty file, or an error.
fn file_in_memory(flags: usize) -> isize {
    let name = b"random\0";
    system(
        call::MEMFD_CREATE,
        [name.as_ptr() as usize, usize::from(flags & CLOSE_ON_EXEC != 0)],
    )
}

fn write_at(file: isize, bytes: &[u8], place: usize) {
    system(
        call::PWRITE64,
        [file as usize, bytes.as_ptr() as usize, bytes.len(), place],
    );
}
