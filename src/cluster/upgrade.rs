//! Upgrades: the other version from which servers are started, one by one and each on its data, and its image or programs.

use std::fmt;
use std::path::{Path, PathBuf};

use super::image_name::tag;
use super::runtime::Runtime;
use super::software::ServerSoftware;
use super::{ClusterError, ClusterSpec, versions};

/// The source of another version of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherVersion {
    /// The image for containers.
    Image(String),
    /// The folder with the programs for local servers, as it was typed.
    Folder(PathBuf),
    /// A version of [`versions`], or one that has an official image: `3.5`.
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
        if versions::is_version(text) {
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

    /// Makes sure that servers can be started from it: pulls an image that is not local, looks for the programs in a folder, and fetches
    /// those of a version. Returns the image, or the folder as a whole path. The error names what is missing.
    pub async fn provided(
        self,
        runtime: &Runtime,
        software: &'static ServerSoftware,
    ) -> Result<Self, ClusterError> {
        let provided = match (self, runtime) {
            (Self::Image(image), Runtime::Docker { .. }) => provide_image(image).await,
            (Self::Folder(folder), Runtime::Local | Runtime::Virtual) => look_into(&folder, software),
            (Self::Numbered(version), Runtime::Docker { .. }) => match versions::image_of(software, &version) {
                Some(image) => provide_image(image).await,
                None => Err(format!("an upgrade: {} has no official image", software.product)),
            },
            (Self::Numbered(version), Runtime::Local | Runtime::Virtual) => {
                versions::provide(software, &version).await.map(Self::Folder)
            }
            (Self::Numbered(version), _) => Err(format!(
                "an upgrade to {version} is for servers that harness starts"
            )),
            (Self::Image(image), _) => Err(format!(
                "an upgrade to the image {image} is for containers, and the servers of this run do not run in containers\n\
                 hint: --runtime docker, or name the folder of their programs"
            )),
            (Self::Folder(folder), _) => Err(format!(
                "an upgrade to the programs in {} is for local servers, and the servers of this run are not local\n\
                 hint: --runtime local or virtual, or name an image",
                folder.display()
            )),
        };
        provided.map_err(ClusterError::Nothing)
    }
}

fn look_into(folder: &Path, software: &ServerSoftware) -> Result<OtherVersion, String> {
    if !folder.is_dir() {
        return Err(format!("an upgrade: there is no folder {}", folder.display()));
    }
    let missing = software.upgrade.map(|known| (known.missing)(folder))?;
    match missing.is_empty() {
        // the working folder of a server is another one
        true => Ok(OtherVersion::Folder(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()))),
        false => Err(format!(
            "an upgrade: {} not found in {}\n\
             hint: the folder with the programs of {}, or one into which its package or release is unpacked",
            missing.join(" and "),
            folder.display(),
            software.product
        )),
    }
}

#[cfg(feature = "docker")]
async fn provide_image(image: String) -> Result<OtherVersion, String> {
    use super::engine::{has_image, pull};
    if !has_image(&image).await {
        pull(&image).await.map_err(|error| {
            let why = error.lines().next().unwrap_or_default();
            format!("an upgrade: no image {image}: {why}\nhint: `docker images` shows those that are here")
        })?;
    }
    Ok(OtherVersion::Image(image))
}

#[cfg(not(feature = "docker"))]
async fn provide_image(_: String) -> Result<OtherVersion, String> {
    Err("this harness was built without docker (--no-default-features)".to_owned())
}

impl ClusterSpec {
    /// Whether servers sync before they acknowledge: their disks, or the content of these, are the subject of the run.
    pub(super) fn syncs(&self) -> bool {
        !self.disks.is_empty() || self.upgrade.is_some()
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
        for neither in ["", "etcd", "registry:5000/etcd", "etcd:"] {
            let refused = OtherVersion::read(neither).unwrap_err();
            assert!(
                refused.contains(&format!("`{neither}`")) && refused.contains("hint"),
                "{refused}"
            );
        }
    }
}
