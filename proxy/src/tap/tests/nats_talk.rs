//! A conversation with a NATS server: a lock that is taken, contended for, renewed and given back.

use super::{Observation, Protocol, Said, client, listen, names, server};

fn published(subject: &str, inbox: &str, headers: &str, payload: &str) -> Said {
    let total = headers.len() + payload.len();
    client(match headers {
        "" => format!("PUB {subject} {inbox} {total}\r\n{payload}\r\n"),
        _ => format!(
            "HPUB {subject} {inbox} {} {total}\r\n{headers}{payload}\r\n",
            headers.len()
        ),
    })
}

fn told(subject: &str, payload: &str) -> Said {
    server(format!("MSG {subject} 1 {}\r\n{payload}\r\n", payload.len()))
}

/// Returns a message of a watch about a key.
fn watched(header: &str, payload: &str) -> String {
    let headers = format!("NATS/1.0\r\n{header}\r\n\r\n");
    let (length, total) = (headers.len(), headers.len() + payload.len());
    format!("HMSG {KEY} 2 $JS.ACK.y {length} {total}\r\n{headers}{payload}\r\n")
}

fn expecting(revision: u32) -> String {
    format!("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {revision}\r\n\r\n")
}

const MARKER: &str = "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n";
const KEY: &str = "$KV.harness.l0";

pub(super) fn conversation() -> Vec<Said> {
    let wrong =
        r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"KV_harness"}"#;
    vec![
        server("INFO {\"server_name\":\"n1\",\"headers\":true}\r\n"),
        client("CONNECT {\"verbose\":false}\r\nSUB _INBOX.a.* 1\r\nPING\r\n"),
        server("PONG\r\n"),
        published(
            "$JS.API.STREAM.MSG.GET.KV_harness",
            "_INBOX.a.1",
            "",
            "{\"last_by_subj\":\"$KV.harness.l0\"}",
        ),
        told(
            "_INBOX.a.1",
            r#"{"error":{"code":404,"err_code":10037,"description":"no message found"}}"#,
        ),
        published(KEY, "_INBOX.a.2", &expecting(0), "owner"),
        published(KEY, "_INBOX.a.3", &expecting(0), "MSG $KV.x 1 0\r\n"),
        told("_INBOX.a.3", wrong),
        told("_INBOX.a.2", r#"{"stream":"KV_harness","seq":7}"#),
        published(KEY, "_INBOX.a.4", &expecting(7), "owner 7"),
        server("PING\r\nMSG _INBOX.a.4 1 12\r\n{\"seq\":8}   \r\n"),
        client("PONG\r\n"),
        client(format!("PUB {KEY} 0\r\n\r\nPUB orders.new 2\r\nhi\r\n")),
        published("$JS.API.CONSUMER.CREATE.KV_harness", "_INBOX.a.5", "", "{}"),
        server(format!(
            "MSG _INBOX.a.5 1 2\r\n{{}}\r\nMSG {KEY} 2 $JS.ACK.w 5\r\nowner\r\nHMSG {KEY} 2 $JS.ACK.x {0} {0}\r\n{MARKER}\r\n",
            MARKER.len()
        )),
        server(watched("Nats-TTL: 5s", "owner 7") + &watched("Nats-Marker-Reason: MaxAge", "")),
        published(KEY, "_INBOX.a.6", MARKER, ""),
        server("HMSG _INBOX.a.6 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"),
        published("$JS.API.STREAM.MSG.DELETE.KV_harness", "_INBOX.a.7", "", "{\"seq\":8}"),
        told(
            "_INBOX.a.7",
            r#"{"type":"io.nats.jetstream.api.v1.stream_msg_delete_response","success":true}"#,
        ),
    ]
}

#[test]
fn words_of_a_client_of_nats_need_no_capitals() {
    let said = [
        client("connect {}\r\nping\r\npub $KV.harness.l0 2\r\nhi\r\n"),
        server("pong\r\n"),
    ];
    assert_eq!(names(Protocol::Nats, &said), "ping put <ping");
}

#[test]
fn each_of_several_pings_has_its_pong() {
    let said = [client("PING\r\nPING\r\n"), server("PONG\r\nPONG\r\n")];
    assert_eq!(names(Protocol::Nats, &said), "ping ping <ping <ping");
}

#[test]
fn fetches_that_messages_of_their_own_subjects_answer_are_not_awaited_for_ever() {
    let subject = "$JS.API.CONSUMER.MSG.NEXT.KV_harness.c";
    let fetch = |number: u32| published(subject, &format!("_INBOX.a.{number}"), "", "1");
    let mut said: Vec<Said> = (0..70_000).map(fetch).collect();
    said.push(server("HMSG _INBOX.a.69999 1 16 16\r\nNATS/1.0 408\r\n\r\n\r\n"));
    let (whats, lost) = listen(Protocol::Nats, &said);
    assert_eq!(lost, None);
    assert!(
        matches!(whats.last(), Some(Observation::Reply { .. })),
        "{:?}",
        whats.last()
    );
}

#[test]
fn tls_after_the_greeting_is_named() {
    let said = [conversation().remove(0), client([0x16, 3, 1, 0, 200])];
    assert_eq!(listen(Protocol::Nats, &said).1, Some(super::TLS));
}
