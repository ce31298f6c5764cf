//! Redis whose servers elect their masters, by sentinels or as a cluster: clients find them through their own links,
//! and the servers decide a failover.

use std::net::SocketAddr;

use crate::command::{Harness, on_runtimes};
use crate::outcome::comes_out;

const SENTINEL: &str = "run --backend redis --topology sentinel";
const CLUSTER: &str = "run --backend redis --topology cluster";

/// The master dies with its last grant, and the replica that the sentinels promote gives the lock to another client.
fn a_master_that_dies_before_its_replicas_know_the_lock_has_two_holders(
    runtime: &str,
    topology: &str,
    master: &str,
    replicas: &[&str],
) {
    let harness = Harness::new();
    let words = "--lease 5s --window 6s --time 22s --fault failover --seed 5eed";
    let answer = harness.run(&format!(
        "--runtime {runtime} --backend redis --topology {topology} {words}"
    ));
    // the old master serves again
    answer.assert_is("1, HL001 violated, HL007 not violated, servers_promoted = 1, servers_back = 1");
    let history = harness.latest_history();
    let about_the_lock = |line: &&str| line.contains("\"granted\"") || line.contains("\"revoked\"");
    let failovers = |line: &&str| line.contains("\"revoked\"") && line.contains("failover");
    let dead = format!("\"{master}\":\"not serving\"");
    let roles = history.lines().rfind(|line| line.contains(&dead));
    // a master may end between the grant and its answer to the observer, which then never knew the owner
    let until_death = history.lines().take_while(|line| !line.contains(&dead));
    let seen = until_death
        .filter(about_the_lock)
        .filter(|line| !failovers(line))
        .last();
    let had_an_owner = seen.is_some_and(|line| line.contains("\"granted\""));
    assert_eq!(
        history.lines().filter(failovers).count(),
        usize::from(had_an_owner),
        "the observer followed the master, and says why the grant is gone"
    );
    let roles = roles.expect("the first master of the lock was dead");
    let leads = |replica: &&str| roles.contains(&format!("\"{replica}\":\"master\""));
    assert!(replicas.iter().any(leads), "{roles}");
}

/// A client that logs its request to open, and a lock that every client always gets.
const CURIOUS: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "open":
        print(json.dumps(request), file=open("told", "a"))
    print(json.dumps({"type": "ok", "id": request["id"]}), flush=True)
"#;

/// Returns the requests to open of two clients.
fn told(topology: &str) -> Vec<serde_json::Value> {
    let harness = Harness::new();
    let client = harness.python("curious.py", CURIOUS);
    let folder = harness.folder.path().display();
    // this lock excludes nobody, which is not asserted here
    let run = harness.answer(&format!(
        "{topology} --runtime local --clients 2 --lease 1s --time 6s --quiet --client 'cd {folder} && exec {client}'"
    ));
    let told = std::fs::read_to_string(harness.folder.path().join("told")).unwrap_or_default();
    let opens: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // one client is also opened before the run
    assert!(opens.len() > 2, "{} opens, and then:\n{}", opens.len(), run.stderr);
    opens
}

/// Asserts that the addresses of servers are translated to links of one client each.
fn assert_led_by_own_links(told: &[serde_json::Value], topology: &str, endpoints: usize) {
    let mut own = std::collections::BTreeSet::new();
    for open in told {
        let addresses = open[topology]["addresses"].as_object().unwrap();
        assert_eq!(addresses.len(), 6, "{open}");
        let reached: Vec<&str> = addresses.values().map(|link| link.as_str().unwrap()).collect();
        for (announced, link) in addresses {
            assert!(announced.parse::<SocketAddr>().is_ok(), "{announced}");
            assert_ne!(announced, link.as_str().unwrap(), "others reach it elsewhere");
        }
        let given = open["endpoints"].as_array().unwrap();
        assert_eq!(given.len(), endpoints, "{open}");
        let is_reached = |endpoint: &serde_json::Value| reached.contains(&endpoint.as_str().unwrap());
        assert!(given.iter().all(is_reached), "{open}");
        own.extend(reached.into_iter().map(str::to_owned));
    }
    assert_eq!(own.len(), 12, "no link is of two clients: {told:#?}");
}

#[test]
fn a_stranger_is_told_of_the_sentinels_and_of_its_own_links_to_all() {
    let told = told(SENTINEL);
    assert_led_by_own_links(&told, "sentinel", 3);
    assert!(told.iter().all(|open| open["sentinel"]["master"] == "harness"));
    assert!(told.iter().all(|open| open.get("cluster").is_none()));
}

#[test]
fn a_stranger_is_told_of_the_servers_of_a_cluster_and_of_its_own_links_to_all() {
    let told = told(CLUSTER);
    assert_led_by_own_links(&told, "cluster", 6);
    assert!(told.iter().all(|open| open.get("sentinel").is_none()));
}

fn holds(runtime: &str, words: &str, outcome: &str) {
    let words = format!("--backend redis --lease 1s --seed 5eed {words}");
    comes_out(runtime, &words, outcome);
}

on_runtimes! {
    nightly:
        // The lock is in the part of the keys of `n2`, whose replica is `n5`.
        the_masters_of_a_cluster_promote_a_replica_that_does_not_know_the_lock =
            a_master_that_dies_before_its_replicas_know_the_lock_has_two_holders("cluster", "n2", &["n5"])
        sentinels_promote_a_replica_that_does_not_know_the_lock =
            a_master_that_dies_before_its_replicas_know_the_lock_has_two_holders("sentinel", "n1", &["n2", "n3"])
        clients_that_find_their_master_by_slow_links_keep_the_lock_apart = holds(
            "--topology sentinel --time 10s --fault latency=80ms+20ms", "0, HL001 holds, HL007 holds, delayed_bytes")
        clients_that_are_sent_on_by_slow_links_keep_the_lock_apart = holds(
            "--topology cluster --time 10s --fault latency=80ms+20ms", "0, HL001 holds, HL007 holds, delayed_bytes")
        // Locks are on all three masters, and each client moves between them.
        a_cluster_goes_on_when_one_of_its_masters_dies = holds(
            "--topology cluster --recipe redis-watchdog --locks 6 --window 6s --time 24s --fault server-kill=leader",
            "0, HL001 holds, HL006 not violated, HL007 holds, acquires");
}
