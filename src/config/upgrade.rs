//! The fault `server-upgrade`: the version to which the servers of a run are upgraded.

use super::Config;
use crate::cluster::{ClusterError, OtherVersion, RuntimeChoice, RuntimeRequest};

/// The fault whose argument is the version.
pub const UPGRADE_FAULT: &str = "server-upgrade";

impl Config {
    /// Returns the version to which servers are upgraded, if the run has that fault.
    pub fn upgrade(&self) -> Option<OtherVersion> {
        let mut asked = self.faults.iter().filter(|fault| fault.name == UPGRADE_FAULT);
        let version = asked.find_map(|fault| fault.argument.as_deref())?;
        OtherVersion::read(version).ok()
    }

    /// Returns a choice with the image or the programs to which the servers of this run are upgraded. Experiments of one search, which
    /// have one choice, differ in their faults.
    pub async fn with_upgrade(&self, choice: RuntimeChoice) -> Result<RuntimeChoice, ClusterError> {
        let upgrade = match self.upgrade() {
            Some(version) => Some(version.provided(&choice.runtime, self.backend.software).await?),
            None => None,
        };
        Ok(RuntimeChoice { upgrade, ..choice })
    }

    /// Refuses options that cannot be combined with an upgrade. The error has a hint.
    pub fn check_upgrade(&self) -> Result<(), String> {
        let asked = self.faults.iter().filter(|fault| fault.name == UPGRADE_FAULT);
        if asked.count() > 1 {
            return Err(format!(
                "{UPGRADE_FAULT} is named twice, and a run upgrades its servers only once\n\
                 hint: make a run for each version; --image NEW with {UPGRADE_FAULT}=OLD is a downgrade"
            ));
        }
        match (self.runtime, self.upgrade()) {
            (RuntimeRequest::Local | RuntimeRequest::Virtual, Some(OtherVersion::Image(_))) => Err(format!(
                "{UPGRADE_FAULT} to an image needs containers\n\
                 hint: --runtime docker, or {UPGRADE_FAULT}=/FOLDER with the programs of local servers"
            )),
            (RuntimeRequest::Docker, Some(OtherVersion::Folder(_))) => Err(format!(
                "{UPGRADE_FAULT} to the programs in a folder needs local servers\n\
                 hint: --runtime local, or {UPGRADE_FAULT}=IMAGE:TAG for containers"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends;
    use crate::cluster::Runtime;
    use crate::config::FaultRequest;

    #[tokio::test]
    async fn a_run_has_the_other_version_of_its_own_fault_whatever_the_choice_had() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("etcd"), "").unwrap();
        let other = OtherVersion::Folder(folder.path().into());
        let upgrade = FaultRequest::read(&format!("{UPGRADE_FAULT}={other}"));
        for (faults, upgrade) in [(vec![upgrade], Some(other)), (Vec::new(), None)] {
            let config = Config {
                backend: backends::all().find(|backend| backend.name() == "etcd").unwrap(),
                faults,
                ..Config::example()
            };
            let choice = RuntimeChoice {
                upgrade: Some(OtherVersion::Image("etcd:3.6".to_owned())),
                ..RuntimeChoice::of(Runtime::Local, String::new())
            };
            assert_eq!(config.with_upgrade(choice).await.unwrap().upgrade, upgrade);
        }
    }
}
