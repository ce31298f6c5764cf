//! Streams to servers: sockets of this machine, or the network of a world ([`ByteStream`], [`ReachedServers`]).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::BoxFuture;
use crate::clock::GroundClock;

/// A connection to a server.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> ByteStream for S {}

/// Opens connections; the error has the reason for a failure.
pub type Dialer = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, Result<Box<dyn ByteStream>, String>> + Send + Sync>;

/// The way to servers, and the clock for their timeouts.
#[derive(Clone)]
pub struct ReachedServers {
    /// `None` for sockets of this machine.
    pub dial: Option<Dialer>,
    pub clock: GroundClock,
}

impl ReachedServers {
    /// The sockets and the clock of this machine.
    pub const REAL: Self = Self {
        dial: None,
        clock: GroundClock::Real,
    };

    /// Opens a connection to a server; the error has the reason for a failure.
    pub async fn connect(&self, server: SocketAddr) -> Result<Box<dyn ByteStream>, String> {
        if let Some(dial) = &self.dial {
            return dial(server).await;
        }
        let stream = TcpStream::connect(server).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        Ok(Box::new(stream))
    }
}

impl fmt::Debug for ReachedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dial {
            None => f.write_str("by sockets"),
            Some(_) => f.write_str("by streams of a world"),
        }
    }
}
