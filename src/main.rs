//! Parses, dispatches, and decides the exit code in one place.

use std::process::ExitCode;

use clap::Parser;
use harness::cli::{self, args::Cli};
use harness::exit::Exit;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let exit = std::panic::catch_unwind(|| cli::dispatch(cli)).unwrap_or_else(|_| {
        eprintln!("this is a bug in harness: please report the lines above");
        Exit::Bug
    });
    ExitCode::from(exit.code())
}
