//! What was typed, and nothing else. `resolve` turns it into what is needed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use harness_checkers::Model;
use harness_workloads::{Backend, Holder};

use crate::config::{FaultRequest, NO_FAULT};
use crate::faults::{FAULTS, parse_duration};

/// Chaos and linearizability tests for distributed locks.
#[derive(Debug, Parser)]
#[command(name = "harness", version, after_help = EXITS)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
}

const EXITS: &str = "Exit codes: 0 all hold · 1 violated · 2 bad arguments · 3 inconclusive · 4 environment · \
                     70 a bug in harness · 130 interrupted";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// One experiment on real servers, and its verdict.
    Run(Box<RunArgs>),
    /// Decides again from a stored run, or from a history of anybody's.
    Check(CheckArgs),
    /// Writes a history for other tools.
    Export(ExportArgs),
    /// Lists backends, recipes, faults, checkers or runs.
    List(ListArgs),
    /// What a property means, why it breaks, how to tell the causes apart and how to mend them.
    Explain {
        /// HL001 to HL009.
        property: String,
    },
    /// What this machine has for running servers, and what earlier runs left behind.
    Doctor {
        /// Remove what earlier runs left behind.
        #[arg(long)]
        clean: bool,
        #[arg(long)]
        json: bool,
    },
    /// A lock client behind the client protocol, on stdin and stdout. `run` starts these itself.
    #[command(hide = true)]
    Client(ClientArgs),
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A run (`latest`, its folder, or the beginning of its name), or the path of a history.
    pub wanted: String,
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Judge by this model, whatever the history's header says.
    #[arg(long)]
    pub model: Option<Model>,
    /// Write the order that proves a linearizable history to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Where runs are kept.
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Jepsen histories: the field that names the lock, `value` where locks are independent keys.
    #[arg(long, value_name = "FIELD")]
    pub lock_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A run (`latest`, its folder, or the beginning of its name), or the path of a history.
    pub wanted: String,
    #[arg(long, value_enum, default_value_t = ExportFormat::Edn)]
    pub format: ExportFormat,
    /// Where to write. [default: stdout]
    #[arg(long, short)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Where runs are kept.
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One map a line, as Jepsen's tools read it.
    Edn,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[arg(value_enum)]
    pub what: ListWhat,
    #[arg(long)]
    pub json: bool,
    /// Where runs are kept.
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListWhat {
    Backends,
    Recipes,
    Faults,
    Checkers,
    Exits,
    Runs,
}

#[derive(Debug, Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub recipe: RecipeArgs,
}

/// The lock under test, when it is one of ours.
#[derive(Debug, Clone, Args)]
pub struct RecipeArgs {
    /// The lock under test; `harness list recipes` shows them all. [default: the backend's careful queue or script]
    #[arg(long)]
    pub recipe: Option<String>,
    /// What a holder does when it can no longer be sure: `careful` stops, `naive` goes on.
    #[arg(long, default_value = "careful")]
    pub holder: Holder,
    /// Whether a node whose create got no answer is found again by a name of its own.
    #[arg(long, value_enum, default_value_t = OnOff::On)]
    pub guid: OnOff,
    /// How often a waiter of a polling recipe asks. [default: the recipe's own]
    #[arg(long, value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// Let a client take a lock again that it already holds.
    #[arg(long)]
    pub reentrant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The store that holds the locks: zk, etcd or redis.
    #[arg(long, value_parser = parse_backend)]
    pub backend: Backend,
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// Your own lock: a command that speaks the client protocol on stdin and stdout.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["recipe", "holder", "guid", "interval", "reentrant"])]
    pub client: Option<String>,
    /// What to break: `none`, or a list such as `partition=holder,latency`; see `harness list faults`.
    #[arg(long, value_name = "FAULTS", default_value = "none", value_delimiter = ',', value_parser = parse_fault)]
    pub fault: Vec<FaultRequest>,
    /// How servers come to life.
    #[arg(long, value_enum, default_value_t = Runtime::Auto)]
    pub runtime: Runtime,
    /// The server image, in place of the official one (docker).
    #[arg(long)]
    pub image: Option<String>,
    /// Servers. [default: 3; redis 1, redlock 5]
    #[arg(long)]
    pub nodes: Option<u32>,
    /// The first port of the servers (local). [default: free ports are looked for]
    #[arg(long)]
    pub port_base: Option<u16>,
    /// Lock clients, each a process.
    #[arg(long, default_value_t = 5)]
    pub clients: u32,
    /// Clients in one process.
    #[arg(long, default_value_t = 1)]
    pub per_process: u32,
    /// Locks that the clients share.
    #[arg(long, default_value_t = 1)]
    pub locks: u32,
    /// Session timeout or time to live.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub lease: Duration,
    /// How long a lock is held, give or take a half.
    #[arg(long, default_value = "10ms", value_parser = parse_duration)]
    pub hold: Duration,
    /// How long an acquire waits for a taken lock. [default: 10s; with --each, as long as the run]
    #[arg(long, value_parser = parse_duration)]
    pub wait: Option<Duration>,
    /// How long the experiment takes.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub time: Duration,
    /// Each client acquires so many times and the run ends when all have; --time is then the limit.
    #[arg(long, value_name = "N")]
    pub each: Option<u32>,
    /// The length of every fault window. [default: drawn, longer than the lease]
    #[arg(long, value_parser = parse_duration)]
    pub window: Option<Duration>,
    /// The seed of the plan, in hexadecimal. [default: a new one]
    #[arg(long, value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Waiters that one release may wake.
    #[arg(long, default_value_t = 1)]
    pub herd_limit: u32,
    /// Time after the last heal within which a free lock must be acquired.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub progress_bound: Duration,
    /// Runs so many times, each with a seed of its own drawn from the first.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Stop repeating as soon as a run ends like this.
    #[arg(long, value_enum)]
    pub until: Option<Until>,
    /// Print the plan and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the diagnosis as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// No progress, just the verdict.
    #[arg(long, short)]
    pub quiet: bool,
    /// Where runs are kept.
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Until {
    Fail,
    Pass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    Auto,
    Docker,
    Local,
}

fn parse_backend(text: &str) -> Result<Backend, String> {
    let known = Backend::ALL.into_iter().find(|backend| backend.name() == text);
    known.ok_or_else(|| format!("there is no backend `{text}`; there are zk, etcd and redis"))
}

fn parse_fault(text: &str) -> Result<FaultRequest, String> {
    let (name, argument) = match text.split_once('=') {
        Some((name, argument)) => (name, Some(argument.to_owned())),
        None => (text, None),
    };
    let known: Vec<&str> = FAULTS.iter().map(|fault| fault.name()).chain([NO_FAULT]).collect();
    if !known.contains(&name) {
        return Err(format!("there is no fault `{name}`; there are {}", known.join(", ")));
    }
    Ok(FaultRequest {
        name: name.to_owned(),
        argument,
    })
}

fn parse_seed(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not a seed: up to 16 hexadecimal digits"))
}
