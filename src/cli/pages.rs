//! `harness completions` and `harness man`: shell completions and manual pages, generated from clap's command tree.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Failure;
use super::args::Cli;
use super::stdout::print;
use crate::config::suggest::unknown_word;
use crate::exit::Exit;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "harness", &mut script);
    print(&String::from_utf8_lossy(&script));
    Exit::Holds
}

/// Prints the manual page of a command, or writes all of them to a folder.
pub fn man(command: Option<&str>, folder: Option<&Path>) -> Result<Exit, Failure> {
    if let Some(folder) = folder {
        // `harness help run` prints what `harness-run.1` says, and needs no page of its own
        let cli = Cli::command().disable_help_subcommand(true);
        let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(cli, folder));
        let failed = |error| Failure::environment(format!("could not write pages to {}: {error}", folder.display()));
        return written.map_err(failed).map(|()| Exit::Holds);
    }
    let mut cli = Cli::command();
    cli.build();
    let unknown = |name| {
        let known = cli.get_subcommands().map(clap::Command::get_name);
        let hint = "`harness help` lists the commands";
        Failure::usage(unknown_word("command", name, known, hint))
    };
    let wanted = match command {
        None => &cli,
        Some(name) => cli.find_subcommand(name).ok_or_else(|| unknown(name))?,
    };
    let mut page = Vec::new();
    let made = clap_mangen::Man::new(wanted.clone()).render(&mut page);
    made.expect("memory can be written");
    print(&String::from_utf8_lossy(&page));
    Ok(Exit::Holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_one_manual_page_and_help_has_none() {
        let folder = tempfile::tempdir().unwrap();
        man(None, Some(folder.path())).unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap();
        let mut pages: Vec<_> = files
            .map(|file| {
                let file = file.unwrap();
                assert!(std::fs::read_to_string(file.path()).unwrap().contains(".TH"));
                file.file_name().into_string().unwrap()
            })
            .collect();
        let cli = Cli::command();
        let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
        let mut expected: Vec<_> = commands.map(|each| format!("harness-{}.1", each.get_name())).collect();
        expected.push("harness.1".to_owned());
        pages.sort();
        expected.sort();
        assert_eq!(pages, expected);
    }
}
