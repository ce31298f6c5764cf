//! Installation in the user's cache: folders that are filled once, and commands that install into them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};

/// The number of last lines that an error quotes of a command that failed.
const QUOTED: usize = 5;
/// The file that marks a filled folder. It is written last, and its time is that of the last use.
const READY: &str = "ready";
/// The time without a use after which an installation is removed that another one of the same name has replaced.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

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

/// Notes the use of a filled folder, as far as it is this user's.
pub fn note_use(folder: &Path) {
    let ready = File::options().write(true).open(folder.join(READY));
    let _ = ready.and_then(|ready| ready.set_modified(SystemTime::now()));
}

/// Removes the installations that the one in `NAME-DIGEST` replaces, and that were not used for a month: another version of harness may
/// still use them.
pub fn remove_replaced(folder: &Path) {
    fn name(path: &Path) -> Option<&str> {
        Some(path.to_str()?.rsplit_once('-')?.0)
    }
    let beside = folder.parent().into_iter().flat_map(fs::read_dir).flatten().flatten();
    let others = beside.map(|entry| entry.path());
    for other in others.filter(|other| other != folder && name(other) == name(folder)) {
        let used = fs::metadata(other.join(READY)).and_then(|ready| ready.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|unused| unused > UNUSED)) {
            // a rest that cannot be removed is not filled
            let _ = fs::remove_file(other.join(READY)).and_then(|()| fs::remove_dir_all(&other));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_that_was_replaced_is_removed_after_a_month_without_a_use() {
        let cache = tempfile::tempdir().unwrap();
        let filled = |name: &str, days: u64| {
            let folder = cache.path().join(name);
            fill_once(folder.clone(), |_| Ok(())).unwrap();
            let ready = File::options().write(true).open(folder.join(READY)).unwrap();
            let ago = Duration::from_secs(days * 24 * 3600);
            ready.set_modified(SystemTime::now() - ago).unwrap();
            folder
        };
        let (new, old) = (filled("redis-py-00000000", 99), filled("redis-py-00000001", 31));
        let others = ["redis-py-other-00000002", "redis-00000003"].map(|name| filled(name, 99));
        let (late, used) = (filled("redis-py-00000004", 29), filled("redis-py-00000005", 99));
        note_use(&used);
        remove_replaced(&new);
        assert!(!old.exists());
        assert!([new, late, used].iter().chain(&others).all(|folder| is_filled(folder)));
    }
}
