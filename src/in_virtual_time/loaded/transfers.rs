//! Transfers over pipes and sockets (`read`, `write`, `send`, `recv` and the like), and the end of a connection as the program sees it.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EAGAIN, ECONNRESET};
use super::descriptors::{Descriptor, DescriptorKind, SocketStage, blocks, connection_of, get, is_connected, set, used};
use super::disks;
use super::gate::system;
use super::page::connection;
use super::ready::{READABLE, WRITABLE, await_ready};
use super::shared::{NONBLOCKING, flags_of, write_number};
use super::sockets::{AT_ONCE, RECEIVE_TIMEOUT, SEND_TIMEOUT, settle, timeout};
use super::trap::TrappedCall;
use super::turns::{had_no_room, page};

/// Returns the answer of a read: 0 at the end of a connection that was closed, ECONNRESET of one that was reset.
fn ending(socket: Descriptor, answer: isize) -> isize {
    let ended = answer == 0 || answer == ECONNRESET;
    match connection_of(socket) {
        connection::RESET if ended => ECONNRESET,
        connection::CLOSED if ended => 0,
        _ => answer,
    }
}

/// Answers `recvfrom` and the like, and `read`.
pub fn receive(call: &TrappedCall<'_>) -> isize {
    let [descriptor, ..] = call.arguments;
    let socket = get(descriptor);
    if !matches!(socket.kind, DescriptorKind::Local | DescriptorKind::Network) {
        return call.ask_kernel();
    }
    let waits = !is_at_once(call) && blocks(descriptor);
    let is_plain = call.number == call::RECVFROM || call.number == call::READ && waits;
    let answer = match socket.kind {
        DescriptorKind::Network if is_plain => receive_plain(call, waits),
        kind => {
            let limit = || timeout(descriptor, RECEIVE_TIMEOUT);
            if waits && let Err(error) = await_ready(call, descriptor, READABLE, limit()) {
                return error;
            }
            match call.number {
                call::RECVMSG if kind == DescriptorKind::Network => receive_message(call),
                _ => call.ask_kernel(),
            }
        }
    };
    if socket.kind == DescriptorKind::Local {
        used(socket);
        return answer;
    }
    if answer <= 0 {
        ending(settle(descriptor, socket), answer)
    } else {
        answer
    }
}

/// Receives the bytes that are there, and `waits` for some if there are none, or for all with `MSG_WAITALL`.
fn receive_plain(call: &TrappedCall<'_>, waits: bool) -> isize {
    const PEEK: usize = 2;
    const ALL: usize = 0x100;
    let [descriptor, bytes, length, flags, address, address_length] = call.arguments;
    let (flags, address) = match call.number {
        call::READ => (0, 0),
        _ => (flags, address),
    };
    let takes_all = waits && flags & (ALL | PEEK) == ALL;
    let mut received = 0;
    loop {
        let rest = [descriptor, bytes + received, length - received, flags | AT_ONCE];
        let last = match system(call::RECVFROM, rest) {
            EAGAIN if waits => match await_ready(call, descriptor, READABLE, timeout(descriptor, RECEIVE_TIMEOUT)) {
                Ok(()) => continue,
                Err(error) => error,
            },
            more if more > 0 && takes_all && received + (more as usize) < length => {
                received += more as usize;
                continue;
            }
            last => last,
        };
        if last >= 0 && address != 0 {
            // TCP gives none: that of the Unix stream is a random name of this machine
            write_number(address_length, 0);
        }
        return if received > 0 { received as isize + last.max(0) } else { last };
    }
}

/// Answers `recvmsg` of a connection, which gives no name: that of the Unix stream is a random name of this machine.
fn receive_message(call: &TrappedCall<'_>) -> isize {
    let header = call.arguments[1] as *mut usize;
    if header.is_null() {
        return call.ask_kernel();
    }
    // SAFETY: a `struct msghdr`, which begins with the address of the name; no other thread of the program runs.
    let name = unsafe { header.replace(0) };
    let answer = call.ask_kernel();
    // SAFETY: as above.
    unsafe { *header = name };
    if answer >= 0 && name != 0 {
        write_number(header as usize + size_of::<usize>(), 0);
    }
    answer
}

/// Returns whether a call has the flag `MSG_DONTWAIT`.
fn is_at_once(call: &TrappedCall<'_>) -> bool {
    let flags = match call.number {
        call::RECVMSG | call::SENDMSG => call.arguments[2],
        call::RECVFROM | call::SENDTO | call::RECVMMSG | call::SENDMMSG => call.arguments[3],
        _ => 0,
    };
    flags & AT_ONCE != 0
}

/// Answers `sendto` and the like, and `write`.
pub fn send(call: &TrappedCall<'_>) -> isize {
    let [descriptor, ..] = call.arguments;
    let socket = get(descriptor);
    match socket.kind {
        DescriptorKind::Local | DescriptorKind::Network => {}
        DescriptorKind::File if matches!(call.number, call::WRITE | call::WRITEV) => return disks::write(call),
        _ => return call.ask_kernel(),
    }
    let socket = settle(descriptor, socket);
    let waits = !is_at_once(call) && blocks(descriptor);
    let in_parts = waits && call.number != call::SENDMMSG;
    // a connection that is being dialled is open before it is written to
    let sends = in_parts && socket.stage == SocketStage::Open;
    if waits
        && !sends
        && let Err(error) = await_ready(call, descriptor, WRITABLE, timeout(descriptor, SEND_TIMEOUT))
    {
        return error;
    }
    if socket.kind == DescriptorKind::Network && connection_of(socket) == connection::RESET && !socket.told {
        set(descriptor, Descriptor { told: true, ..socket });
        return ECONNRESET;
    }
    if call.number == call::SENDMSG && sends_descriptors(call) && is_connected() {
        page().inherits.store(1, SeqCst);
    }
    let sent = match socket.kind {
        _ if !in_parts => call.ask_kernel(),
        DescriptorKind::Local if matches!(call.number, call::WRITE | call::WRITEV) => write_all(call),
        _ => send_all(call),
    };
    if sent == EAGAIN && socket.kind == DescriptorKind::Network {
        had_no_room();
    }
    used(socket);
    sent
}

/// Returns whether a call of `sendmsg` may send descriptors: it has control data.
fn sends_descriptors(call: &TrappedCall<'_>) -> bool {
    const LENGTH: usize = 5;
    let header = call.arguments[1] as *const usize;
    // SAFETY: a `struct msghdr`, which the program gave to be read.
    !header.is_null() && unsafe { *header.add(LENGTH) } != 0
}

/// Sends in pieces, each as long as there is room for: a call with all bytes would wait in the kernel.
fn send_all(call: &TrappedCall<'_>) -> isize {
    let [descriptor, first, second, third, address, address_length] = call.arguments;
    let (flags, to) = match call.number {
        call::SENDTO => (third, [address, address_length]),
        call::SENDMSG => (second, [0, 0]),
        _ => (0, [0, 0]),
    };
    in_pieces(call, |sent, [bytes, length]| match call.number {
        // with the descriptors that it sends, and the borders of a message
        call::SENDMSG if sent == 0 => system(call::SENDMSG, [descriptor, first, flags | AT_ONCE]),
        _ => system(call::SENDTO, [descriptor, bytes, length, flags | AT_ONCE, to[0], to[1]]),
    })
}

/// The parts of the bytes of a call (`struct iovec`), each with its address and its length.
struct Parts {
    /// The part of a call that has one.
    only: [usize; 2],
    several: Option<(*const [usize; 2], usize)>,
}

impl Parts {
    fn of(call: &TrappedCall<'_>) -> Self {
        let [_, first, second, ..] = call.arguments;
        let several = match call.number {
            call::WRITEV => Some((first as *const [usize; 2], second)),
            call::SENDMSG => {
                // SAFETY: a `struct msghdr`, which the program gave to be read.
                let [_, _, parts, many] = unsafe { *(first as *const [usize; 4]) };
                Some((parts as *const [usize; 2], many))
            }
            _ => None,
        };
        Self {
            only: [first, second],
            several,
        }
    }

    fn all(&self) -> impl Iterator<Item = [usize; 2]> {
        let (parts, many) = self.several.unwrap_or((&raw const self.only, 1));
        // SAFETY: the program gave so many parts to be read.
        (0..many).map(move |number| unsafe { *parts.add(number) })
    }

    /// Returns the number of all bytes.
    fn length(&self) -> usize {
        self.all().map(|[_, length]| length).sum()
    }

    /// Returns the rest of the part that has the byte with this number; an empty one, if none has.
    fn rest(&self, number: usize) -> [usize; 2] {
        let mut before = number;
        for [at, length] in self.all() {
            if before < length {
                return [at + before, length - before];
            }
            before -= length;
        }
        [self.only[0], 0]
    }
}

/// Does the same for a write to a pipe or the like, which takes no flags.
fn write_all(call: &TrappedCall<'_>) -> isize {
    /// `PIPE_BUF`: a write of so many bytes is atomic, and needs no wait once there is room.
    const AT_ONCE_WRITTEN: usize = 4096;
    const SET_FLAGS: usize = 4;
    let [descriptor, ..] = call.arguments;
    if Parts::of(call).length() <= AT_ONCE_WRITTEN {
        return call.ask_kernel();
    }
    let flags = |more: usize| {
        let flags = flags_of(descriptor) as usize & !NONBLOCKING;
        system(call::FCNTL, [descriptor, SET_FLAGS, flags | more]);
    };
    in_pieces(call, |written, [bytes, length]| {
        // no other thread runs meanwhile that could see the flag
        flags(NONBLOCKING);
        let more = match written {
            // with the borders of a message
            0 => call.ask_kernel(),
            _ => system(call::WRITE, [descriptor, bytes, length]),
        };
        flags(0);
        more
    })
}

/// Transfers the bytes of a call with `send`, whose arguments are the number of bytes before and the next ones, and waits where there is
/// no room.
fn in_pieces(call: &TrappedCall<'_>, send: impl Fn(usize, [usize; 2]) -> isize) -> isize {
    let [descriptor, ..] = call.arguments;
    let parts = Parts::of(call);
    let length = parts.length();
    let mut sent = 0;
    while sent < length || length == 0 {
        let error = match send(sent, parts.rest(sent)) {
            EAGAIN => {
                used(get(descriptor));
                had_no_room();
                match await_ready(call, descriptor, WRITABLE, timeout(descriptor, SEND_TIMEOUT)) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
            0 => break,
            error if error < 0 => error,
            more => {
                sent += more as usize;
                continue;
            }
        };
        return if sent > 0 { sent as isize } else { error };
    }
    sent as isize
}

/// Answers `sendfile`, `splice` and `tee`, which write to one descriptor from another.
pub fn move_bytes(call: &TrappedCall<'_>) -> isize {
    let [first, second, third, ..] = call.arguments;
    let (from, to) = match call.number {
        call::SENDFILE => (second, first),
        call::SPLICE => (first, third),
        _ => (first, second),
    };
    let ends = [get(from), settle(to, get(to))];
    let moved = call.ask_kernel();
    ends.into_iter().for_each(used);
    moved
}
