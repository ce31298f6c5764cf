//! Programs of servers: where they are in `PATH`, or in the folder of another version.

use std::path::{Path, PathBuf};

/// Where `program` is in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// `program` as the only thing missing, if `PATH` does not have it.
pub fn missing_program(program: &str) -> Vec<String> {
    let found = find_program(program);
    found.is_none().then(|| program.to_owned()).into_iter().collect()
}

/// Where a program is in a folder: in it, or where a package that is unpacked there has it.
pub fn program_in(folder: &Path, program: &str) -> Option<PathBuf> {
    let places = ["", "bin", "usr/bin", "usr/sbin"].into_iter();
    let mut candidates = places.map(|place| folder.join(place).join(program));
    candidates.find(|candidate| candidate.is_file())
}

/// Which of these programs are not in a folder.
pub fn lacks(folder: &Path, programs: &[&str]) -> Vec<String> {
    let missing = programs.iter().filter(|program| program_in(folder, program).is_none());
    missing.map(|program| (*program).to_owned()).collect()
}
