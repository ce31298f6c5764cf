//! Toxiproxy's API on the built-in proxy, over the wire: each toxic biting and healing, statuses and bodies, and that what
//! arrives is a prefix of what was sent whatever comes and goes.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harness_proxy::LinkControl;
use harness_proxy::api::{Api, ApiChange, ApiToken};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{Rig, accepted, anywhere, arrives, http, is_silent, passes, rest, soon, until_end, until_reset};

/// A link under the API.
struct ApiRig {
    api: Api,
    rig: Rig,
    changes: Arc<Mutex<Vec<ApiChange>>>,
}

impl ApiRig {
    async fn new() -> Self {
        Self::seeded(7).await
    }

    async fn seeded(seed: u64) -> Self {
        let rig = Rig::seeded(seed).await;
        let changes = Arc::new(Mutex::new(Vec::new()));
        let on_change = {
            let changes = Arc::clone(&changes);
            Box::new(move |change| changes.lock().unwrap().push(change))
        };
        let api = Api::serve(
            &rig.proxy,
            vec![Arc::clone(&rig.link)],
            (anywhere(), ApiToken::default()),
            seed,
            on_change,
        )
        .unwrap();
        Self { api, rig, changes }
    }

    /// Makes a rig, and the two ends of a connection.
    async fn connected() -> (Self, TcpStream, TcpStream) {
        let rig = Self::new().await;
        let (client, server) = rig.connect().await;
        (rig, client, server)
    }

    async fn connect(&self) -> (TcpStream, TcpStream) {
        self.rig.connect().await
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, text) = self.ask_raw(method, path, "User-Agent: test\r\n", &body).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn ask_raw(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let (head, body) = http(self.api.address(), &format!("{method} {path}"), headers, body).await;
        let status = head.split(' ').nth(1).expect("a status").parse().unwrap();
        (status, body)
    }

    /// Puts a toxic on the link; it must be granted.
    async fn put_on(&self, toxic: Value) {
        let (status, answer) = self.ask("POST", "/proxies/c0-%3En1/toxics", &toxic).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn poison(&self, stream: &str, kind: &str, attributes: Value) {
        let toxic = json!({ "type": kind, "stream": stream, "attributes": attributes });
        self.put_on(toxic).await;
    }

    async fn cure(&self, name: &str) {
        let (status, _) = self
            .ask("DELETE", &format!("/proxies/c0-%3En1/toxics/{name}"), &Value::Null)
            .await;
        assert_eq!(status, 204);
    }
}

#[tokio::test]
async fn latency_delays_what_comes_and_not_the_end_and_heals() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    let late = json!({ "latency": 150, "jitter": 10 });
    rig.poison("downstream", "latency", late).await;
    let sent = Instant::now();
    passes(&mut server, &mut client, b"late").await;
    assert!(
        sent.elapsed() >= Duration::from_millis(140),
        "no chunk is earlier than the delay less the jitter"
    );
    assert_eq!(rig.rig.link.counts().delayed_bytes, 4);
    passes(&mut client, &mut server, b"other way").await;
    assert_eq!(rig.rig.link.counts().delayed_bytes, 4, "the other stream is left alone");
    rig.cure("latency_downstream").await;
    passes(&mut server, &mut client, b"prompt").await;
    assert_eq!(rig.rig.link.counts().delayed_bytes, 4);
}

#[tokio::test]
async fn metrics_count_what_arrived_and_what_was_sent_on_by_direction() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    passes(&mut server, &mut client, b"four").await;
    rig.poison("upstream", "bandwidth", json!({ "rate": 0 })).await;
    client.write_all(b"held back").await.unwrap();
    let wanted = [
        ("received", "upstream", 9),
        ("sent", "upstream", 0),
        ("received", "downstream", 4),
        ("sent", "downstream", 4),
    ];
    let (listener, upstream) = (rig.rig.link.listen(), rig.rig.server.local_addr().unwrap());
    let line = |(what, direction, bytes): (&str, &str, u64)| {
        format!(
            r#"toxiproxy_proxy_{what}_bytes_total{{direction="{direction}",listener="{listener}",proxy="c0->n1",upstream="{upstream}"}} {bytes}"#
        )
    };
    let counted = async {
        loop {
            let (status, text) = rig.ask_raw("GET", "/metrics", "", "").await;
            assert_eq!(status, 200, "{text}");
            if wanted
                .iter()
                .all(|wanted| text.lines().any(|found| found == line(*wanted)))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(counted).await;
}

#[tokio::test]
async fn a_bandwidth_of_nothing_holds_everything_and_loses_nothing() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    rig.poison("upstream", "bandwidth", json!({ "rate": 0 })).await;
    client.write_all(b"later").await.unwrap();
    client.shutdown().await.unwrap();
    is_silent(&mut server).await;
    let (_other, mut accepted) = rig.connect().await;
    is_silent(&mut accepted).await;
    rig.cure("bandwidth_upstream").await;
    assert_eq!(until_end(&mut server).await, b"later");
}

#[tokio::test]
async fn slow_close_holds_the_end_back_and_nothing_else() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    rig.poison("upstream", "slow_close", json!({ "delay": 200 })).await;
    client.write_all(b"bye").await.unwrap();
    let closed = Instant::now();
    client.shutdown().await.unwrap();
    arrives(&mut server, b"bye").await;
    assert_eq!(until_end(&mut server).await, b"");
    assert!(closed.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn timeout_closes_by_itself_after_its_time_without_a_byte() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    let put = Instant::now();
    rig.poison("downstream", "timeout", json!({ "timeout": 150 })).await;
    let (got, _) = rest(&mut client).await;
    assert!(got.is_empty() && put.elapsed() >= Duration::from_millis(150));
    assert!(rest(&mut server).await.0.is_empty());
}

#[tokio::test]
async fn reset_peer_resets_connections_that_were_there_before_it() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    let put = Instant::now();
    rig.poison("downstream", "reset_peer", json!({ "timeout": 100 })).await;
    until_reset(&mut client).await;
    assert!(put.elapsed() >= Duration::from_millis(100));
    until_reset(&mut server).await;
    rig.cure("reset_peer_downstream").await;
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, b"healed").await;
}

#[tokio::test]
async fn a_slicer_cuts_and_loses_nothing() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    let slicer = json!({ "average_size": 10, "size_variation": 5, "delay": 100 });
    rig.poison("upstream", "slicer", slicer).await;
    passes(&mut client, &mut server, &(0..100).collect::<Vec<u8>>()).await;
    assert_eq!(rig.rig.link.counts().delayed_bytes, 100);
}

#[tokio::test]
async fn limit_data_ends_the_connection_when_so_much_has_passed() {
    let (rig, mut client, mut server) = ApiRig::connected().await;
    rig.poison("upstream", "limit_data", json!({ "bytes": 6 })).await;
    passes(&mut client, &mut server, b"four").await;
    client.write_all(b"more of it").await.unwrap();
    assert_eq!(rest(&mut server).await.0, b"mo");
    rig.cure("limit_data_upstream").await;
    let (mut client, mut server) = rig.connect().await;
    passes(&mut client, &mut server, b"more of it").await;
}

#[tokio::test]
async fn a_proxy_that_is_turned_off_refuses_and_ends_what_there_is_until_it_is_on_again() {
    let (rig, mut client, _server) = ApiRig::connected().await;
    let (status, shown) = rig
        .ask("PATCH", "/proxies/c0-%3En1", &json!({ "enabled": false }))
        .await;
    assert_eq!((status, &shown["enabled"]), (200, &Value::Bool(false)));
    assert!(rest(&mut client).await.0.is_empty());
    let refused = TcpStream::connect(rig.rig.link.listen()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(rig.ask("POST", "/reset", &Value::Null).await.0, 204);
    rig.connect().await;
}

#[tokio::test]
async fn toxicity_is_drawn_from_the_seed_alone() {
    let lots = |seed| async move {
        let rig = ApiRig::seeded(seed).await;
        rig.put_on(json!({ "type": "timeout", "toxicity": 0.5, "name": "half" }))
            .await;
        let mut lots = Vec::new();
        for _ in 0..12 {
            let (mut client, mut server) = rig.connect().await;
            server.write_all(b"x").await.unwrap();
            drop(server);
            lots.push(rest(&mut client).await.0.len());
        }
        lots
    };
    let first = lots(3).await;
    assert_eq!(first, lots(3).await, "the same seed, the same decisions");
    assert!(
        first.contains(&0) && first.contains(&1),
        "half is neither none nor all: {first:?}"
    );
}

#[tokio::test]
async fn statuses_and_bodies_are_those_of_toxiproxy() {
    let rig = ApiRig::new().await;
    let sides = "stream was invalid, can be either upstream or downstream";
    let (toxics, no_toxic) = ("/proxies/c0-%3En1/toxics", "/proxies/c0-%3En1/toxics/nothing");
    let latency = json!({ "type": "latency", "attributes": { "latency": 1 } });
    let [no_name, no_address] = [json!({ "upstream": "x:1" }), json!({ "name": "p" })];
    let again = json!({ "name": "c0->n1", "upstream": "x:1" });
    // without words: what is said does not matter
    let cases = [
        ("GET", "/proxies/nobody", Value::Null, 404, "proxy not found"),
        ("POST", toxics, json!({ "type": "x" }), 400, "invalid toxic type"),
        ("POST", toxics, json!({ "type": "latency", "stream": "x" }), 400, sides),
        ("DELETE", no_toxic, Value::Null, 404, "toxic not found"),
        ("POST", "/proxies", no_name, 400, "missing required field: name"),
        ("POST", "/proxies", no_address, 400, "missing required field: upstream"),
        ("POST", "/populate", json!([{ "name": "p" }]), 400, ""),
        ("POST", "/nowhere", Value::Null, 404, ""),
        ("DELETE", "/version", Value::Null, 405, ""),
        ("POST", toxics, latency.clone(), 200, ""),
        ("POST", toxics, latency, 409, "toxic already exists"),
        ("POST", "/proxies", again, 409, "proxy already exists"),
    ];
    for (method, path, body, status, error) in cases {
        let (got, said) = rig.ask(method, path, &body).await;
        assert_eq!(got, status, "{method} {path}: {said}");
        let expected = json!({ "error": error, "status": status });
        assert!(error.is_empty() || said == expected, "{method} {path}: {said}");
    }
    let (status, bad) = rig.ask("POST", "/proxies", &json!({ "name": 5 })).await;
    assert_eq!(status, 400);
    assert!(
        bad["error"].as_str().unwrap().starts_with("bad request body: "),
        "{bad}"
    );
    let (status, said) = rig.ask_raw("GET", "/version", "User-Agent: Mozilla/5.0\r\n", "").await;
    assert_eq!((status, said.as_str()), (403, "User agent not allowed\n"));
    assert!(rig.ask("GET", "/version", &Value::Null).await.1["version"].is_string());
}

#[tokio::test]
async fn a_proxy_is_shown_as_toxiproxy_shows_it_and_a_toxic_can_be_changed() {
    let rig = ApiRig::new().await;
    rig.poison("downstream", "latency", json!({ "latency": 5 })).await;
    let (_, toxic) = rig
        .ask(
            "PATCH",
            "/proxies/c0-%3En1/toxics/latency_downstream",
            &json!({ "attributes": { "jitter": 2 }, "name": "x" }),
        )
        .await;
    let expected = json!({
        "name": "latency_downstream", "type": "latency", "stream": "downstream", "toxicity": 1.0,
        "attributes": { "latency": 5, "jitter": 2 },
    });
    assert_eq!(toxic, expected);
    let (_, all) = rig.ask("GET", "/proxies", &Value::Null).await;
    let shown = json!({
        "name": "c0->n1", "listen": rig.rig.link.listen().to_string(), "upstream": rig.rig.link.upstream().to_string(),
        "enabled": true, "toxics": [expected],
    });
    assert_eq!(all, json!({ "c0->n1": shown }));
}

#[tokio::test]
async fn clients_of_the_api_make_proxies_lead_them_elsewhere_and_delete_them() {
    let rig = ApiRig::new().await;
    let upstream = rig.rig.server.local_addr().unwrap().to_string();
    let wanted = json!([{ "name": "own", "listen": "127.0.0.1:0", "upstream": upstream }]);
    let (status, made) = rig.ask("POST", "/populate", &wanted).await;
    assert_eq!(status, 201, "{made}");
    let listen = made["proxies"][0]["listen"].as_str().unwrap().to_owned();
    let mut client = TcpStream::connect(&listen).await.unwrap();
    let mut server = accepted(&rig.rig.server).await;
    passes(&mut client, &mut server, b"through").await;
    let same = json!([{ "name": "own", "listen": listen, "upstream": upstream, "enabled": false }]);
    let (_, left_alone) = rig.ask("POST", "/populate", &same).await;
    assert_eq!(
        left_alone["proxies"][0]["enabled"], true,
        "what is the same already is left alone"
    );
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = elsewhere.local_addr().unwrap().to_string();
    assert_eq!(
        rig.ask("PATCH", "/proxies/own", &json!({ "upstream": there })).await.0,
        200
    );
    let mut client = TcpStream::connect(&listen).await.unwrap();
    let mut server = accepted(&elsewhere).await;
    assert_eq!(rig.ask("DELETE", "/proxies/own", &Value::Null).await.0, 204);
    for stream in [&mut client, &mut server] {
        assert_eq!(until_end(stream).await, b"", "it ends as by a peer");
    }
    assert!(TcpStream::connect(&listen).await.is_err());
}

#[tokio::test]
async fn a_run_is_told_of_every_change_keeps_its_links_and_is_left_in_peace_at_its_end() {
    let rig = ApiRig::new().await;
    rig.put_on(json!({ "type": "timeout" })).await;
    for (method, body) in [("DELETE", Value::Null), ("PATCH", json!({ "upstream": "127.0.0.1:1" }))] {
        let (status, refusal) = rig.ask(method, "/proxies/c0-%3En1", &body).await;
        assert_eq!(status, 409);
        assert!(refusal["error"].as_str().unwrap().contains("link of a run"));
    }
    rig.api.calm().await.unwrap();
    assert!(rig.rig.link.toxics().is_empty());
    let (status, _) = rig
        .ask("POST", "/proxies/c0-%3En1/toxics", &json!({ "type": "timeout" }))
        .await;
    assert_eq!(status, 409);
    let heard: Vec<_> = rig.changes.lock().unwrap().iter().map(|change| change.did).collect();
    assert_eq!(heard, ["toxic put on", "reset"]);
}

fn any_toxic() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        Just(json!({ "type": "latency", "attributes": { "latency": 2, "jitter": 2 } })),
        Just(json!({ "type": "bandwidth", "attributes": { "rate": 4000 } })),
        Just(json!({ "type": "bandwidth", "attributes": { "rate": 0 } })),
        Just(json!({ "type": "slow_close", "attributes": { "delay": 2 } })),
        Just(json!({ "type": "timeout", "attributes": { "timeout": 0 } })),
        Just(json!({ "type": "timeout", "attributes": { "timeout": 3 } })),
        Just(json!({ "type": "reset_peer", "attributes": { "timeout": 3 } })),
        Just(json!({ "type": "slicer", "attributes": { "average_size": 2000, "size_variation": 900, "delay": 5 } })),
        Just(json!({ "type": "limit_data", "attributes": { "bytes": 20_000 } })),
    ];
    (
        kind,
        prop_oneof![Just("upstream"), Just("downstream")],
        prop_oneof![Just(1.0), Just(0.5)],
    )
        .prop_map(|(mut toxic, stream, toxicity)| {
            toxic["stream"] = json!(stream);
            toxic["toxicity"] = json!(toxicity);
            toxic
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever toxics come and go, what arrives is a prefix of what was sent, each way; with none, it is all of it.
    #[test]
    fn what_arrives_is_a_prefix_of_what_was_sent_whatever_toxics_come_and_go(
        seed: u64, length in 1usize..200_000, toxics in proptest::collection::vec(any_toxic(), 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(both_ways(seed, length, toxics));
    }
}

async fn both_ways(seed: u64, length: usize, toxics: Vec<Value>) {
    let rig = ApiRig::seeded(seed).await;
    let (mut client, mut server) = rig.connect().await;
    let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    let (mut client_reads, mut client_writes) = client.split();
    let (mut server_reads, mut server_writes) = server.split();
    let changed = !toxics.is_empty();
    let poking = async {
        for toxic in toxics {
            // one of the same name may be there already: then that one stays
            let (status, answer) = rig.ask("POST", "/proxies/c0-%3En1/toxics", &toxic).await;
            assert!(status == 200 || status == 409, "{answer}");
        }
        assert_eq!(rig.ask("POST", "/reset", &Value::Null).await.0, 204);
    };
    // half-close: each side ends its own stream and goes on reading
    let write = async |half: &mut tokio::net::tcp::WriteHalf<'_>| {
        let _ = half.write_all(&sent).await;
        let _ = half.shutdown().await;
    };
    let read = async |half: &mut tokio::net::tcp::ReadHalf<'_>| {
        let mut got = Vec::new();
        let _ = half.read_to_end(&mut got).await;
        got
    };
    let all = async {
        tokio::join!(
            poking,
            write(&mut client_writes),
            write(&mut server_writes),
            read(&mut client_reads),
            read(&mut server_reads),
        )
    };
    let ((), (), (), down, up) = soon(all).await;
    for got in [&down, &up] {
        assert!(
            sent.starts_with(got),
            "{} of {} bytes arrived, and no prefix",
            got.len(),
            sent.len()
        );
        assert!(
            changed || got.len() == sent.len(),
            "{} of {} bytes arrived",
            got.len(),
            sent.len()
        );
    }
}

#[tokio::test]
async fn an_upstream_is_looked_up_for_each_connection() {
    let rig = ApiRig::new().await;
    let unknown = json!({ "name": "later", "listen": "127.0.0.1:0", "upstream": "not-there.invalid:1" });
    let (status, made) = rig.ask("POST", "/proxies", &unknown).await;
    assert_eq!((status, &made["upstream"]), (201, &json!("not-there.invalid:1")));
    let port = rig.rig.server.local_addr().unwrap().port();
    let named = json!({ "upstream": format!("localhost:{port}") });
    let (status, moved) = rig.ask("POST", "/proxies/later", &named).await;
    assert_eq!(status, 200);
    let mut client = TcpStream::connect(moved["listen"].as_str().unwrap()).await.unwrap();
    let mut server = accepted(&rig.rig.server).await;
    passes(&mut client, &mut server, b"found").await;
}

#[tokio::test]
async fn keys_and_streams_are_read_without_regard_to_case() {
    let rig = ApiRig::new().await;
    let pascal = json!({ "Name": "net", "Listen": "127.0.0.1:0", "Upstream": "127.0.0.1:9" });
    assert_eq!(rig.ask("POST", "/proxies", &pascal).await.0, 201);
    let toxic = json!({ "Type": "latency", "Stream": "UPSTREAM", "Attributes": { "Latency": 7 } });
    let (status, made) = rig.ask("POST", "/proxies/net/toxics", &toxic).await;
    assert_eq!((status, &made["name"]), (200, &json!("latency_upstream")));
    assert_eq!(made["attributes"]["latency"], 7);
}

#[tokio::test]
async fn a_proxy_whose_upstream_refuses_takes_connections_and_ends_them_as_a_peer_would() {
    let rig = ApiRig::new().await;
    let gone = TcpListener::bind(anywhere()).await.unwrap().local_addr().unwrap();
    let wanted = json!({ "name": "down", "listen": "127.0.0.1:0", "upstream": gone.to_string() });
    let (_, made) = rig.ask("POST", "/proxies", &wanted).await;
    let listen = made["listen"].as_str().unwrap();
    for _ in 0..50 {
        let mut client = TcpStream::connect(listen).await.expect("a connect is never reset");
        assert_eq!(until_end(&mut client).await, b"");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_in_the_words_of_go() {
    let rig = ApiRig::new().await;
    let taken = rig.rig.server.local_addr().unwrap();
    // a name, of which the answer has the address
    let listen = format!("localhost:{}", taken.port());
    let wanted = json!({ "name": "late", "listen": listen, "upstream": "127.0.0.1:9" });
    let (status, answer) = rig.ask("POST", "/proxies", &wanted).await;
    let expected = format!("listen tcp {taken}: bind: address already in use");
    assert_eq!((status, answer), (500, json!({ "error": expected, "status": 500 })));
}
