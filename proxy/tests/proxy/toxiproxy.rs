//! The driver of Toxiproxy, over the wire against the API of the built-in proxy: each behaviour biting and healing, counted
//! as the built-in proxy counts it; and servers that lie, hang or go away, of which the experiment only hears.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_proxy::api::{Api, ApiToken};
use harness_proxy::{Behaviour, Cut, Flow, Link, LinkControl, LinkFault, Proxy, Slice, Toxiproxy};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{
    NOT_YET, Rig, accepted, anywhere, arrives, connect, counted, cut, http, is_silent, passes, rest, soon,
};

/// A link to a server, through a Toxiproxy that is the built-in proxy under its API.
struct ToxiproxyRig {
    link: Arc<Link>,
    server: TcpListener,
    toxiproxy: Arc<Toxiproxy>,
    api: Api,
    proxies: [Proxy; 2],
}

impl ToxiproxyRig {
    async fn new() -> Self {
        let server = TcpListener::bind(anywhere()).await.unwrap();
        let (far, near) = (Proxy::start().unwrap(), Proxy::start().unwrap());
        let api = Api::serve(&far, Vec::new(), (anywhere(), ApiToken::default()), 7, Box::new(|_| {})).unwrap();
        let toxiproxy = Toxiproxy::connect(&api.address().to_string()).await.unwrap();
        let wanted = [("c0->n1".to_owned(), server.local_addr().unwrap())];
        let links = near.links_through(&toxiproxy, "run-", &wanted).await.unwrap();
        Self {
            link: Arc::clone(&links[0]),
            server,
            toxiproxy,
            api,
            proxies: [far, near],
        }
    }

    /// Makes a rig, and the two ends of a connection.
    async fn connected() -> (Self, TcpStream, TcpStream) {
        let rig = Self::new().await;
        let (client, server) = rig.connect().await;
        (rig, client, server)
    }

    async fn connect(&self) -> (TcpStream, TcpStream) {
        connect(&self.link, &self.server).await
    }

    async fn fault(&self, behaviour: Behaviour, reset_on_heal: bool) -> LinkFault {
        fault(&self.link, behaviour, reset_on_heal).await
    }
}

async fn fault(link: &Arc<Link>, behaviour: Behaviour, reset_on_heal: bool) -> LinkFault {
    let mut hold = LinkFault::apply(vec![Arc::clone(link)], 1, behaviour, reset_on_heal);
    hold.settle().await.unwrap();
    hold
}

#[tokio::test]
async fn a_partition_that_resumes_loses_nothing() {
    let (rig, mut client, mut server) = ToxiproxyRig::connected().await;
    let mut hold = rig.fault(Behaviour::STALL, false).await;
    client.write_all(b"asked").await.unwrap();
    server.write_all(b"told").await.unwrap();
    is_silent(&mut server).await;
    is_silent(&mut client).await;
    counted(|| hold.counts(), |counts| counts.held_bytes == 9).await;
    hold.heal().await.unwrap();
    arrives(&mut server, b"asked").await;
    arrives(&mut client, b"told").await;
}

#[tokio::test]
async fn a_partition_that_resets_loses_what_was_sent_and_ends_the_connection() {
    let (rig, mut client, mut server) = ToxiproxyRig::connected().await;
    let mut hold = rig.fault(Behaviour::STALL, true).await;
    client.write_all(b"never").await.unwrap();
    is_silent(&mut server).await;
    counted(|| hold.counts(), |counts| counts.held_bytes == 5).await;
    hold.heal().await.unwrap();
    assert_eq!(rest(&mut server).await.0, b"");
    assert_eq!(rest(&mut client).await.0, b"");
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, b"healed").await;
}

#[tokio::test]
async fn latency_and_a_narrow_link_take_their_time_and_heal() {
    let (rig, mut client, mut server) = ToxiproxyRig::connected().await;
    let slow = Behaviour::both(Flow {
        delay: Duration::from_millis(60),
        bytes_per_second: Some(10_500),
        ..Flow::PASS
    });
    let mut hold = rig.fault(slow, false).await;
    let sent = Instant::now();
    passes(&mut client, &mut server, &[1; 1000]).await;
    assert!(sent.elapsed() >= Duration::from_millis(100));
    counted(|| hold.counts(), |counts| counts.delayed_bytes == 1000).await;
    hold.heal().await.unwrap();
    passes(&mut server, &mut client, b"prompt").await;
    assert_eq!(hold.counts().delayed_bytes, 1000);
}

#[tokio::test]
async fn flaky_ends_connections_in_the_middle_and_counts_them() {
    let (rig, mut client, mut server) = ToxiproxyRig::connected().await;
    let cut = Cut {
        after: None,
        after_bytes: Some(200),
    };
    let sliced = Behaviour::both(Flow::sliced(Slice::of(16)));
    let hold = rig.fault(Behaviour { cut, ..sliced }, false).await;
    client.write_all(&[1; 150]).await.unwrap();
    assert_eq!(rest(&mut server).await.0.len(), 100, "half of the budget each way");
    drop(server);
    let _ = rest(&mut client).await;
    drop(client);
    counted(|| hold.counts(), |counts| counts.resets == 1).await;
}

#[tokio::test]
async fn reset_loses_answers_and_ends_connections_and_counts_them() {
    let (rig, mut client, mut server) = ToxiproxyRig::connected().await;
    // longer than the fault and the write take on a busy machine: what is written later is not swallowed
    let mut hold = rig.fault(cut(Some(Duration::from_secs(2)), None), false).await;
    let _ = server.write_all(b"lost").await;
    assert_eq!(rest(&mut client).await.0, b"");
    drop(client);
    counted(|| hold.counts(), |counts| counts.resets == 1).await;
    assert_eq!((hold.swallowed_bytes(), hold.counts().held_bytes), (4, 0));
    hold.heal().await.unwrap();
    let (mut client, mut server) = rig.connect().await;
    passes(&mut server, &mut client, b"healed").await;
}

#[tokio::test]
async fn faults_of_one_kind_that_overlap_heal_one_by_one() {
    let (rig, mut client, mut server) = ToxiproxyRig::connected().await;
    let put = |layer| LinkFault::apply(vec![Arc::clone(&rig.link)], layer, Behaviour::STALL, false);
    let (mut first, mut second) = (put(1), put(2));
    first.settle().await.unwrap();
    second.settle().await.unwrap();
    client.write_all(b"x").await.unwrap();
    first.heal().await.unwrap();
    is_silent(&mut server).await;
    second.heal().await.unwrap();
    arrives(&mut server, b"x").await;
}

#[tokio::test]
async fn a_fault_that_is_dropped_heals() {
    let (rig, mut client, mut server) = ToxiproxyRig::connected().await;
    drop(rig.fault(Behaviour::STALL, false).await);
    passes(&mut client, &mut server, b"x").await;
}

/// The same script on both proxies leaves the same evidence.
#[tokio::test]
async fn both_proxies_count_alike() {
    let evidence = async |link: &Arc<Link>, server: &TcpListener| {
        let (mut client, mut server) = connect(link, server).await;
        let hold = fault(link, Behaviour::STALL, false).await;
        client.write_all(&[1; 300]).await.unwrap();
        server.write_all(&[2; 40]).await.unwrap();
        // a Toxiproxy takes the connection, the built-in proxy does not; what it sends counts as nothing more
        let listen = link.listen();
        let impatient = tokio::spawn(async move {
            let mut stream = TcpStream::connect(listen).await.unwrap();
            stream.write_all(b"is anybody there").await.unwrap();
            std::future::pending::<()>().await;
        });
        let counts = counted(
            || hold.counts(),
            |counts| counts.held_bytes >= 340 && counts.held_connects > 0,
        )
        .await;
        tokio::time::sleep(NOT_YET).await;
        impatient.abort();
        (
            counts.held_bytes,
            hold.counts().held_bytes,
            counts.resets,
            counts.refused,
        )
    };
    let (remote, built_in) = (ToxiproxyRig::new().await, Rig::new().await);
    assert_eq!(
        evidence(&remote.link, &remote.server).await,
        evidence(&built_in.link, &built_in.server).await
    );
}

#[tokio::test]
async fn a_server_that_came_back_elsewhere_is_found() {
    let rig = ToxiproxyRig::new().await;
    let elsewhere = TcpListener::bind(anywhere()).await.unwrap();
    rig.link.redirect(elsewhere.local_addr().unwrap());
    let mut client = TcpStream::connect(rig.link.listen()).await.unwrap();
    passes(&mut client, &mut accepted(&elsewhere).await, b"found").await;
    assert!(!rig.link.counts().touched());
}

#[tokio::test]
async fn what_a_killed_run_left_there_can_be_found_and_deleted() {
    let rig = ToxiproxyRig::new().await;
    let other = Toxiproxy::connect(&rig.api.address().to_string()).await.unwrap();
    assert_eq!(other.proxies().await.unwrap(), ["run-c0-n1"]);
    let names = vec!["run-c0-n1".to_owned(), "not-there".to_owned()];
    other.delete(names).await.unwrap();
    assert!(rig.toxiproxy.proxies().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_server_that_goes_away_is_an_error_though_the_crate_panics_and_what_was_made_there_is_gone_at_the_end() {
    let rig = ToxiproxyRig::new().await;
    let [far, near] = &rig.proxies;
    let wanted = [("c0->n2".to_owned(), rig.server.local_addr().unwrap())];
    let _without_a_fault = near.links_through(&rig.toxiproxy, "run-", &wanted).await.unwrap();
    let at = rig.api.address();
    drop(rig.api);
    while TcpStream::connect(at).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut hold = LinkFault::apply(vec![rig.link], 1, Behaviour::STALL, true);
    let why = hold.settle().await.unwrap_err();
    assert!(
        why.contains("toxiproxy at 127.0.0.1") && why.contains("panicked"),
        "{why}"
    );
    let why = hold.heal().await.unwrap_err();
    assert!(why.contains("toxiproxy at 127.0.0.1"), "and so is the heal: {why}");
    let again = Api::serve(far, Vec::new(), (at, ApiToken::default()), 7, Box::new(|_| {})).unwrap();
    let there = br#"[{"name":"run-c0-n1","upstream":"127.0.0.1:9"},{"name":"run-c0-n2","upstream":"127.0.0.1:9"}]"#;
    again.populate(there).await.unwrap();
    rig.toxiproxy.close().await.unwrap();
    assert_eq!(http(at, "GET /proxies", "", "").await.1, "{}");
}

#[tokio::test]
async fn an_address_without_a_server_is_an_error_that_says_where() {
    let gone = TcpListener::bind(anywhere()).await.unwrap().local_addr().unwrap();
    let why = Toxiproxy::connect(&gone.to_string()).await.unwrap_err();
    assert!(why.contains(&gone.to_string()), "{why}");
    assert!(Toxiproxy::connect("no.such.host.invalid:1").await.is_err());
}

#[tokio::test]
async fn a_server_that_hangs_is_an_error_and_not_a_wait() {
    let hanging = TcpListener::bind(anywhere()).await.unwrap();
    let at = hanging.local_addr().unwrap().to_string();
    assert!(soon(Toxiproxy::connect(&at)).await.is_err(), "it gives up");
}

#[tokio::test]
async fn a_server_that_says_yes_and_does_nothing_is_found_out() {
    let liar = TcpListener::bind(anywhere()).await.unwrap();
    let at = liar.local_addr().unwrap();
    let lying = tokio::spawn(lie(liar));
    let server = TcpListener::bind(anywhere()).await.unwrap();
    let near = Proxy::start().unwrap();
    let toxiproxy = Toxiproxy::connect(&at.to_string()).await.unwrap();
    let wanted = [("c0->n1".to_owned(), server.local_addr().unwrap())];
    let links = near.links_through(&toxiproxy, "run-", &wanted).await.unwrap();
    let mut hold = LinkFault::apply(links, 1, Behaviour::STALL, false);
    let why = hold.settle().await.unwrap_err();
    assert!(
        why.contains("should have") && why.contains("bandwidth_upstream"),
        "{why}"
    );
    lying.abort();
}

/// Answers as a Toxiproxy does that has the proxy it was asked for and never a toxic.
async fn lie(listener: TcpListener) {
    let mut proxy = String::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (mut stream, mut asked) = (BufReader::new(stream), String::new());
        let _ = stream.read_line(&mut asked).await;
        if asked.contains("/populate") {
            let mut words = Vec::new();
            let _ = stream.read_until(b']', &mut words).await;
            let words = String::from_utf8(words).unwrap();
            let upstream = words.split('"').skip_while(|word| *word != "upstream").nth(2).unwrap();
            proxy = format!(
                r#"{{"name":"run-c0-n1","listen":"127.0.0.1:1","upstream":"{upstream}","enabled":true,"toxics":[]}}"#
            );
        }
        let answer = match asked.split(' ').nth(1) {
            Some("/version") => r#"{"version":"2.12.0"}"#.to_owned(),
            Some("/populate") => format!(r#"{{"proxies":[{proxy}]}}"#),
            Some("/proxies") => format!(r#"{{"run-c0-n1":{proxy}}}"#),
            _ => "{}".to_owned(),
        };
        let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{answer}");
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        // an end before all of the request is read would be a reset, which loses the answer
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}
