//! The SOCKS5 proxy of one server ([`PeerProxy`]): the server dials its peers through it, so that each of its connections runs over the
//! link to the peer that it asked for.
//!
//! A connect that a link holds back is not answered, and one that the peer refuses is answered as refused. No connect is accepted before
//! the peer has accepted it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use harness_tls::reset;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connection::{Connection, DialError};
use super::link::Link;
use super::socks::{self, SocksError, SocksHost, SocksReply, SocksRequest};
use crate::limits::SOCKS_HANDSHAKE;

/// A server as its peers ask for it.
#[derive(Debug, Clone)]
pub struct PeerAddress {
    /// `n1`, `n2`, …
    pub name: String,
    /// Its name in its peers' configuration, where that is not `name`.
    pub host: String,
    /// The ports that it listens on.
    pub ports: Vec<u16>,
}

/// The peers by host and port, with their current addresses.
#[derive(Debug)]
pub struct PeerDirectory {
    peers: Vec<PeerAddress>,
    /// The address of each peer; `None` before its first start.
    addresses: RwLock<Vec<Option<IpAddr>>>,
}

impl PeerDirectory {
    pub fn new(peers: Vec<PeerAddress>) -> Self {
        let addresses = RwLock::new(vec![None; peers.len()]);
        Self { peers, addresses }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.peers.iter().map(|peer| peer.name.as_str())
    }

    /// Sets the address of a peer.
    pub fn found(&self, peer: usize, address: IpAddr) {
        self.addresses
            .write()
            .expect("no one panics while holding the directory")[peer] = Some(address);
    }

    /// Returns the requested peer and its current address. Where peers share one address the port tells them apart.
    fn find(&self, wanted: &SocksRequest) -> Option<(usize, SocketAddr)> {
        let addresses = self
            .addresses
            .read()
            .expect("no one panics while holding the directory");
        let named = |peer: usize| match &wanted.host {
            SocksHost::Name(name) => [&self.peers[peer].name, &self.peers[peer].host].contains(&name),
            SocksHost::Address(address) => addresses[peer] == Some(*address),
        };
        let mut there =
            (0..self.peers.len()).filter(|peer| self.peers[*peer].ports.contains(&wanted.port) && named(*peer));
        let peer = there.next()?;
        Some((peer, SocketAddr::new(addresses[peer]?, wanted.port)))
    }
}

/// The SOCKS5 proxy of one server. When it is dropped, it takes no more connections.
#[derive(Debug)]
pub struct PeerProxy {
    listen: SocketAddr,
    accepting: JoinHandle<()>,
}

impl PeerProxy {
    /// Listens on a free port of the address `listen`, on the runtime `on`. `links` lead to the peers of `directory`, in their order; a
    /// peer without a link cannot be reached.
    pub(super) fn open(
        listen: IpAddr,
        directory: Arc<PeerDirectory>,
        links: impl FnOnce(SocketAddr) -> Vec<Option<Arc<Link>>>,
        on: &Handle,
    ) -> io::Result<(Self, Vec<Option<Arc<Link>>>)> {
        let listener = std::net::TcpListener::bind((listen, 0))?;
        listener.set_nonblocking(true)?;
        let listen = listener.local_addr()?;
        let links = links(listen);
        let way = Arc::new(PeerRoutes {
            directory,
            links: links.clone(),
        });
        let accepting = on.spawn(accept(listener, way));
        Ok((Self { listen, accepting }, links))
    }

    /// Returns the address that the server dials.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }
}

impl Drop for PeerProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct PeerRoutes {
    directory: Arc<PeerDirectory>,
    links: Vec<Option<Arc<Link>>>,
}

async fn accept(listener: std::net::TcpListener, way: Arc<PeerRoutes>) {
    let listener = TcpListener::from_std(listener).expect("a bound, non-blocking listener inside a runtime");
    loop {
        match listener.accept().await {
            Ok((server, _)) => {
                let _ = server.set_nodelay(true);
                tokio::spawn(serve(server, Arc::clone(&way)));
            }
            // out of file descriptors, or the peer is gone already: neither ends the proxy
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Serves one connection, from its greeting to its end.
async fn serve(mut from: TcpStream, way: Arc<PeerRoutes>) {
    let wanted = match timeout(SOCKS_HANDSHAKE, handshake(&mut from)).await {
        Ok(Ok(wanted)) => wanted,
        Ok(Err(SocksError::Refused(answer))) => return drop(from.write_all(&answer).await),
        _ => return,
    };
    let found = way.directory.find(&wanted);
    let Some((link, upstream)) = found.and_then(|(peer, upstream)| Some((way.links[peer].as_ref()?, upstream))) else {
        let _ = from.write_all(&SocksReply::HostUnreachable.bytes()).await;
        return;
    };
    let mut connection = link.connection();
    match connect(&mut connection, &from, upstream).await {
        Some(Ok(to)) => {
            let meter = connection.meter();
            if from.write_all(&SocksReply::Connected.bytes()).await.is_ok() {
                connection.pass(from, to, meter).await;
            }
        }
        Some(Err(DialError::Refused)) => drop(from.write_all(&SocksReply::Refused.bytes()).await),
        Some(Err(DialError::Silent)) => drop(from.write_all(&SocksReply::HostUnreachable.bytes()).await),
        Some(Err(DialError::Reset)) => reset(&from),
        None => {}
    }
}

/// Dials once the link lets a connect through. `None`: the server that asked has closed its connection meanwhile.
async fn connect(
    connection: &mut Connection,
    from: &TcpStream,
    upstream: SocketAddr,
) -> Option<Result<TcpStream, DialError>> {
    tokio::select! {
        biased;
        open = connection.wait_until_open() => if let Err(no_way) = open { return Some(Err(no_way)) },
        () = gone(from) => return None,
    }
    Some(connection.dial(&upstream.to_string()).await)
}

/// Returns when the other end has closed or reset the connection. Bytes that it sent ahead of the reply stay unread.
async fn gone(stream: &TcpStream) {
    let mut byte = [0];
    if let Ok(1..) = stream.peek(&mut byte).await {
        std::future::pending::<()>().await;
    }
}

/// Reads a greeting, answers it, and reads the request.
async fn handshake(stream: &mut TcpStream) -> Result<SocksRequest, SocksError> {
    socks::greeting(stream).await?;
    stream.write_all(&socks::WELCOME).await?;
    socks::request(stream).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(ports: [&[u16]; 2]) -> PeerDirectory {
        let peer = |number: usize| PeerAddress {
            name: format!("n{}", number + 1),
            host: format!("run-n{}", number + 1),
            ports: ports[number].to_vec(),
        };
        PeerDirectory::new(vec![peer(0), peer(1)])
    }

    fn at(host: SocksHost, port: u16) -> SocksRequest {
        SocksRequest { host, port }
    }

    #[test]
    fn peers_on_one_address_are_told_apart_by_their_ports() {
        let local = directory([&[2888, 3888], &[2889, 3889]]);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        local.found(0, loopback);
        local.found(1, loopback);
        let find = |port| {
            local
                .find(&at(SocksHost::Address(loopback), port))
                .map(|(peer, _)| peer)
        };
        assert_eq!((find(3888), find(3889), find(22)), (Some(0), Some(1), None));
    }

    #[test]
    fn a_peer_is_looked_up_where_it_is_now() {
        let containers = directory([&[2380], &[2380]]);
        let name = || at(SocksHost::Name("run-n2".into()), 2380);
        assert_eq!(containers.find(&name()), None, "it was not started yet");
        for last in [3, 4] {
            let address = IpAddr::from([172, 18, 0, last]);
            containers.found(1, address);
            let found = Some((1, SocketAddr::new(address, 2380)));
            assert_eq!(containers.find(&name()), found);
            assert_eq!(containers.find(&at(SocksHost::Address(address), 2380)), found);
        }
        assert_eq!(containers.find(&at(SocksHost::Name("www".into()), 2380)), None);
    }
}
