//! The command line of `harness watch-lease` and of the hidden `harness kube-api`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use regex::Regex;

use crate::config::parse_duration;

#[derive(Debug, Args)]
pub struct WatchLeaseArgs {
    /// URL of an API server, such as that of `kubectl proxy`
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8001")]
    pub server: String,
    /// File with a token for the API server
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The Lease: its namespace and name
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub lease: String,
    /// Log of a candidate: a file that it writes, or `command: LINE` for a command whose lines begin with their times; can be repeated
    #[arg(long, value_name = "NAME=FILE", required = true)]
    pub log: Vec<String>,
    /// Pattern of the lines that say that their candidate leads
    #[arg(long, value_name = "REGEX")]
    pub leading: Regex,
    /// Pattern of the lines that say that their candidate no longer leads
    #[arg(long, value_name = "REGEX")]
    pub stopped: Regex,
    /// Pattern of the lines that only a leader writes
    #[arg(long, value_name = "REGEX")]
    pub working: Option<Regex>,
    /// Pattern of the lines that say that their candidate does not lead yet, such as the first of a process that was killed and started
    #[arg(long, value_name = "REGEX")]
    pub campaign: Option<Regex>,
    /// Longest time from the end of leadership, or from the work of a leader, to its line in the log
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    pub log_delay: Duration,
    /// Largest error of the times in the lines of commands
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "500ms")]
    pub clock_error: Duration,
    /// How long to watch [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub time: Option<Duration>,
    /// Print the diagnosis as JSON
    #[arg(long)]
    pub json: bool,
    /// Folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum KubeApiCommand {
    /// Serve Leases until the process ends
    Serve {
        /// Address to listen at
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8001")]
        listen: SocketAddr,
        /// File of the Leases [default: they are in memory]
        #[arg(long, value_name = "FILE")]
        data: Option<PathBuf>,
        /// Answer reads with resourceVersion=0 from a copy of this age, as servers with a cache may
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
        stale: Duration,
    },
    /// Print who holds which Lease, as an observer of a store
    Observe {
        /// URL of an API server
        #[arg(long, value_name = "URL")]
        server: String,
    },
    /// Delete the Leases that have a text in their names
    Remove {
        /// URL of an API server
        #[arg(long, value_name = "URL")]
        server: String,
        #[arg(long, value_name = "TEXT")]
        mark: String,
    },
}
