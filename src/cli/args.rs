//! The command line: subcommands, flags and their help. `resolve` completes the options of a run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use harness_checkers::{Model, ReadOptions};
use harness_workloads::Policy;

use super::debugger::{DebuggedProcess, GDB};
use super::examples;
use super::hunt_args::{HuntArgs, ShrinkArgs};
use super::init::Language;
use super::kube_args::{KubeApiCommand, WatchLeaseArgs};
use super::seeds::parse_seed;
use super::suite_args::SuiteArgs;
use super::survey::SurveyArgs;
use crate::backends::{self, Backend};
use crate::config::heading::{AGAIN, CONFIGURATION, FAULTS, LOAD, LOCK, OUTPUT, SERVERS};
use crate::config::setting::Setting;
use crate::config::{Config, duration_within, parse_duration};
use crate::limits::MAX_TIME;
use crate::report::FORMATS;

/// Chaos and linearizability tests for distributed locks.
#[derive(Debug, Parser)]
#[command(name = "harness", version, max_term_width = 100, after_help = examples::HARNESS)]
pub struct Cli {
    #[command(subcommand)]
    pub command: CliCommand,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run one experiment, on real servers or simulated ones, and check it
    #[command(after_help = examples::RUN_SHORT, after_long_help = examples::RUN, allow_negative_numbers = true)]
    Run(Box<RunArgs>),
    /// Write a client template, with a suite and a GitHub workflow that runs it
    #[command(after_help = examples::INIT)]
    Init {
        /// Language of the client
        #[arg(value_enum)]
        language: Language,
        /// Folder to write to; no file is overwritten
        #[arg(value_name = "DIR", default_value = "my-lock")]
        folder: PathBuf,
    },
    /// Check that a client program follows the client protocol, and show the properties that a run cannot judge
    #[command(after_help = examples::CLIENT_CHECK)]
    ClientCheck(ClientCheckArgs),
    /// Look for a violation in many short experiments, each with its own faults and load
    #[command(after_help = examples::HUNT)]
    Hunt(Box<HuntArgs>),
    /// Cut a violation down to the windows, clients and options that it needs, or find the version that introduced it
    #[command(after_help = examples::SHRINK)]
    Shrink(ShrinkArgs),
    /// Repeat a run in virtual time, and compare the two histories byte by byte
    #[command(after_help = examples::REPLAY)]
    Replay(ReplayArgs),
    /// Run the experiments of a TOML file, each with an expected verdict
    #[command(after_help = examples::SUITE)]
    Suite(SuiteArgs),
    /// Run the same hunts on locks of known libraries, and write which promises each lock makes and keeps
    #[command(after_help = examples::SURVEY)]
    Survey(SurveyArgs),
    /// Check a stored run or any history file
    #[command(after_help = examples::CHECK)]
    Check(CheckArgs),
    /// Render a stored run: HTML, JUnit, Markdown, JSON or for the terminal
    Report(ReportArgs),
    /// Show which findings of a run are new, unchanged or gone since another run
    Compare(CompareArgs),
    /// Convert a history to the format of another tool
    Export(ExportArgs),
    /// List backends, recipes, clients, faults, messages, checkers, report formats, exit codes, versions of servers or runs
    List(ListArgs),
    /// Explain a property: its meaning, the usual causes of a violation and their repair
    Explain {
        /// HL001 to HL011
        property: String,
    },
    /// Install adapters: the lock libraries that `--client NAME` runs by name
    #[command(after_help = examples::ADAPTERS)]
    Adapters {
        /// Adapters to install [default: all, or those of --backend]
        names: Vec<String>,
        /// Only the adapters whose locks work on this backend
        #[arg(long, conflicts_with = "names", value_parser = PossibleValuesParser::new(crate::config::named_backends().map(Backend::name)))]
        backend: Option<String>,
    },
    /// Show the servers that this machine can run, and the leftovers of earlier runs
    Doctor(DoctorArgs),
    /// Serve the built-in proxy alone, controlled through Toxiproxy's HTTP API
    Proxy {
        /// Address of the API
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8474")]
        listen: SocketAddr,
        /// Answer only clients that send the token in this file: `Authorization: Bearer TOKEN`
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// JSON file of proxies to create at the start, in the format of Toxiproxy's -config
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Seed of jitter and toxicity, in hexadecimal
        #[arg(long, value_parser = parse_seed, default_value = "0")]
        seed: u64,
    },
    /// Judge leader election on a Lease of Kubernetes by the logs of its candidates, which harness did not start
    #[command(after_help = examples::WATCH_LEASE)]
    WatchLease(Box<WatchLeaseArgs>),
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Print a manual page, or write all of them to a folder
    Man {
        /// Command whose page is printed [default: harness itself]
        command: Option<String>,
        /// Write the pages of all commands to this folder
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        output: Option<PathBuf>,
    },
    /// Serve a lock client over the client protocol on stdin and stdout; `run` starts these
    #[command(hide = true)]
    Client(RecipeArgs),
    /// An API server of Kubernetes that serves Leases; `run --backend kube-lease` starts it
    #[command(hide = true, subcommand)]
    KubeApi(KubeApiCommand),
}

#[derive(Debug, Args)]
pub struct ClientCheckArgs {
    /// A command that speaks the client protocol on stdin and stdout, or an adapter's name or file
    #[arg(value_name = "CMD")]
    pub client: String,
    /// Store that holds the locks
    #[arg(long)]
    pub backend: String,
    /// Session timeout or time to live of a lock
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub lease: String,
    /// Promises that the client's own `contract` leaves out: a list such as `owner=own,renews=false`
    #[arg(long, value_name = "PROMISES", value_delimiter = ',')]
    pub promise: Vec<String>,
    /// Time for a client to open its session
    #[arg(long, value_name = "TIME", default_value = "15s")]
    pub open_limit: String,
    /// How servers are started
    #[arg(long, default_value = "auto")]
    pub runtime: String,
    /// Number of servers [default: the backend's]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Have the servers refuse clients without a login, as with `harness run --auth`
    #[arg(long)]
    pub auth: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The stored run or history that a command reads.
#[derive(Debug, Args)]
pub struct StoredArgs {
    /// A run (`latest`, its folder or the start of its name), a history file, or `-` for a history on stdin
    pub wanted: String,
    #[command(flatten)]
    pub read: ReadArgs,
}

#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Jepsen histories: field that names the lock, `value` where locks are independent keys
    #[arg(long, value_name = "FIELD")]
    pub lock_key: Option<String>,
    /// Jepsen histories: value that a register has before the first write, such as `0`
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub init: Option<String>,
    /// Folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

impl ReadArgs {
    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            lock_key: self.lock_key.clone(),
            initial: self.init.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub stored: StoredArgs,
    /// Print the diagnosis as JSON
    #[arg(long)]
    pub json: bool,
    /// Check against this model instead of the one in the history's header
    #[arg(long)]
    pub model: Option<Model>,
    /// Write the order that proves a linearizable history to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Largest error of a client's timestamps, if clients ran on several machines: properties that compare times of clients allow for it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub clock_error: Duration,
    /// Write a page to this file that draws the operations of each violation, and the point at which no order of them is left
    #[arg(long, value_name = "FILE")]
    pub draw: Option<PathBuf>,
    /// Decide only HL002, while the history is read, and end at the first violation: needs little memory, reads pipes
    #[arg(long, conflicts_with_all = ["certificate", "clock_error", "draw", "lock_key", "init"])]
    pub online: bool,
    /// With `--online`: largest delay from the time of a signal to its line in the history
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s", requires = "online")]
    pub signal_delay: Duration,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A run (`latest`, its folder or the start of its name), a history file, or `-` for a history on stdin
    #[arg(required_unless_present = "schema")]
    pub wanted: Option<String>,
    /// Print this format [default: write the files of all formats to the run's folder]
    #[arg(long, value_parser = PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    pub format: Option<String>,
    /// Write to this file instead of stdout
    #[arg(long, short, value_name = "FILE", requires = "format")]
    pub output: Option<PathBuf>,
    /// Print the JSON schema of a diagnosis: of `verdict.json`, and of `--json` of `run`, `check` (not `--online`) and `watch-lease`
    #[arg(long, conflicts_with_all = ["wanted", "format"])]
    pub schema: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A run in virtual time: `latest`, its folder or the start of its name
    pub wanted: String,
    /// Stop the world before this event of the history, with a debugger on a process (--runtime virtual)
    #[arg(long, value_name = "EVENT", requires = "debug", value_parser = clap::value_parser!(u64).range(2..))]
    pub until: Option<u64>,
    /// The client or server to debug: `c0`, `n1`
    #[arg(long, value_name = "PROCESS", requires = "until")]
    pub debug: Option<DebuggedProcess>,
    /// Command of the debugger, with `{pid}` for the process; the run continues when the debugger resumes the process or ends
    #[arg(long, value_name = "COMMAND", requires = "debug", default_value = GDB)]
    pub debugger: String,
    /// Folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The earlier run: `latest`, its folder or the start of its name
    pub before: String,
    /// The later run
    pub after: String,
    /// Print the differences as JSON
    #[arg(long)]
    pub json: bool,
    /// Folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub stored: StoredArgs,
    /// Format to convert to
    #[arg(long, value_enum, default_value_t = ExportFormat::Edn)]
    pub format: ExportFormat,
    /// Write to this file instead of stdout
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One map a line, for Jepsen's tools
    Edn,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[arg(value_enum)]
    pub what: ListWhat,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListWhat {
    Backends,
    Recipes,
    /// Adapters: clients for lock libraries, for `--client NAME`
    Clients,
    Faults,
    /// Names of messages for the faults on messages, by backend
    Messages,
    Checkers,
    Reports,
    #[value(alias = "exit-codes")]
    Exits,
    Runs,
    /// Versions of servers whose programs can be fetched, for `--server-version`
    Versions,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Remove the leftovers of earlier runs
    #[arg(long)]
    pub clean: bool,
    /// Forget leftovers that --clean cannot remove: those on servers that harness did not start and that are gone
    #[arg(long, requires = "clean")]
    pub forget: bool,
    /// Include runs in other process namespaces and on other machines, even if they are still active
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The lock under test, where it is a recipe of this project.
#[derive(Debug, Clone, Args)]
pub struct RecipeArgs {
    /// Lock under test; `harness list recipes` shows all [default: the backend's default recipe]
    #[arg(long, help_heading = LOCK)]
    pub recipe: Option<String>,
    /// Policy of a client that is no longer sure of its hold: `careful` stops, `naive` continues
    #[arg(long, help_heading = LOCK, value_name = "POLICY", default_value = "careful")]
    pub holder: Policy,
    /// Put a GUID in node names to find a node whose create reply was lost
    ///
    /// Curator's protection mode, for recipes on ZooKeeper.
    #[arg(long, help_heading = LOCK, value_enum, default_value_t = OnOff::On)]
    pub guid: OnOff,
    /// Polling interval of waiters, where the recipe polls [default: the recipe's own]
    #[arg(long, help_heading = LOCK, value_name = "TIME", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// Acquire a lock again while holding it, every other time
    #[arg(long, help_heading = LOCK)]
    pub reentrant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

/// The options of `harness run`: those of the experiment ([`Config`]), those that complete it, and those of the command.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub config: Config,
    #[command(flatten)]
    pub recipe: RecipeArgs,
    /// Lock under test: a command that speaks the client protocol on stdin and stdout, or an adapter's name or file
    #[arg(long, help_heading = LOCK, value_name = "CMD", value_parser = NonEmptyStringValueParser::new(), conflicts_with_all = ["recipe", "holder", "guid", "interval", "reentrant"])]
    pub client: Option<String>,
    /// Promises that the client's own `contract` leaves out: a list such as `owner=own,renews=false`
    ///
    /// The names are those of the `contract` in an answer to `open`.
    #[arg(long, help_heading = LOCK, value_name = "PROMISES", value_delimiter = ',', requires = "client", conflicts_with_all = ["recipe", "holder", "guid", "interval", "reentrant"])]
    pub promise: Vec<String>,
    /// How long an acquire waits for a taken lock [default: 10s; with --each, --time]
    ///
    /// With --fault any and without --wait, half of the acquires wait for a lease or a quarter of it.
    #[arg(long, help_heading = LOAD, value_name = "TIME", value_parser = duration_within(Duration::ZERO, MAX_TIME))]
    pub wait: Option<Duration>,
    /// Period in which each client has one long hold and one rest; 0s for none [default: 60s; with --fault any, two leases for each client, if that is less]
    ///
    /// A long hold lasts up to two leases if the lock promises to renew its lease, and otherwise up to half a lease. A rest
    /// lasts up to a lease.
    #[arg(long, help_heading = LOAD, value_name = "TIME", value_parser = duration_within(Duration::ZERO, MAX_TIME))]
    pub vary: Option<Duration>,
    /// Seed of the plan, in hexadecimal [default: a new one]
    #[arg(long, help_heading = FAULTS, value_parser = parse_seed)]
    pub seed: Option<u64>,
    #[arg(long, help_heading = SERVERS, value_name = "N", conflicts_with = "servers", help = format!("Number of servers [default: {}]", backends::default_nodes()), value_parser = clap::value_parser!(u32).range(1..=9))]
    pub nodes: Option<u32>,
    /// Image of Toxiproxy in place of the official one
    #[arg(long, help_heading = SERVERS, value_name = "IMAGE")]
    pub proxy_image: Option<String>,

    /// Repeat N times with seeds derived from the first
    #[arg(long, help_heading = AGAIN, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Stop repeating after the first run with this result
    #[arg(long, help_heading = AGAIN, value_enum)]
    pub until: Option<Until>,

    /// Print the diagnosis as JSON
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Do not show progress
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9184, under `/metrics`
    #[arg(long, help_heading = OUTPUT, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Folder of all runs
    #[arg(long, help_heading = OUTPUT, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// Keep the newest N passing runs, or `all`; runs that did not pass are never removed
    #[arg(long, help_heading = OUTPUT, value_name = "N", default_value = "20", value_parser = parse_keep)]
    pub keep: u32,

    /// Configuration file [default: the nearest harness.toml, from this folder up to that of the repository]
    #[arg(long = "config", help_heading = CONFIGURATION, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Apply this profile of harness.toml
    #[arg(long, help_heading = CONFIGURATION, value_name = "NAME")]
    pub profile: Option<String>,
    /// Ignore configuration files and HARNESS_* variables
    #[arg(long, help_heading = CONFIGURATION, conflicts_with_all = ["profile", "file"])]
    pub no_config: bool,
    /// Print every option with its value and origin, and stop
    #[arg(long, help_heading = CONFIGURATION)]
    pub show_config: bool,
    /// Print the plan and stop
    #[arg(long, help_heading = CONFIGURATION)]
    pub dry_run: bool,
    /// The value and origin of every option.
    #[arg(skip)]
    pub settings: Vec<Setting>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Until {
    Fail,
    Pass,
}

fn parse_keep(text: &str) -> Result<u32, String> {
    let number = if text == "all" {
        Some(u32::MAX)
    } else {
        text.parse().ok()
    };
    number
        .filter(|keep| *keep > 0)
        .ok_or_else(|| "expected a number from 1, or `all`".to_owned())
}
