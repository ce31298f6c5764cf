//! Upgrades: the image or the programs of the other version from which servers are started, one by one and each on its data.

use std::path::Path;

use super::runtime::Runtime;
use super::software::ServerSoftware;
use super::versions::{self, OtherVersion};
use super::{ClusterError, ClusterSpec};

impl OtherVersion {
    /// Makes sure that servers can be started from it: pulls an image that is not local, looks for the programs in a folder, and fetches
    /// those of a version. Returns the image, or the folder as a whole path. The error names what is missing.
    pub async fn provided(self, runtime: &Runtime, software: &'static ServerSoftware) -> Result<Self, ClusterError> {
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
            (Self::Numbered(version), _) => Err(format!("an upgrade to {version} is for servers that harness starts")),
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
        true => Ok(OtherVersion::Folder(
            std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
        )),
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
    match super::engine::provide(&image).await {
        Ok(()) => Ok(OtherVersion::Image(image)),
        Err(why) => Err(format!(
            "an upgrade: no image {image}: {why}\nhint: `docker images` shows those that are here"
        )),
    }
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
