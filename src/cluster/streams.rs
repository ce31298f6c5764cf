//! Streams to servers, whatever carries them: sockets of this machine, or the network of a world ([`ByteStream`], [`Dialer`]).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::BoxFuture;

/// A connection to a server.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> ByteStream for S {}

/// Opens connections; the error says why there is none.
pub type Dialer = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, Result<Box<dyn ByteStream>, String>> + Send + Sync>;
