//! The library of virtual time, which `LD_PRELOAD` loads into each process: it answers the system calls that read the time, wait, start or
//! end threads and processes, use the network or draw random numbers, and passes all others to the kernel.
//!
//! The kernel raises `SIGSYS` at each system call outside the gate ([`gate`]), in any library and any language. The functions of the vDSO,
//! which read clocks without a system call, are replaced ([`clocks`]). So no function of the C library is replaced, and none is needed.
//! Only the thread with the turn of its family executes the program and this library ([`turns`]): there is no other lock, and nothing is
//! allocated.
//!
//! `build.rs` compiles it for harness to carry along; `docs/virtual.md` has the table of the calls.

#![no_std]

mod actions;
mod begin;
mod call;
mod calls;
mod clocks;
mod cycles;
mod descriptors;
mod disks;
mod elf;
mod files;
mod fork_server;
mod gate;
#[path = "../numbers.rs"]
mod numbers;
#[expect(dead_code, reason = "harness uses one part of it, and the library another")]
#[path = "../page.rs"]
mod page;
#[path = "../page_disk.rs"]
mod page_disk;
mod program;
mod ready;
mod shared;
mod signals;
mod sockets;
mod surroundings;
mod tasks;
mod text;
mod timers;
mod trace;
mod transfers;
mod trap;
mod turns;
mod waits;
mod words;

/// A symbol that the tables of the core library name; nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn never(_: &core::panic::PanicInfo<'_>) -> ! {
    const ABORTED: usize = 134;
    loop {
        gate::system(call::EXIT_GROUP, [ABORTED]);
    }
}
