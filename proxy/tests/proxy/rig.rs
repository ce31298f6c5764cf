//! The test rig: a server, a link to it, the two ends of connections through it, and what tests wait for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_proxy::{Behaviour, Cut, Link, LinkFault, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than anything that should happen takes, on a machine that has much else to do.
pub const SOON: Duration = Duration::from_secs(30);
/// Long enough that a byte which is not held back would have arrived.
pub const NOT_YET: Duration = Duration::from_millis(100);

/// Waits for an event, for at most [`SOON`].
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("it happens soon")
}

pub fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub struct Rig {
    pub link: Arc<Link>,
    pub server: TcpListener,
    pub proxy: Proxy,
}

impl Rig {
    pub async fn new() -> Self {
        Self::seeded(7).await
    }

    /// Makes a rig, and the two ends of a connection.
    pub async fn connected() -> (Self, TcpStream, TcpStream) {
        let rig = Self::new().await;
        let (client, server) = rig.connect().await;
        (rig, client, server)
    }

    pub async fn seeded(seed: u64) -> Self {
        Self::with(|proxy, server| proxy.link("c0->n1".into(), server, seed)).await
    }

    /// Makes a rig with the link that `open` opens to the server.
    pub async fn with(open: impl FnOnce(&Proxy, SocketAddr) -> io::Result<Arc<Link>>) -> Self {
        let server = TcpListener::bind(anywhere()).await.unwrap();
        let proxy = Proxy::start().unwrap();
        let link = open(&proxy, server.local_addr().unwrap()).unwrap();
        Self { link, server, proxy }
    }

    /// Returns the client's end and the server's end of one connection through the link.
    pub async fn connect(&self) -> (TcpStream, TcpStream) {
        connect(&self.link, &self.server).await
    }

    pub fn fault(&self, behaviour: Behaviour) -> LinkFault {
        LinkFault::apply(vec![Arc::clone(&self.link)], 1, behaviour, false)
    }
}

pub async fn connect(link: &Link, server: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(link.listen()).await.unwrap();
    (client, accepted(server).await)
}

/// Returns the server's end of a connection that a link dials.
pub async fn accepted(server: &TcpListener) -> TcpStream {
    soon(server.accept()).await.unwrap().0
}

/// Waits until the links of a proxy obey what was done to them before: its only thread has carried a byte over a later link.
pub async fn until_obeyed(proxy: &Proxy) {
    let server = TcpListener::bind(anywhere()).await.unwrap();
    let link = proxy.link("c9->n9".into(), server.local_addr().unwrap(), 7).unwrap();
    let (mut client, mut accepted) = connect(&link, &server).await;
    passes(&mut client, &mut accepted, b"x").await;
}

pub async fn arrives(stream: &mut TcpStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    soon(stream.read_exact(&mut got)).await.unwrap();
    assert!(
        got == expected,
        "{} and not {}",
        got.escape_ascii(),
        expected.escape_ascii()
    );
}

/// Sends this from one end of a connection, and waits until it is at the other one.
pub async fn passes(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).await.unwrap();
    arrives(to, bytes).await;
}

pub async fn is_silent(stream: &mut TcpStream) {
    let mut byte = [0];
    let read = timeout(NOT_YET, stream.read(&mut byte)).await;
    assert!(read.is_err(), "nothing may arrive, not even an end");
}

/// Reads everything until the end; returns how it ended, too.
pub async fn rest(stream: &mut TcpStream) -> (Vec<u8>, io::Result<()>) {
    let mut got = Vec::new();
    let ended = soon(stream.read_to_end(&mut got)).await;
    (got, ended.map(drop))
}

/// Reads everything until the end of the stream, which is no reset.
pub async fn until_end(stream: &mut TcpStream) -> Vec<u8> {
    let (got, ended) = rest(stream).await;
    ended.expect("an end of stream and no reset");
    got
}

/// Reads the bytes that arrive before the connection is reset.
pub async fn until_reset(stream: &mut TcpStream) -> Vec<u8> {
    let (got, ended) = rest(stream).await;
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    got
}

/// Connections end after a time, or after so many bytes.
pub fn cut(after: Option<Duration>, after_bytes: Option<u32>) -> Behaviour {
    Behaviour {
        cut: Cut { after, after_bytes },
        ..Behaviour::default()
    }
}

/// Returns the answer to a request over HTTP: its head, and its body.
pub async fn http(at: SocketAddr, request: &str, headers: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = String::from_utf8(until_end(&mut stream).await).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

/// Waits until what the proxy's own thread counts is as it should be.
pub async fn counted<T: std::fmt::Debug>(read: impl Fn() -> T, as_expected: impl Fn(&T) -> bool) -> T {
    let counting = async {
        while !as_expected(&read()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = timeout(SOON, counting).await;
    assert!(waited.is_ok(), "the counters are {:?}", read());
    read()
}
