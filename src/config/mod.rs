//! The options of a run: [`Config`] defines each flag with its help, default and bounds, and an experiment reads it.
//!
//! To add an option, add a field to [`Config`]. The key in `harness.toml` and in suites, the variable in the environment,
//! `--show-config`, completions and manual pages follow from it. Whether the command that repeats a run has it follows from
//! its [`heading`]. An option whose default depends on another option is a field of `RunArgs` in `cli::args`, which
//! completes the `Config`.

pub mod attach;
pub mod demand;
pub mod duration;
pub mod load_shape;
mod login;
mod server_version;
pub mod setting;
pub mod shard;
pub mod store_file;
pub mod suggest;
pub mod toml;
pub mod upgrade;

use core::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use harness_proxy::tap::Protocol;
use harness_workloads::{Contract, Policy, RecipeOptions};

pub use attach::Attach;
pub use demand::{Demand, OddTurns};
pub use duration::{duration_within, parse_duration};
pub use load_shape::LoadShape;
pub use shard::Shard;

use crate::backends::{self, Backend, Topology};
use crate::cluster::RuntimeRequest;
use crate::limits::MAX_TIME;

/// Maximum number of clients of one run; each has a link to every server.
const MAX_CLIENTS: u32 = 5_000;
/// Maximum number of locks of one run.
const MAX_LOCKS: u32 = 10_000;
/// Minimum lease: shorter ones expire on a loaded machine without a fault.
const MIN_LEASE: Duration = Duration::from_millis(500);
/// Maximum lease: longer ones need fault windows that are too long to wait for.
const MAX_LEASE: Duration = Duration::from_secs(600);
/// Maximum number of faults in the name of a run's folder.
const FAULTS_IN_A_NAME: usize = 4;
/// Minimum length of a turn of `--churn`: a few acquires.
const MIN_TURN: Duration = Duration::from_millis(10);

/// The value of `--fault` for no fault.
pub const NO_FAULT: &str = "none";

/// The value of `--fault` for every fault that a lock withstands.
pub const ANY_FAULT: &str = "any";

/// The groups of `harness run --help`.
pub mod heading {
    pub const LOCK: &str = "Lock";
    pub const LOAD: &str = "Load";
    pub const FAULTS: &str = "Faults";
    pub const SERVERS: &str = "Servers and proxy";
    pub const LIMITS: &str = "Limits of a pass";
    pub const AGAIN: &str = "Run again";
    pub const OUTPUT: &str = "Output";
    pub const CONFIGURATION: &str = "Configuration";

    /// Whether options of this group describe the experiment. These are the keys of a suite's row, and the command that
    /// repeats a run has them.
    pub fn describes_experiment(heading: &str) -> bool {
        [LOCK, LOAD, FAULTS, SERVERS, LIMITS].contains(&heading)
    }

    /// Whether `harness.toml` and the environment may set options of this group.
    pub fn is_configurable(heading: &str) -> bool {
        heading != CONFIGURATION
    }
}
use heading::{FAULTS, LIMITS, LOAD, LOCK, SERVERS};

/// The value of `--proxy`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProxyChoice {
    /// The proxy in this process.
    #[default]
    BuiltIn,
    /// A container that this run starts, from the given image or the default one.
    Toxiproxy { image: Option<String> },
    /// A Toxiproxy that is already running, at `HOST:PORT`.
    ToxiproxyAt(String),
}

impl ProxyChoice {
    /// Whether faults on links go through a Toxiproxy.
    pub fn is_toxiproxy(&self) -> bool {
        *self != Self::BuiltIn
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "builtin" => Ok(Self::BuiltIn),
            None if text == "toxiproxy" => Ok(Self::Toxiproxy { image: None }),
            Some(("toxiproxy", at)) if at.contains(':') => Ok(Self::ToxiproxyAt(at.to_owned())),
            _ => Err("expected builtin, toxiproxy or toxiproxy=HOST:PORT".to_owned()),
        }
    }
}

/// A requested fault: `partition=holder`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRequest {
    pub name: String,
    pub argument: Option<String>,
}

impl FaultRequest {
    /// Parses an argument of `--fault`: `partition=holder`.
    pub fn read(text: &str) -> Self {
        let (name, argument) = match text.split_once('=') {
            Some((name, argument)) => (name, Some(argument.to_owned())),
            None => (text, None),
        };
        let name = name.to_owned();
        Self { name, argument }
    }

    fn parse(text: &str) -> Result<Self, std::convert::Infallible> {
        Ok(Self::read(text))
    }
}

/// The program of the lock clients.
#[derive(Debug, Clone)]
pub enum Clients {
    /// A recipe of this project, run by `harness client`.
    Recipe(RecipeOptions),
    /// Another program that speaks the client protocol.
    Foreign {
        /// A command line for the shell.
        command: String,
        /// Promises that add to those in its answer to `open`, or override them.
        promise: Contract,
    },
}

/// Shares of the acquires, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args)]
pub struct Mix {
    /// Percentage of acquires in read mode [default: 0; 50 for a client that promises read=true]
    ///
    /// For locks with shared modes: `--recipe zk-read-write`, or a client of your own.
    #[arg(long, help_heading = LOAD, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    pub reads: Option<u32>,
    /// Percentage of acquires that do not wait for a taken lock [default: 0; 10 with --fault any for an exclusive lock that promises
    /// tries=true]
    #[arg(long, help_heading = LOAD, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(..=100))]
    pub tries: Option<u32>,
    /// Percentage of turns with unusual calls: no release of a lost lock, a second release, a close during a hold, a second
    /// acquire during a hold, or an extension of a lease that is over
    ///
    /// The contract must allow the call. A client leaves a lost lock unreleased if the lock ends by itself (lease=true and
    /// renews=false, or a recipe). A second acquire needs tries=true and reentrant=false, an extension extends=true. Permits are not
    /// released twice.
    #[arg(long, help_heading = LOAD, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    pub odd_turns: u32,
}

/// Period in which a client has one long hold and one rest.
pub const RARELY: Duration = Duration::from_secs(60);

/// Returns that period for `--fault any`. A failure of a renewal shows only in a hold that is long enough for one: with
/// this period the lock has such a hold in about half of the time.
pub fn long_holds_with_any(lease: Duration, clients: u32) -> Duration {
    (lease * 2 * clients).min(RARELY)
}

/// What a run needs to know, complete and checked.
#[derive(Debug, Clone, Args)]
pub struct Config {
    #[arg(long, help_heading = LOCK, value_parser = parse_backend, help = format!("Store that holds the locks: {}, or a TOML file that describes one", backends::names(", ", |_| true)))]
    pub backend: &'static Backend,
    /// Session timeout or time to live of a lock
    #[arg(long, help_heading = LOCK, value_name = "TIME", default_value = "2s", value_parser = duration_within(MIN_LEASE, MAX_LEASE))]
    pub lease: Duration,
    /// Completed by `RunArgs::config`.
    #[arg(skip = Clients::Foreign { command: String::new(), promise: Contract::default() })]
    pub who: Clients,

    /// Number of lock clients
    #[arg(long, help_heading = LOAD, value_name = "N", default_value_t = 5, value_parser = from_one_to(MAX_CLIENTS))]
    pub clients: u32,
    /// Number of clients in one process
    #[arg(long, help_heading = LOAD, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub per_process: u32,
    /// Locks that the clients share
    #[arg(long, help_heading = LOAD, value_name = "N", default_value_t = 1, value_parser = from_one_to(MAX_LOCKS))]
    pub locks: u32,
    /// Time of a hold, drawn from half of this to one and a half times this
    #[arg(long, help_heading = LOAD, value_name = "TIME", default_value = "10ms", value_parser = duration_within(Duration::ZERO, MAX_TIME))]
    pub hold: Duration,
    /// Time in which each client once holds its lock longer, and once rests. Completed by `RunArgs::config`.
    #[arg(skip)]
    pub vary: Duration,
    /// Maximum wait of an acquire for a taken lock. Completed by `RunArgs::config`.
    #[arg(skip)]
    pub wait: Duration,
    /// Whether half of the acquires wait for a lease at most. Completed by `RunArgs::config`.
    #[arg(skip)]
    pub short_waits: bool,
    /// Length of the experiment
    #[arg(long, help_heading = LOAD, value_name = "TIME", default_value = "60s", value_parser = duration_within(Duration::from_micros(1), MAX_TIME))]
    pub time: Duration,
    /// Stop after each client has acquired N times; --time is then the limit
    #[arg(long, help_heading = LOAD, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub each: Option<u32>,
    /// End the faults once the lock was acquired N times; --time is then the limit
    ///
    /// Fault windows are then short and close together, from the start on, and the run ends when each client has acquired once more.
    #[arg(long, help_heading = LOAD, value_name = "N", conflicts_with = "each", value_parser = clap::value_parser!(u32).range(1..))]
    pub grants: Option<u32>,
    /// End the run at the first violation that is seen during the run (HL002)
    ///
    /// Faults heal and clients release what they hold; there is no recovery. The verdict is that of the check of the whole history.
    #[arg(long, help_heading = LOAD)]
    pub stop_on_violation: bool,
    #[command(flatten)]
    pub mix: Mix,
    #[command(flatten)]
    pub load: LoadShape,
    /// Take half of the locks out of use, in turns of this length
    ///
    /// The leftovers of unused locks in the store are removed, so that locks are created and deleted during the run.
    #[arg(long, help_heading = LOAD, value_name = "TIME", value_parser = duration_within(MIN_TURN, MAX_TIME))]
    pub churn: Option<Duration>,

    /// Faults to inject: `none`, `any`, or a list such as `partition=holder,latency`
    ///
    /// `harness list faults` shows all faults and their arguments. Windows of several faults overlap, up to three at a time.
    /// `any` goes through every fault that a lock with a lease withstands: on links and servers, on processes of clients, and
    /// on single messages.
    #[arg(long = "fault", help_heading = FAULTS, value_name = "FAULTS", default_value = NO_FAULT, value_delimiter = ',', value_parser = FaultRequest::parse)]
    pub faults: Vec<FaultRequest>,
    /// Length of every fault window [default: drawn, longer than the lease]
    #[arg(long, help_heading = FAULTS, value_name = "TIME", value_parser = duration_within(Duration::from_micros(1), MAX_TIME))]
    pub window: Option<Duration>,
    /// Inject only these windows of the plan, by number, such as 3,7, each soon after the one before it
    ///
    /// The plan is that of a run without this option and with the same --time. `harness shrink` finds the windows that a
    /// violation needs.
    #[arg(long, help_heading = FAULTS, value_name = "NUMBERS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub windows: Vec<u32>,
    /// Completed by `RunArgs::config`.
    #[arg(skip)]
    pub seed: u64,

    /// How servers are started
    #[arg(long, help_heading = SERVERS, value_enum, default_value_t = RuntimeRequest::Auto)]
    pub runtime: RuntimeRequest,
    /// Number of the world, in virtual time: it decides latencies, elections and the order of events under the plan of the seed
    ///
    /// `harness shrink` looks for a world in which a smaller run shows the violation.
    #[arg(long, help_heading = SERVERS, value_name = "N", default_value_t = 0)]
    pub world: u32,
    /// Arrangement of the servers
    #[arg(long, help_heading = SERVERS, value_enum, default_value_t)]
    pub topology: Topology,
    /// Completed by `RunArgs::config`.
    #[arg(skip)]
    pub nodes: u32,
    /// Server image in place of the official one (docker): a name, better with its digest (`redis:7@sha256:…`), or an id
    ///
    /// It implies --runtime docker, unless another runtime is given.
    #[arg(long, help_heading = SERVERS)]
    pub image: Option<String>,
    /// Version of the servers, such as 6.2 or 3.5.1: programs are fetched (local), or the image has that tag (docker)
    ///
    /// `harness list versions` shows which can be fetched, and where from (docs/versions.md).
    #[arg(long, help_heading = SERVERS, value_name = "VERSION", value_parser = server_version::read, conflicts_with_all = ["image", "servers"])]
    pub server_version: Option<String>,
    #[command(flatten)]
    pub attach: Attach,
    /// Have the servers refuse clients without a login, and create a user and a password for the run
    ///
    /// Clients get both in environment variables (docs/authentication.md). No output of the run contains the password.
    #[arg(long, help_heading = SERVERS)]
    pub auth: bool,
    /// Have servers and clients speak TLS, with certificates made for the run, and refuse a peer without a certificate
    ///
    /// Links decrypt and encrypt again, so that faults can act on messages. Clients get the paths of their files in environment
    /// variables (docs/tls.md).
    #[arg(long, help_heading = SERVERS)]
    pub tls: bool,
    /// Draw the order of threads from the seed: finds races within a process, with --runtime virtual
    ///
    /// A thread that makes a system call may lose the processor for up to 1 ms, or until the other threads of its program have waited.
    /// Any thread that can run may be the next.
    #[arg(long, help_heading = SERVERS)]
    pub threads_by_seed: bool,
    /// Time for the servers to become ready
    #[arg(long, help_heading = SERVERS, value_name = "TIME", default_value = "60s", value_parser = duration_within(Duration::from_secs(1), MAX_TIME))]
    pub start_limit: Duration,
    /// First port of the servers (local) [default: free ports]
    ///
    /// It implies --runtime local, unless another runtime or an image is given.
    #[arg(long, help_heading = SERVERS, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port_base: Option<u16>,
    /// Proxy between clients and servers: `builtin`, `toxiproxy` or `toxiproxy=HOST:PORT`
    ///
    /// `toxiproxy` starts a container; `toxiproxy=HOST:PORT` uses one that is running.
    #[arg(long, help_heading = SERVERS, value_name = "PROXY", default_value = "builtin", value_parser = ProxyChoice::parse)]
    pub proxy: ProxyChoice,
    /// Serve Toxiproxy's HTTP API at this address, such as 127.0.0.1:8474
    ///
    /// Toxiproxy clients can then inspect and change the links of the built-in proxy. Changes are written to the history.
    #[arg(long, help_heading = SERVERS, value_name = "ADDRESS")]
    pub proxy_api: Option<SocketAddr>,
    /// With --proxy-api: answer only clients that send the token in this file (`Authorization: Bearer TOKEN`)
    #[arg(long, help_heading = SERVERS, value_name = "FILE", requires = "proxy_api")]
    pub proxy_api_token_file: Option<PathBuf>,

    /// Waiters that one release may wake, in each process
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub herd_limit: u32,
    /// Requests that one hand-over may cost where waiters poll [default: shown, not judged]
    #[arg(long, help_heading = LIMITS, value_name = "N")]
    pub requests_limit: Option<u32>,
    /// Time after the last heal within which a free lock must be acquired; the default is 9s longer on NATS, for an election
    #[arg(long, help_heading = LIMITS, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub progress_bound: Duration,
    /// Time for which a client may wait for a lock in vain while others get it [default: the progress bound and a lease, for a client that never gets it]
    #[arg(long, help_heading = LIMITS, value_name = "TIME", value_parser = parse_duration)]
    pub starvation_bound: Option<Duration>,

    /// Time for a client to open its session
    #[arg(long, help_heading = LOAD, value_name = "TIME", default_value = "15s", value_parser = duration_within(Duration::from_millis(100), MAX_TIME))]
    pub open_limit: Duration,
    /// Time for a client to answer, in addition to the wait of its acquire [default: two leases and 5s]
    #[arg(long, help_heading = LOAD, value_name = "TIME", value_parser = duration_within(Duration::from_millis(100), MAX_TIME))]
    pub answer_limit: Option<Duration>,
}

/// Returns every backend with a name: the other stores are files.
pub fn named_backends() -> impl Iterator<Item = &'static Backend> {
    backends::all().chain(store_file::built_in().iter().copied())
}

/// Returns the backend of this name. The error lists the known ones.
pub fn parse_backend(text: &str) -> Result<&'static Backend, String> {
    if store_file::is_file(text) {
        return store_file::backend(text);
    }
    let known = named_backends().find(|backend| backend.name() == text);
    known.ok_or_else(|| {
        let described: String = (store_file::built_in().iter())
            .map(|backend| format!(", {backend}"))
            .collect();
        format!(
            "expected {}{described}, or a file that describes a store: my-store.toml",
            backends::names(", ", |_| true)
        )
    })
}

fn from_one_to(most: u32) -> impl clap::builder::TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=i64::from(most))
}

impl Config {
    /// Returns the configuration of a plain run on ZooKeeper.
    #[cfg(test)]
    pub fn example() -> Self {
        use clap::FromArgMatches;

        let command = Self::augment_args(clap::Command::new("example"));
        let matches = command.get_matches_from(["example", "--backend", "zk"]);
        Self {
            who: Clients::Recipe(RecipeOptions::named("zk-predecessor-watch").expect("it is in the catalogue")),
            faults: Vec::new(),
            nodes: 3,
            vary: RARELY,
            wait: Duration::from_secs(10),
            seed: 1,
            ..Self::from_arg_matches(&matches).expect("the defaults are valid")
        }
    }

    /// Whether the links of clients have taps, which read and count messages.
    pub fn has_taps(&self) -> bool {
        !self.proxy.is_toxiproxy() && self.backend.protocol != Protocol::Opaque
    }

    /// Returns the seed as typed: `8f3a21c4`.
    pub fn seed_text(&self) -> String {
        format!("{:08x}", self.seed)
    }

    /// Returns the recipe's name, or the command of a foreign client.
    pub fn recipe_name(&self) -> &str {
        match &self.who {
            Clients::Recipe(options) => options.recipe.name,
            Clients::Foreign { command, .. } => command,
        }
    }

    /// Returns `naive` if the recipe has policies and this one is not careful.
    pub fn attitude(&self) -> Option<&'static str> {
        match &self.who {
            Clients::Recipe(options) if options.recipe.policies && options.policy == Policy::Naive => Some("naive"),
            _ => None,
        }
    }

    /// Returns the faults as typed: `partition=holder,latency`, or `none`.
    pub fn fault_text(&self) -> String {
        if self.faults.is_empty() {
            return NO_FAULT.to_owned();
        }
        let texts = self.faults.iter().map(|fault| match &fault.argument {
            None => fault.name.clone(),
            Some(argument) => format!("{}={argument}", fault.name),
        });
        texts.collect::<Vec<_>>().join(",")
    }

    /// Whether `--fault` has `any`.
    pub fn has_any_fault(&self) -> bool {
        self.faults.iter().any(|fault| fault.name == ANY_FAULT)
    }

    /// Whether `--fault` has `any` and no other name.
    pub fn is_any_fault(&self) -> bool {
        self.has_any_fault() && self.faults.iter().all(|fault| fault.name == ANY_FAULT)
    }

    /// Returns the faults for a folder's name: each name once, and no more than fit (a name has up to 255 bytes).
    pub fn fault_slug(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for fault in &self.faults {
            if !names.contains(&fault.name.as_str()) {
                names.push(&fault.name);
            }
        }
        match names.len().saturating_sub(FAULTS_IN_A_NAME) {
            _ if names.is_empty() => NO_FAULT.to_owned(),
            0 => names.join("+"),
            more => format!("{}+{more}-more", names[..FAULTS_IN_A_NAME].join("+")),
        }
    }

    /// Returns the time in which a client must answer, in addition to the wait of its acquire.
    pub fn patience(&self) -> Duration {
        self.answer_limit.unwrap_or(self.lease * 2 + Duration::from_secs(5))
    }

    /// Returns the number of client processes.
    pub fn processes(&self) -> u32 {
        self.clients.div_ceil(self.per_process)
    }

    pub fn lock_names(&self) -> Vec<String> {
        (0..self.locks).map(|number| format!("l{number}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_many_faults_has_a_name_that_a_file_system_takes() {
        let slug = |names: &[&str]| {
            let mut config = Config::example();
            config.faults = names.iter().map(|name| FaultRequest::read(name)).collect();
            config.fault_slug()
        };
        assert_eq!(slug(&[]), NO_FAULT);
        assert_eq!(slug(&["partition", "kill", "partition"]), "partition+kill");
        let many: Vec<&str> = "drop-reply kill drop-request reset drop-reply pause loss"
            .split(' ')
            .collect();
        assert_eq!(slug(&many), "drop-reply+kill+drop-request+reset+2-more");
    }
}
