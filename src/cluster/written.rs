//! Files that harness writes, and the error that names the file or folder that it could not write ([`NotWritten`]).

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file or folder that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not write {}: {why}", path.display())]
pub struct NotWritten {
    pub path: PathBuf,
    pub why: String,
}

impl NotWritten {
    /// Returns the conversion of errors about this path.
    pub fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self {
            path: path.to_owned(),
            why: error.to_string(),
        }
    }
}

/// Writes a file, and makes its folder if there is none.
pub fn write_file(path: &Path, contents: &str) -> Result<(), NotWritten> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(path, contents));
    written.map_err(NotWritten::at(path))
}

/// Writes a file that only its owner may read.
pub fn write_secret(path: &Path, contents: &str) -> Result<(), NotWritten> {
    write_file(path, "")?;
    let hidden = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    hidden.map_err(NotWritten::at(path))?;
    write_file(path, contents)
}
