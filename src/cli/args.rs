//! What was typed, and nothing else. `resolve` turns it into what is needed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use harness_checkers::Model;
use harness_workloads::Holder;

use crate::backends::{self, Backend};
use crate::cluster::RuntimeRequest;
use crate::config::{FaultRequest, NO_FAULT, ProxyChoice};
use crate::faults::{FAULTS, parse_duration};
use crate::report::FORMATS;
use crate::suite::Shard;

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
    /// Experiments in rows, each with the verdict to expect; one table and one exit code.
    Suite(SuiteArgs),
    /// Decides again from a stored run, or from a history of anybody's.
    Check(CheckArgs),
    /// Tells a stored run again: as a page, for CI servers, for job summaries, as JSON, on the terminal.
    Report(ReportArgs),
    /// What is new in a run, what is still there, and what is gone, beside another one.
    Compare(CompareArgs),
    /// Writes a history for other tools.
    Export(ExportArgs),
    /// Lists backends, recipes, faults, checkers, report formats or runs.
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
    /// The built-in proxy alone, told what to do through Toxiproxy's HTTP API.
    Proxy {
        /// Where the API is served.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8474")]
        listen: SocketAddr,
        /// The seed of jitter and toxicity, in hexadecimal. [default: 0]
        #[arg(long, value_parser = parse_seed, default_value = "0")]
        seed: u64,
    },
    /// Completions for a shell, on stdout.
    Completions { shell: clap_complete::Shell },
    /// Manual pages: one on stdout, or all into a folder.
    Man {
        /// The command whose page is wanted. [default: harness itself]
        command: Option<String>,
        /// Write the pages of all commands into this folder.
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        output: Option<PathBuf>,
    },
    /// A lock client behind the client protocol, on stdin and stdout. `run` starts these itself.
    #[command(hide = true)]
    Client(ClientArgs),
}

#[derive(Debug, Args)]
pub struct SuiteArgs {
    /// The suite: a TOML file of rows.
    #[arg(required_unless_present = "merge")]
    pub file: Option<PathBuf>,
    /// Only this part of the rows: `1/3` to `3/3`. Which rows that are depends on their names alone.
    #[arg(long, value_name = "M/N", value_parser = Shard::read)]
    pub shard: Option<Shard>,
    /// Joins the records of shards, found in these folders or below them, into one.
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["file", "shard", "filter", "set", "jobs", "retries", "dry_run"])]
    pub merge: Vec<PathBuf>,
    /// Only rows whose name has this text in it; several are alternatives.
    #[arg(long, value_name = "TEXT")]
    pub filter: Vec<String>,
    /// Sets an option of `harness run` in every row: `--set runtime=docker`.
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Rows that run at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,
    /// How often a run that proves nothing is made again, in place of what the file says.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Print the rows and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the record as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// Where runs are kept.
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
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
pub struct ReportArgs {
    /// A run (`latest`, its folder, or the beginning of its name), or the path of a history.
    #[arg(required_unless_present = "schema")]
    pub wanted: Option<String>,
    /// Print it in this format. [default: write the files of all formats into the run's folder]
    #[arg(long, value_parser = PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    pub format: Option<String>,
    /// Where to write. [default: stdout]
    #[arg(long, short, requires = "format")]
    pub output: Option<PathBuf>,
    /// Print the JSON schema of `verdict.json` and of everything that `--json` prints.
    #[arg(long, conflicts_with_all = ["wanted", "format"])]
    pub schema: bool,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Where runs are kept.
    #[arg(long, default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The earlier run: `latest`, its folder, or the beginning of its name.
    pub before: String,
    /// The later one.
    pub after: String,
    #[arg(long)]
    pub json: bool,
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
    Reports,
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
    /// Let a client take a lock again that it already holds; every other time it does.
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
    #[arg(long, value_parser = parse_backend, help = format!("The store that holds the locks, one of {}", backends::names(|_| true)))]
    pub backend: &'static Backend,
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// Your own lock: a command that speaks the client protocol on stdin and stdout.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["recipe", "holder", "guid", "interval", "reentrant"])]
    pub client: Option<String>,
    /// What to break: `none`, or a list such as `partition=holder,latency`; see `harness list faults`.
    #[arg(long, value_name = "FAULTS", default_value = "none", value_delimiter = ',', value_parser = parse_fault)]
    pub fault: Vec<FaultRequest>,
    /// How servers come to life.
    #[arg(long, value_enum, default_value_t = RuntimeRequest::Auto)]
    pub runtime: RuntimeRequest,
    /// The server image, in place of the official one (docker).
    #[arg(long)]
    pub image: Option<String>,
    /// What stands between clients and servers: `builtin`, `toxiproxy` (starts its container) or `toxiproxy=HOST:PORT`.
    #[arg(long, value_name = "PROXY", default_value = "builtin", value_parser = parse_proxy)]
    pub proxy: ProxyChoice,
    /// The image of Toxiproxy, in place of the official one.
    #[arg(long, value_name = "IMAGE")]
    pub proxy_image: Option<String>,
    /// Serve Toxiproxy's HTTP API here, such as 127.0.0.1:8474, so that its clients can watch and poke the run.
    #[arg(long, value_name = "ADDRESS")]
    pub proxy_api: Option<SocketAddr>,
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
    /// Of a hundred acquires, so many are for reading (zk-read-write, or a client of your own).
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    pub reads: u32,
    /// Of a hundred acquires, so many do not wait for a taken lock.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    pub tries: u32,
    /// Locks come and go: in each turn of this length half of them are out of use, and what they leave behind is removed.
    #[arg(long, value_name = "TURN", value_parser = parse_duration)]
    pub churn: Option<Duration>,
    /// The length of every fault window. [default: drawn, longer than the lease]
    #[arg(long, value_parser = parse_duration)]
    pub window: Option<Duration>,
    /// The seed of the plan, in hexadecimal. [default: a new one]
    #[arg(long, value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Waiters that one release may wake; of each process, where several clients share one.
    #[arg(long, default_value_t = 1)]
    pub herd_limit: u32,
    /// Requests that one hand-over may cost where waiters poll. [default: shown, and not judged]
    #[arg(long, value_name = "N")]
    pub requests_limit: Option<u32>,
    /// Time after the last heal within which a free lock must be acquired.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub progress_bound: Duration,
    /// Runs so many times, each with a seed of its own drawn from the first.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Stop repeating as soon as a run ends like this.
    #[arg(long, value_enum)]
    pub until: Option<Until>,
    /// Take also what this profile of the configuration file sets.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// The configuration file. [default: `harness.toml` of this folder, or of the nearest above that has one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Take nothing from a configuration file or the environment.
    #[arg(long, conflicts_with_all = ["profile", "config"])]
    pub no_config: bool,
    /// Print every option with its value and where that comes from, and do nothing.
    #[arg(long)]
    pub show_config: bool,
    /// Whether anything was taken from a configuration file or the environment.
    #[arg(skip)]
    pub layered: bool,
    /// Passing runs that are kept in the results folder, or `all`; older ones are removed. Runs that did not pass all stay.
    #[arg(long, value_name = "N", default_value = "20", value_parser = parse_keep)]
    pub keep: u32,
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

fn parse_backend(text: &str) -> Result<&'static Backend, String> {
    let known = backends::all().find(|backend| backend.name() == text);
    known.ok_or_else(|| format!("there is no backend `{text}`; there are {}", backends::names(|_| true)))
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

fn parse_proxy(text: &str) -> Result<ProxyChoice, String> {
    match text.split_once('=') {
        None if text == "builtin" => Ok(ProxyChoice::BuiltIn),
        None if text == "toxiproxy" => Ok(ProxyChoice::Toxiproxy { image: None }),
        Some(("toxiproxy", at)) if at.contains(':') => Ok(ProxyChoice::ToxiproxyAt(at.to_owned())),
        _ => Err(format!(
            "`{text}` is not a proxy; there are builtin, toxiproxy and toxiproxy=HOST:PORT"
        )),
    }
}

fn parse_keep(text: &str) -> Result<u32, String> {
    let number = if text == "all" {
        Some(u32::MAX)
    } else {
        text.parse().ok()
    };
    number
        .filter(|keep| *keep > 0)
        .ok_or_else(|| format!("`{text}` is not a number from 1 on, nor `all`"))
}

fn parse_seed(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not a seed: up to 16 hexadecimal digits"))
}
