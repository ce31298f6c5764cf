//! The command line: one file a subcommand.

pub mod args;
mod check;
mod client;
mod compare;
mod doctor;
mod explain;
mod export;
mod github;
mod interrupt;
mod layers;
mod list;
mod options;
mod pages;
mod proxy;
mod report;
mod resolve;
mod rows;
mod run;
mod show_config;
mod stdout;
mod suite;
mod suites;

use std::ffi::OsString;
use std::io::IsTerminal;

use args::{Cli, ColorWhen, Command};
use clap::Parser;

use crate::exit::Exit;
use crate::report::terminal::Look;

/// Reads what was typed, with what the layers below add to it, and runs it.
pub fn main() -> Exit {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let layered = match layers::layered(&typed) {
        Ok(layered) => layered.unwrap_or_default(),
        Err(sentence) => return complain(Exit::Usage, sentence),
    };
    let words = typed.iter().cloned().chain(layered.words.iter().map(OsString::from));
    let mut cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // help and the version come this way too, and are no error
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Holds };
            let _ = error.print();
            if exit == Exit::Usage && !layered.words.is_empty() {
                eprintln!(
                    "hint: not all of it was typed; this was added: {}",
                    layered.words.join(" ")
                );
            }
            return exit;
        }
    };
    if let Command::Run(run) = &mut cli.command {
        run.layered = !layered.origins.is_empty();
        if run.show_config {
            return show_config::show_config(&layers::shown(&typed, &layered), run.json);
        }
    }
    dispatch(cli)
}

fn dispatch(cli: Cli) -> Exit {
    let color = cli.color;
    match cli.command {
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { command, output } => pages::man(command.as_deref(), output.as_deref()),
        Command::Run(args) => run::run(&args, color),
        Command::Suite(args) => suite::suite(&args, color),
        Command::Check(args) => check::check(&args, look(color, std::io::stdout().is_terminal())),
        Command::Report(args) => report::report(&args),
        Command::Compare(args) => compare::compare(&args),
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
