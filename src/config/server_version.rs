//! The value of `--server-version`, and the versions that cannot be fetched.

use super::Config;
use crate::cluster::versions::{is_version, unknown_version};
use crate::cluster::{OtherVersion, RuntimeRequest};

/// Parses a version. The error has the expected form.
pub fn read(text: &str) -> Result<String, String> {
    match is_version(text) {
        true => Ok(text.to_owned()),
        false => Err("expected a version such as 6.2 or 3.5.1".to_owned()),
    }
}

impl Config {
    /// Refuses versions without programs, for runs that need programs.
    pub fn check_version(&self) -> Result<(), String> {
        if !matches!(self.runtime, RuntimeRequest::Local | RuntimeRequest::Virtual) {
            return Ok(());
        }
        let upgraded = match self.upgrade() {
            Some(OtherVersion::Numbered(version)) => Some(version),
            _ => None,
        };
        let mut asked = self.server_version.iter().chain(&upgraded);
        match asked.find_map(|version| unknown_version(self.backend.software, version)) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends;

    #[test]
    fn a_version_is_numbers_with_dots_between_them() {
        for good in ["6", "6.2", "3.5.1"] {
            assert_eq!(read(good).as_deref(), Ok(good));
        }
        for bad in ["", "v6", "6.", "latest", "redis:6", "6.2-alpine"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn programs_are_asked_for_only_where_servers_are_programs() {
        let refused = |runtime, version: &str| {
            let config = Config {
                backend: backends::all().find(|backend| backend.name() == "redis").unwrap(),
                server_version: Some(version.to_owned()),
                runtime,
                ..Config::example()
            };
            config.check_version().err()
        };
        assert_eq!(refused(RuntimeRequest::Local, "6.2"), None);
        assert_eq!(refused(RuntimeRequest::Docker, "6.3"), None);
    }
}
