//! The ends and relays of TLS in a build without the feature `rustls`: none can be made, and the error says so.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::authority::Authority;
use crate::files::TlsFiles;

const WITHOUT: &str = "this harness was built without TLS";

impl Authority {
    /// # Errors
    ///
    /// Always.
    pub fn new() -> Result<Self, String> {
        Err(WITHOUT.to_owned())
    }
}

/// An end or a relay of TLS, which cannot be made.
#[derive(Debug, Clone)]
pub struct Unmade(Infallible);

impl Unmade {
    /// # Errors
    ///
    /// Always.
    pub fn new(_: &Authority) -> Result<Self, String> {
        Err(WITHOUT.to_owned())
    }

    /// # Errors
    ///
    /// Always.
    pub fn read(_: &TlsFiles) -> Result<Self, String> {
        Err(WITHOUT.to_owned())
    }

    /// # Errors
    ///
    /// None: there is no end.
    pub async fn end(&self, _: TcpStream) -> io::Result<TcpStream> {
        match self.0 {}
    }

    /// # Errors
    ///
    /// None: there is no client.
    pub fn open(_: SocketAddr, tls: Self) -> io::Result<Self> {
        match tls.0 {}
    }

    /// Returns the address to connect to in plain text.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        match self.0 {}
    }

    /// Leads the connections from now on to another address.
    pub fn lead_to(&self, _: SocketAddr) {
        match self.0 {}
    }
}
