//! Archives with jars that Debian does not have: fetched once, compared with their hash, and unpacked below the user's cache folder.

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

use crate::installing::{cache_folder, fill_once, output_of};

/// An archive, and those of its jars that an adapter needs.
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
    /// Returns the class path of its jars.
    pub fn class_path(&self) -> Result<String, String> {
        Ok(format!("{}/*", self.folder()?.display()))
    }

    fn folder(&self) -> Result<PathBuf, String> {
        let (hash, count) = (&self.sha256[..8], self.jars.len());
        Ok(cache_folder()?
            .join("harness/archives")
            .join(format!("{}-{hash}-{count}", self.name)))
    }

    /// Fetches it unless an earlier call did.
    pub fn provide(&self) -> Result<(), String> {
        let fetched = fill_once(self.folder()?, |folder| {
            let mut fetch = Command::new("sh");
            fetch.args(["-c", FETCH, "fetch"]).arg(folder);
            output_of(fetch.args([&self.url, &self.sha256]).args(&self.jars)).map(drop)
        });
        fetched.map(drop)
    }
}
