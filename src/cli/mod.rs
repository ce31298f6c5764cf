//! The command line: one file a subcommand.

pub mod args;
mod check;
mod client;
mod doctor;
mod explain;
mod export;
mod list;
mod proxy;
mod resolve;
mod run;
mod stdout;

use std::io::IsTerminal;

use args::{Cli, ColorWhen, Command};

use crate::exit::Exit;
use crate::report::terminal::Look;

/// Runs what was typed.
pub fn dispatch(cli: Cli) -> Exit {
    let color = cli.color;
    match cli.command {
        Command::Run(args) => run::run(&args, color),
        Command::Check(args) => check::check(&args, look(color, std::io::stdout().is_terminal())),
        Command::Export(args) => export::export(&args),
        Command::List(args) => list::list(&args),
        Command::Explain { property } => explain::explain(&property),
        Command::Doctor { clean, json } => doctor::doctor(clean, json),
        Command::Proxy { listen, seed } => proxy::proxy(listen, seed),
        Command::Client(args) => client::client(&args),
    }
}

/// Says on stderr what went wrong.
fn complain(exit: Exit, error: impl std::fmt::Display) -> Exit {
    eprintln!("error: {error}");
    exit
}

/// `--color` beats `NO_COLOR` beats `CLICOLOR_FORCE` beats the terminal.
fn look(when: ColorWhen, terminal: bool) -> Look {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    let color = match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto if set("NO_COLOR") => false,
        ColorWhen::Auto => set("CLICOLOR_FORCE") || terminal,
    };
    Look { color }
}

/// A runtime for commands that wait for something.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("an async runtime can be built")
}
