//! A TLS relay ([`TlsRelay`]): connections in plain text from this machine, led to a server that speaks TLS.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::TlsClient;
use crate::join::join;
use crate::reset::reset;

/// The first bytes of a client of HTTP/2 (RFC 9113, 3.4).
const HTTP_2: &[u8] = b"PRI ";

/// Takes connections on loopback and leads each to one server, as a client with a certificate. When this is dropped it takes no
/// more; those that there are go on.
#[derive(Debug)]
pub struct TlsRelay {
    listen: SocketAddr,
    server: watch::Sender<SocketAddr>,
    accepting: JoinHandle<()>,
}

impl TlsRelay {
    /// Opens a relay on a free port of loopback. Its connections are carried by tasks of the current runtime.
    ///
    /// # Errors
    ///
    /// No port could be had.
    pub fn open(server: SocketAddr, tls: TlsClient) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listen = listener.local_addr()?;
        let (server, leads_to) = watch::channel(server);
        let accepting = tokio::spawn(accept(TcpListener::from_std(listener)?, leads_to, tls));
        Ok(Self {
            listen,
            server,
            accepting,
        })
    }

    /// Returns the address to connect to in plain text.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Leads the connections from now on to another address.
    pub fn lead_to(&self, server: SocketAddr) {
        self.server.send_replace(server);
    }
}

impl Drop for TlsRelay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, leads_to: watch::Receiver<SocketAddr>, tls: TlsClient) {
    loop {
        let Ok((plain, _)) = listener.accept().await else {
            // no file is free: others close
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let server = *leads_to.borrow();
        tokio::spawn(relay(plain, server, tls.clone()));
    }
}

/// Relays a connection. A server that does not take it, or does not carry out the handshake, is a reset to the client.
async fn relay(plain: TcpStream, server: SocketAddr, tls: TlsClient) {
    let begun = async {
        plain.set_nodelay(true)?;
        let server = TcpStream::connect(server).await?;
        server.set_nodelay(true)?;
        let h2 = tokio::select! {
            h2 = begins_http_2(&plain) => h2?,
            // a server writes nothing before a handshake: it ended
            _ = server.readable() => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        tls.begin(server, h2).await
    };
    match begun.await {
        Ok(mut tls) => join(plain, &mut tls, |tls| reset(tls.get_ref().0)).await,
        Err(_) => reset(&plain),
    }
}

/// Whether the client speaks HTTP/2, known from its first bytes, which stay to be read.
async fn begins_http_2(plain: &TcpStream) -> io::Result<bool> {
    let mut begin = [0; HTTP_2.len()];
    loop {
        let read = plain.peek(&mut begin).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_known = read == begin.len() || !HTTP_2.starts_with(&begin[..read]);
        // a client that has ended its stream writes no more
        if is_known || plain.ready(Interest::READABLE).await?.is_read_closed() {
            return Ok(begin == HTTP_2);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
