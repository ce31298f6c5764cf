//! A program that becomes a server and reports its calls that sync files (`fsync`, `fdatasync`, …) to harness first.
//!
//! `gate FOLDER SOCKET PROGRAM ARGUMENTS…` installs a seccomp filter that notifies of these calls, sends the filter's listener to
//! the socket in the folder, and becomes the program. The kernel keeps the filter for all processes that the program starts: it
//! is the same for a server in C, in Go or in Java. The gate makes system calls itself and needs no library, so it runs in any
//! container. `build.rs` compiles it.
//!
//! Filters and their listeners: <https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html>

#![no_std]
#![no_main]

#[path = "../wall_clock/kernel.rs"]
mod kernel;

use core::arch::global_asm;
use core::panic::PanicInfo;

use kernel::system;

#[cfg(target_arch = "x86_64")]
mod call {
    pub const WRITE: usize = 1;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDMSG: usize = 46;
    pub const EXECVE: usize = 59;
    pub const PRCTL: usize = 157;
    pub const EXIT_GROUP: usize = 231;
    pub const OPENAT: usize = 257;
    pub const SECCOMP: usize = 317;
    pub const ARCHITECTURE: u32 = 0xc000_003e;
    /// `fsync`, `fdatasync`, `sync_file_range`, `msync`, `sync`, `syncfs`.
    pub const SYNCS: [u32; 6] = [74, 75, 277, 26, 162, 306];
}

#[cfg(target_arch = "aarch64")]
mod call {
    pub const OPENAT: usize = 56;
    pub const WRITE: usize = 64;
    pub const EXIT_GROUP: usize = 94;
    pub const PRCTL: usize = 167;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const SENDMSG: usize = 211;
    pub const EXECVE: usize = 221;
    pub const SECCOMP: usize = 277;
    pub const ARCHITECTURE: u32 = 0xc000_00b7;
    /// `fsync`, `fdatasync`, `sync_file_range`, `msync`, `sync`, `syncfs`.
    pub const SYNCS: [u32; 6] = [82, 83, 84, 227, 81, 267];
}

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "mov rdi, rsp", "and rsp, -16", "call begin", "ud2");

#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x0, sp", "bl begin", "udf #0");

/// An instruction of a filter, `sock_filter`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

#[repr(C)]
struct Filter {
    length: u16,
    instructions: *const Instruction,
}

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const SYNCS: usize = call::SYNCS.len();

const fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        value,
    }
}

/// The filter. It notifies of the calls that sync, and allows all others, and all of another architecture.
static INSTRUCTIONS: [Instruction; SYNCS + 5] = {
    let mut all = [instruction(RETURN, 0, 0, ALLOW); SYNCS + 5];
    all[0] = instruction(LOAD, 0, 0, 4);
    all[1] = instruction(IF_EQUAL, 0, SYNCS as u8 + 1, call::ARCHITECTURE);
    all[2] = instruction(LOAD, 0, 0, 0);
    let mut at = 0;
    while at < SYNCS {
        all[3 + at] = instruction(IF_EQUAL, (SYNCS - at) as u8, 0, call::SYNCS[at]);
        at += 1;
    }
    all[SYNCS + 4] = instruction(RETURN, 0, 0, NOTIFY);
    all
};

/// Installs the filter. Returns its listener, which the program does not inherit, or an error.
fn install() -> isize {
    const NO_NEW_PRIVILEGES: usize = 38;
    const SET_FILTER: usize = 1;
    const NEW_LISTENER: usize = 1 << 3;
    // a reported call is not interrupted by signals, and so not reported twice; Linux 5.19
    const WAIT_KILLABLE: usize = 1 << 5;
    let filter = Filter {
        length: INSTRUCTIONS.len() as u16,
        instructions: INSTRUCTIONS.as_ptr(),
    };
    let set = |flags| system(call::SECCOMP, [SET_FILTER, flags, &raw const filter as usize]);
    // without root, only a process that can gain no more privileges may install a filter
    system(call::PRCTL, [NO_NEW_PRIVILEGES, 1]);
    match set(NEW_LISTENER | WAIT_KILLABLE) {
        -22 => set(NEW_LISTENER),
        answer => answer,
    }
}

#[repr(C)]
struct Address {
    family: u16,
    path: [u8; 108],
}

/// A text with a zero at its end.
type ZeroEnded = *const u8;

fn length(text: ZeroEnded) -> usize {
    let mut length = 0;
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

/// Connects to the socket of this name in a folder. Paths of sockets are short, those of folders need not be.
fn connect(folder: ZeroEnded, name: ZeroEnded) -> isize {
    const HERE: isize = -100;
    const PATH_CLOSE_ON_EXEC: usize = 0o10_000_000 | 0o2_000_000;
    let folder = system(call::OPENAT, [HERE as usize, folder as usize, PATH_CLOSE_ON_EXEC]);
    if folder < 0 {
        return folder;
    }
    const UNIX: usize = 1;
    const STREAM_CLOSE_ON_EXEC: usize = 1 | 0o2_000_000;
    let socket = system(call::SOCKET, [UNIX, STREAM_CLOSE_ON_EXEC]);
    let mut address = Address {
        family: UNIX as u16,
        path: [0; 108],
    };
    let mut at = 0;
    let mut push = |byte: u8| {
        if at + 1 < address.path.len() {
            address.path[at] = byte;
            at += 1;
        }
    };
    b"/proc/self/fd/".iter().for_each(|byte| push(*byte));
    let number = folder as usize;
    for place in [10_000, 1000, 100, 10, 1] {
        if number >= place || place == 1 {
            push(b'0' + (number / place % 10) as u8);
        }
    }
    push(b'/');
    (0..length(name)).for_each(|at| push(unsafe { *name.add(at) }));
    let size = size_of::<Address>();
    match system(call::CONNECT, [socket as usize, &raw const address as usize, size]) {
        0 => socket,
        error => error,
    }
}

#[repr(C)]
struct ByteSlice {
    at: *const u8,
    length: usize,
}

/// `msghdr`.
#[repr(C)]
struct SocketMessage {
    name: usize,
    name_length: usize,
    slices: *const ByteSlice,
    slice_count: usize,
    control: *const Control,
    control_length: usize,
    flags: usize,
}

/// `cmsghdr`, and the file that it carries.
#[repr(C)]
struct Control {
    length: usize,
    level: u32,
    kind: u32,
    file: u32,
    unused: u32,
}

/// Sends an open file over a socket.
fn send(socket: isize, file: isize) -> isize {
    const SOCKET_LEVEL: u32 = 1;
    const RIGHTS: u32 = 1;
    let byte = b"g";
    let slice = ByteSlice {
        at: byte.as_ptr(),
        length: byte.len(),
    };
    let control = Control {
        length: size_of::<Control>() - size_of::<u32>(),
        level: SOCKET_LEVEL,
        kind: RIGHTS,
        file: file as u32,
        unused: 0,
    };
    let message = SocketMessage {
        name: 0,
        name_length: 0,
        slices: &raw const slice,
        slice_count: 1,
        control: &raw const control,
        control_length: size_of::<Control>(),
        flags: 0,
    };
    system(call::SENDMSG, [socket as usize, &raw const message as usize])
}

fn say(text: &[u8]) {
    system(call::WRITE, [2, text.as_ptr() as usize, text.len()]);
}

/// Writes a sentence, which the server's log keeps, and ends.
fn fail(what: &[u8], error: isize) -> ! {
    say(b"harness: ");
    say(what);
    say(b", error ");
    let number = error.unsigned_abs();
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    digits.iter().for_each(|digit| say(&[b'0' + *digit as u8]));
    say(b"\n");
    loop {
        system(call::EXIT_GROUP, [126]);
    }
}

/// Returns the value of `PATH` in an environment.
fn path_in(mut environment: *const ZeroEnded) -> ZeroEnded {
    let name = b"PATH=";
    unsafe {
        while !(*environment).is_null() {
            let variable = *environment;
            if (0..name.len()).all(|at| length(variable) > at && *variable.add(at) == name[at]) {
                return variable.add(name.len());
            }
            environment = environment.add(1);
        }
    }
    c"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".as_ptr().cast()
}

/// Becomes the program, which is searched in `PATH` unless its name has a slash. Returns the last error.
fn become_program(arguments: *const ZeroEnded, environment: *const ZeroEnded) -> isize {
    let program = unsafe { *arguments };
    let execute = |path: ZeroEnded| system(call::EXECVE, [path as usize, arguments as usize, environment as usize]);
    let name = length(program);
    if (0..name).any(|at| unsafe { *program.add(at) } == b'/') {
        return execute(program);
    }
    let (path, mut last) = (path_in(environment), -2);
    let all = length(path);
    let mut begin = 0;
    while begin <= all {
        let mut end = begin;
        while end < all && unsafe { *path.add(end) } != b':' {
            end += 1;
        }
        let mut whole = [0u8; 4096];
        if end > begin && end - begin + name + 2 < whole.len() {
            (begin..end).for_each(|at| whole[at - begin] = unsafe { *path.add(at) });
            whole[end - begin] = b'/';
            (0..name).for_each(|at| whole[end - begin + 1 + at] = unsafe { *program.add(at) });
            last = execute(whole.as_ptr());
        }
        begin = end + 1;
    }
    last
}

/// The entry point. `stack` has the number of arguments, the arguments, a zero, and the environment.
#[unsafe(no_mangle)]
extern "C" fn begin(stack: *const usize) -> ! {
    let count = unsafe { *stack };
    let arguments = unsafe { stack.add(1) }.cast::<ZeroEnded>();
    let environment = unsafe { arguments.add(count + 1) };
    if count < 4 {
        fail(b"gate FOLDER SOCKET PROGRAM ARGUMENTS", 22);
    }
    let socket = unsafe { connect(*arguments.add(1), *arguments.add(2)) };
    if socket < 0 {
        fail(b"the server could not reach harness, which delays its syncs", socket);
    }
    let listener = install();
    if listener < 0 {
        fail(b"the kernel refused the seccomp filter with a listener that delays syncs", listener);
    }
    let sent = send(socket, listener);
    if sent < 0 {
        fail(b"the listener of the seccomp filter could not be sent", sent);
    }
    let error = become_program(unsafe { arguments.add(3) }, environment);
    fail(b"the server's program could not be started", error)
}

// the compiler turns loops and arrays into calls of it; there is no C library to have it
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    for at in 0..count {
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    for at in 0..count {
        unsafe { to.add(at).write_volatile(byte as u8) };
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    length(text)
}

/// Referenced by the tables of the core library; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn never(_: &PanicInfo<'_>) -> ! {
    loop {
        system(call::EXIT_GROUP, [126]);
    }
}
