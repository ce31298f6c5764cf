//! Files and pipes: their reads and writes, and random bytes (`getrandom`, `/dev/urandom`).

use super::call;
use super::descriptors::{DescriptorKind, add_random, blocks, get, used};
use super::disks;
use super::gate::system;
use super::page::NEVER;
use super::ready::{READABLE, WRITABLE, await_ready};
use super::shared::CLOSE_ON_EXEC;
use super::transfers;
use super::trap::TrappedCall;
use super::turns::page;

pub fn read(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let descriptor = get(call.arguments[0]);
    Ok(match descriptor.kind {
        DescriptorKind::File | DescriptorKind::Unknown | DescriptorKind::Epoll => call.ask_kernel(),
        DescriptorKind::Network => transfers::receive(call),
        DescriptorKind::Random => read_random(call),
        DescriptorKind::Local => {
            if blocks(call.arguments[0]) {
                await_ready(call, call.arguments[0], READABLE, NEVER)?;
            }
            let read = call.ask_kernel();
            // threads that wait for room look again
            used(descriptor);
            read
        }
    })
}

pub fn write(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let descriptor = get(call.arguments[0]);
    Ok(match descriptor.kind {
        DescriptorKind::File => disks::write(call),
        DescriptorKind::Unknown | DescriptorKind::Random | DescriptorKind::Epoll => call.ask_kernel(),
        DescriptorKind::Network => transfers::send(call),
        DescriptorKind::Local => {
            if blocks(call.arguments[0]) {
                await_ready(call, call.arguments[0], WRITABLE, NEVER)?;
            }
            let is_long = call.number == call::WRITE && call.arguments[2] > AT_ONCE_WRITTEN;
            let written = match is_long && blocks(call.arguments[0]) {
                true => write_all(call),
                false => call.ask_kernel(),
            };
            used(descriptor);
            written
        }
    })
}

/// `PIPE_BUF`: a write of so many bytes is atomic, and needs no wait once there is room.
const AT_ONCE_WRITTEN: usize = 4096;

/// Writes in pieces, each as long as there is room for: a write of all bytes would wait in the kernel.
fn write_all(call: &TrappedCall<'_>) -> isize {
    const SET_FLAGS: usize = 4;
    const NONBLOCKING: usize = 0o4000;
    let [descriptor, bytes, length, ..] = call.arguments;
    let flags = |more: usize| {
        let flags = system(call::FCNTL, [descriptor, 3]) as usize & !NONBLOCKING;
        system(call::FCNTL, [descriptor, SET_FLAGS, flags | more]);
    };
    let write = |written: usize| {
        // no other thread runs meanwhile that could see the flag
        flags(NONBLOCKING);
        let more = system(call::WRITE, [descriptor, bytes + written, length - written]);
        flags(0);
        more
    };
    transfers::in_pieces(call, || NEVER, write)
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
    let file = file_in_memory(flags);
    write_at(file, &text, 0);
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
