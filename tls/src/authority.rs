//! The authority of a run, with a certificate for its servers and one for its clients.

use std::fmt;

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    /// PKCS #8.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// An authority that signs for one run; its own key is gone when this was made.
#[derive(Debug)]
pub struct Authority {
    /// In PEM.
    pub certificate: String,
    pub server: Identity,
    pub client: Identity,
}
