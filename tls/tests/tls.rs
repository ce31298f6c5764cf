//! The certificates that ends of TLS accept and refuse, and the end of a connection behind TLS, which is the same as without.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use harness_tls::{Authority, TlsClient, TlsRelay, TlsServer, reset};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), work).await.expect("it ends")
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Returns a server that ends the TLS of one connection, and what can be read there in plain text.
async fn server(authority: &Authority) -> (SocketAddr, impl Future<Output = TcpStream> + use<>) {
    let (listener, address) = listen().await;
    let tls = TlsServer::new(authority).unwrap();
    let plain = async move {
        let (client, _) = listener.accept().await.unwrap();
        tls.end(client).await.unwrap()
    };
    (address, plain)
}

/// Returns a client with the certificate of `presents` that connects to a server of `server_of`, in plain text on both sides.
async fn connected(presents: &Authority, server_of: &Authority) -> (TcpStream, TcpStream, TlsRelay) {
    let (address, plain) = server(server_of).await;
    let relay = TlsRelay::open(address, TlsClient::new(presents).unwrap()).unwrap();
    let client = TcpStream::connect(relay.listen()).await.unwrap();
    // the handshake waits for the first bytes of the client
    client.writable().await.unwrap();
    client.try_write(b"hello").unwrap();
    (client, soon(plain).await, relay)
}

/// The end of a connection that broke.
const RESET: Result<Vec<u8>, io::ErrorKind> = Err(io::ErrorKind::ConnectionReset);

/// Reads until the end; returns the bytes that a peer wrote, or how its connection broke.
async fn read_all(stream: &mut TcpStream) -> Result<Vec<u8>, io::ErrorKind> {
    let mut read = Vec::new();
    let ended = soon(stream.read_to_end(&mut read)).await;
    ended.map(|_| read).map_err(|error| error.kind())
}

/// Breaks a connection off, as a peer that is gone in the middle.
fn break_off(stream: TcpStream) {
    reset(&stream);
}

#[tokio::test]
async fn what_is_written_at_one_end_is_read_at_the_other_and_each_end_ends_by_itself() {
    let authority = Authority::new().unwrap();
    let (mut client, mut server, _relay) = connected(&authority, &authority).await;
    let long = vec![7; 1 << 20];
    let sent = long.clone();
    let wrote = tokio::spawn(async move {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        client
    });
    let said = [b"hello".as_slice(), &long].concat();
    assert_eq!(read_all(&mut server).await.unwrap(), said);
    let mut client = soon(wrote).await.unwrap();
    // the client has sent all its bytes, and still reads
    server.write_all(b"answer").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await.unwrap(), b"answer");
}

#[tokio::test]
async fn a_connection_that_breaks_at_one_end_breaks_at_the_other() {
    let authority = Authority::new().unwrap();
    let (mut client, server, _relay) = connected(&authority, &authority).await;
    break_off(server);
    assert_eq!(read_all(&mut client).await, RESET);
    let (client, mut server, _relay) = connected(&authority, &authority).await;
    break_off(client);
    assert_eq!(read_all(&mut server).await, RESET);
}

#[tokio::test]
async fn a_client_and_a_server_of_different_runs_do_not_meet() {
    let [one, other] = [Authority::new().unwrap(), Authority::new().unwrap()];
    let (mut client, mut server, _relay) = connected(&one, &other).await;
    assert_eq!(read_all(&mut client).await, RESET);
    assert_eq!(read_all(&mut server).await, RESET);
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_and_so_is_plain_text() {
    let authority = Authority::new().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificates(&authority.certificate).remove(0)).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (address, plain) = server(&authority).await;
    let connected = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stranger = tokio::spawn(async move {
        let mut tls = connector
            .connect(ServerName::try_from("127.0.0.1").unwrap(), connected)
            .await?;
        tls.write_all(b"hello").await?;
        tls.read_u8().await
    });
    assert_eq!(read_all(&mut soon(plain).await).await, RESET);
    assert!(soon(stranger).await.unwrap().is_err());

    let (address, plain) = server(&authority).await;
    let mut stranger = TcpStream::connect(address).await.unwrap();
    stranger.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
    assert_eq!(read_all(&mut soon(plain).await).await, RESET);
    assert!(read_all(&mut stranger).await.is_err());
}

/// A server of gRPC wants to be asked for HTTP/2; one that speaks HTTP/1.1 on the same port, too, must not be.
#[tokio::test]
async fn http_2_is_asked_for_where_the_client_speaks_it() {
    let authority = Authority::new().unwrap();
    let key = PrivateKeyDer::from_pem_slice(authority.server.key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates(&authority.server.certificate), key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    for (says, wanted) in [
        (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], Some(&b"h2"[..])),
        (b"POST /v3/kv/range HTTP/1.1\r\n", None),
        (b"PING\r\n", None),
    ] {
        let (listener, address) = listen().await;
        let relay = TlsRelay::open(address, TlsClient::new(&authority).unwrap()).unwrap();
        let mut client = TcpStream::connect(relay.listen()).await.unwrap();
        // the first bytes may come one by one
        for byte in says {
            client.write_all(&[*byte]).await.unwrap();
        }
        let (accepted, _) = soon(listener.accept()).await.unwrap();
        let mut tls = soon(acceptor.accept(accepted)).await.unwrap();
        assert_eq!(tls.get_ref().1.alpn_protocol(), wanted);
        let mut said = vec![0; says.len()];
        soon(tls.read_exact(&mut said)).await.unwrap();
        assert_eq!(said, says);
    }
}

#[tokio::test]
async fn a_client_that_ends_within_the_first_word_of_http_2_is_carried_to_its_end() {
    let authority = Authority::new().unwrap();
    let (address, plain) = server(&authority).await;
    let relay = TlsRelay::open(address, TlsClient::new(&authority).unwrap()).unwrap();
    let mut client = TcpStream::connect(relay.listen()).await.unwrap();
    client.write_all(b"PR").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut soon(plain).await).await.unwrap(), b"PR");
}

#[tokio::test]
async fn a_relay_leads_to_where_the_server_is_now() {
    let authority = Authority::new().unwrap();
    let (listener, gone) = listen().await;
    drop(listener);
    let relay = TlsRelay::open(gone, TlsClient::new(&authority).unwrap()).unwrap();
    let mut early = TcpStream::connect(relay.listen()).await.unwrap();
    assert_eq!(read_all(&mut early).await, RESET);
    let (address, plain) = server(&authority).await;
    relay.lead_to(address);
    let mut late = TcpStream::connect(relay.listen()).await.unwrap();
    late.write_all(b"here").await.unwrap();
    late.shutdown().await.unwrap();
    assert_eq!(read_all(&mut soon(plain).await).await.unwrap(), b"here");
}

#[tokio::test]
async fn keys_are_not_shown() {
    let authority = Authority::new().unwrap();
    assert!(!format!("{authority:?}").contains("PRIVATE KEY"));
}
