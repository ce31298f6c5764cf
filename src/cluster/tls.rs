//! TLS of a run: its authority, the files for its clients, and the relays between harness and servers that speak it.

use std::path::Path;
use std::sync::Arc;

use harness_tls::{Authority, TlsClient, TlsFiles, TlsRelay, TlsServer};

use super::leftovers::claim::Claim;
use super::written::{NotWritten, write_secret};
use super::{Node, NodeSetup};

/// The folder of harness's files in a container.
pub const CONTAINER_FOLDER: &str = "/harness";

/// The files of a server, below a folder.
const CA: &str = "tls/ca.pem";
const CERTIFICATE: &str = "tls/server.pem";
const KEY: &str = "tls/server.key";
const KEY_AND_CERTIFICATE: &str = "tls/store.pem";

/// TLS of one run's servers and clients. Dropping it removes the folder with the files of its clients.
#[derive(Debug)]
pub struct RunTls {
    authority: Arc<Authority>,
    files: TlsFiles,
    _folder: Claim,
}

impl RunTls {
    /// Makes certificates, and the files for clients in a temporary folder of the run with this name.
    pub fn make(run: &str) -> Result<Arc<Self>, String> {
        let authority = Authority::new()?;
        let failed = |error: NotWritten| format!("{}: {}", error.path.display(), error.why);
        let folder = Claim::make(run).map_err(failed)?;
        let write = |name: &str, contents: &str| {
            let path = folder.folder().join(name);
            write_secret(&path, contents).map_err(|error| error.to_string())?;
            Ok::<_, String>(path)
        };
        let files = TlsFiles {
            ca: write("ca.pem", &authority.certificate)?,
            certificate: write("client.pem", &authority.client.certificate)?,
            key: write("client.key", &authority.client.key)?,
        };
        Ok(Arc::new(Self {
            authority: Arc::new(authority),
            files,
            _folder: folder,
        }))
    }

    pub fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// Returns the files for clients.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Returns the end of TLS at the links of clients.
    pub fn server(&self) -> Result<TlsServer, String> {
        TlsServer::new(&self.authority)
    }

    /// Opens a relay in front of each node, which is from then on reached in plain text.
    pub(super) fn open_relays(&self, nodes: &mut [Node]) -> Result<Vec<TlsRelay>, String> {
        let client = TlsClient::new(&self.authority)?;
        let stand = |node: &mut Node| {
            let relay = TlsRelay::open(node.address, client.clone());
            let relay = relay.map_err(|error| format!("no relay before {}: {error}", node.name))?;
            node.address = relay.listen();
            Ok(relay)
        };
        nodes.iter_mut().map(stand).collect()
    }
}

/// The paths of a server's files of TLS.
#[derive(Debug, Clone)]
pub struct ServerTlsPaths {
    pub ca: String,
    pub certificate: String,
    pub key: String,
    /// The key and then the certificate, as Java reads them.
    pub key_and_certificate: String,
}

impl NodeSetup {
    /// Returns the paths of the files of TLS below this folder, or `None` without TLS.
    pub fn tls_paths(&self, folder: &Path) -> Option<ServerTlsPaths> {
        self.tls.as_ref()?;
        let [ca, certificate, key, key_and_certificate] =
            [CA, CERTIFICATE, KEY, KEY_AND_CERTIFICATE].map(|name| folder.join(name).display().to_string());
        Some(ServerTlsPaths {
            ca,
            certificate,
            key,
            key_and_certificate,
        })
    }

    /// Returns the files of TLS, each with its path below the folder of the server; none without TLS.
    pub fn tls_files(&self) -> Vec<(String, String)> {
        let Some(Authority {
            certificate, server, ..
        }) = self.tls.as_deref()
        else {
            return Vec::new();
        };
        let files = [
            (CA, certificate.clone()),
            (CERTIFICATE, server.certificate.clone()),
            (KEY, server.key.clone()),
            (KEY_AND_CERTIFICATE, format!("{}{}", server.key, server.certificate)),
        ];
        files.map(|(name, contents)| (name.to_owned(), contents)).into()
    }

    /// Returns the files of TLS, each with its path in a container: below [`CONTAINER_FOLDER`].
    pub fn tls_files_of_container(&self) -> Vec<(String, String)> {
        let files = self.tls_files().into_iter();
        files
            .map(|(name, contents)| (format!("{CONTAINER_FOLDER}/{name}"), contents))
            .collect()
    }
}
