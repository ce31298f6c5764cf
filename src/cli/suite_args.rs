//! The options of `harness suite`.

use std::path::PathBuf;

use clap::Args;

use crate::config::Shard;

#[derive(Debug, Args)]
pub struct SuiteArgs {
    /// TOML file of rows
    #[arg(required_unless_present_any = ["merge", "versions"])]
    pub file: Option<PathBuf>,
    /// Run the matrix of this project instead: locks on each version of servers that can be fetched
    #[arg(long, conflicts_with = "file")]
    pub versions: bool,
    /// Run only this part of the rows, `1/3` to `3/3`, chosen by a hash of their names
    #[arg(long, value_name = "M/N", value_parser = Shard::read)]
    pub shard: Option<Shard>,
    /// Merge the records of shards in these folders
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["file", "versions", "shard", "filter", "rerun_unsure", "set", "seeds", "jobs", "retries", "dry_run"])]
    pub merge: Vec<PathBuf>,
    /// Run only rows whose name contains this text; can be repeated
    #[arg(long, value_name = "TEXT")]
    pub filter: Vec<String>,
    /// Run only rows that were errors, unsure or not run when they were last in a run of this suite
    #[arg(long)]
    pub rerun_unsure: bool,
    /// Set an option of `harness run` in every row, such as `runtime=docker`; can be repeated
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Run each row with N seeds on models of servers, in memory; it must come to the expected verdict with each seed. A row
    /// that names a seed runs only with that seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Rows that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,
    /// Reruns of an inconclusive row, instead of the number in the file
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Print the rows and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Print the record as JSON
    #[arg(long)]
    pub json: bool,
    /// Folder of all runs
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
}
