//! What a run needs to know, complete and checked. What was typed is `cli::args`; everything below sees only this.

use core::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use harness_workloads::{BackendId, Holder, RecipeOptions};

use crate::backends::{self, Backend};
use crate::cluster::RuntimeRequest;

/// The name that asks for no fault: a real choice, and no fault of the list.
pub const NO_FAULT: &str = "none";

/// What `--proxy` takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProxyChoice {
    /// In process.
    #[default]
    BuiltIn,
    /// A container of its own, from this image where one was named.
    Toxiproxy { image: Option<String> },
    /// One that runs already, at `HOST:PORT`.
    ToxiproxyAt(String),
}

impl ProxyChoice {
    /// As it is typed.
    pub fn text(&self) -> String {
        match self {
            Self::BuiltIn => "builtin".to_owned(),
            Self::Toxiproxy { .. } => "toxiproxy".to_owned(),
            Self::ToxiproxyAt(at) => format!("toxiproxy={at}"),
        }
    }

    /// Whether faults on links go through a Toxiproxy.
    pub fn is_toxiproxy(&self) -> bool {
        *self != Self::BuiltIn
    }
}

/// A fault as it was asked for: `partition=holder`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRequest {
    pub name: String,
    pub argument: Option<String>,
}

/// Who the lock clients are.
#[derive(Debug, Clone)]
pub enum Clients {
    /// A recipe of ours, run by `harness client`.
    Recipe(RecipeOptions),
    /// Somebody's own program that speaks the client protocol: a command line for the shell.
    Foreign(String),
}

/// What clients ask for, in shares of a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mix {
    /// Acquires that are for reading.
    pub reads: u32,
    /// Acquires that do not wait.
    pub tries: u32,
}

#[derive(Debug, Clone)]
pub struct Config {
    pub backend: &'static Backend,
    pub who: Clients,
    pub runtime: RuntimeRequest,
    /// The server image, in place of the official one.
    pub image: Option<String>,
    pub nodes: u32,
    pub port_base: Option<u16>,
    pub proxy: ProxyChoice,
    /// Where the built-in proxy serves Toxiproxy's API, if it does.
    pub proxy_api: Option<SocketAddr>,
    /// Empty: fair weather, by choice.
    pub faults: Vec<FaultRequest>,
    pub clients: u32,
    /// Clients in one child process.
    pub per_process: u32,
    pub locks: u32,
    pub lease: Duration,
    /// How long a lock is held: drawn between half and one and a half times this.
    pub hold: Duration,
    pub time: Duration,
    /// How long an acquire waits for a taken lock.
    pub wait: Duration,
    /// Each client acquires so many times, and the run ends when all have; `time` is then the limit.
    pub each: Option<u32>,
    pub mix: Mix,
    /// Half of the locks are out of use, by turns of this length, and what is left of them is removed.
    pub churn: Option<Duration>,
    /// The length of fault windows, in place of a drawn one.
    pub window: Option<Duration>,
    pub seed: u64,
    /// Where runs are kept.
    pub results: PathBuf,
    /// Waiters that one release may wake.
    pub herd_limit: u32,
    /// Requests that a hand-over may cost where waiters poll; `None` is no limit.
    pub requests_limit: Option<u32>,
    /// Within this time after the last heal a free lock must be acquired.
    pub progress_bound: Duration,
}

impl Config {
    /// A plain run on ZooKeeper, for tests.
    pub fn example() -> Self {
        Self {
            backend: backends::of(BackendId::Zk),
            who: Clients::Recipe(RecipeOptions::named("zk-predecessor-watch").expect("it is in the catalogue")),
            runtime: RuntimeRequest::Auto,
            image: None,
            nodes: 3,
            port_base: None,
            proxy: ProxyChoice::BuiltIn,
            proxy_api: None,
            faults: Vec::new(),
            clients: 5,
            per_process: 1,
            locks: 1,
            lease: Duration::from_secs(2),
            hold: Duration::from_millis(10),
            time: Duration::from_secs(60),
            wait: Duration::from_secs(10),
            each: None,
            mix: Mix::default(),
            churn: None,
            window: None,
            seed: 1,
            results: PathBuf::from("results"),
            herd_limit: 1,
            requests_limit: None,
            progress_bound: Duration::from_secs(10),
        }
    }

    /// Whether a client may take again what it holds.
    pub fn is_reentrant(&self) -> bool {
        matches!(&self.who, Clients::Recipe(options) if options.reentrant)
    }

    /// The model that the lock must follow, by the name that checkers know.
    pub fn model(&self) -> &'static str {
        let modes = matches!(&self.who, Clients::Recipe(options) if options.recipe.modes);
        match self.mix {
            _ if self.is_reentrant() => "reentrant",
            Mix { reads: 1.., .. } => "read-write",
            _ if modes => "read-write",
            Mix { tries: 1.., .. } => "try-lock",
            Mix { .. } => "mutex",
        }
    }

    /// The seed as it is typed: `8f3a21c4`.
    pub fn seed_text(&self) -> String {
        format!("{:08x}", self.seed)
    }

    /// The recipe's name, or the command of a foreign client.
    pub fn recipe_name(&self) -> &str {
        match &self.who {
            Clients::Recipe(options) => options.recipe.name,
            Clients::Foreign(command) => command,
        }
    }

    /// `naive`, where the recipe has attitudes and is not careful.
    pub fn attitude(&self) -> Option<&'static str> {
        match &self.who {
            Clients::Recipe(options) if options.recipe.attitudes && options.holder == Holder::Naive => Some("naive"),
            _ => None,
        }
    }

    /// The faults as they are typed: `partition=holder,latency`, or `none`.
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

    /// The faults as a name of a folder can carry them.
    pub fn fault_slug(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(|fault| fault.name.as_str()).collect();
        if names.is_empty() {
            NO_FAULT.to_owned()
        } else {
            names.join("+")
        }
    }

    pub fn lock_names(&self) -> Vec<String> {
        (0..self.locks).map(|number| format!("l{number}")).collect()
    }
}
