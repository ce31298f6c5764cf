//! The interface of `native-tls`, as far as `reqwest` 0.11 uses it, without TLS: every connect fails with a sentence.
//!
//! `toxiproxy_rust` asks `reqwest` for its default TLS, which is OpenSSL on Linux: a C library whose headers must be there to
//! build harness, for an API that is served in plain HTTP. Cargo cannot take a feature back that a dependency asked for, so the
//! workspace patches this crate in.

use std::fmt;
use std::io::{self, Read, Write};
use std::marker::PhantomData;

/// That there is no TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error;

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this build of harness has no TLS: give the Toxiproxy a plain HTTP address")
    }
}

impl std::error::Error for Error {}

/// What there is none of.
#[derive(Clone)]
enum Never {}

/// A TLS connection: no value of this type exists.
pub struct TlsStream<S> {
    never: Never,
    stream: PhantomData<S>,
}

impl<S> fmt::Debug for TlsStream<S> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

impl<S> TlsStream<S> {
    pub fn get_ref(&self) -> &S {
        match self.never {}
    }

    pub fn get_mut(&mut self) -> &mut S {
        match self.never {}
    }

    pub fn peer_certificate(&self) -> Result<Option<Certificate>> {
        match self.never {}
    }

    pub fn buffered_read_size(&self) -> Result<usize> {
        match self.never {}
    }

    pub fn shutdown(&mut self) -> io::Result<()> {
        match self.never {}
    }
}

impl<S> Read for TlsStream<S> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.never {}
    }
}

impl<S> Write for TlsStream<S> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.never {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.never {}
    }
}

/// A handshake that waits for bytes: no value of this type exists.
pub struct MidHandshakeTlsStream<S> {
    never: Never,
    stream: PhantomData<S>,
}

impl<S> fmt::Debug for MidHandshakeTlsStream<S> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

impl<S> MidHandshakeTlsStream<S> {
    pub fn get_ref(&self) -> &S {
        match self.never {}
    }

    pub fn get_mut(&mut self) -> &mut S {
        match self.never {}
    }

    pub fn handshake(self) -> std::result::Result<TlsStream<S>, HandshakeError<S>> {
        match self.never {}
    }
}

#[derive(Debug)]
pub enum HandshakeError<S> {
    Failure(Error),
    WouldBlock(MidHandshakeTlsStream<S>),
}

impl<S> From<Error> for HandshakeError<S> {
    fn from(error: Error) -> Self {
        Self::Failure(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Sslv3,
    Tlsv10,
    Tlsv11,
    Tlsv12,
}

#[derive(Debug, Clone)]
pub struct Certificate(());

impl Certificate {
    pub fn from_der(_: &[u8]) -> Result<Self> {
        Err(Error)
    }

    pub fn from_pem(_: &[u8]) -> Result<Self> {
        Err(Error)
    }

    pub fn to_der(&self) -> Result<Vec<u8>> {
        Err(Error)
    }
}

#[derive(Debug, Clone)]
pub struct Identity(());

impl Identity {
    pub fn from_pkcs12(_: &[u8], _: &str) -> Result<Self> {
        Err(Error)
    }

    pub fn from_pkcs8(_: &[u8], _: &[u8]) -> Result<Self> {
        Err(Error)
    }
}

/// Connects nowhere. It can be built, since `reqwest` builds one for every client.
#[derive(Debug, Clone, Default)]
pub struct TlsConnector(());

impl TlsConnector {
    pub fn new() -> Result<Self> {
        Ok(Self(()))
    }

    pub fn builder() -> TlsConnectorBuilder {
        TlsConnectorBuilder(())
    }

    pub fn connect<S: Read + Write>(&self, _: &str, _: S) -> std::result::Result<TlsStream<S>, HandshakeError<S>> {
        Err(Error.into())
    }
}

#[derive(Debug)]
pub struct TlsConnectorBuilder(());

impl TlsConnectorBuilder {
    pub fn build(&self) -> Result<TlsConnector> {
        TlsConnector::new()
    }

    pub fn identity(&mut self, _: Identity) -> &mut Self {
        self
    }

    pub fn min_protocol_version(&mut self, _: Option<Protocol>) -> &mut Self {
        self
    }

    pub fn max_protocol_version(&mut self, _: Option<Protocol>) -> &mut Self {
        self
    }

    pub fn add_root_certificate(&mut self, _: Certificate) -> &mut Self {
        self
    }

    pub fn disable_built_in_roots(&mut self, _: bool) -> &mut Self {
        self
    }

    pub fn danger_accept_invalid_certs(&mut self, _: bool) -> &mut Self {
        self
    }

    pub fn danger_accept_invalid_hostnames(&mut self, _: bool) -> &mut Self {
        self
    }

    pub fn use_sni(&mut self, _: bool) -> &mut Self {
        self
    }
}

/// Accepts nothing. `tokio-native-tls` has a wrapper of it.
#[derive(Clone)]
pub struct TlsAcceptor(Never);

impl TlsAcceptor {
    pub fn accept<S: Read + Write>(&self, _: S) -> std::result::Result<TlsStream<S>, HandshakeError<S>> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connector_can_be_built_and_connects_nowhere() {
        let connector = TlsConnector::builder().use_sni(true).build().unwrap();
        let refused = connector.connect("localhost", io::Cursor::new(Vec::new())).unwrap_err();
        assert!(matches!(refused, HandshakeError::Failure(Error)));
        assert!(Error.to_string().contains("plain HTTP"));
    }
}
