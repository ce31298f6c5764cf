//! TCP sockets, which are sockets of the world: Unix streams between the process and harness, which carries the bytes over the simulated
//! network. There is no other network.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{
    EADDRINUSE, EAFNOSUPPORT, EAGAIN, EALREADY, ECONNREFUSED, ECONNRESET, EINPROGRESS, EINVAL, EISCONN, ENOENT,
    EPROTOTYPE,
};
use super::clocks::{SECOND, now};
use super::descriptors::{
    Descriptor, DescriptorKind, SocketStage, about, add, blocks, connection_of, get, set, tcp_option,
};
use super::gate::system;
use super::page::{FIRST_PORT, GREETING, NEVER, connection};
use super::ready::{READABLE, WRITABLE, await_ready};
use super::shared::{CLOSE_ON_EXEC, NONBLOCKING, begins, flags_of, write_number};
use super::text::ShortText;
use super::trap::TrappedCall;
use super::turns::{page, touch};

const UNIX: usize = 1;
const INET: usize = 2;
const INET6: usize = 10;
const NETLINK: usize = 16;
const STREAM: usize = 1;
const DATAGRAM: usize = 2;
const SOCKET_LEVEL: usize = 1;
const SEND_BUFFER: usize = 7;
pub const RECEIVE_TIMEOUT: usize = 20;
pub const SEND_TIMEOUT: usize = 21;
/// `MSG_DONTWAIT`
pub const AT_ONCE: usize = 0x40;
/// The send buffer of an open connection, in bytes.
const USUAL_BUFFER: u32 = 4 << 20;
/// The prefix of the name that the other end of a connection has which harness dialled; address, port and number follow.
const DIALLED: &[u8; 4] = b"\0hvt";
/// Prefixes of the paths of Unix sockets of the machine's services, which answer in real time: names of users and hosts, a bus.
const SERVICES: [&[u8]; 3] = [b"/run/", b"/var/run/", b"/var/lib/sss/"];
/// The prefix of the folders below one of them in which programs of a user have their own sockets.
const OF_USERS: &[u8] = b"/run/user/";

/// `struct sockaddr_in`; port and address are in network byte order.
#[repr(C)]
#[derive(Clone, Copy)]
struct Internet {
    family: u16,
    port: u16,
    address: u32,
    _zero: u64,
}

#[repr(C)]
struct UnixName {
    family: u16,
    path: [u8; 108],
}

impl UnixName {
    const NONE: Self = Self {
        family: UNIX as u16,
        path: [0; 108],
    };

    /// Sets the path to that of the family with this ending. Returns the length of the name.
    fn of_family(&mut self, ending: &[u8]) -> usize {
        // a zero stays behind it
        let room = self.path.len() - 1;
        let end = page().path.copy_to(&mut self.path[..room], ending);
        size_of::<u16>() + end + 1
    }

    fn of_port(&mut self, port: u16) -> usize {
        let ending = ShortText::<6>::of(format_args!(".{:05}", u16::from_be(port)));
        self.of_family(ending.bytes())
    }
}

/// Answers `socket`, `connect`, `accept` and the like.
pub fn answer(call: &mut TrappedCall<'_>) -> isize {
    let [first, ..] = call.arguments;
    if call.number == call::SOCKET {
        return socket(call);
    }
    let socket = get(first);
    if socket.kind != DescriptorKind::Network {
        return of_another(call, socket);
    }
    match call.number {
        call::CONNECT => connect(call, socket),
        call::BIND => bind(call, socket),
        call::LISTEN => {
            let listens = call.ask_kernel();
            let stage = SocketStage::Listening;
            set(first, Descriptor { stage, ..socket });
            page().dialled.fetch_add(1, SeqCst);
            touch();
            listens
        }
        call::ACCEPT | call::ACCEPT4 => accept(call, socket),
        call::GETSOCKNAME => write_name(call, page().address.load(SeqCst), socket.local_port),
        call::GETPEERNAME if socket.stage != SocketStage::Open => -107,
        call::GETPEERNAME => write_name(call, socket.peer_address, socket.peer_port),
        _ => {
            let answer = call.ask_kernel();
            touch();
            page().poke(about(first));
            answer
        }
    }
}

/// Answers a call on a socket that is not of the world, but within the family or this machine.
fn of_another(call: &TrappedCall<'_>, socket: Descriptor) -> isize {
    let [first, second, third, ..] = call.arguments;
    let waits =
        matches!(call.number, call::ACCEPT | call::ACCEPT4) && socket.kind == DescriptorKind::Local && blocks(first);
    if waits && let Err(error) = await_ready(call, first, READABLE, NEVER) {
        return error;
    }
    let answer = match call.number {
        call::CONNECT if is_service(second, third) => ENOENT,
        _ => call.ask_kernel(),
    };
    super::descriptors::used(socket);
    answer
}

/// Returns whether a name of this length, a `struct sockaddr_un`, is that of a service of the machine.
fn is_service(name: usize, length: usize) -> bool {
    let path = name + size_of::<u16>();
    let is_below = |folder: &[u8]| length >= size_of::<u16>() + folder.len() && begins(path, folder);
    name != 0 && SERVICES.iter().any(|folder| is_below(folder)) && !is_below(OF_USERS)
}

fn socket(call: &TrappedCall<'_>) -> isize {
    const KIND: usize = 15;
    let [domain, kind, ..] = call.arguments;
    match domain {
        INET if kind & KIND == STREAM => {
            let made = system(call::SOCKET, [UNIX, kind, 0]);
            if made >= 0 {
                add(made as usize, SocketStage::New);
            }
            made
        }
        // UDP, which would ask for names, IPv6, and the interfaces and routes of the machine, which containers change
        INET | INET6 | NETLINK => EAFNOSUPPORT,
        _ => call.ask_kernel(),
    }
}

fn internet(address: usize, length: usize) -> Option<Internet> {
    if address == 0 || length < size_of::<Internet>() {
        return None;
    }
    // SAFETY: the program gave its address and length to have it read.
    let given = unsafe { *(address as *const Internet) };
    (usize::from(given.family) == INET).then_some(given)
}

/// Writes the name of a socket where a call asks for it.
fn write_name(call: &TrappedCall<'_>, address: u32, port: u16) -> isize {
    let [_, into, length, ..] = call.arguments;
    let name = Internet {
        family: INET as u16,
        port,
        address,
        _zero: 0,
    };
    write_value(into, length, name);
    if into != 0 {
        // the whole length, whatever there was room for
        write_number(length, size_of::<Internet>() as u32);
    }
    0
}

/// Writes a value and its length where a call asks for them, as far as there is room.
fn write_value<T>(into: usize, length: usize, value: T) -> isize {
    if into != 0 && length != 0 {
        // SAFETY: the program gave their addresses to have them written; no more than it has room for is.
        unsafe {
            let length = length as *mut u32;
            let room = (*length as usize).min(size_of::<T>());
            core::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), into as *mut u8, room);
            *length = room as u32;
        }
    }
    0
}

fn connect(call: &TrappedCall<'_>, socket: Descriptor) -> isize {
    let [descriptor, address, length, ..] = call.arguments;
    match socket.stage {
        SocketStage::Open => return EISCONN,
        SocketStage::Dialling if socket.told => {
            if let Err(error) = renew(descriptor) {
                return error;
            }
        }
        SocketStage::Dialling if blocks(descriptor) => return dialled(call, descriptor),
        SocketStage::Dialling => {
            return match connection_of(socket) {
                connection::DIALLING => EALREADY,
                connection::REFUSED => refused(descriptor, socket),
                _ => {
                    settle(descriptor, socket);
                    0
                }
            };
        }
        SocketStage::New | SocketStage::Listening => {}
    }
    let Some(to) = internet(address, length) else {
        return EINVAL;
    };
    let page = page();
    let number = page.number_connection(connection::DIALLING);
    // also if nothing accepts it: a fork server that dials cannot be forked
    page.dialled.fetch_add(1, SeqCst);
    let mut name = UnixName::NONE;
    let length = name.of_family(b".net");
    let reached = system(call::CONNECT, [descriptor, &raw const name as usize, length]);
    if reached < 0 {
        page.connections[usize::from(number)].store(connection::REFUSED, SeqCst);
        return ECONNREFUSED;
    }
    let local_port = match socket.local_port {
        0 => (FIRST_PORT + number).to_be(),
        port => port,
    };
    set(
        descriptor,
        Descriptor {
            stage: SocketStage::Dialling,
            number,
            local_port,
            peer_address: to.address,
            peer_port: to.port,
            told: false,
            ..socket
        },
    );
    greet(descriptor, number, to, local_port);
    touch();
    match blocks(descriptor) {
        true => dialled(call, descriptor),
        false => EINPROGRESS,
    }
}

/// Puts a new socket in the place of one whose connection was refused, which the kernel would not connect again.
fn renew(descriptor: usize) -> Result<(), isize> {
    const GET_DESCRIPTOR_FLAGS: usize = 1;
    let flags = flags_of(descriptor) as usize & NONBLOCKING;
    let is_closed = system(call::FCNTL, [descriptor, GET_DESCRIPTOR_FLAGS]) == 1;
    let closes = if is_closed { CLOSE_ON_EXEC } else { 0 };
    let made = system(call::SOCKET, [UNIX, STREAM | flags, 0]);
    let new = usize::try_from(made).map_err(|_| made)?;
    for option in [RECEIVE_TIMEOUT, SEND_TIMEOUT] {
        set_option(new, option, limit(descriptor, option));
    }
    system(call::DUP3, [new, descriptor, closes]);
    system(call::CLOSE, [new]);
    Ok(())
}

/// Notes that the program was told that a connection was refused: it may dial again.
fn refused(descriptor: usize, socket: Descriptor) -> isize {
    set(descriptor, Descriptor { told: true, ..socket });
    ECONNREFUSED
}

fn greet(descriptor: usize, number: u16, to: Internet, local_port: u16) {
    const LEAST: u32 = 1;
    set_option(descriptor, SEND_BUFFER, LEAST);
    let mut greeting = [0u8; GREETING];
    greeting[..4].copy_from_slice(&to.address.to_ne_bytes());
    greeting[4..6].copy_from_slice(&to.port.to_ne_bytes());
    greeting[6..8].copy_from_slice(&number.to_ne_bytes());
    greeting[8..10].copy_from_slice(&local_port.to_ne_bytes());
    system(
        call::SENDTO,
        [descriptor, greeting.as_ptr() as usize, GREETING, AT_ONCE],
    );
}

/// Waits until a connection is open, refused or reset.
fn dialled(call: &TrappedCall<'_>, descriptor: usize) -> isize {
    match await_ready(call, descriptor, WRITABLE, timeout(descriptor, SEND_TIMEOUT)) {
        Err(EAGAIN) => EINPROGRESS,
        Err(error) => error,
        Ok(()) => {
            let socket = get(descriptor);
            match connection_of(socket) {
                connection::REFUSED => refused(descriptor, socket),
                connection::RESET => ECONNRESET,
                _ => {
                    settle(descriptor, socket);
                    0
                }
            }
        }
    }
}

/// Returns the deadline of a call that begins now; `option` is `SO_RCVTIMEO` or `SO_SNDTIMEO`.
pub fn timeout(descriptor: usize, option: usize) -> u64 {
    match limit(descriptor, option) {
        [0, 0] => NEVER,
        [seconds, micros] => now() + seconds as u64 * SECOND + micros as u64 * 1000,
    }
}

/// Returns the seconds and microseconds of `SO_RCVTIMEO` or `SO_SNDTIMEO`; zeros: there is no limit.
fn limit(descriptor: usize, option: usize) -> [i64; 2] {
    let mut given = [0i64; 2];
    let mut length = size_of_val(&given) as u32;
    let asked = [
        descriptor,
        SOCKET_LEVEL,
        option,
        given.as_mut_ptr() as usize,
        &raw mut length as usize,
    ];
    system(call::GETSOCKOPT, asked);
    given
}

/// Marks a dialled connection as open once harness has answered, unless it is refused, and gives it the usual buffer.
pub fn settle(descriptor: usize, socket: Descriptor) -> Descriptor {
    let is_open = ![connection::DIALLING, connection::REFUSED].contains(&connection_of(socket));
    if socket.stage != SocketStage::Dialling || !is_open {
        return socket;
    }
    set_option(descriptor, SEND_BUFFER, USUAL_BUFFER);
    let settled = Descriptor {
        stage: SocketStage::Open,
        ..socket
    };
    set(descriptor, settled);
    settled
}

fn set_option<T>(descriptor: usize, option: usize, value: T) {
    let at = &raw const value as usize;
    system(call::SETSOCKOPT, [descriptor, SOCKET_LEVEL, option, at, size_of::<T>()]);
}

fn bind(call: &TrappedCall<'_>, socket: Descriptor) -> isize {
    let [descriptor, address, length, ..] = call.arguments;
    let Some(at) = internet(address, length) else {
        return EINVAL;
    };
    let local_port = match at.port {
        0 => (FIRST_PORT + page().number_connection(connection::CLOSED)).to_be(),
        port => port,
    };
    let mut name = UnixName::NONE;
    let length = name.of_port(local_port);
    // a socket that a killed server left, or one in use, to which none of another kind connects
    let probe = system(call::SOCKET, [UNIX, DATAGRAM, 0]);
    if probe >= 0 {
        let connected = system(call::CONNECT, [probe as usize, &raw const name as usize, length]);
        system(call::CLOSE, [probe as usize]);
        if connected == EPROTOTYPE {
            return EADDRINUSE;
        }
    }
    system(call::UNLINK, [name.path.as_ptr() as usize]);
    let bound = system(call::BIND, [descriptor, &raw const name as usize, length]);
    set(descriptor, Descriptor { local_port, ..socket });
    bound
}

fn accept(call: &TrappedCall<'_>, listener: Descriptor) -> isize {
    let [descriptor, _, _, flags, ..] = call.arguments;
    if blocks(descriptor)
        && let Err(error) = await_ready(call, descriptor, READABLE, timeout(descriptor, RECEIVE_TIMEOUT))
    {
        return error;
    }
    let flags = if call.number == call::ACCEPT4 { flags } else { 0 };
    let mut name = UnixName::NONE;
    let mut name_length = size_of::<UnixName>() as u32;
    let arguments = [descriptor, &raw mut name as usize, &raw mut name_length as usize, flags];
    let taken = system(call::ACCEPT4, arguments);
    if taken < 0 {
        return taken;
    }
    let field = |at: usize| [name.path[at], name.path[at + 1]];
    let [a, b] = field(4);
    let [c, d] = field(6);
    if name.path[..4] == *DIALLED {
        let made = Descriptor {
            number: u16::from_ne_bytes(field(10)),
            local_port: listener.local_port,
            peer_address: u32::from_ne_bytes([a, b, c, d]),
            peer_port: u16::from_ne_bytes(field(8)),
            ..add(taken as usize, SocketStage::Open)
        };
        set(taken as usize, made);
        set_option(taken as usize, SEND_BUFFER, USUAL_BUFFER);
        write_name(call, made.peer_address, made.peer_port);
    }
    taken
}

/// Answers `setsockopt` and `getsockopt`: options of TCP are kept, and have no effect.
pub fn option(call: &TrappedCall<'_>) -> isize {
    const ERROR: usize = 4;
    const RECEIVE_BUFFER: usize = 8;
    const REUSE_PORT: usize = 15;
    const PROTOCOL: usize = 38;
    const DOMAIN: usize = 39;
    const TCP: u32 = 6;
    let [descriptor, level, name, value, length, ..] = call.arguments;
    let socket = get(descriptor);
    if socket.kind != DescriptorKind::Network {
        return call.ask_kernel();
    }
    let sets = call.number == call::SETSOCKOPT;
    match (level, name) {
        (SOCKET_LEVEL, SEND_BUFFER | RECEIVE_BUFFER | REUSE_PORT) if sets => 0,
        (SOCKET_LEVEL, ERROR) if !sets => {
            let kernels = call.ask_kernel();
            let error = match connection_of(socket) {
                connection::REFUSED if socket.stage == SocketStage::Dialling && !socket.told => {
                    -refused(descriptor, socket)
                }
                connection::RESET => -ECONNRESET,
                _ => 0,
            };
            settle(descriptor, socket);
            write_value(value, length, error as u32);
            kernels
        }
        (SOCKET_LEVEL, DOMAIN) if !sets => write_value(value, length, INET as u32),
        (SOCKET_LEVEL, PROTOCOL) if !sets => write_value(value, length, TCP),
        (SOCKET_LEVEL, _) => call.ask_kernel(),
        (level, name) if level == TCP as usize => tcp_option(descriptor, name).map_or(0, |kept| match sets {
            true => {
                if value != 0 && length >= size_of::<u32>() {
                    // SAFETY: the program gave its address and length to have it read.
                    *kept = unsafe { (value as *const u32).read_unaligned() };
                }
                0
            }
            false => write_value(value, length, *kept),
        }),
        _ if sets => 0,
        _ => write_value(value, length, 0u32),
    }
}
