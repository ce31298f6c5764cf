//! Congestion: packet loss, bursts of delay, a shared bottleneck and connections that are forgotten; each biting, and silent
//! where it does not apply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_proxy::{Behaviour, Bursts, Flow, LinkControl, LinkFault, Loss};
use tokio::io::AsyncWriteExt;

use super::rig::{Rig, arrives, connect, passes, until_reset};

#[tokio::test]
async fn a_connection_that_was_idle_for_too_long_is_forgotten() {
    let (rig, mut client, mut server) = Rig::connected().await;
    passes(&mut client, &mut server, b"hello").await;
    let idle = Duration::from_millis(200);
    let forgetting = Flow::forgetful(idle);
    let fault = rig.fault(Behaviour::both(forgetting));
    tokio::time::sleep(idle * 2).await;
    client.write_all(b"again").await.unwrap();
    until_reset(&mut client).await;
    until_reset(&mut server).await;
    assert_eq!(fault.counts().resets, 1);
}

#[tokio::test]
async fn what_follows_a_lost_packet_waits_for_its_retransmission() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let timeout = Duration::from_millis(20);
    let per_mille = 1000;
    let _fault = rig.fault(Behaviour::both(Flow::lossy(Loss { per_mille, timeout })));
    let sent = Instant::now();
    passes(&mut client, &mut server, b"lost").await;
    assert!(sent.elapsed() >= timeout * 63, "six retransmissions");
    assert_eq!(rig.link.counts().delayed_bytes, 4);
}

#[tokio::test]
async fn connections_of_several_links_share_a_bottleneck() {
    let rig = Rig::new().await;
    let server = rig.server.local_addr().unwrap();
    let other = rig.proxy.link("c1->n1".into(), server, 8).unwrap();
    let (mut one, mut first) = rig.connect().await;
    let (mut two, mut second) = connect(&other, &rig.server).await;
    let fault = LinkFault::share_bandwidth(vec![Arc::clone(&rig.link), other], 1, 20_000);
    let sent = Instant::now();
    one.write_all(&[1; 3000]).await.unwrap();
    two.write_all(&[2; 3000]).await.unwrap();
    tokio::join!(arrives(&mut first, &[1; 3000]), arrives(&mut second, &[2; 3000]));
    assert!(
        sent.elapsed() >= Duration::from_millis(250),
        "6000 bytes at 20,000 a second"
    );
    let delayed = fault.counts().delayed_bytes;
    assert!(
        delayed > 5000 && delayed < 6000,
        "{delayed}: all but the first turn of 200 bytes"
    );
    one.write_all(&[1; 100_000]).await.unwrap();
    drop(fault);
    arrives(&mut first, &[1; 100_000]).await;
}

#[tokio::test]
async fn a_bottleneck_that_is_wide_enough_delays_nothing() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let fault = LinkFault::share_bandwidth(vec![Arc::clone(&rig.link)], 1, 1_000_000_000);
    for _ in 0..10 {
        passes(&mut client, &mut server, b"question").await;
        passes(&mut server, &mut client, b"answer").await;
    }
    assert_eq!(fault.counts().bytes, 140);
    assert!(!fault.counts().touched(), "{:?}", fault.counts());
}

/// Sends bytes both ways under a flow; returns how many count as delayed.
async fn delayed(flow: Flow) -> u64 {
    let (rig, mut client, mut server) = Rig::connected().await;
    let fault = rig.fault(Behaviour::both(flow));
    for _ in 0..10 {
        passes(&mut client, &mut server, b"question").await;
        passes(&mut server, &mut client, b"answer").await;
    }
    assert_eq!(fault.counts().bytes, 140);
    fault.counts().delayed_bytes
}

#[tokio::test]
async fn only_chunks_that_are_lost_or_in_a_burst_count_as_delayed() {
    let (timeout, delay) = (Duration::from_millis(1), Duration::from_millis(1));
    let every = Duration::from_secs(3600);
    let loss = |per_mille| Flow::lossy(Loss { per_mille, timeout });
    let burst = |length| Flow::bursty(Bursts { every, length, delay });
    assert_eq!(delayed(loss(0)).await, 0);
    assert_eq!(delayed(loss(1000)).await, 140);
    let some = delayed(loss(500)).await;
    assert!(some > 0 && some < 140, "{some} of 140 bytes, with the seed of the rig");
    assert_eq!(delayed(burst(Duration::ZERO)).await, 0);
    assert_eq!(delayed(burst(Duration::from_secs(3600))).await, 140);
}

#[tokio::test]
async fn a_connection_that_is_used_is_not_forgotten() {
    let (rig, mut client, mut server) = Rig::connected().await;
    let forgetting = Flow::forgetful(Duration::from_secs(60));
    let fault = rig.fault(Behaviour::both(forgetting));
    for _ in 0..5 {
        passes(&mut client, &mut server, b"again").await;
    }
    assert!(!fault.counts().touched(), "{:?}", fault.counts());
}
