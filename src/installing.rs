//! What is fetched for a run: the user's cache folder, and commands that install into it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How many of the last lines of a command that failed are quoted.
const QUOTED: usize = 5;

/// <https://specifications.freedesktop.org/basedir-spec/latest/>
pub fn cache_folder() -> Option<PathBuf> {
    folder_of_variable("XDG_CACHE_HOME").or_else(|| folder_of_variable("HOME").map(|home| home.join(".cache")))
}

/// The same for what other users are to read: nobody else may look into the home folder of root.
pub fn shared_cache_folder() -> Option<PathBuf> {
    let system = || nix::unistd::geteuid().is_root().then(|| PathBuf::from("/var/cache"));
    folder_of_variable("XDG_CACHE_HOME")
        .or_else(system)
        .or_else(cache_folder)
}

fn folder_of_variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).map(PathBuf::from);
    value.filter(|path| path.is_absolute())
}

/// What a command printed. The error has the last lines that it said.
pub fn said_by(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("could not run {program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(QUOTED)..].join("\n  ");
    Err(format!("{program} ended with {}\n  {last}", output.status))
}
