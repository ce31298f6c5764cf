//! Clients of other runtimes than threads of Python: loops that wake through sockets, Node, and gRPC's core.

use std::path::Path;
use std::process::Command;

use super::is_missing;
use crate::command::Harness;

impl Harness {
    /// The command of a client program among the tests.
    fn client_of(&self, program: &str, file: &str) -> String {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/virtual_time/clients");
        let adapters = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/adapters/python");
        let script = self.script(
            "client",
            &format!("exec {program} {} {adapters}", tests.join(file).display()),
        );
        format!("--client={}", script.display())
    }
}

fn lacks(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        eprintln!("skipped: there is no {program}");
    }
    missing
}

/// A lock that is right is right under a fault, wrong past its lease, and the same again.
fn is_judged(harness: &Harness, client: &str) {
    let words = format!("--runtime virtual --backend redis --clients 3 --grants 30 --time 15s --seed 1 {client}");
    let right = harness.run(&format!("{words} --fault reset"));
    right.assert_exit(0);
    harness.assert_replayed();
    let wrong = harness.run(&format!("{words} --fault pause-holder"));
    wrong.assert_violates("HL001");
    harness.assert_replayed();
}

#[test]
fn a_client_of_asyncio_is_the_same_again() {
    if is_missing("redis", "redis-server") || lacks("python3") {
        return;
    }
    let harness = Harness::new();
    let client = harness.client_of("python3", "asyncio_lock.py");
    is_judged(&harness, &client);
}

#[test]
fn a_client_of_node_is_the_same_again() {
    if is_missing("redis", "redis-server") || lacks("node") {
        return;
    }
    let harness = Harness::new();
    let client = harness.client_of("node", "node_lock.js");
    is_judged(&harness, &client);
}

#[test]
fn a_client_of_grpcs_core_is_judged() {
    let harness = Harness::new();
    if is_missing("etcd", "etcd") || !harness.has_client("aetcd") {
        return;
    }
    let words = "--backend etcd --nodes 1 --client aetcd --fault latency --clients 2 --grants 30 --time 15s --seed 1";
    harness.run(&format!("--runtime virtual {words}")).assert_exit(0);
}
