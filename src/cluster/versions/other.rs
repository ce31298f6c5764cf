//! The other version of the servers of a run, to which they are upgraded ([`OtherVersion`]), as it is typed.

use std::fmt;
use std::path::PathBuf;

use super::is_version;
use crate::cluster::image_name::tag;

/// The source of another version of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherVersion {
    /// The image for containers.
    Image(String),
    /// The folder with the programs for local servers, as it was typed.
    Folder(PathBuf),
    /// A version that can be fetched, or one that has an official image: `3.5`.
    Numbered(String),
}

impl fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(text) | Self::Numbered(text) => f.write_str(text),
            Self::Folder(folder) => write!(f, "{}", folder.display()),
        }
    }
}

impl OtherVersion {
    /// Parses a version, a folder as a path, or an image with its tag or digest. The error describes a valid text.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.starts_with(['/', '.']) {
            return Ok(Self::Folder(PathBuf::from(text)));
        }
        if is_version(text) {
            return Ok(Self::Numbered(text.to_owned()));
        }
        let by_digest = text.contains("sha256:");
        match !text.is_empty() && (by_digest || tag(text).is_some_and(|tag| !tag.is_empty())) {
            true => Ok(Self::Image(text.to_owned())),
            false => Err(format!(
                "`{text}` is no version, no image with its tag and no path of a folder\n\
                 hint: VERSION of `harness list versions`, IMAGE:TAG for containers, /FOLDER or ./FOLDER with the programs for local \
                 servers"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_path_an_image_has_its_tag_and_a_version_is_numbers() {
        for version in ["3.5", "3.5.16", "18"] {
            assert_eq!(OtherVersion::read(version), Ok(OtherVersion::Numbered(version.into())));
        }
        for image in ["etcd:3.6", "registry:5000/etcd:3.6", "etcd@sha256:7e3a", "sha256:7e3a"] {
            assert_eq!(OtherVersion::read(image), Ok(OtherVersion::Image(image.into())));
        }
        for path in ["/opt/etcd-3.6", "./etcd", "../etcd", "."] {
            assert_eq!(OtherVersion::read(path), Ok(OtherVersion::Folder(path.into())));
        }
        for neither in ["", "etcd", "registry:5000/etcd", "etcd:", "3.", "v3.5"] {
            let refused = OtherVersion::read(neither).unwrap_err();
            assert!(
                refused.contains(&format!("`{neither}`")) && refused.contains("hint"),
                "{refused}"
            );
        }
    }
}
