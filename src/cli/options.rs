//! The options of `harness run`, out of the one command tree: what files may set.

use clap::CommandFactory;

use super::args::Cli;
use crate::settings::Known;

/// Every option of `harness run` with a long name.
pub fn run_options() -> Vec<Known> {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").expect("there is a command `run`");
    let options = run.get_arguments().filter_map(|argument| {
        Some(Known {
            name: argument.get_long()?.to_owned(),
            switch: !argument.get_action().takes_values(),
        })
    });
    options.collect()
}
