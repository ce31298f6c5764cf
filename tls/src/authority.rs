//! The authority of a run, with a certificate for its servers and one for its clients.

use std::fmt;

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct TlsIdentity {
    pub certificate: String,
    /// PKCS #8.
    pub key: String,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// An authority that signs for one run; its own key is gone when this was made.
#[derive(Debug)]
pub struct Authority {
    /// In PEM.
    pub certificate: String,
    pub server: TlsIdentity,
    pub client: TlsIdentity,
}
