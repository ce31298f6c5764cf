//! Programs of servers: where they are on this machine, or in the folder of another version.

use std::path::{Path, PathBuf};

/// Where distributions keep programs of the administrator, which `PATH` may lack.
const ADMINISTRATORS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where `program` is in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    found_in(std::env::split_paths(&path), program)
}

/// The same, or where it is among the programs of the administrator.
pub fn find_on_machine(program: &str) -> Option<PathBuf> {
    find_program(program).or_else(|| found_in(ADMINISTRATORS.into_iter().map(PathBuf::from), program))
}

fn found_in(folders: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    folders
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// `program` as the only thing missing, if this machine does not have it.
pub fn missing_program(program: &str) -> Vec<String> {
    let found = find_on_machine(program);
    found.is_none().then(|| program.to_owned()).into_iter().collect()
}

/// Where a program is in a folder: in it, or where a package that is unpacked there has it.
pub fn program_in(folder: &Path, program: &str) -> Option<PathBuf> {
    let places = ["", "bin", "usr/bin", "usr/sbin"].into_iter();
    found_in(places.map(|place| folder.join(place)), program)
}

/// Which of these programs are not in a folder.
pub fn lacks(folder: &Path, programs: &[&str]) -> Vec<String> {
    let missing = programs.iter().filter(|program| program_in(folder, program).is_none());
    missing.map(|program| (*program).to_owned()).collect()
}
