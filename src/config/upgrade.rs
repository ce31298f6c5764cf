//! `server-upgrade` as it is asked for: to which version the servers of a run are upgraded.

use super::Config;
use crate::cluster::{OtherVersion, RuntimeRequest};

/// The fault whose argument is that version.
pub const UPGRADE_FAULT: &str = "server-upgrade";

impl Config {
    /// The version that servers are upgraded to, where that is asked for.
    pub fn upgrade(&self) -> Option<OtherVersion> {
        let mut asked = self.faults.iter().filter(|fault| fault.name == UPGRADE_FAULT);
        let version = asked.find_map(|fault| fault.argument.as_deref())?;
        OtherVersion::read(version).ok()
    }

    /// What cannot be combined with it, each with what to do.
    pub fn refused_of_upgrade(&self) -> Vec<(bool, String)> {
        let asked = self.faults.iter().filter(|fault| fault.name == UPGRADE_FAULT);
        let version = self.upgrade();
        vec![
            (
                asked.count() > 1,
                format!(
                    "{UPGRADE_FAULT} is named twice, and a run upgrades its servers only once\n\
                     hint: make a run for each version; --image NEW with {UPGRADE_FAULT}=OLD is a downgrade"
                ),
            ),
            (
                self.runtime == RuntimeRequest::Local && matches!(version, Some(OtherVersion::Image(_))),
                format!(
                    "{UPGRADE_FAULT} to an image needs containers\n\
                     hint: --runtime docker, or {UPGRADE_FAULT}=/FOLDER with the programs of local servers"
                ),
            ),
            (
                self.runtime == RuntimeRequest::Docker && matches!(version, Some(OtherVersion::Folder(_))),
                format!(
                    "{UPGRADE_FAULT} to the programs in a folder needs local servers\n\
                     hint: --runtime local, or {UPGRADE_FAULT}=IMAGE:TAG for containers"
                ),
            ),
        ]
    }
}
