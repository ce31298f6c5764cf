//! The claim of a run: a temporary folder that names its owner.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cluster::written::NotWritten;
use crate::process::Identity;

/// The prefix of the folders of claims.
pub(super) const PREFIX: &str = "harness-run-";
pub(super) const OWNER_FILE: &str = "owner.json";
/// The file of descriptors that are kept.
const SPARE: &str = "/dev/null";
/// Levels of folders in a claim: its own, a server's, and two in the data of some.
const SPARE_FILES: usize = 4;

/// The owner of a claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RunOwner {
    pub run: String,
    pub harness: Identity,
    pub servers: Vec<Identity>,
}

/// A temporary folder that names its owner. Dropping it removes it.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    run: String,
    /// Descriptors that are kept for the removal: it takes one for each level of the folder, also if there are none left.
    spare: Vec<File>,
}

impl Claim {
    /// Makes the folder. It is an error if it exists: another user may have made it.
    pub fn make(run: &str) -> Result<Self, NotWritten> {
        let spare = std::iter::repeat_with(|| File::open(SPARE)).take(SPARE_FILES);
        let spare = spare.collect::<io::Result<Vec<File>>>();
        let spare = spare.map_err(NotWritten::at(Path::new(SPARE)))?;
        // another user cannot know the number in advance, to make a folder of that name first
        let number = rand::random::<u64>();
        let folder = std::env::temp_dir().join(format!("{PREFIX}{run}-{number:016x}"));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(NotWritten::at(&folder))?;
        let claim = Self {
            folder,
            run: run.to_owned(),
            spare,
        };
        claim.note_servers(std::iter::empty())?;
        Ok(claim)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves the folder where it is: it is a leftover when this process has ended.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// Makes the folder of a run, with a value in a file of this name.
    pub(super) fn with(run: &str, name: &str, what: &impl Serialize) -> Result<Self, NotWritten> {
        let claim = Self::make(run)?;
        claim.note(name, what)?;
        Ok(claim)
    }

    /// Writes the processes of this run into the claim.
    pub fn note_servers(&self, pids: impl Iterator<Item = u32>) -> Result<(), NotWritten> {
        let owner = RunOwner {
            run: self.run.clone(),
            harness: Identity::own(),
            servers: pids.filter_map(Identity::of).collect(),
        };
        self.note(OWNER_FILE, &owner)
    }

    /// Writes a value to a file of this name. The file has the old value or the whole new one.
    pub(super) fn note(&self, name: &str, what: &(impl Serialize + ?Sized)) -> Result<(), NotWritten> {
        let path = self.folder.join(name);
        let text = serde_json::to_string(what).expect("a claim is plain data");
        let fresh = self.folder.join(format!("{name}.new"));
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(NotWritten::at(&path))
    }
}

/// Reads the value in a file of this name, if there is one.
pub(super) fn noted<T: DeserializeOwned>(claim: &Path, name: &str) -> Option<T> {
    serde_json::from_slice(&fs::read(claim.join(name)).ok()?).ok()
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.spare.clear();
        let _ = remove(&self.folder);
    }
}

/// Removes a claim. The file that names its owner goes last: an interrupted removal leaves a known leftover.
pub(super) fn remove(claim: &Path) -> io::Result<()> {
    empty(claim, Some(OWNER_FILE))?;
    fs::remove_dir_all(claim)
}

/// Removes the content of a folder, but for a file of this name.
pub fn empty(folder: &Path, but: Option<&str>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if but.is_some_and(|name| entry.file_name() == name) {
            continue;
        }
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        match removed {
            // a process of the run that ends removes files of its own
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
