//! The options of `harness hunt` and `harness shrink`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::bisect_screen::VersionKind;
use super::seeds::parse_seed;
use crate::config::Shard;
use crate::config::heading::{AGAIN, FAULTS, LOCK, OUTPUT, SERVERS};
use crate::config::{duration_within, parse_duration};
use crate::hunt::record::HuntUntil;
use crate::limits::MAX_TIME;

/// The shortest hunt.
const MIN_HUNT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct HuntArgs {
    /// Store that holds the locks
    #[arg(long, help_heading = LOCK, required_unless_present_any = ["go_on", "merge"])]
    pub backend: Option<String>,
    /// Lock under test: a command that speaks the client protocol, or an adapter's name or file
    #[arg(long, help_heading = LOCK, value_name = "CMD", conflicts_with = "recipe")]
    pub client: Option<String>,
    /// Promises that the client's own `contract` leaves out: a list such as `owner=own,renews=false`
    #[arg(long, help_heading = LOCK, value_name = "PROMISES", requires = "client")]
    pub promise: Option<String>,
    /// Lock under test, if it is a recipe of harness [default: the backend's default recipe]
    #[arg(long, help_heading = LOCK)]
    pub recipe: Option<String>,
    /// Session timeout or time to live of a lock [default: the shortest whole second that the backend grants]
    #[arg(long, help_heading = LOCK, value_name = "TIME")]
    pub lease: Option<String>,

    /// Faults to choose from, such as `partition,drop-reply=SET` [default: all that a correct lock withstands]
    #[arg(long = "fault", help_heading = FAULTS, value_name = "FAULTS", value_delimiter = ',')]
    pub faults: Vec<String>,
    /// Seed of all experiments, in hexadecimal [default: a new one]
    #[arg(long, help_heading = FAULTS, value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Try every placement of up to K faults on single messages, in one scenario, with --runtime simulated or virtual
    #[arg(long, help_heading = FAULTS, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=3))]
    pub exhaustive: Option<u32>,
    /// Also extend placements whose last fault found nothing to act on: slower, with the same violations
    #[arg(long, help_heading = FAULTS, requires = "exhaustive")]
    pub without_reduction: bool,
    /// Try one of several parts of the placements, such as 1/3; --merge merges their records, which have the same --seed
    #[arg(long, help_heading = FAULTS, value_name = "M/N", value_parser = Shard::read, requires_all = ["exhaustive", "seed"])]
    pub shard: Option<Shard>,

    /// How servers are started: `auto`, `docker`, `local`, `simulated` or `virtual`
    #[arg(long, help_heading = SERVERS, value_name = "RUNTIME")]
    pub runtime: Option<String>,
    /// Version of the servers, such as 6.2; `harness list versions` shows which can be fetched
    #[arg(long, help_heading = SERVERS, value_name = "VERSION")]
    pub server_version: Option<String>,
    /// Set any option of `harness run` in every experiment, such as `clients=3`; can be repeated
    #[arg(long, help_heading = SERVERS, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,

    /// Time after which no new experiment starts [default: 10m, with --experiments or --exhaustive 24h]
    #[arg(long = "for", help_heading = AGAIN, value_name = "TIME", value_parser = duration_within(MIN_HUNT, MAX_TIME))]
    pub length: Option<Duration>,
    /// Maximum number of experiments
    #[arg(long, help_heading = AGAIN, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub experiments: Option<u64>,
    /// When to end the hunt [default: first; with --continue, as before]
    #[arg(long, help_heading = AGAIN, value_enum)]
    pub until: Option<HuntUntil>,
    /// Experiments that run at the same time
    #[arg(long, help_heading = AGAIN, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,
    /// Continue the hunt in this folder, with its original options
    #[arg(
        long = "continue",
        id = "go_on",
        help_heading = AGAIN,
        value_name = "DIR",
        conflicts_with_all = ["backend", "client", "promise", "recipe", "lease", "faults", "seed", "server_version", "set", "exhaustive", "without_reduction", "shard"]
    )]
    pub go_on: Option<PathBuf>,
    /// Merge the records of hunts for one lock in these folders, such as those of the pods of a campaign
    #[arg(
        long,
        help_heading = AGAIN,
        value_name = "DIR",
        num_args = 1..,
        conflicts_with_all = [
            "backend", "client", "promise", "recipe", "lease", "faults", "seed", "runtime", "server_version", "set", "length", "experiments", "until",
            "jobs", "go_on", "keep_runs", "metrics", "exhaustive", "without_reduction", "shard"
        ]
    )]
    pub merge: Vec<PathBuf>,

    /// Keep the run of each experiment, not only of those that show a new violation
    #[arg(long, help_heading = OUTPUT)]
    pub keep_runs: bool,
    /// Serve metrics for Prometheus at this address, such as 127.0.0.1:9184, under `/metrics`
    #[arg(long, help_heading = OUTPUT, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Print the record as JSON
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Do not show progress
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
    /// Folder of all runs
    #[arg(long, help_heading = OUTPUT, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

#[derive(Debug, Args)]
pub struct ShrinkArgs {
    /// A run with a violation: `latest`, its folder or the start of its name
    pub wanted: String,
    /// Find the server image that introduced the violation: a list, oldest first, such as `redis:6.2,redis:7.0,redis:7.2`
    #[arg(long, value_name = "IMAGES", value_delimiter = ',', group = "compared")]
    pub bisect_image: Vec<String>,
    /// Find the version of the servers that introduced the violation: a list, oldest first, such as `6.2,7.0,8.0`
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',', group = "compared")]
    pub bisect_server: Vec<String>,
    /// Find the lock client that introduced the violation: repeat the option for each version, oldest first
    #[arg(long, value_name = "CMD", group = "compared")]
    pub bisect_client: Vec<String>,
    /// Maximum number of runs of one version, with --bisect-image, --bisect-server or --bisect-client
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..), requires = "compared")]
    pub bisect_runs: u32,
    /// Maximum number of runs in the search [default: 20, in virtual time 40, on models 3000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "compared")]
    pub runs: Option<u32>,
    /// Runs of the result (on models and in virtual time in other worlds), or of the newest version, for its hit rate
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub confirm: u32,
    /// Time after which no new run starts
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    pub limit: Duration,
    /// Write the result as a test, which passes without a violation: for pytest (`test_lock.py`), the shell (`lock.sh`), JUnit 5
    /// (`LockTest.java`), node (`lock.test.mjs`) or cargo (`tests/lock.rs`); for runs in virtual time
    #[arg(long, value_name = "FILE", conflicts_with = "compared")]
    pub as_test: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Do not show progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}

impl ShrinkArgs {
    /// Returns the versions to compare, if the search is for the one that introduced the violation, and not for a smaller run.
    pub fn compared(&self) -> Option<(VersionKind, &[String])> {
        let named = [
            (VersionKind::Image, self.bisect_image.as_slice()),
            (VersionKind::Server, self.bisect_server.as_slice()),
            (VersionKind::Client, self.bisect_client.as_slice()),
        ];
        named.into_iter().find(|(_, versions)| !versions.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, ValueEnum};

    use super::*;
    use crate::cluster::RuntimeRequest;

    #[test]
    fn the_help_of_a_hunt_has_every_runtime_and_the_longest_time() {
        let command = HuntArgs::augment_args(Command::new("hunt"));
        let help = |wanted: &str| {
            let option = command.get_arguments().find(|option| option.get_id() == wanted);
            option.and_then(|option| option.get_help()).unwrap().to_string()
        };
        for runtime in RuntimeRequest::value_variants() {
            let value = runtime.to_possible_value().unwrap();
            let name = format!("`{}`", value.get_name());
            assert!(help("runtime").contains(&name), "{name}");
        }
        let hours = MAX_TIME.as_secs() / 3600;
        assert!(help("length").contains(&format!("{hours}h]")));
    }
}
