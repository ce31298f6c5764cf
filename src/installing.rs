//! Installation in the user's cache: folders that are filled once, and commands that install into them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};

/// The number of last lines that an error quotes of a command that failed.
const QUOTED: usize = 5;
/// The file that marks a filled folder. It is written last.
const READY: &str = "ready";

/// Returns the user's cache folder: <https://specifications.freedesktop.org/basedir-spec/latest/>.
pub fn cache_folder() -> Result<PathBuf, String> {
    folder_of_variable("XDG_CACHE_HOME")
        .or_else(|| folder_of_variable("HOME").map(|home| home.join(".cache")))
        .ok_or_else(|| "neither XDG_CACHE_HOME nor HOME is set".to_owned())
}

/// Returns the cache folder for files that other users read: nobody else may look into the home folder of root.
pub fn shared_cache_folder() -> Result<PathBuf, String> {
    let system = || nix::unistd::geteuid().is_root().then(|| PathBuf::from("/var/cache"));
    let folder = folder_of_variable("XDG_CACHE_HOME").or_else(system);
    folder.map_or_else(cache_folder, Ok)
}

fn folder_of_variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).map(PathBuf::from);
    value.filter(|path| path.is_absolute())
}

/// The folder of an installation, by whether this call filled it.
#[derive(Debug)]
pub enum Installed {
    Now(PathBuf),
    Before(PathBuf),
}

pub fn is_filled(folder: &Path) -> bool {
    folder.join(READY).exists()
}

/// Fills a folder of the cache unless it is filled. Blocks while another process fills it.
pub fn fill_once(folder: PathBuf, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<Installed, String> {
    fill_unless(folder, is_filled, fill)
}

/// Fills a folder of the cache unless it is usable. Blocks while another process fills it.
pub fn fill_unless(
    folder: PathBuf,
    is_usable: impl Fn(&Path) -> bool,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<Installed, String> {
    if is_usable(&folder) {
        return Ok(Installed::Before(folder));
    }
    let cannot = |error: io::Error| format!("could not write {}: {error}", folder.display());
    fs::create_dir_all(folder.parent().unwrap_or(&folder)).map_err(cannot)?;
    let lock = File::create(format!("{}.lock", folder.display())).map_err(cannot)?;
    let _held = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| cannot(error.into()))?;
    // unless another process has filled it in the meantime
    if is_usable(&folder) {
        return Ok(Installed::Before(folder));
    }
    // the remains of an interrupted attempt, or of one that can no longer be used, are made anew
    if folder.exists() {
        let removed = fs::remove_dir_all(&folder);
        removed.map_err(|error| format!("could not remove {}: {error}", folder.display()))?;
    }
    fs::create_dir(&folder).map_err(cannot)?;
    fill(&folder)?;
    fs::write(folder.join(READY), "").map_err(cannot)?;
    Ok(Installed::Now(folder))
}

/// Returns the output of a command. The error has its last lines.
pub fn output_of(command: &mut Command) -> Result<String, String> {
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
