//! The files by which programs use TLS ([`TlsFiles`]).

use std::path::{Path, PathBuf};

/// The files that a client of TLS reads: the authority that it trusts, and the certificate that it presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TlsFiles {
    /// The variables of a client's environment that name the files.
    pub const VARIABLES: [&str; 3] = ["HARNESS_TLS_CA", "HARNESS_TLS_CERT", "HARNESS_TLS_KEY"];

    /// Returns the files that the environment names; `None` unless it names all three.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        let named = |name: &str| {
            std::env::var_os(name)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        let [ca, certificate, key] = Self::VARIABLES.map(named);
        Some(Self {
            ca: ca?,
            certificate: certificate?,
            key: key?,
        })
    }

    /// Returns the paths in the order of [`TlsFiles::VARIABLES`].
    #[must_use]
    pub fn paths(&self) -> [&Path; 3] {
        [&self.ca, &self.certificate, &self.key]
    }
}
