//! Makes the keys and certificates of an authority.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::authority::{Authority, TlsIdentity};

/// The name by which relays and links know a server, whatever its address.
pub(crate) const SERVER_NAME: &str = "localhost";
/// The names in a certificate of a server, also for clients that reach it by address.
const SERVER_NAMES: [&str; 3] = [SERVER_NAME, "127.0.0.1", "::1"];

impl Authority {
    /// Makes random keys, and signs them.
    ///
    /// # Errors
    ///
    /// A sentence, if the system gives no random numbers.
    pub fn new() -> Result<Self, String> {
        Self::make().map_err(|error| format!("could not make certificates for the run: {error}"))
    }

    fn make() -> Result<Self, rcgen::Error> {
        let mut authority = named("harness run", [])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let sign = |mut identity: CertificateParams| {
            // etcd is a client of its own
            identity.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            identity.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            identity.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate()?;
            Ok::<_, rcgen::Error>(TlsIdentity {
                certificate: identity.signed_by(&key, &authority)?.pem(),
                key: key.serialize_pem(),
            })
        };
        Ok(Self {
            certificate: authority.pem(),
            server: sign(named("harness server", SERVER_NAMES)?)?,
            client: sign(named("harness client", [SERVER_NAME])?)?,
        })
    }
}

fn named<const N: usize>(name: &str, hosts: [&str; N]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts.map(str::to_owned))?;
    // no common name: etcd takes one for a user
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, name);
    Ok(params)
}
