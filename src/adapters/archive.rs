//! Archives with jars that Debian does not have: fetched once, compared with their hash, and unpacked below the user's cache folder.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use super::{AdapterError, READY, call};
use crate::installing::cache_folder;

/// An archive and its jars that are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    pub name: String,
    url: String,
    sha256: String,
    /// Patterns of `tar`.
    jars: Vec<String>,
}

/// `fetch FOLDER URL HASH PATTERN...`
const FETCH: &str = r#"
set -eu
folder=$1 url=$2 hash=$3
shift 3
archive=$folder/archive
curl --fail --location --silent --show-error --retry 2 --output "$archive" "$url"
echo "$hash  $archive" | sha256sum --check --quiet
tar -xzf "$archive" --no-same-owner --wildcards --transform 's,.*/,,' -C "$folder" "$@"
rm "$archive"
"#;

impl Archive {
    /// The class path of its jars.
    pub fn class_path(&self) -> Result<String, AdapterError> {
        Ok(format!("{}/*", self.folder()?.display()))
    }

    fn folder(&self) -> Result<PathBuf, AdapterError> {
        let cache = cache_folder().ok_or_else(AdapterError::no_cache)?;
        let (hash, count) = (&self.sha256[..8], self.jars.len());
        Ok(cache
            .join("harness/archives")
            .join(format!("{}-{hash}-{count}", self.name)))
    }

    /// Fetches it, where that was not done before.
    pub fn provide(&self) -> Result<(), AdapterError> {
        let folder = self.folder()?;
        if folder.join(READY).exists() {
            return Ok(());
        }
        let cannot = |error| AdapterError(format!("could not write {}: {error}", folder.display()));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(cannot)?;
        }
        fs::create_dir_all(&folder).map_err(cannot)?;
        let mut fetch = Command::new("sh");
        fetch.args(["-c", FETCH, "fetch"]).arg(&folder);
        call(fetch.args([&self.url, &self.sha256]).args(&self.jars))?;
        fs::write(folder.join(READY), "").map_err(cannot)
    }
}
