//! Programs of servers: their paths on this machine, or in the folder of another version.

use std::path::{Path, PathBuf};

/// Folders of an administrator's programs, which `PATH` may lack.
const ADMINISTRATORS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Returns the path of `program` in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    found_in(std::env::split_paths(&path), program)
}

/// Returns the path of `program` in `PATH` or in the administrator's folders.
pub fn find_on_machine(program: &str) -> Option<PathBuf> {
    find_program(program).or_else(|| found_in(ADMINISTRATORS.into_iter().map(PathBuf::from), program))
}

fn found_in(folders: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    folders
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns `program` as the only missing one, if this machine does not have it.
pub fn missing_program(program: &str) -> Vec<String> {
    let found = find_on_machine(program);
    found.is_none().then(|| program.to_owned()).into_iter().collect()
}

/// Returns the path of a program in a folder, or in the folders of a package that is unpacked there.
pub fn program_in(folder: &Path, program: &str) -> Option<PathBuf> {
    let places = ["", "bin", "usr/bin", "usr/sbin"].into_iter();
    found_in(places.map(|place| folder.join(place)), program)
}

/// Returns those of the programs that a folder lacks.
pub fn lacks(folder: &Path, programs: &[&str]) -> Vec<String> {
    let missing = programs.iter().filter(|program| program_in(folder, program).is_none());
    missing.map(|program| (*program).to_owned()).collect()
}
