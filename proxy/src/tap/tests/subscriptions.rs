//! Subscriptions of Redis that end, each kind by itself.

use super::{Protocol, client, names, server};

#[test]
fn a_client_that_gives_its_channels_up_keeps_its_patterns() {
    let confirmed = |word: &str, channel: &str, count: u32| {
        format!("*3\r\n${}\r\n{word}\r\n$1\r\n{channel}\r\n:{count}\r\n", word.len())
    };
    let said = [
        client("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n*2\r\n$10\r\nPSUBSCRIBE\r\n$1\r\n*\r\n"),
        server(confirmed("subscribe", "a", 1) + &confirmed("psubscribe", "*", 2)),
        client("*1\r\n$11\r\nUNSUBSCRIBE\r\n"),
        server(confirmed("unsubscribe", "a", 1)),
        client("*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        server("*2\r\n$4\r\npong\r\n$0\r\n\r\n-ERR only (P|S)SUBSCRIBE here\r\n"),
    ];
    let expected = "SUBSCRIBE PSUBSCRIBE <SUBSCRIBE <PSUBSCRIBE UNSUBSCRIBE <UNSUBSCRIBE PING GET <PING <-GET";
    assert_eq!(names(Protocol::Resp, &said), expected);
}

#[test]
fn pushes_are_arrays_again_after_hello_2() {
    let said = [
        client("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n"),
        server("%1\r\n$5\r\nproto\r\n:3\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
        client("*1\r\n$11\r\nUNSUBSCRIBE\r\n*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"),
        server(">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n*2\r\n$5\r\nproto\r\n:2\r\n"),
        client("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n"),
        server("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
    ];
    let expected = "HELLO SUBSCRIBE <HELLO <SUBSCRIBE UNSUBSCRIBE HELLO <UNSUBSCRIBE <HELLO SUBSCRIBE <SUBSCRIBE";
    assert_eq!(names(Protocol::Resp, &said), expected);
}
