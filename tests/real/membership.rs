//! Membership: servers that leave their cluster for good and new ones in their place, their data, and the effect on clients.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use harness::cluster::{ClusterSpec, NodeCommand};
use harness_workloads::BackendId;
use serde_json::{Value, json};

use crate::command::on_runtimes;
use crate::machine::{http, plain_servers, serving, until_ok};
use crate::outcome::comes_out;

/// Returns the answer of an etcd server to a question at its JSON gateway.
fn asked(server: SocketAddr, path: &str, question: &Value) -> Value {
    let head = format!("POST /v3/{path} HTTP/1.0\r\nHost: etcd\r\nContent-Type: application/json");
    let text = http(server, &head, &question.to_string()).expect("an answer");
    let (_, answer) = text.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the members by name, with their ids, as a server lists them.
fn members(server: SocketAddr) -> Vec<(String, String)> {
    let listed = asked(server, "cluster/member/list", &json!({}));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members = listed["members"].as_array().expect("members").iter();
    let mut members: Vec<_> = members
        .map(|member| (text(&member["name"]), text(&member["ID"])))
        .collect();
    members.sort();
    members
}

#[test]
fn the_new_member_of_an_etcd_cluster_is_another_one_and_has_what_the_others_have() {
    let folder = tempfile::tempdir().unwrap();
    let spec = ClusterSpec {
        replaceable: true,
        ..plain_servers(BackendId::Etcd, 3, Duration::from_secs(2), folder.path())
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(serving(&spec));
    let control = cluster.control();
    let [first, second] = [0, 1].map(|node| cluster.nodes[node].address);
    let before = members(first);
    asked(first, "kv/put", &json!({"key": "YQ==", "value": "Yg=="}));

    // etcd agrees on a change in a second, and refuses it for five
    until_ok(|| runtime.block_on(control.order(1, NodeCommand::Leave)).unwrap());
    let others = members(first);
    assert_eq!(others, [before[0].clone(), before[2].clone()], "it is listed no more");
    assert!(TcpStream::connect(second).is_err(), "and runs no more");

    until_ok(|| runtime.block_on(control.order(1, NodeCommand::Join)).unwrap());
    until_ok(|| runtime.block_on(control.settle(1)));
    let after = members(first);
    assert_eq!(after[1].0, before[1].0, "under the same name");
    assert_ne!(after[1].1, before[1].1, "another member");
    let own = asked(second, "kv/range", &json!({"key": "YQ==", "serializable": true}));
    assert_eq!(own["kvs"][0]["value"], "Yg==", "{own:#}");
    assert!(control.ended.borrow().is_none(), "no server ended by itself");
    runtime.block_on(cluster.stop());
}

fn a_zookeeper_queue_stands_a_leader_that_is_replaced(runtime: &str) {
    let words = "--backend zk --locks 4 --fault server-replace --lease 1s --window 4s --time 11s --seed 5eed";
    // the other servers continue
    let outcome = "0, all windows, servers_replaced = windows, servers_back = windows, acquires";
    let answer = comes_out(runtime, words, outcome);
    let title = answer.windows()[0]["title"].as_str().unwrap();
    assert!(title.contains("(leader)"), "{title}");
}

on_runtimes! {
    virtual_time:
        a_zookeeper_queue_stands_a_leader_that_is_replaced;
    nightly_docker:
        a_zookeeper_queue_stands_a_leader_that_is_replaced;
}
