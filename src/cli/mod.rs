//! The command line: one file a subcommand.

mod adapters;
pub mod args;
mod bisect;
mod bisect_screen;
mod check;
mod client;
mod client_check;
mod compare;
mod consent;
mod debugger;
mod discovery;
mod doctor;
mod examined;
mod examples;
mod experiment;
mod explain;
mod export;
mod github;
mod hunt;
mod hunt_args;
mod hunt_config;
mod hunt_jobs;
mod hunt_screen;
mod hunt_space;
mod init;
mod interrupt;
mod kube_api;
mod kube_args;
mod list;
mod merging;
mod metrics;
mod online;
mod original;
mod own_command;
mod pages;
mod proxy;
mod records;
mod replay;
mod report;
mod resolve;
mod row_seeds;
mod rows;
mod run;
mod seeds;
mod series;
mod settings;
mod show_config;
mod shrink;
mod shrink_screen;
mod shrunk_finds;
mod shrunk_test;
mod stdout;
mod suite;
mod suite_args;
mod survey;
mod watch_lease;

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use args::CliCommand;
use clap::{ColorChoice, FromArgMatches};

use crate::exit::Exit;
use crate::process;
use crate::report::terminal::Look;

/// Reads the command line and runs its command.
pub fn main() -> Exit {
    let read = settings::command().try_get_matches();
    let exit = read.map_or_else(|error| Ok(refuse(&error)), |matches| dispatch(&matches));
    process::end_offspring();
    stdout::exit_with_output(exit.unwrap_or_else(|failure| complain(failure.exit, failure.sentence)))
}

/// The failure of a command: its exit code, and the sentence after `error:`.
#[derive(Debug, Clone)]
struct Failure {
    exit: Exit,
    sentence: String,
}

impl Failure {
    fn of(exit: Exit, sentence: impl std::fmt::Display) -> Self {
        let sentence = sentence.to_string();
        Self { exit, sentence }
    }

    fn usage(sentence: impl std::fmt::Display) -> Self {
        Self::of(Exit::Usage, sentence)
    }

    fn environment(sentence: impl std::fmt::Display) -> Self {
        Self::of(Exit::Environment, sentence)
    }
}

fn dispatch(matches: &clap::ArgMatches) -> Result<Exit, Failure> {
    let color: ColorChoice = *matches.get_one("color").expect("it has a default");
    let command = match matches.subcommand() {
        Some(("run", typed)) => settings::run_args(typed).map(|args| CliCommand::Run(Box::new(args))),
        _ => CliCommand::from_arg_matches(matches).map_err(|error| refuse(&error)),
    };
    let command = match command {
        Ok(command) => command,
        Err(exit) => return Ok(exit),
    };
    match command {
        CliCommand::Completions { shell } => Ok(pages::completions(shell)),
        CliCommand::Man { command, output } => pages::man(command.as_deref(), output.as_deref()),
        CliCommand::Run(args) if args.show_config => Ok(show_config::show_config(&args)),
        CliCommand::Run(args) => run::run(&args, color),
        CliCommand::Init { language, folder } => init::init(language, &folder),
        CliCommand::ClientCheck(args) => client_check::client_check(&args),
        CliCommand::Hunt(args) => hunt::hunt(&args, color),
        CliCommand::Shrink(args) => shrink::shrink(&args, color),
        CliCommand::Replay(args) => replay::replay(&args),
        CliCommand::Suite(args) => suite::suite(&args, color),
        CliCommand::Survey(args) => survey::survey(&args),
        CliCommand::Check(args) => check::check(&args, look(color, &io::stdout())),
        CliCommand::Report(args) => report::report(&args),
        CliCommand::Compare(args) => compare::compare(&args),
        CliCommand::Export(args) => export::export(&args),
        CliCommand::List(args) => Ok(list::list(&args)),
        CliCommand::Adapters { names, backend } => adapters::install(&names, backend.as_deref()),
        CliCommand::Explain { property } => explain::explain(&property),
        CliCommand::Doctor(args) => Ok(doctor::doctor(&args)),
        CliCommand::Proxy {
            listen,
            token_file,
            config,
            seed,
        } => proxy::proxy(listen, token_file.as_deref(), config.as_deref(), seed),
        CliCommand::Client(recipe) => client::client(&recipe),
        CliCommand::WatchLease(args) => watch_lease::watch_lease(&args, look(color, &io::stdout())),
        CliCommand::KubeApi(command) => kube_api::kube_api(command),
    }
}

/// Prints the output of clap: an error, or the requested help or version.
fn refuse(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        let _ = error.print();
        return Exit::Usage;
    }
    stdout::note(error.print());
    Exit::Holds
}

/// Prints an error on stderr.
fn complain(exit: Exit, error: impl std::fmt::Display) -> Exit {
    eprintln!(
        "{}",
        stdout::in_columns(&format!("error: {error}"), io::stderr().is_terminal())
    );
    exit
}

/// The minimum width: a narrower terminal is written to as if it had these columns.
const LEAST_COLUMNS: usize = 40;

/// Whether a user reads a stream as it is written: it is a terminal, and not that of a CI system.
fn is_watched(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("CI").is_none()
}

/// Whether the terminal has neither colours nor a cursor that moves, such as a buffer of Emacs.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// `--color` beats `NO_COLOR` beats `CLICOLOR_FORCE` beats the terminal: <https://no-color.org>, <https://bixense.com/clicolors>.
fn look(when: ColorChoice, stream: &impl IsTerminal) -> Look {
    let terminal = stream.is_terminal();
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let color = match when {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if set("NO_COLOR").is_some() => false,
        ColorChoice::Auto => terminal && !is_dumb() || set("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
    };
    Look {
        color,
        columns: columns(terminal),
    }
}

/// Returns the width of the terminal, or `None` without one.
fn columns(terminal: bool) -> Option<usize> {
    let size = terminal.then(terminal_size::terminal_size).flatten();
    size.map(|(width, _)| LEAST_COLUMNS.max(width.0.into()))
}

/// Returns the async runtime of a command. Ends the process if the machine grants too few threads or files: a runtime
/// that lacks either panics, and one that cannot start a thread waits for those that it has.
fn runtime() -> tokio::runtime::Runtime {
    let refused = |sentence: String| -> ! { std::process::exit(complain(Exit::Environment, sentence).code().into()) };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let needed = workers + OTHER_THREADS;
    if let Err(error) = threads_can_be_started(needed) {
        refused(format!(
            "this machine does not let harness start {needed} threads: {}",
            process::not_started(error)
        ));
    }
    let built = files_can_be_opened(RUNTIME_FILES)
        .and_then(|()| tokio::runtime::Builder::new_multi_thread().enable_all().build());
    built.unwrap_or_else(|error| {
        refused(format!(
            "harness could not open the files that it needs: {error}\nhint: raise `ulimit -n`"
        ))
    })
}

/// Runs a future on a runtime of its own, and does not wait for threads that are still blocked at the end.
fn run_to_end<F: Future>(future: F) -> F::Output {
    let runtime = runtime();
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    output
}

/// Files that a runtime opens to wait for sockets, timers and signals, and one that reads `/proc`.
const RUNTIME_FILES: usize = 8;

/// Opens this number of files at the same time, and closes them again.
fn files_can_be_opened(files: usize) -> io::Result<()> {
    let open = std::iter::repeat_with(|| std::fs::File::open("/dev/null"));
    open.take(files).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Threads besides the workers: those of the proxy, of the spawner of processes, and for blocking calls.
const OTHER_THREADS: usize = 6;

/// Starts this number of threads at the same time, and ends them again.
fn threads_can_be_started(threads: usize) -> io::Result<()> {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let start = |_| {
        let wait = Arc::clone(&wait);
        // it waits for its turn, or until the other end is dropped
        std::thread::Builder::new().spawn(move || drop(wait.lock().map(|wait| wait.recv())))
    };
    let started: io::Result<Vec<_>> = (0..threads).map(start).collect();
    drop(go_on);
    for thread in started? {
        let _ = thread.join();
    }
    Ok(())
}
