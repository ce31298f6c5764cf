//! The ends and relays of TLS in a build without the feature `rustls`: none can be made, and the error says so. The
//! docs of their functions are in `config` and `relay`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::authority::Authority;
use crate::files::TlsFiles;

const WITHOUT: &str = "this harness was built without TLS";

impl Authority {
    pub fn new() -> Result<Self, String> {
        Err(WITHOUT.to_owned())
    }
}

/// An end or a relay of TLS, which cannot be made.
#[derive(Debug, Clone)]
pub struct Unmade(Infallible);

impl Unmade {
    pub fn new(_: &Authority) -> Result<Self, String> {
        Err(WITHOUT.to_owned())
    }

    pub fn read(_: &TlsFiles) -> Result<Self, String> {
        Err(WITHOUT.to_owned())
    }

    pub async fn end(&self, _: TcpStream) -> io::Result<TcpStream> {
        match self.0 {}
    }

    pub fn open(_: SocketAddr, tls: Self) -> io::Result<Self> {
        match tls.0 {}
    }

    pub fn listen(&self) -> SocketAddr {
        match self.0 {}
    }

    pub fn lead_to(&self, _: SocketAddr) {
        match self.0 {}
    }
}
