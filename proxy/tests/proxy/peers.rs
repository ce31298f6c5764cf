//! A server's way out, over real sockets: connects that stay what they are, and each direction held back on its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use harness_proxy::{Behaviour, Flow, Link, LinkControl, LinkFault, PeerAddress, PeerDirectory, PeerProxy, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::rig::{NOT_YET, accepted, counted, is_silent, passes, rest, soon, until_end, until_obeyed};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// `n1` with a way out to `n2`.
struct PeerRig {
    proxy: Proxy,
    egress: PeerProxy,
    link: Arc<Link>,
    directory: Arc<PeerDirectory>,
    peer: TcpListener,
}

impl PeerRig {
    async fn new() -> Self {
        let peer = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let member = |name: &str, port| PeerAddress {
            name: name.to_owned(),
            host: format!("{name}.run"),
            ports: vec![port],
        };
        let peers = vec![member("n1", 1), member("n2", peer.local_addr().unwrap().port())];
        let directory = Arc::new(PeerDirectory::new(peers));
        directory.found(1, LOOPBACK);
        let proxy = Proxy::start().unwrap();
        let (egress, links) = proxy.peer_proxy(LOOPBACK, "n1", &directory, || 7).unwrap();
        let link = links.into_iter().flatten().next().expect("a link to the only peer");
        assert_eq!(link.name(), "n1->n2");
        Self {
            proxy,
            egress,
            link,
            directory,
            peer,
        }
    }

    fn port(&self) -> u16 {
        self.peer.local_addr().unwrap().port()
    }

    /// Opens a connection that asks for the peer by its name, and has no answer yet.
    async fn ask(&self, name: &str, port: u16) -> TcpStream {
        let mut stream = TcpStream::connect(self.egress.listen()).await.unwrap();
        stream.write_all(&[5, 1, 0]).await.unwrap();
        let mut welcome = [9; 2];
        stream.read_exact(&mut welcome).await.unwrap();
        assert_eq!(welcome, [5, 0]);
        let mut request = vec![5, 1, 0, 3, name.len() as u8];
        request.extend(name.as_bytes());
        request.extend(port.to_be_bytes());
        stream.write_all(&request).await.unwrap();
        stream
    }

    /// Returns both ends of a connection from `n1` to `n2`.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let mut from = self.ask("n2.run", self.port()).await;
        let to = accepted(&self.peer).await;
        assert_eq!(reply(&mut from).await, 0);
        (from, to)
    }

    fn fault(&self, behaviour: Behaviour) -> LinkFault {
        LinkFault::apply(vec![Arc::clone(&self.link)], 1, behaviour, false)
    }
}

async fn reply(stream: &mut TcpStream) -> u8 {
    let mut reply = [0; 10];
    soon(stream.read_exact(&mut reply)).await.unwrap();
    assert_eq!(reply[0], 5);
    reply[1]
}

#[tokio::test]
async fn a_server_reaches_its_peer_by_name_and_bytes_pass_both_ways() {
    let rig = PeerRig::new().await;
    let (mut from, mut to) = rig.connect().await;
    passes(&mut from, &mut to, b"vote").await;
    passes(&mut to, &mut from, b"ack").await;
    from.shutdown().await.unwrap();
    until_end(&mut to).await;
    let counts = rig.link.counts();
    assert_eq!((counts.bytes, counts.connections), (7, 1));
    assert!(!counts.touched());
}

#[tokio::test]
async fn a_connect_that_is_held_back_has_no_answer_until_the_heal() {
    let rig = PeerRig::new().await;
    let hold = rig.fault(Behaviour::STALL);
    let mut from = rig.ask("n2.run", rig.port()).await;
    counted(|| hold.counts().held_connects, |count| *count == 1).await;
    is_silent(&mut from).await;
    assert!(timeout(NOT_YET, rig.peer.accept()).await.is_err(), "it was not dialled");
    drop(hold);
    accepted(&rig.peer).await;
    assert_eq!(reply(&mut from).await, 0);
}

#[tokio::test]
async fn a_held_connect_that_was_given_up_is_not_dialled_at_the_heal() {
    let rig = PeerRig::new().await;
    let hold = rig.fault(Behaviour::STALL);
    let gone = rig.ask("n2.run", rig.port()).await;
    counted(|| hold.counts().held_connects, |count| *count == 1).await;
    drop(gone);
    let mut stays = rig.ask("n2.run", rig.port()).await;
    counted(|| hold.counts().held_connects, |count| *count == 2).await;
    // the close of the first one came before the second one's connect: the proxy has seen it
    until_obeyed(&rig.proxy).await;
    drop(hold);
    accepted(&rig.peer).await;
    assert_eq!(reply(&mut stays).await, 0);
    assert_eq!(rig.link.counts().connections, 1);
}

#[tokio::test]
async fn a_one_way_cut_holds_bytes_and_the_end_back_in_that_direction_only() {
    let rig = PeerRig::new().await;
    let (mut from, mut to) = rig.connect().await;
    let hold = rig.fault(Behaviour::each_way(Flow::PASS, Flow::STALL));
    passes(&mut from, &mut to, b"ping").await;
    to.write_all(b"pong").await.unwrap();
    drop(to);
    counted(|| hold.counts().held_bytes, |count| *count == 4).await;
    is_silent(&mut from).await;
    drop(hold);
    assert_eq!(until_end(&mut from).await, b"pong", "healed");
}

#[tokio::test]
async fn a_refused_connect_is_answered_as_refused() {
    let mut rig = PeerRig::new().await;
    let port = rig.port();
    rig.peer = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let mut from = rig.ask("n2.run", port).await;
    assert_eq!(reply(&mut from).await, 5);
    assert_eq!(rig.link.counts().refused, 1);
}

#[tokio::test]
async fn a_peer_that_came_back_elsewhere_is_found_there() {
    let rig = PeerRig::new().await;
    let elsewhere = IpAddr::from([127, 0, 0, 2]);
    let listener = TcpListener::bind(SocketAddr::new(elsewhere, rig.port())).await.unwrap();
    rig.directory.found(1, elsewhere);
    let mut from = rig.ask("n2.run", rig.port()).await;
    accepted(&listener).await;
    assert_eq!(reply(&mut from).await, 0);
}

#[tokio::test]
async fn strangers_are_unreachable_and_nonsense_is_closed() {
    let rig = PeerRig::new().await;
    for (name, port) in [("www", 80), ("n2.run", 80), ("n1.run", 1)] {
        let mut from = rig.ask(name, port).await;
        assert_eq!(reply(&mut from).await, 4, "{name}:{port}");
    }
    let mut nonsense = TcpStream::connect(rig.egress.listen()).await.unwrap();
    nonsense.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    // an end or a reset: what was sent is not read to its end
    assert_eq!(rest(&mut nonsense).await.0, b"");
}
