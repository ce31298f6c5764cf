//! What goes over the sockets of the world, and how a connection ends for the program.

use super::call;
use super::call::error::{EAGAIN, ECONNRESET};
use super::descriptors::{Descriptor, DescriptorKind, SocketStage, blocks, connection_of, get, set, used};
use super::gate::system;
use super::page::connection;
use super::ready::{READABLE, WRITABLE, await_ready};
use super::sockets::{AT_ONCE, RECEIVE_TIMEOUT, SEND_TIMEOUT, settle, timeout};
use super::trap::TrappedCall;

/// How a connection that the other end closed looks to the program.
fn ending(socket: Descriptor, answer: isize) -> isize {
    let ended = answer == 0 || answer == ECONNRESET;
    match connection_of(socket) {
        connection::RESET if ended => ECONNRESET,
        connection::CLOSED if ended => 0,
        _ => answer,
    }
}

/// `recvfrom` and the like, and `read` on a socket of the world.
pub fn receive(call: &TrappedCall<'_>) -> isize {
    let [descriptor, ..] = call.arguments;
    let socket = get(descriptor);
    if !matches!(socket.kind, DescriptorKind::Local | DescriptorKind::Network) {
        return call.ask_kernel();
    }
    let waits = !is_at_once(call) && blocks(descriptor);
    let answer = match call.number {
        call::READ | call::RECVFROM if socket.kind == DescriptorKind::Network && waits => receive_plain(call),
        _ => {
            let limit = || timeout(descriptor, RECEIVE_TIMEOUT);
            if waits && let Err(error) = await_ready(call, descriptor, READABLE, limit()) {
                return error;
            }
            call.ask_kernel()
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

/// Receives what is there; where there is nothing yet it waits for that first.
fn receive_plain(call: &TrappedCall<'_>) -> isize {
    let [descriptor, bytes, length, flags, address, address_length] = call.arguments;
    let asked = match call.number {
        call::READ => [descriptor, bytes, length, AT_ONCE, 0, 0],
        _ => [descriptor, bytes, length, flags | AT_ONCE, address, address_length],
    };
    loop {
        match system(call::RECVFROM, asked) {
            EAGAIN => {}
            answer => return answer,
        }
        if let Err(error) = await_ready(call, descriptor, READABLE, timeout(descriptor, RECEIVE_TIMEOUT)) {
            return error;
        }
    }
}

/// Whether a call says for itself that it does not wait.
fn is_at_once(call: &TrappedCall<'_>) -> bool {
    let flags = match call.number {
        call::RECVMSG | call::SENDMSG => call.arguments[2],
        call::RECVFROM | call::SENDTO | call::RECVMMSG | call::SENDMMSG => call.arguments[3],
        _ => 0,
    };
    flags & AT_ONCE != 0
}

/// `sendto` and the like, and `write` on a socket of the world.
pub fn send(call: &TrappedCall<'_>) -> isize {
    let [descriptor, ..] = call.arguments;
    let socket = get(descriptor);
    if !matches!(socket.kind, DescriptorKind::Local | DescriptorKind::Network) {
        return call.ask_kernel();
    }
    let socket = settle(descriptor, socket);
    let waits = !is_at_once(call) && blocks(descriptor);
    let plain = matches!(call.number, call::WRITE | call::SENDTO);
    // one that was dialled is there before it is written to
    let sends = plain && waits && socket.stage == SocketStage::Open;
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
    let sent = if plain && waits { send_all(call) } else { call.ask_kernel() };
    used(socket);
    sent
}

/// Sends in pieces, as far as there is room, where the kernel would wait.
fn send_all(call: &TrappedCall<'_>) -> isize {
    let [descriptor, bytes, length, flags, address, address_length] = call.arguments;
    let (flags, to) = match call.number {
        call::SENDTO => (flags, [address, address_length]),
        _ => (0, [0, 0]),
    };
    let send = |sent: usize| {
        let rest = [descriptor, bytes + sent, length - sent, flags | AT_ONCE, to[0], to[1]];
        system(call::SENDTO, rest)
    };
    in_pieces(call, || timeout(descriptor, SEND_TIMEOUT), send)
}

/// Transfers what a call gave with `send`, which is told how much went before, and waits wherever there is no room.
pub fn in_pieces(call: &TrappedCall<'_>, deadline: impl Fn() -> u64, send: impl Fn(usize) -> isize) -> isize {
    let [descriptor, _, length, ..] = call.arguments;
    let mut sent = 0;
    while sent < length || length == 0 {
        let error = match send(sent) {
            EAGAIN => {
                used(get(descriptor));
                match await_ready(call, descriptor, WRITABLE, deadline()) {
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
