//! The `harness` binary: runs the command line and returns its exit code.

mod allocator;

use std::process::ExitCode;

use harness::cli;
use harness::exit::Exit;

#[global_allocator]
static ALLOCATOR: allocator::BySize = allocator::BySize;

fn main() -> ExitCode {
    allocator::map_large_blocks();
    let exit = std::panic::catch_unwind(cli::main).unwrap_or_else(|_| {
        eprintln!("this is a bug in harness: please report the lines above");
        Exit::Bug
    });
    ExitCode::from(exit.code())
}
