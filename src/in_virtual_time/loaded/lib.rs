//! A library that is loaded into a process and keeps it in virtual time: it answers the system calls that tell the time, wait, begin
//! and end threads and processes, reach the network, or draw random numbers, and lets the kernel answer the others.
//!
//! The kernel raises `SIGSYS` at each system call that is not made at the gate ([`gate`]), whichever library or language it comes from.
//! What the kernel answers without a call, the readings of clocks in its vDSO, is replaced there ([`clocks`]). So no function of the C
//! library is replaced, and none is needed. Only the thread that has its family's turn executes the program, and everything here
//! ([`turns`]): there is no other lock, and nothing is allocated.
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
mod elf;
mod files;
mod fork_server;
mod gate;
#[expect(dead_code, reason = "harness uses one part of it, and the library another")]
#[path = "../page.rs"]
mod page;
mod program;
mod ready;
mod shared;
mod signals;
mod sockets;
mod surroundings;
mod tasks;
mod timers;
mod trace;
mod transfers;
mod trap;
mod turns;
#[path = "../../wall_clock/variable.rs"]
mod variable;
mod waits;
mod words;

/// Named by the tables of the core library; nothing unwinds here.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn never(_: &core::panic::PanicInfo<'_>) -> ! {
    const ABORTED: usize = 134;
    loop {
        gate::system(call::EXIT_GROUP, [ABORTED]);
    }
}
