//! The built-in proxy, over real sockets: exact when no fault is on, and each behaviour biting and healing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use harness_proxy::{Behaviour, Bursts, Flow, LinkControl, LinkFault, Loss, Proxy, Slice};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::rig::{
    NOT_YET, Rig, SOON, accepted, arrives, counted, cut, is_silent, passes, rest, soon, until_end, until_obeyed,
    until_reset,
};

#[tokio::test]
async fn without_a_fault_bytes_pass_both_ways_and_half_close_is_kept() {
    let (rig, mut client, mut server) = Rig::connected().await;
    client.write_all(b"ping").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(until_end(&mut server).await, b"ping");
    passes(&mut server, &mut client, b"pong").await;
    assert_eq!(rig.link.counts().bytes, 8);
    assert!(!rig.link.counts().touched());
}

#[tokio::test]
async fn a_stall_acknowledges_and_holds_bytes_and_the_end_of_the_stream_until_it_is_lifted() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let hold = rig.fault(Behaviour::STALL);
    client.write_all(b"late").await.unwrap();
    drop(client);
    is_silent(&mut server).await;
    counted(|| hold.counts().held_bytes, |count| *count == 4).await;
    assert_eq!(hold.counts().dropped_packets, 0);
    drop(hold);
    assert_eq!(until_end(&mut server).await, b"late", "healed");
}

#[tokio::test]
async fn a_peer_that_is_gone_is_not_known_while_its_direction_is_stalled() {
    let (rig, client, mut server) = Rig::connected().await;
    let hold = rig.fault(Behaviour::each_way(Flow::STALL, Flow::PASS));
    until_obeyed(&rig.proxy).await;
    drop(client);
    // the first news are answered with a reset, and the next cannot be written
    for _ in 0..3 {
        server.write_all(b"news").await.unwrap();
        is_silent(&mut server).await;
    }
    drop(hold);
    assert_eq!(rest(&mut server).await.0, b"", "it ends");
}

#[tokio::test]
async fn a_stalled_link_leaves_connects_unanswered_and_counts_them() {
    let rig = Rig::new().await;
    let fault = rig.fault(Behaviour::STALL);
    // the link's own thread puts the filter on the listener
    until_obeyed(&rig.proxy).await;
    let connecting = tokio::spawn(TcpStream::connect(rig.link.listen()));
    counted(|| fault.counts().held_connects, |count| *count > 0).await;
    tokio::time::sleep(NOT_YET).await;
    assert!(!connecting.is_finished(), "the client's own kernel has no answer");
    drop(fault);
    // the next attempt gets through
    soon(connecting).await.unwrap().unwrap();
    accepted(&rig.server).await;
}

/// Returns the error of a connection whose kernel gives up what it has sent after a second.
async fn unacknowledged(stream: &mut TcpStream) -> io::Error {
    let second = Some(Duration::from_secs(1));
    socket2::SockRef::from(&*stream).set_tcp_user_timeout(second).unwrap();
    stream.write_all(b"lost").await.unwrap();
    soon(stream.read(&mut [0])).await.expect_err("the connection is gone")
}

#[tokio::test]
async fn a_blackhole_acknowledges_nothing_and_a_client_notices() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let fault = rig.fault(Behaviour::BLACKHOLE);
    // the link's own thread puts the filter on the sockets
    until_obeyed(&rig.proxy).await;
    assert_eq!(unacknowledged(&mut client).await.kind(), io::ErrorKind::TimedOut);
    is_silent(&mut server).await;
    assert!(fault.counts().dropped_packets > 0 && fault.counts().bytes == 0);
}

#[tokio::test]
async fn keepalive_notices_a_blackhole() {
    let (rig, mut client, _server) = Rig::connected().await;
    let second = Duration::from_secs(1);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(second)
        .with_interval(second)
        .with_retries(2);
    socket2::SockRef::from(&client).set_tcp_keepalive(&keepalive).unwrap();
    let _fault = rig.fault(Behaviour::BLACKHOLE);
    let error = soon(client.read(&mut [0])).await.expect_err("the connection is gone");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_blackhole_on_a_connection_that_sends_nothing_drops_nothing() {
    let (rig, mut client, mut server) = Rig::connected().await;
    passes(&mut client, &mut server, b"question").await;
    server.write_all(b"answer").await.unwrap();
    counted(|| rig.link.counts().bytes, |bytes| *bytes == 14).await;
    // the client's kernel may not have acknowledged the answer yet
    let fault = rig.fault(Behaviour::BLACKHOLE);
    arrives(&mut client, b"answer").await;
    tokio::time::sleep(NOT_YET * 6).await;
    assert!(!fault.counts().touched(), "{:?}", fault.counts());
}

#[tokio::test]
async fn a_fault_on_a_connection_that_sends_nothing_leaves_no_trace() {
    let both = Behaviour::both;
    let soon = Duration::from_millis(1);
    let loss = Loss {
        per_mille: 1000,
        timeout: soon,
    };
    let bursts = Bursts {
        every: soon,
        length: soon,
        delay: soon,
    };
    for (name, behaviour) in [
        ("stall", Behaviour::STALL),
        ("latency", both(Flow::delayed(soon))),
        ("slow", both(Flow::slowed(1))),
        ("loss", both(Flow::lossy(loss))),
        ("bursts", both(Flow::bursty(bursts))),
        ("forget-idle", both(Flow::forgetful(soon))),
        ("flaky", cut(None, Some(1))),
        ("reset, which is not due yet", cut(Some(SOON * 100), None)),
    ] {
        let (rig, mut client, mut server) = Rig::connected().await;
        let fault = rig.fault(behaviour);
        is_silent(&mut server).await;
        assert!(!fault.counts().touched(), "{name}: {:?}", fault.counts());
        drop(fault);
        passes(&mut client, &mut server, b"healed").await;
        assert!(!rig.link.counts().touched(), "{name}: {:?}", rig.link.counts());
    }
}

#[tokio::test]
async fn what_a_blackhole_dropped_is_sent_again_and_arrives_after_the_heal() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let fault = rig.fault(Behaviour::BLACKHOLE);
    until_obeyed(&rig.proxy).await;
    client.write_all(b"again").await.unwrap();
    counted(|| fault.counts().dropped_packets, |dropped| *dropped > 0).await;
    drop(fault);
    arrives(&mut server, b"again").await;
    passes(&mut server, &mut client, b"answer").await;
}

#[tokio::test]
async fn a_blackhole_one_way_lets_the_other_pass() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let fault = rig.fault(Behaviour::each_way(Flow::BLACKHOLE, Flow::PASS));
    until_obeyed(&rig.proxy).await;
    // more than fits into windows: the acknowledgements must pass
    let news = vec![7; 8 << 20];
    let (written, ()) = tokio::join!(server.write_all(&news), arrives(&mut client, &news));
    written.unwrap();
    client.write_all(b"dropped").await.unwrap();
    counted(|| fault.counts().dropped_packets, |dropped| *dropped > 0).await;
    is_silent(&mut server).await;
}

#[tokio::test]
async fn what_is_held_obeys_the_link_as_it_is_now() {
    let never = Duration::from_secs(24 * 3600);
    let late = |delay| Behaviour::both(Flow::delayed(delay));
    let sliced = Behaviour::both(Flow::sliced(Slice {
        gap: Duration::from_secs(60),
        ..Slice::of(1)
    }));
    let slow = Behaviour::both(Flow::slowed(1));
    for before in [late(never), sliced, slow] {
        let (rig, mut client, mut server) = Rig::connected().await;
        rig.link.apply(1, before);
        // another fault stays
        rig.link.apply(2, late(Duration::from_millis(1)));
        let sent = vec![5; 100_000];
        client.write_all(&sent).await.unwrap();
        counted(|| rig.link.counts().delayed_bytes, |bytes| *bytes == 100_000).await;
        rig.link.heal(1);
        arrives(&mut server, &sent).await;
    }
}

#[tokio::test]
async fn a_heal_with_reset_breaks_the_connections_that_were_stalled() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let hold = LinkFault::apply(vec![Arc::clone(&rig.link)], 1, Behaviour::STALL, true);
    client.write_all(b"never").await.unwrap();
    is_silent(&mut server).await;
    drop(hold);
    until_reset(&mut client).await;
    until_reset(&mut server).await;
    assert_eq!(rig.link.counts().bytes, 0, "what was held back never got through");
    rig.connect().await;
}

#[tokio::test]
async fn resetting_a_link_resets_both_ends_and_takes_new_connections() {
    let (rig, mut client, mut server) = Rig::connected().await;
    rig.link.reset_connections();
    until_reset(&mut client).await;
    until_reset(&mut server).await;
    rig.connect().await;
    assert_eq!(rig.link.counts().resets, 1);
}

#[tokio::test]
async fn a_cut_by_bytes_ends_the_connection_once_its_budget_passed() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let _hold = rig.fault(cut(None, Some(100)));
    let writing = async {
        while client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(writing).await;
    until_reset(&mut server).await;
    assert_eq!(rig.link.counts().resets, 1);
}

#[tokio::test]
async fn a_cut_by_time_ends_connections_that_are_idle() {
    let (rig, mut client, _server) = Rig::connected().await;
    let _hold = rig.fault(cut(Some(Duration::from_millis(50)), None));
    until_reset(&mut client).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_reset_and_is_counted() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::start().unwrap();
    let link = proxy.link("c0->n1".into(), gone, 7).unwrap();
    // the reset may be faster than the client's own end of the handshake
    match TcpStream::connect(link.listen()).await {
        Ok(mut client) => drop(until_reset(&mut client).await),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    assert_eq!(link.counts().refused, 1);
}

#[tokio::test]
async fn windows_that_overlap_on_one_link_heal_one_by_one() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let first = LinkFault::apply(vec![Arc::clone(&rig.link)], 1, Behaviour::STALL, false);
    let second = LinkFault::apply(vec![Arc::clone(&rig.link)], 2, Behaviour::STALL, false);
    client.write_all(b"x").await.unwrap();
    drop(first);
    is_silent(&mut server).await;
    drop(second);
    arrives(&mut server, b"x").await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever faults come and go, a stream that is not cut arrives whole, in order, both ways.
    #[test]
    fn bytes_arrive_whole_whatever_comes_and_goes(
        chunks in proptest::collection::vec(1usize..40_000, 1..12),
        weather in proptest::collection::vec(any_weather(), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(stream_through(chunks, weather));
    }
}

fn any_weather() -> impl Strategy<Value = Behaviour> {
    let crumbs = Slice {
        gap: Duration::from_secs(1),
        ..Slice::of(1)
    };
    let both_ways = [
        Flow::PASS,
        Flow::STALL,
        Flow::FREEZE,
        Flow::delayed(Duration::from_millis(2)),
        Flow::delayed(SOON * 100),
        Flow::slowed(1000),
        Flow::sliced(Slice::of(4096)),
        Flow::sliced(crumbs),
    ];
    proptest::sample::select(both_ways.map(Behaviour::both).to_vec())
}

async fn stream_through(chunks: Vec<usize>, weather: Vec<Behaviour>) {
    let (rig, mut client, mut server) = Rig::connected().await;
    let sent: Vec<u8> = chunks
        .iter()
        .enumerate()
        .flat_map(|(i, length)| vec![i as u8; *length])
        .collect();
    let writing = async {
        for (i, length) in chunks.iter().enumerate() {
            client.write_all(&vec![i as u8; *length]).await.unwrap();
        }
        client.shutdown().await.unwrap();
        let mut echo = Vec::new();
        client.read_to_end(&mut echo).await.unwrap();
        echo
    };
    let reading = async {
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        server.write_all(&got).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let changing = async {
        for now in weather {
            let hold = rig.fault(now);
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(hold);
        }
    };
    let (echo, (), ()) = timeout(SOON * 2, async { tokio::join!(writing, reading, changing) })
        .await
        .expect("it ends");
    assert!(
        echo == sent,
        "{} bytes sent, {} came back, or in another order",
        sent.len(),
        echo.len()
    );
}
