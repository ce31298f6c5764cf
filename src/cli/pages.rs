//! `harness completions` and `harness man`: both are generated from the one command tree, so they cannot lag behind it.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Cli;
use super::complain;
use super::stdout::print;
use crate::config::suggest::unknown_word;
use crate::exit::Exit;

/// The completions of a shell, on stdout.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "harness", &mut script);
    print(&String::from_utf8_lossy(&script));
    Exit::Holds
}

/// The manual page of a command, on stdout; or all of them, into a folder.
pub fn man(command: Option<&str>, folder: Option<&Path>) -> Exit {
    let mut cli = Cli::command();
    cli.build();
    if let Some(folder) = folder {
        let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(cli, folder));
        return match written {
            Ok(()) => Exit::Holds,
            Err(error) => complain(
                Exit::Environment,
                format!("could not write pages to {}: {error}", folder.display()),
            ),
        };
    }
    let wanted = match command {
        None => Some(&cli),
        Some(name) => cli.find_subcommand(name),
    };
    let Some(wanted) = wanted else {
        let known = cli.get_subcommands().map(clap::Command::get_name);
        let sentence = unknown_word(
            "command",
            command.unwrap_or_default(),
            known,
            "`harness help` lists the commands",
        );
        return complain(Exit::Usage, sentence);
    };
    let mut page = Vec::new();
    match clap_mangen::Man::new(wanted.clone()).render(&mut page) {
        Ok(()) => print(&String::from_utf8_lossy(&page)),
        Err(error) => return complain(Exit::Bug, format!("the page could not be made: {error}")),
    }
    Exit::Holds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_option_is_in_the_completions_of_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "harness", &mut script);
            let script = String::from_utf8(script).unwrap();
            let cli = Cli::command();
            for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
                for long in command.get_arguments().filter_map(clap::Arg::get_long) {
                    assert!(script.contains(long), "{shell}: {} {long}", command.get_name());
                }
            }
        }
    }

    #[test]
    fn the_page_of_run_has_every_option_of_it() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        let mut page = Vec::new();
        clap_mangen::Man::new(run.clone()).render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace('\\', "");
        for long in run.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(long), "{long}");
        }
    }
}
