//! Both ends of TLS ([`TlsServer`], [`TlsClient`]): the certificate that each presents, and the authority that it trusts.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use crate::authority::{Authority, TlsIdentity};
use crate::certify::SERVER_NAME;
use crate::files::TlsFiles;
use crate::join::join;
use crate::reset::reset;

/// Time for a peer to carry out a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// HTTP/2 as a protocol of TLS, which Go's servers of gRPC insist on.
const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The end of TLS that accepts. It refuses clients without a certificate of the authority.
#[derive(Clone)]
pub struct TlsServer(TlsAcceptor);

impl std::fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsServer")
    }
}

impl TlsServer {
    /// # Errors
    ///
    /// A sentence, if the authority's certificates cannot be used.
    pub fn new(authority: &Authority) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots(&authority.certificate)?, Arc::clone(&provider));
        let (chain, key) = certified(&authority.server)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(verifier.build().map_err(unusable)?)
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = [H2, HTTP_1_1].map(<[u8]>::to_vec).into();
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Ends the TLS of a connection that was accepted: what its client writes can be read from the returned connection as plain
    /// text, once the client has carried out the handshake. A client that cannot is reset, and so is the returned connection. The
    /// work is done by a task of the current runtime.
    ///
    /// # Errors
    ///
    /// The connection could not be made, on loopback.
    pub async fn end(&self, client: TcpStream) -> io::Result<TcpStream> {
        let (plain, inner) = loopback_pair().await?;
        let handshake = self.0.accept(client).into_fallible();
        tokio::spawn(async move {
            match timeout(HANDSHAKE, handshake).await {
                Ok(Ok(mut tls)) => join(inner, &mut tls, |tls| reset(tls.get_ref().0)).await,
                Ok(Err((_, client))) => {
                    reset(&client);
                    reset(&inner);
                }
                Err(_) => reset(&inner),
            }
        });
        Ok(plain)
    }
}

/// The end of TLS that connects. It presents a certificate, and trusts servers of one authority alone.
#[derive(Clone)]
pub struct TlsClient {
    plain: TlsConnector,
    h2: TlsConnector,
}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsClient")
    }
}

impl TlsClient {
    /// Makes a client of the servers of a run.
    ///
    /// # Errors
    ///
    /// A sentence, if the authority's certificates cannot be used.
    pub fn new(authority: &Authority) -> Result<Self, String> {
        Self::make(&authority.certificate, &authority.client)
    }

    /// Makes a client with the certificate and the authority of these files.
    ///
    /// # Errors
    ///
    /// A sentence, if one cannot be read.
    pub fn read(files: &TlsFiles) -> Result<Self, String> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
        let identity = TlsIdentity {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        };
        Self::make(&read(&files.ca)?, &identity)
    }

    fn make(authority: &str, identity: &TlsIdentity) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority)?, Arc::clone(&provider));
        let (chain, key) = certified(identity)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_webpki_verifier(verifier.build().map_err(unusable)?)
            .with_client_auth_cert(chain, key)
            .map_err(unusable)?;
        let plain = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols = vec![H2.to_vec()];
        Ok(Self {
            plain,
            h2: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Carries out the handshake with a server of a run.
    pub(crate) async fn begin(&self, server: TcpStream, h2: bool) -> io::Result<client::TlsStream<TcpStream>> {
        let connector = if h2 { &self.h2 } else { &self.plain };
        let name = ServerName::try_from(SERVER_NAME).expect("it is a name");
        timeout(HANDSHAKE, connector.connect(name, server)).await?
    }
}

fn roots(authority: &str) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.map_err(unreadable)?).map_err(unusable)?;
    }
    Ok(Arc::new(roots))
}

fn certified(identity: &TlsIdentity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
    let chain = chain.collect::<Result<_, _>>().map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(unreadable)?;
    Ok((chain, key))
}

fn unreadable(error: pem::Error) -> String {
    format!("a certificate or key is not PEM: {error}")
}

fn unusable(error: impl std::fmt::Display) -> String {
    format!("a certificate or key cannot be used: {error}")
}

/// Makes the two ends of a connection on loopback.
async fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let own = one.local_addr()?;
    loop {
        // another program may have found the port
        let (other, from) = listener.accept().await?;
        if from == own {
            one.set_nodelay(true)?;
            other.set_nodelay(true)?;
            return Ok((one, other));
        }
    }
}
